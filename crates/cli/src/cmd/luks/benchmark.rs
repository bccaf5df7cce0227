//! `casemate luks benchmark`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use casemate::Error;
use casemate::crypt::{Mapping, Params};
use casemate::luks::{Argon2Variant, Measured, Pbkdf, random_key};

use super::pbkdf::{Kdf, PbkdfArgs};
use crate::answer::Answer;
use crate::context::Context;

/// Measure the speed of key derivation and encryption in memory, as cryptsetup benchmark does.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks benchmark --crypt aes-xts-plain64 --key-size 512\n\
    \x20 casemate luks benchmark --pbkdf argon2id --iter-time 200 --pbkdf-memory 64M")]
pub struct Args {
    /// Measure only this cipher.
    #[arg(short = 'c', long, value_name = "SPEC", alias = "cipher")]
    pub crypt: Option<String>,
    /// The size of its key in bits [default: 512 for XTS, 256 for other modes].
    #[arg(short = 's', long, value_name = "BITS", requires = "crypt")]
    pub key_size: Option<usize>,
    /// Measure only PBKDF2 with this hash.
    #[arg(long, value_name = "NAME", conflicts_with = "crypt")]
    pub hash: Option<String>,
    #[command(flatten)]
    pub pbkdf: PbkdfArgs,
}

/// Hashes that are measured by default.
const HASHES: [&str; 5] = ["sha1", "sha256", "sha512", "ripemd160", "whirlpool"];
const CIPHERS: [(&str, usize); 12] = [
    ("aes-cbc", 128),
    ("serpent-cbc", 128),
    ("twofish-cbc", 128),
    ("aes-cbc", 256),
    ("serpent-cbc", 256),
    ("twofish-cbc", 256),
    ("aes-xts", 256),
    ("serpent-xts", 256),
    ("twofish-xts", 256),
    ("aes-xts", 512),
    ("serpent-xts", 512),
    ("twofish-xts", 512),
];

/// Bytes of the derived key.
const KEY_LEN: usize = 32;

/// Bytes that are encrypted at once, in sectors of 512 bytes, and how long that is repeated.
const BUFFER: usize = 1 << 20;
const TIME: Duration = Duration::from_millis(200);

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let is_all = self.crypt.is_none() && self.hash.is_none() && self.pbkdf.pbkdf.is_none();
        let say = |line: String| match context.json() {
            true => Ok(()),
            false => context.print(line),
        };
        let mut kdfs = Vec::new();
        say("# Tests are approximate using memory only (no storage IO).\n".to_owned())?;
        let mut take = |kind: Kdf, hash: &str| -> Result<(), Error> {
            let mut args = self.pbkdf.clone();
            args.pbkdf = Some(kind);
            let mut target = args.target(false, hash)?;
            if kind == Kdf::Pbkdf2 {
                // Its rate is what is shown, and is the same for any time.
                target.time = target.time.min(Duration::from_millis(500));
            }
            let measured = target.measure(KEY_LEN, context.providers())?;
            say(line_of(&measured, target.time))?;
            kdfs.push(value_of(&measured));
            Ok(())
        };
        match (&self.hash, self.pbkdf.pbkdf) {
            (Some(hash), _) => take(Kdf::Pbkdf2, hash)?,
            (None, Some(Kdf::Pbkdf2)) => take(Kdf::Pbkdf2, "sha256")?,
            (None, Some(kind)) => take(kind, "")?,
            (None, None) if is_all => {
                HASHES.into_iter().try_for_each(|hash| take(Kdf::Pbkdf2, hash))?;
                [Kdf::Argon2i, Kdf::Argon2id].into_iter().try_for_each(|kind| take(kind, ""))?;
            }
            (None, None) => {}
        }
        let one = self.crypt.as_ref().map(|spec| {
            let usual = if spec.contains("-xts") { 512 } else { 256 };
            (spec.as_str(), self.key_size.unwrap_or(usual))
        });
        let ciphers = if is_all { CIPHERS.to_vec() } else { one.into_iter().collect() };
        if !ciphers.is_empty() {
            say("#     Algorithm |       Key |      Encryption |      Decryption\n".to_owned())?;
        }
        let mut rates = Vec::new();
        for (spec, bits) in ciphers {
            let [encryption, decryption] = rates_of(spec, bits, context)?;
            let name = spec.split('-').take(2).collect::<Vec<_>>().join("-");
            say(format!("{name:>15}  {bits:>9}b  {encryption:>10.1} MiB/s  {decryption:>10.1} MiB/s\n"))?;
            rates.push(json!({"cipher": name, "key_bits": bits,
                              "encryption_mib_s": encryption, "decryption_mib_s": decryption}));
        }
        if context.json() {
            context.print_json(&json!({ "kdfs": kdfs, "ciphers": rates }))?;
        }
        Ok(Answer::Yes)
    }
}

/// Iterations in a second.
fn per_second(iterations: u32, time: Duration) -> u64 {
    u64::try_from(u128::from(iterations) * 1_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

fn line_of(measured: &Measured, wanted: Duration) -> String {
    match &measured.pbkdf {
        Pbkdf::Pbkdf2 { hash, iterations } => format!(
            "PBKDF2-{hash:<9} {:>7} iterations per second for {}-bit key\n",
            per_second(*iterations, measured.time),
            KEY_LEN * 8
        ),
        Pbkdf::Argon2(argon2) => format!(
            "{:<10} {:>4} iterations, {:>5} memory, {} parallel threads (CPUs) for {}-bit key (requested {} ms time)\n",
            argon2.name(),
            argon2.passes,
            argon2.memory,
            argon2.lanes,
            KEY_LEN * 8,
            wanted.as_millis()
        ),
    }
}

fn value_of(measured: &Measured) -> Value {
    let time = measured.time.as_secs_f64();
    match &measured.pbkdf {
        Pbkdf::Pbkdf2 { hash, iterations } => {
            json!({"kdf": "pbkdf2", "hash": hash, "iterations": iterations, "seconds": time})
        }
        Pbkdf::Argon2(argon2) => json!({
            "kdf": if argon2.variant == Argon2Variant::I { "argon2i" } else { "argon2id" },
            "passes": argon2.passes, "memory_kib": argon2.memory, "lanes": argon2.lanes, "seconds": time,
        }),
    }
}

/// MiB per second of encryption and of decryption, on one thread.
fn rates_of(spec: &str, bits: usize, context: &Context) -> Result<[f64; 2], Error> {
    let spec = if spec.matches('-').count() == 1 { format!("{spec}-plain64") } else { spec.to_owned() };
    if !bits.is_multiple_of(8) || !(8..=8192).contains(&bits) {
        return Err(Error::argument(format!("--key-size {bits}: it must be a multiple of 8 bits")));
    }
    let mapping = Mapping::new(Params::new(spec.parse()?), random_key(bits / 8)?, 0, context.providers())?;
    let cipher = mapping.cipher();
    let mut buffer = vec![0; BUFFER];
    let mut rate = |encrypt: bool| -> Result<f64, Error> {
        let (start, mut done) = (Instant::now(), 0u32);
        while start.elapsed() < TIME {
            match encrypt {
                true => cipher.encrypt(0, &mut buffer)?,
                false => cipher.decrypt(0, &mut buffer)?,
            }
            done += 1;
        }
        // A buffer has 1 MiB.
        Ok(f64::from(done) / start.elapsed().as_secs_f64())
    };
    Ok([rate(true)?, rate(false)?])
}
