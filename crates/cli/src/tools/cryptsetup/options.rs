//! The options of cryptsetup, and the actions that they are for.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::str::FromStr;

use clap::parser::ValueSource;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

use crate::cmd::luks::config::Tried;
use crate::cmd::luks::pbkdf::Kdf;
use crate::tools::first_line;
use casemate::blockdev::usize_of;

/// Options that some actions alone have. The others are taken, and passed over where they say nothing, as that tool does.
const OWN: &[(&str, &[&str])] = &[
    ("align_payload", &["luksFormat", "reencrypt"]),
    ("allow_discards", &["open"]),
    ("cancel_deferred", &["close"]),
    ("deferred", &["close"]),
    ("device_size", &["open", "resize", "reencrypt"]),
    ("disable_veracrypt", &["open", "tcryptDump"]),
    ("force_offline_reencrypt", &["reencrypt"]),
    ("hotzone_size", &["reencrypt"]),
    ("integrity", &["luksFormat", "reencrypt"]),
    ("integrity_no_wipe", &["luksFormat", "reencrypt"]),
    ("iter_time", MAKE_SLOTS),
    ("iv_large_sectors", &["open"]),
    ("keep_key", &["reencrypt"]),
    ("key_size", &["open", "benchmark", "luksFormat", "reencrypt", "luksAddKey"]),
    (
        "key_slot",
        &[
            "open",
            "reencrypt",
            "config",
            "luksFormat",
            "luksAddKey",
            "luksChangeKey",
            "luksConvertKey",
            "luksDump",
            "luksResume",
            "token",
        ],
    ),
    ("keyslot_cipher", WRITE_SLOTS),
    ("keyslot_key_size", WRITE_SLOTS),
    ("label", &["config", "luksFormat", "reencrypt"]),
    ("luks2_keyslots_size", &["luksFormat", "reencrypt"]),
    ("luks2_metadata_size", &["luksFormat", "reencrypt"]),
    ("new_key_slot", &["luksAddKey"]),
    ("new_keyfile", &["luksAddKey"]),
    ("new_token_id", &["luksAddKey"]),
    ("offset", &["open", "luksFormat", "reencrypt"]),
    ("pbkdf", MAKE_SLOTS),
    ("pbkdf_force_iterations", WRITE_SLOTS),
    ("persistent", &["open"]),
    ("priority", &["config"]),
    ("progress_json", &["luksFormat", "reencrypt"]),
    ("refresh", &["open"]),
    ("sector_size", &["open", "luksFormat", "reencrypt"]),
    ("serialize_memory_hard_pbkdf", &["open"]),
    ("shared", &["open"]),
    ("size", &["open", "resize"]),
    ("skip", &["open"]),
    ("subsystem", &["config", "luksFormat", "reencrypt"]),
    ("tcrypt_backup", &["open", "tcryptDump"]),
    ("tcrypt_hidden", &["open", "tcryptDump"]),
    ("tcrypt_system", &["open", "tcryptDump"]),
    ("test_passphrase", &["open"]),
    ("token_replace", &["token"]),
    ("unbound", &["luksAddKey", "luksDump", "open", "token"]),
    ("use_random", &["luksFormat", "reencrypt"]),
    ("use_urandom", &["luksFormat", "reencrypt"]),
    ("uuid", &["luksFormat", "luksUUID", "reencrypt"]),
    ("veracrypt_pim", &["open", "tcryptDump"]),
    ("veracrypt_query_pim", &["open", "tcryptDump"]),
];

/// Actions that make key slots; a benchmark is of what they cost.
const MAKE_SLOTS: &[&str] =
    &["benchmark", "luksFormat", "luksAddKey", "luksChangeKey", "luksConvertKey", "reencrypt"];

/// Actions that write key slots.
const WRITE_SLOTS: &[&str] = &["luksFormat", "luksAddKey", "luksChangeKey", "luksConvertKey", "reencrypt"];

