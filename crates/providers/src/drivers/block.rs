//! The cold block ciphers of dm-crypt and fscrypt, in every mode that Linux has for them: from vetted crates, and Serpent and
//! Twofish of our own, too, which are faster.

use std::sync::Arc;

use casemate_primitives::Cpu;
use casemate_primitives::serpent::Serpent;
use casemate_primitives::twofish::Twofish;

use ::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::flags::{Flags, Origin};
use crate::row::{BadKey, CipherSpec, Row};

use super::boxed;
use super::modes::{BlockCipher, Cbc, Ctr, Cts, Ecb, Lrw, Xts};

/// Below every one of our own rows.
const PRIORITY: u32 = 50;

/// Above the crates.
const OWN_PRIORITY: u32 = 100;

type MakeBlock = fn(&[u8]) -> Result<Box<dyn BlockCipher>, BadKey>;

/// A block cipher's name, block length, key lengths (the usual one first) and maker.
type Algorithm = (&'static str, usize, &'static [usize], MakeBlock);

#[rustfmt::skip]
const ALGORITHMS: &[Algorithm] = &[
    ("aes", 16, &[32, 16, 24], |key| by_length(key, make::<aes::Aes256>, make::<aes::Aes192>, make::<aes::Aes128>)),
    ("serpent", 16, &[32, 16, 24], make::<serpent::Serpent>),
    ("twofish", 16, &[32, 16, 24], make::<twofish::Twofish>),
    ("camellia", 16, &[32, 16, 24], |key| {
        by_length(key, make::<camellia::Camellia256>, make::<camellia::Camellia192>, make::<camellia::Camellia128>)
    }),
    ("aria", 16, &[32, 16, 24], |key| by_length(key, make::<aria::Aria256>, make::<aria::Aria192>, make::<aria::Aria128>)),
    ("sm4", 16, &[16], make::<sm4::Sm4>),
    ("cast6", 16, &[32, 16, 24], make::<cast6::Cast6>),
    ("cast5", 8, &[16], make::<cast5::Cast5>),
    ("des3_ede", 8, &[24], make::<des::TdesEde3>),
    ("blowfish", 8, &[32, 16, 24, 56], make::<blowfish::Blowfish>),
    ("cipher_null", 1, &[0], |_| Ok(Box::new(Null))),
];

struct Keyed<C>(C);

/// Our own Serpent.
struct Bitsliced(Serpent);

impl BlockCipher for Bitsliced {
    fn block_len(&self) -> usize {
        16
    }

    fn encrypt(&self, block: &mut [u8]) {
        self.encrypt_all(block);
    }

    fn decrypt(&self, block: &mut [u8]) {
        self.decrypt_all(block);
    }

    fn encrypt_all(&self, blocks: &mut [u8]) {
        self.0.encrypt_blocks(blocks.as_chunks_mut().0);
    }

    fn decrypt_all(&self, blocks: &mut [u8]) {
        self.0.decrypt_blocks(blocks.as_chunks_mut().0);
    }
}

impl<C: BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync> BlockCipher for Keyed<C> {
    fn block_len(&self) -> usize {
        C::block_size()
    }

    fn encrypt(&self, block: &mut [u8]) {
        self.0.encrypt_block(whole::<C>(block));
    }

    fn decrypt(&self, block: &mut [u8]) {
        self.0.decrypt_block(whole::<C>(block));
    }
}

fn whole<C: ::cipher::BlockSizeUser>(block: &mut [u8]) -> &mut Block<C> {
    // OK to unwrap: the modes cut blocks of the length that the cipher says.
    block.try_into().unwrap()
}

/// Our own Twofish.
struct Tabled(Twofish);

impl BlockCipher for Tabled {
    fn block_len(&self) -> usize {
        16
    }

    fn encrypt(&self, block: &mut [u8]) {
        self.encrypt_all(block);
    }

    fn decrypt(&self, block: &mut [u8]) {
        self.decrypt_all(block);
    }

    fn encrypt_all(&self, blocks: &mut [u8]) {
        self.0.encrypt_blocks(blocks.as_chunks_mut().0);
    }

    fn decrypt_all(&self, blocks: &mut [u8]) {
        self.0.decrypt_blocks(blocks.as_chunks_mut().0);
    }
}

/// dm-crypt's `cipher_null`, which changes nothing.
struct Null;

impl BlockCipher for Null {
    fn block_len(&self) -> usize {
        1
    }
    fn encrypt(&self, _block: &mut [u8]) {}
    fn decrypt(&self, _block: &mut [u8]) {}
}

