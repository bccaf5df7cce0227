#![no_main]
//! A context, then ciphertext: what is read is written back the same, and names and targets are read or refused.

use std::sync::OnceLock;

use casemate::{Providers, SecretVec};
use casemate_fscrypt::{Context, InodeInfo, KeyId, MasterKey, NoKeyName};

static KEY: OnceLock<(Providers, MasterKey)> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (providers, key) = KEY.get_or_init(|| {
        let providers = Providers::default();
        let key = MasterKey::new(&providers, SecretVec::new(vec![7; 64])).expect("a key");
        (providers, key)
    });
    if let Ok(name) = NoKeyName::from_text(providers, bytes) {
        assert_eq!(name.text(providers).as_bytes(), bytes);
    }
    let len = if bytes.first() == Some(&1) { 28 } else { 40 };
    let (context, ciphertext) = bytes.split_at(len.min(bytes.len()));
    let Ok(mut context) = Context::from_bytes(context) else { return };
    assert_eq!(context.to_bytes(), bytes[..len]);
    if context.policy.version() == 2 {
        context.policy.key = KeyId::Identifier(key.identifier());
    }
    let inode = InodeInfo { context, number: 12, uuid: [3; 16], block_size: 4096 };
    let names = key.names(&inode).expect("the policy's own key");
    let _ = names.decrypt_symlink(ciphertext);
    if let Ok(name) = names.decrypt(ciphertext) {
        assert!(name.len() <= ciphertext.len());
    }
    let _ = key.contents(&inode).map(|cipher| cipher.decrypt(1 << 31, &mut ciphertext.to_vec()));
});