#[derive(Debug, Parser)]
#[command(
    name = "cryptsetup",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true
)]
pub(super) struct Tool {
    #[arg(short = '?', long, visible_alias = "usage")]
    pub(super) help: bool,
    #[arg(short = 'V', long)]
    pub(super) version: bool,
    #[arg(short = 'q', long)]
    pub(super) batch_mode: bool,
    /// Options without an effect here, on messages, questions, and how the kernel is asked.
    #[arg(long, visible_aliases = ["disable-locks", "disable-keyring", "disable-external-tokens", "integrity-no-journal",
        "perf-no_read_workqueue", "perf-no_write_workqueue", "perf-same_cpu_crypt", "perf-submit_from_crypt_cpus", "readonly",
        "use-directio", "use-fsync", "write-log"], short_alias = 'r')]
    pub(super) force_password: bool,
    #[arg(short = 'v', long, visible_aliases = ["debug", "debug-json"])]
    pub(super) verbose: bool,
    #[arg(long)]
    pub(super) progress_json: bool,
    #[arg(long)]
    pub(super) progress_frequency: Option<u32>,
    #[arg(long)]
    pub(super) allow_discards: bool,
    #[arg(long)]
    pub(super) deferred: bool,
    #[arg(long)]
    pub(super) cancel_deferred: bool,
    #[arg(long)]
    pub(super) persistent: bool,
    #[arg(long)]
    pub(super) refresh: bool,
    #[arg(long)]
    pub(super) shared: bool,
    #[arg(long)]
    pub(super) serialize_memory_hard_pbkdf: bool,
    #[arg(long)]
    pub(super) iv_large_sectors: bool,
    #[arg(long)]
    pub(super) integrity_legacy_padding: bool,
    #[arg(long)]
    pub(super) tcrypt_backup: bool,
    #[arg(long)]
    pub(super) tcrypt_hidden: bool,
    #[arg(long)]
    pub(super) tcrypt_system: bool,
    #[arg(long)]
    pub(super) veracrypt: bool,
    #[arg(long)]
    pub(super) disable_veracrypt: bool,
    #[arg(long)]
    pub(super) veracrypt_pim: Option<u32>,
    #[arg(long)]
    pub(super) veracrypt_query_pim: bool,
    /// Sectors of 512 bytes.
    #[arg(short = 'b', long)]
    pub(super) size: Option<u64>,
    /// Sectors of 512 bytes.
    #[arg(short = 'p', long)]
    pub(super) skip: Option<u64>,
    #[arg(long)]
    pub(super) active_name: Option<OsString>,
    #[arg(long)]
    pub(super) keep_key: bool,
    #[arg(short = 'B', long)]
    pub(super) block_size: Option<u32>,
    #[arg(long, conflicts_with = "use_urandom")]
    pub(super) use_random: bool,
    #[arg(long)]
    pub(super) use_urandom: bool,
    #[arg(long)]
    pub(super) force_offline_reencrypt: bool,
    #[arg(long, requires = "integrity")]
    pub(super) integrity_no_wipe: bool,
    /// The command line is looked at, and nothing is done.
    #[arg(long, hide = true)]
    pub(super) test_args: bool,
    #[arg(short = 'y', long)]
    pub(super) verify_passphrase: bool,
    #[arg(short = 't', long)]
    pub(super) timeout: Option<u32>,
    #[arg(short = 'T', long, default_value_t = 3)]
    pub(super) tries: u32,
    #[arg(long)]
    pub(super) test_passphrase: bool,
    #[arg(long)]
    pub(super) unbound: bool,
    #[arg(long)]
    pub(super) dump_json_metadata: bool,
    #[arg(long, visible_alias = "dump-master-key")]
    pub(super) dump_volume_key: bool,
    #[arg(long)]
    pub(super) token_replace: bool,
    #[arg(short = 'M', long = "type")]
    pub(super) kind: Option<String>,
    #[arg(short, long)]
    pub(super) cipher: Option<String>,
    #[arg(short = 's', long, value_parser = whole_bytes)]
    pub(super) key_size: Option<usize>,
    #[arg(short = 'I', long)]
    pub(super) integrity: Option<String>,
    #[arg(short = 'h', long)]
    pub(super) hash: Option<String>,
    #[arg(long, value_parser = sector_size)]
    pub(super) sector_size: Option<u32>,
    #[arg(short, long)]
    pub(super) offset: Option<u64>,
    #[arg(long, value_parser = number::<u32>)]
    pub(super) align_payload: Option<u32>,
    #[arg(long, value_parser = size)]
    pub(super) luks2_metadata_size: Option<u64>,
    #[arg(long, value_parser = size)]
    pub(super) luks2_keyslots_size: Option<u64>,
    #[arg(long)]
    pub(super) label: Option<String>,
    #[arg(long)]
    pub(super) subsystem: Option<String>,
    #[arg(long)]
    pub(super) uuid: Option<String>,
    #[arg(long)]
    pub(super) priority: Option<Tried>,
    #[arg(short = 'S', long, value_parser = number::<u32>)]
    pub(super) key_slot: Option<u32>,
    #[arg(long, value_parser = number::<i32>)]
    pub(super) new_key_slot: Option<i32>,
    #[arg(short = 'd', long = "key-file", value_name = "FILE", action = ArgAction::Append)]
    pub(super) key_files: Vec<PathBuf>,
    #[arg(long, value_parser = number::<u64>, default_value = "0")]
    pub(super) keyfile_offset: u64,
    #[arg(short = 'l', long, value_parser = number::<u32>)]
    pub(super) keyfile_size: Option<u32>,
    #[arg(long)]
    pub(super) new_keyfile: Option<PathBuf>,
    #[arg(long, value_parser = number::<u64>, default_value = "0")]
    pub(super) new_keyfile_offset: u64,
    #[arg(long, value_parser = number::<u32>)]
    pub(super) new_keyfile_size: Option<u32>,
    #[arg(long, visible_alias = "master-key-file")]
    pub(super) volume_key_file: Option<PathBuf>,
    #[arg(long)]
    pub(super) header: Option<PathBuf>,
    #[arg(long)]
    pub(super) header_backup_file: Option<PathBuf>,
    #[arg(short = 'i', long, value_parser = number::<u32>)]
    pub(super) iter_time: Option<u32>,
    #[arg(long)]
    pub(super) pbkdf: Option<Kdf>,
    #[arg(long, value_parser = number::<u32>)]
    pub(super) pbkdf_force_iterations: Option<u32>,
    #[arg(long)]
    pub(super) pbkdf_memory: Option<u64>,
    #[arg(long, value_parser = number::<u32>)]
    pub(super) pbkdf_parallel: Option<u32>,
    #[arg(long, requires = "keyslot_key_size")]
    pub(super) keyslot_cipher: Option<String>,
    #[arg(long, requires = "keyslot_cipher", value_parser = key_bits)]
    pub(super) keyslot_key_size: Option<usize>,
    #[arg(long, value_parser = number::<i32>)]
    pub(super) token_id: Option<i32>,
    #[arg(long)]
    pub(super) token_only: bool,
    #[arg(long)]
    pub(super) token_type: Option<OsString>,
    #[arg(long, value_parser = number::<i32>)]
    pub(super) new_token_id: Option<i32>,
    #[arg(long)]
    pub(super) key_description: Option<String>,
    #[arg(long)]
    pub(super) json_file: Option<PathBuf>,
    #[arg(long, visible_alias = "new", short = 'N')]
    pub(super) encrypt: bool,
    #[arg(long, conflicts_with = "encrypt")]
    pub(super) decrypt: bool,
    #[arg(long)]
    pub(super) init_only: bool,
    #[arg(long)]
    pub(super) resume_only: bool,
    #[arg(long)]
    pub(super) resilience: Option<String>,
    #[arg(long)]
    pub(super) resilience_hash: Option<String>,
    #[arg(long, value_parser = some_size)]
    pub(super) hotzone_size: Option<u64>,
    #[arg(long, value_parser = whole_sectors)]
    pub(super) device_size: Option<u64>,
    #[arg(long, value_parser = reduction)]
    pub(super) reduce_device_size: Option<u64>,
    pub(super) words: Vec<OsString>,
}

