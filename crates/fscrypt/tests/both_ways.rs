//! Encrypted data come back: every mode, padding, kind of IV and length; and what is not ciphertext is refused.

use casemate_fscrypt::{
    Context, InodeInfo, Ivs, KeyId, LONGEST_NAME, MasterKey, Mode, NoKeyName, Policy, symlink_ciphertext,
};
use casemate_primitives::Cpu;
use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;
use casemate_testkit::Rng;

fn key(rng: &mut Rng) -> MasterKey {
    let mut bytes = vec![0; 64];
    rng.fill(&mut bytes);
    MasterKey::new(&Providers::default(), SecretVec::new(bytes)).unwrap()
}

/// Every policy that the kernel allows, but for data units.
fn policies(key: &MasterKey) -> Vec<Policy> {
    let ids: [KeyId; 2] = [key.descriptor().into(), key.identifier().into()];
    let mut list = Vec::new();
    for id in ids {
        for (contents, names) in Mode::all().flat_map(|a| Mode::all().map(move |b| (a, b))) {
            for ivs in [Ivs::PerFileKey, Ivs::DirectKey, Ivs::InodeBlock64, Ivs::InodeBlock32] {
                for padding in [4, 8, 16, 32] {
                    let policy = Policy { padding, ivs, ..Policy::new(id, contents, names) };
                    list.extend(policy.check().is_ok().then_some(policy));
                }
            }
        }
    }
    // Pairs times paddings: three in version 1 and five in version 2; one more of each with DIRECT_KEY, two pairs
    // with each of the other flags.
    assert_eq!(list.len(), 4 * (3 + 1 + 5 + 1 + 2 + 2));
    list
}

fn inode(policy: Policy, block_size: u32) -> InodeInfo {
    InodeInfo { context: Context { policy, nonce: [0xa5; 16] }, number: 4711, uuid: [0x3c; 16], block_size }
}

#[test]
fn names_of_every_length() {
    let mut rng = Rng::new(1);
    let key = key(&mut rng);
    for policy in policies(&key) {
        let names = key.names(&inode(policy, 4096)).unwrap();
        for len in 1..=LONGEST_NAME {
            let name: Vec<u8> = (0..len).map(|_| 1 + rng.below(255) as u8).collect();
            let stored = names.encrypt(&name, LONGEST_NAME).unwrap();
            let expected = len.max(16).next_multiple_of(policy.padding).min(LONGEST_NAME);
            assert_eq!(stored.len(), expected, "{policy:?}, {len} bytes");
            assert_eq!(names.decrypt(&stored).unwrap(), name, "{policy:?}, {len} bytes");
            assert!(!stored.windows(len).any(|part| part == name) || len < 4, "{policy:?}: in clear");
        }
        for (name, why) in [(&b""[..], "empty"), (&[b'x'; 256], "too long"), (b"a\0b", "a NUL")] {
            assert!(names.encrypt(name, LONGEST_NAME).is_err(), "{why}");
        }
        for len in 0..16 {
            assert!(names.decrypt(&vec![7; len]).is_err(), "{len} bytes of ciphertext");
        }
    }
}

#[test]
fn targets_of_links() {
    let mut rng = Rng::new(2);
    let key = key(&mut rng);
    for policy in policies(&key).into_iter().filter(|policy| policy.padding == 32) {
        let names = key.names(&inode(policy, 1024)).unwrap();
        for len in [1, 15, 16, 17, 32, 33, 57, 58, 255, 256, 1000, 1020, 1021] {
            let target: Vec<u8> = (0..len).map(|_| 1 + rng.below(255) as u8).collect();
            let stored = names.encrypt_symlink(&target, 1024).unwrap();
            assert!(stored.len() < 1024, "{len}: room for a NUL");
            assert_eq!(names.decrypt_symlink(&stored).unwrap(), target, "{policy:?}, {len} bytes");
            for cut in [0, 1, 2, stored.len() - 1] {
                assert!(names.decrypt_symlink(&stored[..cut]).is_err(), "{len} bytes cut to {cut}");
            }
        }
        assert!(names.encrypt_symlink(&[b'x'; 1022], 1024).is_err());
    }
    assert!(symlink_ciphertext(&[0, 0, 1]).is_err());
}

