//! Files beside a hash tree: root hashes in hex, and their signatures.

use casemate_primitives::hex;
use casemate_providers::Providers;
use casemate_verity::signature::{Signature, VeritySig};

use super::Found;

/// A root hash in hex, as files beside a hash tree hold it.
pub const ROOT_HASH: &str = "a root hash in hex";

/// The JSON object of a partition with a signed root hash, as systemd has it.
pub const VERITY_SIG: &str = "a signed root hash (the JSON object of a verity-sig partition)";

/// A detached signature.
pub const SIGNATURE: &str = "a detached PKCS#7 signature";

/// Bytes of the shortest and of the longest root hash: those of SHA-1 and of SHA-512.
const ROOT_HASHES: [usize; 5] = [20, 28, 32, 48, 64];

impl Found {
    /// Describes a file beside a hash tree by its first bytes; `is_whole` where these are all. False if it is something else.
    pub(super) fn describe_signed(&mut self, head: &[u8], is_whole: bool) -> bool {
        let root_hash = || std::str::from_utf8(head.trim_ascii_end()).ok().and_then(hex::decode);
        if is_whole
            && let Some(hash) = root_hash()
            && ROOT_HASHES.contains(&hash.len())
        {
            self.what = Some(ROOT_HASH);
            self.say("root hash", hex::encode(&hash));
        } else if head.starts_with(b"{")
            && let Ok(signed) = VeritySig::from_bytes(head, &Providers::default())
        {
            self.what = Some(VERITY_SIG);
            self.say("root hash", hex::encode(&signed.root_hash));
            self.say("certificate", hex::encode(signed.fingerprint.as_deref().unwrap_or_default()));
        } else if is_whole && head.starts_with(b"\x30") && Signature::from_bytes(head).is_ok() {
            self.what = Some(SIGNATURE);
        }
        self.what.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_from_root_hashes() {
        let what = |bytes: &[u8], is_whole| {
            let mut found = Found::new(0, 0, None, None);
            found.describe_signed(bytes, is_whole);
            found.what
        };
        let hash = "0a".repeat(32);
        assert_eq!(what(format!("{hash}\n").as_bytes(), true), Some(ROOT_HASH));
        assert_eq!(what(hash.as_bytes(), false), None);
        assert_eq!(what(format!("{hash}00").as_bytes(), true), None);
        assert_eq!(what(format!("{hash}\n{hash}").as_bytes(), true), None);
        let json = format!("{{\"rootHash\":\"{hash}\",\"signature\":\"AAAA\"}}");
        assert_eq!(what(format!("{json}\0\0").as_bytes(), true), Some(VERITY_SIG));
        assert_eq!(what(b"{\"rootHash\":1}", true), None);
        assert_eq!((what(b"", true), what(b"0\x80", true)), (None, None));
    }
}