impl Tool {
    /// A command line, or what is wrong with it.
    pub(super) fn parse(args: &[OsString]) -> Result<Tool, String> {
        let matches = Tool::command().try_get_matches_from(args).map_err(|error| first_line(&error))?;
        let tool = Tool::from_arg_matches(&matches).map_err(|error| first_line(&error))?;
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(action) = tool.action() {
            let known = OWN.iter().filter(|(id, _)| is_given(id));
            if let Some((id, _)) = known.into_iter().find(|(_, actions)| !actions.contains(&&*action)) {
                let name = id.replace('_', "-");
                return Err(format!("Option --{name} is not allowed with {action} action."));
            }
        }
        tool.check(&is_given)?;
        Ok(tool)
    }

    /// Refuses options that exclude each other, or need another one, with an action.
    fn check(&self, is_given: &dyn Fn(&str) -> bool) -> Result<(), String> {
        let kind = self.kind();
        let no_kind = self.refresh || self.words.first().is_some_and(|word| word == "refresh");
        let is_kind = |names: &[&str]| !no_kind && names.contains(&&*kind);
        let is_plain = is_kind(&["plain"]);
        let is_luks = is_kind(&["luks", "luks1", "luks2"]);
        if self.key_files.len() > 1 && !is_kind(&["tcrypt"]) {
            return Err("Only one --key-file argument is allowed.".to_owned());
        }
        if self.pbkdf_force_iterations.is_some() && self.iter_time.is_some() {
            let text = "PBKDF forced iterations cannot be combined with iteration time option.";
            return Err(text.to_owned());
        }
        let none = "";
        let first = self.words.get(1).and_then(|word| word.to_str()).unwrap_or(none);
        let is_tcrypt = is_kind(&["tcrypt"]);
        let tcrypt = [
            (
                (self.tcrypt_hidden || self.tcrypt_system || self.tcrypt_backup) && !is_tcrypt,
                "Option --tcrypt-hidden, --tcrypt-system or --tcrypt-backup is supported only for TCRYPT device.",
            ),
            (
                (self.veracrypt || self.disable_veracrypt) && !is_tcrypt,
                "Option --veracrypt or --disable-veracrypt is supported only for TCRYPT device type.",
            ),
            (
                (self.veracrypt_pim.is_some() || self.veracrypt_query_pim) && self.disable_veracrypt,
                "Options --veracrypt-pim and --veracrypt-query-pim are supported only for VeraCrypt compatible devices.",
            ),
            (
                self.veracrypt_pim.is_some() && self.veracrypt_query_pim,
                "The options --veracrypt-pim and --veracrypt-query-pim are mutually exclusive.",
            ),
        ];
        let both_sizes = (
            self.device_size.is_some() && self.size.is_some(),
            "Options --device-size and --size cannot be combined.",
        );
        let open = [
            (
                self.persistent && self.test_passphrase,
                "Option --persistent is not allowed with --test-passphrase.",
            ),
            (
                no_kind && self.test_passphrase,
                "Options --refresh and --test-passphrase are mutually exclusive.",
            ),
            (
                self.shared && !no_kind && !is_plain,
                "Option --shared is allowed only for open of plain device.",
            ),
            (
                self.skip.is_some() && !no_kind && !is_kind(&["plain", "loopaes"]),
                "Option --skip is supported only for open of plain and loopaes devices.",
            ),
            (
                self.offset.is_some() && !no_kind && !is_kind(&["plain", "loopaes"]),
                "Option --offset with open action is only supported for plain and loopaes devices.",
            ),
            (
                self.tcrypt_hidden && self.allow_discards,
                "Option --tcrypt-hidden cannot be combined with --allow-discards.",
            ),
            (
                self.sector_size.is_some() && !is_plain,
                "Sector size option with open action is supported only for plain devices.",
            ),
            (
                self.iv_large_sectors && (!is_plain || self.sector_size.is_none_or(|size| size == 512)),
                "Large IV sectors option is supported only for opening plain type device with sector size larger than 512 bytes.",
            ),
            (
                self.test_passphrase && !is_luks && !is_kind(&["tcrypt", "bitlk", "fvault2"]),
                "Option --test-passphrase is allowed only for open of LUKS, TCRYPT, BITLK and FVAULT2 devices.",
            ),
            both_sizes,
            (
                self.unbound && !is_luks && !no_kind,
                "Option --unbound is allowed only for open of luks device.",
            ),
            (
                self.unbound && !self.test_passphrase,
                "Option --unbound cannot be used without --test-passphrase.",
            ),
        ];
        let action = self.action().unwrap_or_default();
        let needs_slot = "Keyslot specification is required.";
        let rules: Vec<(bool, &str)> = match &*action {
            "open" => open.into_iter().chain(tcrypt).collect(),
            "tcryptDump" => tcrypt.to_vec(),
            "close" => vec![(
                self.deferred && self.cancel_deferred,
                "Options --cancel-deferred and --deferred cannot be used at the same time.",
            )],
            "resize" => vec![both_sizes],
            "reencrypt" => vec![
                (
                    self.reduce_device_size.is_some() && self.device_size.is_some(),
                    "Options --reduce-device-size and --data-size cannot be combined.",
                ),
                (
                    self.active_name.is_some() && is_kind(&["luks1"]),
                    "Option --active-name can be set only for LUKS2 device.",
                ),
                (
                    self.active_name.is_some() && self.force_offline_reencrypt,
                    "Options --active-name and --force-offline-reencrypt cannot be combined.",
                ),
            ],
            "config" => vec![(self.priority.is_some() && self.key_slot.is_none(), needs_slot)],
            "luksFormat" => vec![(
                is_given("align_payload") && is_given("offset"),
                "Options --align-payload and --offset cannot be combined.",
            )],
            "luksAddKey" => vec![(
                self.unbound && self.key_size.is_none_or(|size| size == 0),
                "Key size is required with --unbound option.",
            )],
            "luksDump" => vec![(self.unbound && self.key_slot.is_none(), needs_slot)],
            "token" => vec![
                (
                    !["add", "remove", "import", "export", "unassign"].contains(&first),
                    "Invalid token action.",
                ),
                (
                    first == "add" && self.key_description.is_none(),
                    "--key-description parameter is mandatory for token add action.",
                ),
                (
                    ["remove", "export", "unassign"].contains(&first) && self.token_id.is_none(),
                    "Action requires specific token. Use --token-id parameter.",
                ),
                (self.unbound && first != "add", "Option --unbound is valid only with token add action."),
                (
                    self.unbound && self.key_slot.is_some(),
                    "Options --key-slot and --unbound cannot be combined.",
                ),
                (
                    first == "unassign" && self.key_slot.is_none(),
                    "Action requires specific keyslot. Use --key-slot parameter.",
                ),
            ],
            _ => Vec::new(),
        };
        match rules.into_iter().find(|(is_broken, _)| *is_broken) {
            Some((_, text)) => Err(text.to_owned()),
            None => Ok(()),
        }
    }

