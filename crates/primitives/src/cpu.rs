//! Features of the CPU, found once and only ever narrowed.
//!
//! [`Cpu::detect`] is the one source of truth about instruction sets. A [`Cpu`] can lose features
//! ([`Cpu::without`], [`Cpu::restrict`]) but never gain any, so a back end that asks [`Cpu::has`] may rely on
//! the answer.

use std::fmt;
use std::sync::OnceLock;

/// A group of instructions that some back end needs, as one yes or no.
///
/// Groups follow what is sold together, not single CPUID bits: `Avx512` is F, BW, DQ and VL with the
/// operating system's consent to use the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Feature {
    /// x86 SSSE3 and SSE4.1: byte shuffles.
    Ssse3,
    /// x86 SSE4.2: the `crc32` instruction; with POPCNT.
    Sse42,
    /// x86 PCLMULQDQ: carry-less multiplication of 64 bits.
    Pclmul,
    /// x86 AES-NI.
    AesNi,
    /// x86 SHA-NI (SHA-1 and SHA-256).
    ShaNi,
    /// x86 AVX2 with BMI1 and BMI2.
    Avx2,
    /// x86 AVX-512 F, BW, DQ and VL.
    Avx512,
    /// x86 AVX-512 at full width: 512-bit operations are not halved into two of 256 bits, as Zen 4 does.
    WholeZmm,
    /// x86 AVX-512 VBMI and VBMI2: byte permutations over 64 bytes.
    Vbmi,
    /// x86 VAES: AES on 256- and 512-bit registers.
    Vaes,
    /// x86 VPCLMULQDQ: carry-less multiplication on 256- and 512-bit registers.
    Vpclmul,
    /// x86 GFNI: affine maps over GF(2) and products in GF(256).
    Gfni,
    /// AArch64 SIMD.
    Neon,
    /// AArch64 AES instructions.
    ArmAes,
    /// AArch64 PMULL on 64 bits.
    ArmPmull,
    /// AArch64 SHA-256 instructions.
    ArmSha2,
    /// AArch64 SHA-512 instructions.
    ArmSha512,
    /// AArch64 CRC-32C instructions.
    ArmCrc,
}

use Feature::*;

/// Every feature with the name that `--cpu` takes.
const NAMES: [(Feature, &str); 18] = [
    (Ssse3, "ssse3"),
    (Sse42, "sse4.2"),
    (Pclmul, "pclmul"),
    (AesNi, "aes-ni"),
    (ShaNi, "sha-ni"),
    (Avx2, "avx2"),
    (Avx512, "avx512"),
    (WholeZmm, "whole-zmm"),
    (Vbmi, "vbmi"),
    (Vaes, "vaes"),
    (Vpclmul, "vpclmul"),
    (Gfni, "gfni"),
    (Neon, "neon"),
    (ArmAes, "arm-aes"),
    (ArmPmull, "arm-pmull"),
    (ArmSha2, "arm-sha2"),
    (ArmSha512, "arm-sha512"),
    (ArmCrc, "arm-crc"),
];

impl Feature {
    /// The name that `--cpu` takes, such as `avx512`.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(feature, _)| *feature == self).map_or("?", |(_, name)| name)
    }

    /// All features, of every architecture.
    pub fn all() -> impl Iterator<Item = Feature> {
        NAMES.into_iter().map(|(feature, _)| feature)
    }

    fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// The set of features that back ends may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cpu(u32);

impl Cpu {
    /// All features that this CPU and its operating system offer; in builds for tests fewer, if
    /// `CASEMATE_CPU` says so.
    pub fn detect() -> Cpu {
        static DETECTED: OnceLock<Cpu> = OnceLock::new();
        #[cfg(feature = "testing")]
        let detect = || match std::env::var("CASEMATE_CPU") {
            Ok(list) => detect().restrict(&list).expect("CASEMATE_CPU is a list of features"),
            Err(_) => detect(),
        };
        *DETECTED.get_or_init(detect)
    }

    /// No features at all: only `portable` back ends run.
    pub const fn portable() -> Cpu {
        Cpu(0)
    }

    /// A CPU that need not exist, to ask what would be chosen there; nothing may be run for it.
    #[cfg(test)]
    pub(crate) fn of(features: &[Feature]) -> Cpu {
        Cpu(features.iter().fold(0, |bits, feature| bits | feature.bit()))
    }

    /// This CPU without one feature.
    pub fn without(self, feature: Feature) -> Cpu {
        Cpu(self.0 & !feature.bit())
    }