fn make<C>(key: &[u8]) -> Result<Box<dyn BlockCipher>, BadKey>
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync + 'static,
{
    let cipher = C::new_from_slice(key).map_err(|_| BadKey(format!("a key of {} bytes", key.len())))?;
    Ok(Box::new(Keyed(cipher)))
}

fn by_length(
    key: &[u8],
    long: MakeBlock,
    middle: MakeBlock,
    short: MakeBlock,
) -> Result<Box<dyn BlockCipher>, BadKey> {
    match key.len() {
        32 => long(key),
        24 => middle(key),
        _ => short(key),
    }
}

pub(super) fn rows(cpu: Cpu) -> Vec<Row> {
    let mut rows = Vec::new();
    for &(name, block, keys, make) in ALGORITHMS {
        let make = move |key: &[u8]| make(key);
        rows.extend(modes(name, block, keys, make, ("crate", PRIORITY, Origin::Crate)));
    }
    let twofish = |key: &[u8]| -> Result<Box<dyn BlockCipher>, BadKey> {
        let twofish = Twofish::new(key).map_err(|error| BadKey(error.to_string()))?;
        Ok(Box::new(Tabled(twofish)))
    };
    rows.extend(modes("twofish", 16, &[32, 16, 24], twofish, ("tables", OWN_PRIORITY, Origin::Own)));
    let make = move |key: &[u8]| -> Result<Box<dyn BlockCipher>, BadKey> {
        let serpent = Serpent::new(cpu, key).map_err(|error| BadKey(error.to_string()))?;
        Ok(Box::new(Bitsliced(serpent)))
    };
    rows.extend(modes(
        "serpent",
        16,
        &[32, 16, 24],
        make,
        (Serpent::backend(cpu), OWN_PRIORITY, Origin::Own),
    ));
    rows
}

/// A block cipher in all modes: its name, block length, key lengths and maker; and the rows' last part, priority and origin.
fn modes(
    name: &str,
    block: usize,
    keys: &[usize],
    make: impl Fn(&[u8]) -> Result<Box<dyn BlockCipher>, BadKey> + Copy + Send + Sync + 'static,
    (from, priority, origin): (&str, u32, Origin),
) -> Vec<Row> {
    let mut rows = Vec::new();
    {
        let mut add = |algorithm: String, mode: &str, spec| {
            let driver = format!("{mode}-{name}-{from}");
            rows.push(Row::new(algorithm, driver, priority, Flags::NONE, origin, spec));
        };
        let spec = |iv_len, whole_blocks, key_lens: Vec<usize>, make| {
            let block_len = if whole_blocks || iv_len == 0 { block } else { 1 };
            CipherSpec { iv_len, block_len, whole_blocks, key_lens, make }
        };
        let simple = keys.to_vec();
        let ecb = move |key: &[u8]| boxed(Ecb(make(key)?));
        add(format!("ecb({name})"), "ecb", spec(0, true, simple.clone(), Arc::new(ecb)));
        if block == 1 {
            return rows;
        }
        let cbc = move |key: &[u8]| boxed(Cbc(make(key)?));
        add(format!("cbc({name})"), "cbc", spec(block, true, simple.clone(), Arc::new(cbc)));
        let ctr = move |key: &[u8]| boxed(Ctr(make(key)?));
        add(format!("ctr({name})"), "ctr", spec(block, false, simple.clone(), Arc::new(ctr)));
        if block != 16 {
            return rows;
        }
        let cts = move |key: &[u8]| boxed(Cts(Cbc(make(key)?)));
        let at_least_a_block = |mut spec: CipherSpec| {
            spec.block_len = 16;
            spec
        };
        let cts = at_least_a_block(spec(16, false, simple.clone(), Arc::new(cts)));
        add(format!("cts(cbc({name}))"), "cts-cbc", cts);
        let xts = move |key: &[u8]| {
            let (data, tweak) = key.split_at(key.len() / 2);
            boxed(Xts { data: make(data)?, tweak: make(tweak)? })
        };
        let doubled = simple.iter().map(|len| 2 * len).collect();
        add(format!("xts({name})"), "xts", at_least_a_block(spec(16, false, doubled, Arc::new(xts))));
        let lrw = move |key: &[u8]| {
            let (data, tweak) = key.split_at(key.len() - 16);
            // OK to unwrap: the list of key lengths leaves 16 bytes.
            let tweak = u128::from_be_bytes(tweak.try_into().unwrap());
            boxed(Lrw { data: make(data)?, tweak })
        };
        let longer = simple.iter().map(|len| len + 16).collect();
        add(format!("lrw({name})"), "lrw", spec(16, true, longer, Arc::new(lrw)));
    }
    rows
}