    /// The type of the metadata, by its name.
    pub(super) fn kind(&self) -> String {
        let of_action = self.words.first().and_then(|word| match &*word.to_string_lossy() {
            "create" | "plainOpen" => Some("plain"),
            "luksOpen" | "luksErase" => Some("luks"),
            "loopaesOpen" => Some("loopaes"),
            "tcryptOpen" | "tcryptDump" => Some("tcrypt"),
            "bitlkOpen" | "bitlkDump" => Some("bitlk"),
            "fvault2Open" | "fvault2Dump" => Some("fvault2"),
            "luksConfig" => Some("luks2"),
            _ => None,
        });
        of_action.or(self.kind.as_deref()).unwrap_or("luks").to_owned()
    }

    /// How many words an action needs behind it, if there is such an action.
    pub(super) fn needed_words(action: &str) -> Option<usize> {
        Some(match action {
            "benchmark" | "reencrypt" => 0,
            "luksKillSlot" | "token" => 2,
            "open" | "close" | "resize" | "status" | "repair" | "erase" | "convert" | "config"
            | "luksFormat" | "luksAddKey" | "luksRemoveKey" | "luksChangeKey" | "luksConvertKey"
            | "luksUUID" | "isLuks" | "luksDump" | "tcryptDump" | "bitlkDump" | "fvault2Dump"
            | "luksSuspend" | "luksResume" | "luksHeaderBackup" | "luksHeaderRestore" => 1,
            _ => return None,
        })
    }

