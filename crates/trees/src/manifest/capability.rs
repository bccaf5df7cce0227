//! File capabilities: the attribute `security.capability`, and the text of cap_to_text(3).

use super::Wrong;

/// The attribute's name.
pub const NAME: &[u8] = b"security.capability";

/// `VFS_CAP_REVISION_2`, and the bit that makes what is permitted effective (`linux/capability.h`).
const REVISION: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// Capabilities in the order of their numbers (`linux/capability.h`), without `cap_` before them.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The attribute's value of two sets.
pub fn value(permitted: u64, inheritable: u64, is_effective: bool) -> Vec<u8> {
    let first = REVISION | if is_effective { EFFECTIVE } else { 0 };
    let [permitted, inheritable] = [permitted, inheritable].map(u64::to_le_bytes);
    // The lower half of each, then the higher one.
    [&first.to_le_bytes()[..], &permitted[..4], &inheritable[..4], &permitted[4..], &inheritable[4..]]
        .concat()
}

/// The attribute's value of a text such as `cap_net_raw,cap_net_admin+ep`.
pub fn parse(text: &[u8]) -> Result<Vec<u8>, Wrong> {
    let wrong = || format!("'{}' is not a set of capabilities such as cap_net_raw+ep", text.escape_ascii());
    let text = str::from_utf8(text).map_err(|_| wrong())?;
    let (mut permitted, mut inheritable, mut is_effective) = (0, 0, false);
    for clause in text.split_whitespace() {
        let (names, letters) = clause.split_once(['+', '=']).ok_or_else(wrong)?;
        let mut set = 0u64;
        for name in names.split(',') {
            let short = name.strip_prefix("cap_").ok_or_else(wrong)?;
            set |= 1 << NAMES.iter().position(|known| *known == short).ok_or_else(wrong)?;
        }
        for letter in letters.chars() {
            match letter {
                'p' => permitted |= set,
                'i' => inheritable |= set,
                'e' => is_effective = true,
                _ => return Err(wrong()),
            }
        }
    }
    Ok(value(permitted, inheritable, is_effective))
}