    /// Narrows the features by a comma-separated list, read from left to right.
    ///
    /// `native` is everything detected and `portable` is nothing; `-avx512` removes a feature and `avx512`
    /// keeps it. A list whose first word is a plain feature starts from nothing, so `sha-ni` alone is
    /// exactly that. A feature that this CPU lacks is an error, because a measurement under a wrong name is
    /// worse than none.
    ///
    /// # Errors
    /// An unknown or absent feature, named in the message.
    pub fn restrict(self, list: &str) -> Result<Cpu, CpuError> {
        let first = list.split(',').next().unwrap_or_default().trim();
        let mut cpu = if first.starts_with('-') || first == "native" { self } else { Cpu::portable() };
        for word in list.split(',').map(str::trim) {
            let (remove, name) = match word.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, word),
            };
            if !remove && (name == "native" || name == "portable") {
                cpu = if name == "native" { self } else { Cpu::portable() };
                continue;
            }
            let feature = NAMES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature);
            let feature = feature.ok_or_else(|| CpuError::Unknown(name.to_owned()))?;
            if remove {
                cpu = cpu.without(feature);
            } else if self.has(feature) {
                cpu.0 |= feature.bit();
            } else {
                return Err(CpuError::Absent(feature));
            }
        }
        Ok(cpu)
    }

    /// Whether back ends may use `feature`.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Whether back ends may use all of `features`.
    pub fn has_all(self, features: &[Feature]) -> bool {
        features.iter().all(|feature| self.has(*feature))
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cpu(")?;
        for (i, (_, name)) in NAMES.iter().filter(|(feature, _)| self.has(*feature)).enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { "," })?;
        }
        f.write_str(")")
    }
}

/// An error in a list of CPU features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// No feature has this name.
    Unknown(String),
    /// This CPU does not have the feature.
    Absent(Feature),
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuError::Absent(feature) => write!(f, "this CPU does not have {}", feature.name()),
            CpuError::Unknown(name) => {
                write!(f, "unknown CPU feature '{name}'; known are native, portable")?;
                NAMES.iter().try_for_each(|(_, known)| write!(f, ", {known}"))
            }
        }
    }
}

impl std::error::Error for CpuError {}

#[cfg(target_arch = "x86_64")]
fn detect() -> Cpu {
    macro_rules! has {
        ($($name:tt),+) => { true $(&& is_x86_feature_detected!($name))+ };
    }
    let found = [
        (Ssse3, has!("ssse3", "sse4.1")),
        (Sse42, has!("sse4.2", "popcnt")),
        (Pclmul, has!("pclmulqdq", "sse4.1")),
        (AesNi, has!("aes", "sse4.1")),
        (ShaNi, has!("sha", "ssse3", "sse4.1")),
        (Avx2, has!("avx2", "bmi1", "bmi2")),
        (Avx512, has!("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "bmi1", "bmi2")),
        (WholeZmm, has!("avx512f") && !is_zen4()),
        (Vbmi, has!("avx512vbmi", "avx512vbmi2")),
        (Vaes, has!("vaes", "avx2", "aes")),
        (Vpclmul, has!("vpclmulqdq", "avx2", "pclmulqdq")),
        (Gfni, has!("gfni")),
    ];
    Cpu(found.iter().filter(|(_, has)| *has).fold(0, |bits, (feature, _)| bits | feature.bit()))
}

/// AMD family 19h, of which Zen 4 has AVX-512 (source: AMD's "Software Optimization Guide for the Zen4
/// Microarchitecture", section 2.11.1).
#[cfg(target_arch = "x86_64")]
fn is_zen4() -> bool {
    use std::arch::x86_64::__cpuid;
    // Leaf 0 gives the vendor in ebx, edx and ecx; leaf 1 the family as 4 bits and, if they are all set, 8 more.
    let (vendor, signature) = (__cpuid(0), __cpuid(1).eax);
    let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
    vendor.as_flattened() == b"AuthenticAMD" && family == 0x19
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Cpu {
    use std::arch::is_aarch64_feature_detected as has;
    let found = [
        (Neon, has!("neon")),
        (ArmAes, has!("aes")),
        (ArmPmull, has!("pmull")),
        (ArmSha2, has!("sha2")),
        (ArmSha512, has!("sha3")),
        (ArmCrc, has!("crc")),
    ];
    Cpu(found.iter().filter(|(_, has)| *has).fold(0, |bits, (feature, _)| bits | feature.bit()))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Cpu {
    Cpu::portable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restricting_never_adds_what_the_cpu_lacks() {
        let small = Cpu(Ssse3.bit() | Avx2.bit());
        assert_eq!(small.restrict("native"), Ok(small));
        assert_eq!(small.restrict("portable"), Ok(Cpu::portable()));
        assert_eq!(small.restrict("-avx2"), Ok(Cpu(Ssse3.bit())));
        assert_eq!(small.restrict("avx2"), Ok(Cpu(Avx2.bit())));
        assert_eq!(small.restrict("native,-avx2,-ssse3"), Ok(Cpu::portable()));
        assert_eq!(small.restrict("avx512"), Err(CpuError::Absent(Avx512)));
        assert_eq!(small.restrict("mmx"), Err(CpuError::Unknown("mmx".into())));
        assert_eq!(format!("{small:?}"), "Cpu(ssse3,avx2)");
    }

    #[test]
    fn the_environment_narrows_builds_for_tests() {
        let list = std::env::var("CASEMATE_CPU").unwrap_or_else(|_| "native".to_owned());
        assert_eq!(Cpu::detect(), detect().restrict(&list).unwrap());
    }

    #[test]
    fn every_feature_has_its_own_name_and_bit() {
        let mut seen = 0;
        for (feature, name) in NAMES {
            assert_eq!(feature.name(), name);
            assert_eq!(seen & feature.bit(), 0, "{name}");
            seen |= feature.bit();
        }
    }
}