    /// The key file; at a terminal standard input is none, and a passphrase is asked for.
    pub(super) fn key_file(&self) -> Option<&PathBuf> {
        self.key_files.first().filter(|file| file.as_os_str() != "-" || !io::stdin().is_terminal())
    }

    /// Whether a passphrase that is in no file is typed.
    pub(super) fn is_typed(&self) -> bool {
        self.key_file().is_none() && io::stdin().is_terminal()
    }

    /// The action by its own name.
    pub(super) fn action(&self) -> Option<String> {
        let action = self.words.first()?.to_string_lossy().into_owned();
        Some(match &*action {
            "create" | "plainOpen" | "luksOpen" | "loopaesOpen" | "tcryptOpen" | "bitlkOpen"
            | "fvault2Open" | "refresh" => "open".to_owned(),
            "remove" | "plainClose" | "luksClose" | "loopaesClose" | "tcryptClose" | "bitlkClose"
            | "fvault2Close" => "close".to_owned(),
            "luksErase" => "erase".to_owned(),
            "luksConfig" => "config".to_owned(),
            _ => action,
        })
    }
}

/// A number of a type.
fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "invalid numeric value".to_owned())
}

/// Bits of a key.
fn whole_bytes(text: &str) -> Result<usize, String> {
    match number::<u32>(text)? {
        bits if bits.is_multiple_of(8) => Ok(usize_of(bits)),
        _ => Err("Key size must be a multiple of 8 bits".to_owned()),
    }
}