#[test]
fn contents_in_any_pieces() {
    let mut rng = Rng::new(3);
    let key = key(&mut rng);
    for mut policy in policies(&key).into_iter().filter(|policy| policy.padding == 4) {
        let small_units = policy.version() == 2 && matches!(policy.ivs, Ivs::PerFileKey | Ivs::DirectKey);
        for log2 in if small_units { vec![0, 9, 10, 11, 12] } else { vec![0] } {
            policy.log2_data_unit_size = log2;
            let cipher = key.contents(&inode(policy, 4096)).unwrap();
            let unit = cipher.data_unit_size();
            assert_eq!(unit, if log2 == 0 { 4096 } else { 1 << log2 });
            let mut plain = vec![0; 9 * unit];
            rng.fill(&mut plain);
            // The hash of the inode's number is added modulo 2^32: this run passes the wrap.
            let first = match policy.ivs {
                Ivs::InodeBlock32 => (1 << 32) - u64::from(key.inode_hash(4711)) - 4,
                _ => 0xffff_fff0,
            };
            let mut whole = plain.clone();
            cipher.encrypt(first, &mut whole).unwrap();
            let mut pieces = plain.clone();
            for (index, piece) in (first..).zip(pieces.chunks_mut(unit)) {
                cipher.encrypt(index, piece).unwrap();
            }
            assert_eq!(whole, pieces, "{policy:?}");
            let (one, other) = (&whole[..unit], &whole[unit..2 * unit]);
            assert_ne!(one, other);
            cipher.decrypt(first, &mut whole).unwrap();
            assert_eq!(whole, plain, "{policy:?}");
            assert!(cipher.decrypt(0, &mut plain[..unit + 16]).is_err(), "no whole units");
            let wide = matches!(policy.ivs, Ivs::PerFileKey | Ivs::DirectKey);
            let beyond = cipher.decrypt((1 << 32) - 1, &mut plain[..2 * unit]);
            assert_eq!(beyond.is_ok(), wide, "{policy:?}");
            assert!(cipher.decrypt(u64::MAX, &mut plain[..2 * unit]).is_err(), "past all numbers");
            cipher.decrypt(5, &mut []).unwrap();
        }
    }
}

#[test]
fn names_without_the_key() {
    let providers = Providers::default();
    let mut rng = Rng::new(4);
    for len in 16..=LONGEST_NAME {
        let mut ciphertext = vec![0; len];
        rng.fill(&mut ciphertext);
        let name = NoKeyName::new(&providers, [len as u32, 0xdead_beef], &ciphertext).unwrap();
        let text = name.text(&providers);
        let shown = 8 + len.min(149) + if len > 149 { 32 } else { 0 };
        assert_eq!(text.len(), Padding::Unpadded.encoded_len(shown), "{len} bytes");
        assert_eq!(NoKeyName::from_text(&providers, text.as_bytes()).unwrap(), name);
        assert!(name.matches(&providers, &ciphertext).unwrap());
        ciphertext[len - 1] ^= 1;
        assert!(!name.matches(&providers, &ciphertext).unwrap(), "{len} bytes, the last one changed");
        assert!(
            !name.matches(&providers, &ciphertext[..len - 1]).unwrap(),
            "{len} bytes, the last one cut off"
        );
    }
    let codec = Base64::new(Cpu::detect(), &Alphabet::URL_SAFE, Padding::Unpadded);
    for bytes in [0, 8, 158, 188, 190] {
        let text = codec.encode_to_string(&vec![1; bytes]);
        assert!(NoKeyName::from_text(&providers, text.as_bytes()).is_err(), "{bytes} bytes");
    }
    for text in [&b"no base64!"[..], &[b'A'; 256]] {
        assert!(NoKeyName::from_text(&providers, text).is_err());
    }
}

#[test]
fn software_secrets_read_names_alone() {
    let providers = Providers::default();
    let secret = || SecretVec::new(vec![9; 32]);
    let hardware = MasterKey::from_software_secret(&providers, secret()).unwrap();
    let raw = MasterKey::new(&providers, secret()).unwrap();
    assert_ne!(hardware.identifier(), raw.identifier());
    let policy = Policy {
        ivs: Ivs::InodeBlock32,
        ..Policy::new(hardware.identifier().into(), Mode::Aes256Xts, Mode::Aes256Cts)
    };
    let inode = inode(policy, 4096);
    let stored = hardware.names(&inode).unwrap().encrypt(b"name", LONGEST_NAME).unwrap();
    assert_eq!(hardware.names(&inode).unwrap().decrypt(&stored).unwrap(), b"name");
    assert!(hardware.contents(&inode).unwrap_err().to_string().contains("hardware"));
    assert!(raw.names(&inode).is_err());
    assert!(MasterKey::from_software_secret(&providers, SecretVec::zeroed(64)).is_err());
}

/// Random and nearly right contexts, names, targets and texts: taken or refused, never a panic.
#[test]
fn anything_at_all() {
    let mut rng = Rng::new(5);
    let providers = Providers::default();
    let key = key(&mut rng);
    let sound: Vec<Vec<u8>> =
        policies(&key).into_iter().map(|policy| Context { policy, nonce: [7; 16] }.to_bytes()).collect();
    let mut taken = 0;
    for round in 0..20_000 {
        let mut bytes = sound[round % sound.len()].clone();
        for _ in 0..rng.below(3) {
            let at = rng.below(8) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(if rng.below(8) == 0 { rng.below(41) as usize } else { 40 });
        let Ok(context) = Context::from_bytes(&bytes) else { continue };
        assert_eq!(context.to_bytes(), bytes);
        taken += 1;
        let len = rng.below(300) as usize;
        let mut ciphertext = rng.bytes(len);
        let inode = InodeInfo { context, number: u32::MAX, uuid: [1; 16], block_size: 1024 };
        if let Ok(names) = key.names(&inode) {
            let _ = names.decrypt(&ciphertext);
            let _ = names.decrypt_symlink(&ciphertext);
        }
        let _ = key.contents(&inode).map(|cipher| cipher.decrypt(rng.next_u64(), &mut ciphertext));
        let _ = NoKeyName::from_text(&providers, &ciphertext);
    }
    assert!(taken > 5_000, "{taken} contexts make sense");
}
