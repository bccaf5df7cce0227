#![no_main]
//! A protector's file and a policy's file of google/fscrypt. Nothing is unlocked: costs are bounded, but not small.

use casemate_fscrypt::metadata::{PolicyFile, Protector, Source};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(protector) = Protector::from_bytes(bytes) {
        let _ = protector.to_string();
        if let Source::Login { hashing, .. } | Source::Passphrase(hashing) = protector.source() {
            assert!(hashing.costs.passes > 0 && hashing.costs.lanes > 0);
        }
    }
    if let Ok(policy) = PolicyFile::from_bytes(bytes) {
        let _ = policy.protectors().count();
    }
});