/// Bits of a key that there is.
fn key_bits(text: &str) -> Result<usize, String> {
    match whole_bytes(text)? {
        0 => Err("invalid numeric value".to_owned()),
        bits => Ok(bits),
    }
}

/// Bytes of an encryption sector.
fn sector_size(text: &str) -> Result<u32, String> {
    match text {
        "512" | "1024" | "2048" | "4096" => number(text),
        _ => Err("Unsupported encryption sector size.".to_owned()),
    }
}

/// A size that is not 0.
fn some_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("invalid numeric value".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A size in whole sectors.
fn whole_sectors(text: &str) -> Result<u64, String> {
    match some_size(text)? {
        bytes if bytes.is_multiple_of(512) => Ok(bytes),
        _ => Err("Device size must be multiple of 512 bytes sector.".to_owned()),
    }
}

/// How much smaller a device gets.
fn reduction(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes > 1 << 30 => Err("Maximum device reduce size is 1 GiB.".to_owned()),
        bytes if bytes.is_multiple_of(512) => Ok(bytes),
        _ => Err("Reduce size must be multiple of 512 bytes sector.".to_owned()),
    }
}

/// A size as this tool takes it, in bytes: a letter of either case is a power of 1024, with a B behind it one of 1000.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let (letter, base) = match &text[digits.len()..] {
        unit if unit.len() < 2 => (unit, 1024_u64),
        unit => match (unit.strip_suffix("iB"), unit.strip_suffix('B')) {
            (Some(letter), _) => (letter, 1024),
            (None, letter) => (letter.unwrap_or("none"), 1000),
        },
    };
    let factor = match letter {
        "" => Some(1),
        "s" => Some(512),
        _ => {
            let power = (1..).zip(["k", "m", "g", "t"]).find(|(_, known)| letter.eq_ignore_ascii_case(known));
            power.map(|(power, _)| base.pow(power))
        }
    };
    let number = digits.parse::<u64>().ok().zip(factor);
    let bytes = number.and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| "Invalid size specification".to_owned())
}
