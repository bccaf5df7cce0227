//! CRC-32C of a buffer, and of a buffer that changed a little.
//!
//! A CRC is linear: the checksum after a change is the old checksum plus what the change alone contributes.
//! [`Crc32c`] therefore offers, beside [`update`](Crc32c::update), the checksum after a run of bits was
//! inverted ([`flip_range`](Crc32c::flip_range)), scattered bits were ([`toggle`](Crc32c::toggle)), or some
//! bytes were replaced ([`splice`](Crc32c::splice)), in a few nanoseconds whatever the size of the buffer.
//!
//! # Convention
//! Everything here is the raw register, as in the kernel's `crc32c(seed, data, len)`: reflected polynomial
//! 0x82F63B78, the caller gives the initial register, nothing is inverted before or after. ext4 starts with
//! !0 or a seed of its own. The "CRC-32C" of other protocols is `!update(!0, data)`.
//!
//! Bits are numbered as in ext4's bitmaps: bit k is bit k % 8, from the least significant, of byte k / 8.
//!
//! ```
//! use casemate_primitives::Cpu;
//! use casemate_primitives::crc32c::Crc32c;
//!
//! # fn main() -> Result<(), casemate_primitives::crc32c::RangeError> {
//! let crc32c = Crc32c::new(Cpu::detect());
//! let mut bitmap = [0u8; 4096];
//! let before = crc32c.update(!0, &bitmap);
//! bitmap[100] = 0xf0; // allocates clusters 804 to 807
//! assert_eq!(crc32c.flip_range(before, 8 * 4096, 804, 4)?, crc32c.update(!0, &bitmap));
//! assert_eq!(!crc32c.update(!0, b"123456789"), 0xe306_9283);
//! # Ok(())
//! # }
//! ```
//!
//! # How
//! A bit with E bits after it contributes x^(E+32) modulo the polynomial P, a changed region contributes
//! D * x^(8m) with D the register after old XOR new from 0 and m the bytes after the region. A run of ones is
//! a geometric series, (x^a + x^e) / (x+1), and x+1 divides P: the quotient is computed modulo Q = P / (x+1),
//! where x+1 has an inverse, and the parity of the number of bits settles the rest. Exponents of x count
//! modulo 2^31 - 1, so no length is too long. What is left, a power of x, is the product of two or four
//! entries of small tables (`windows.rs`, 1028 bytes up to 64 KiB of buffer) and a shift.

use std::fmt;

use crate::backend;
use crate::cpu::{Cpu, Feature};

#[cfg(target_arch = "aarch64")]
mod aarch64_crc;
#[cfg(target_arch = "aarch64")]
mod aarch64_pmull;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod poly;
mod portable;
#[cfg(test)]
mod tests;
mod windows;
#[cfg(target_arch = "x86_64")]
mod x86_64_clmul;
#[cfg(target_arch = "x86_64")]
mod x86_64_sse42;
#[cfg(target_arch = "x86_64")]
mod x86_64_vpclmul;

/// CRC-32C by a back end that this CPU can run: registers are computed and patched.
///
/// See the [module](self) for the convention. Cheap to copy; holding one proves that the CPU can run it.
#[derive(Clone, Copy)]
pub struct Crc32c {
    backend: &'static Backend,
}

impl Crc32c {
    /// The fastest back end that `cpu` can run.
    pub fn new(cpu: Cpu) -> Crc32c {
        Crc32c { backend: backend::best(BACKENDS, cpu) }
    }

    /// Every back end that `cpu` can run, fastest first; the last one is `portable`.
    pub fn available(cpu: Cpu) -> impl Iterator<Item = Crc32c> {
        backend::available(BACKENDS, cpu).map(|backend| Crc32c { backend })
    }

    /// The back end's name, such as `portable`.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }

    /// The register after `data` has gone in, starting from the register `crc`.
    #[inline]
    pub fn update(&self, crc: u32, data: &[u8]) -> u32 {
        // SAFETY: a handle exists only for a back end whose features the CPU has.
        unsafe { (self.backend.run.update)(crc, data) }
    }

    /// The register after A and then B, from the registers of the two parts.
    ///
    /// `crc_a` is the register after A from whatever initial register the whole has; `crc_b` is the register
    /// after B **started at 0**; `len_b` is B's length in bytes, any `u64`. If B was started at s instead,
    /// give `crc_a ^ s`.
    #[inline]
    pub fn combine(&self, crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
        // SAFETY: a handle exists only for a back end whose features the CPU has.
        unsafe { (self.backend.run.shift)(crc_a, len_b) ^ crc_b }
    }

    /// The register after all `parts` in order, each given as its register and its length in bytes.
    ///
    /// The first part's register starts from the initial register of the whole, all others **start at 0**: this
    /// is what joins the results of workers that each took a part. No parts give 0.
    pub fn combine_many(&self, parts: &[(u32, u64)]) -> u32 {
        let mut after = 0;
        let mut joined = 0;
        for (crc, len) in parts.iter().rev() {
            joined = self.combine(*crc, joined, after);
            // Lengths count modulo the order of x; folded ones can't overflow.
            after = windows::fold(after + windows::fold(*len));
        }
        joined
    }

    /// The checksum after the run of `bits` bits from `first_bit` on was inverted in a buffer of `total_bits`.
    ///
    /// `old` is the checksum before, from any initial register. Every bit of the run must really have
    /// changed: the buffer itself is not looked at. A run of 0 bits gives `old`. Any `total_bits` is served.
    ///
    /// # Errors
    /// [`RangeError::Bits`] if the run reaches beyond the buffer.
    #[inline]
    pub fn flip_range(
        &self,
        old: u32,
        total_bits: u64,
        first_bit: u64,
        bits: u64,
    ) -> Result<u32, RangeError> {
        let outside = RangeError::Bits { first: first_bit, count: bits, total: total_bits };
        let from_first = total_bits.checked_sub(first_bit).ok_or(outside)?;
        let after_last = from_first.checked_sub(bits).ok_or(outside)?;
        // SAFETY: a handle exists only for a back end whose features the CPU has.
        Ok(old ^ unsafe { (self.backend.run.flip)(from_first, after_last) })
    }

    /// The checksum after the bits at `positions` were inverted in a buffer of `total_bits`.
    ///
    /// The order of the positions does not matter; a position that occurs twice is inverted twice. For
    /// neighbouring bits, [`flip_range`](Crc32c::flip_range) costs the same for any number of them.
    ///
    /// # Errors
    /// [`RangeError::Bits`] with the first position that lies outside of the buffer.
    #[inline]
    pub fn toggle(&self, old: u32, total_bits: u64, positions: &[u64]) -> Result<u32, RangeError> {
        if let Some(first) = positions.iter().find(|position| **position >= total_bits) {
            return Err(RangeError::Bits { first: *first, count: 1, total: total_bits });
        }
        // SAFETY: a handle exists only for a back end whose features the CPU has.
        Ok(old ^ unsafe { (self.backend.run.toggle)(total_bits, positions) })
    }

    /// The checksum after the bytes from `offset` on, `old_region`, were replaced by `new_region` in a buffer
    /// of `total_len` bytes.
    ///
    /// `old` is the checksum before, from any initial register. Neither the bytes before nor those after the
    /// region are needed. See [`patch`](Crc32c::patch) for when this is faster than computing it all anew.
    ///
    /// # Errors
    /// [`RangeError::Lengths`] if the regions differ in length, [`RangeError::Bytes`] if they reach beyond
    /// the buffer.
    #[inline]
    pub fn splice(
        &self,
        old: u32,
        total_len: u64,
        offset: u64,
        old_region: &[u8],
        new_region: &[u8],
    ) -> Result<u32, RangeError> {
        if old_region.len() != new_region.len() {
            return Err(RangeError::Lengths { old: old_region.len(), new: new_region.len() });
        }
        let after = bytes_after(total_len, offset, old_region.len() as u64)?;
        // SAFETY: a handle exists only for a back end whose features the CPU has; the lengths are equal.
        Ok(old ^ unsafe { (self.backend.run.splice)(old_region, new_region, after) })
    }

    /// The checksum after a [`splice`](Crc32c::splice), from the registers of the two regions instead of
    /// their bytes.
    ///
    /// Both were started at the same register, whichever it is; `len` is the regions' common length.
    ///
    /// # Errors
    /// [`RangeError::Bytes`] if the region reaches beyond the buffer.
    #[inline]
    pub fn splice_crcs(
        &self,
        old: u32,
        total_len: u64,
        offset: u64,
        len: u64,
        old_region_crc: u32,
        new_region_crc: u32,
    ) -> Result<u32, RangeError> {
        let after = bytes_after(total_len, offset, len)?;
        Ok(self.combine(old_region_crc ^ new_region_crc, old, after))
    }

    /// The checksum of `buffer` after its bytes from `offset` on were written over `old_region`, by
    /// [`splice`](Crc32c::splice) or by computing it anew, whichever is the faster.
    ///
    /// `buffer` is the whole buffer after the change, `seed` the initial register, `old` the checksum before.
    ///
    /// # Errors
    /// [`RangeError::Bytes`] if the region reaches beyond the buffer.
    #[inline]
    pub fn patch(
        &self,
        seed: u32,
        old: u32,
        buffer: &[u8],
        offset: usize,
        old_region: &[u8],
    ) -> Result<u32, RangeError> {
        let after = bytes_after(buffer.len() as u64, offset as u64, old_region.len() as u64)?;
        if !self.splice_pays(buffer.len(), old_region.len()) {
            return Ok(self.update(seed, buffer));
        }
        let new_region = &buffer[offset..offset + old_region.len()];
        // SAFETY: a handle exists only for a back end whose features the CPU has; the lengths are equal.
        Ok(old ^ unsafe { (self.backend.run.splice)(old_region, new_region, after) })
    }

    /// Whether splicing a region of `region` bytes is expected to be faster than the whole of `total` bytes.
    ///
    /// The threshold is one for each back end, as measured; see `docs/bench/crc32c.md`.
    #[inline]
    pub fn splice_pays(&self, total: usize, region: usize) -> bool {
        let cost = &self.backend.run.splice_cost;
        let byte = if total < cost.large { cost.region } else { cost.large_region };
        region.saturating_mul(byte) / 16 + cost.fixed < total
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc32c({})", self.name())
    }
}

/// A range that does not fit its buffer, or regions that don't fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// Bits outside of the buffer.
    Bits {
        /// The first bit of the range.
        first: u64,
        /// How many bits the range has.
        count: u64,
        /// How many bits the buffer has.
        total: u64,
    },
    /// Bytes outside of the buffer.
    Bytes {
        /// The first byte of the range.
        first: u64,
        /// How many bytes the range has.
        count: u64,
        /// How many bytes the buffer has.
        total: u64,
    },
    /// The old and the new region differ in length.
    Lengths {
        /// Bytes of the old region.
        old: usize,
        /// Bytes of the new region.
        new: usize,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeError::Bits { first, count, total } => {
                write!(f, "{count} bits from bit {first} reach beyond a buffer of {total} bits")
            }
            RangeError::Bytes { first, count, total } => {
                write!(f, "{count} bytes from byte {first} reach beyond a buffer of {total} bytes")
            }
            RangeError::Lengths { old, new } => {
                write!(f, "a region of {old} bytes can't be replaced by one of {new} bytes")
            }
        }
    }
}

impl std::error::Error for RangeError {}

/// How many bytes follow the region, if it lies in the buffer.
#[inline]
fn bytes_after(total: u64, first: u64, count: u64) -> Result<u64, RangeError> {
    let after = total.checked_sub(first).and_then(|from_first| from_first.checked_sub(count));
    after.ok_or(RangeError::Bytes { first, count, total })
}

/// One way to compute. The functions are safe to call where the CPU has what the row needs.
struct Functions {
    /// Register, data: the register after the data.
    update: unsafe fn(u32, &[u8]) -> u32,
    /// Bits from the run's first on, bits after its last: the change of the checksum.
    flip: unsafe fn(u64, u64) -> u32,
    /// Bits of the buffer, positions below that: the change of the checksum.
    toggle: unsafe fn(u64, &[u64]) -> u32,
    /// Register, bytes: the register after so many zero bytes.
    shift: unsafe fn(u32, u64) -> u32,
    /// Old region, new region of the same length, bytes after it: the change of the checksum.
    splice: unsafe fn(&[u8], &[u8], u64) -> u32,
    splice_cost: Cost,
}

type Backend = backend::Row<Functions>;

/// How a splice compares with `update`, counted in bytes of `update`: measured by `benches`, section `patch`.
struct Cost {
    /// The fixed cost of a splice.
    fixed: usize,
    /// The cost of a byte of the region, in sixteenths.
    region: usize,
    /// From this size of a buffer on, `update` is faster than before, ...
    large: usize,
    /// ... so that a byte of the region costs this much, in sixteenths.
    large_region: usize,
}

/// Fastest first, as measured, where they pay; portable last.
static BACKENDS: &[Backend] = &[
    // Zen 5.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "vpclmul-hybrid",
        &[Feature::Avx512, Feature::Vpclmul, Feature::Pclmul, Feature::Sse42],
        Functions {
            update: x86_64_vpclmul::update_hybrid,
            flip: x86_64_clmul::flip,
            toggle: x86_64_clmul::toggle,
            shift: x86_64_clmul::shift,
            splice: x86_64_vpclmul::splice,
            splice_cost: Cost { fixed: 96, region: 16, large: 3072, large_region: 30 },
        },
    )
    // Zen 4: 54 GB/s, vpclmul 59.
    .pays_with(&[Feature::WholeZmm]),
    // Zen 4: one `crc32` a cycle.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "vpclmul-crc32",
        &[Feature::Avx512, Feature::Vpclmul, Feature::Pclmul, Feature::Sse42],
        Functions {
            update: x86_64_vpclmul::update_hybrid_of_one,
            flip: x86_64_clmul::flip,
            toggle: x86_64_clmul::toggle,
            shift: x86_64_clmul::shift,
            splice: x86_64_vpclmul::splice,
            splice_cost: Cost { fixed: 96, region: 16, large: 6144, large_region: 20 },
        },
    ),
    // The same without the scalar streams.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "vpclmul",
        &[Feature::Avx512, Feature::Vpclmul, Feature::Pclmul, Feature::Sse42],
        Functions {
            update: x86_64_vpclmul::update,
            flip: x86_64_clmul::flip,
            toggle: x86_64_clmul::toggle,
            shift: x86_64_clmul::shift,
            splice: x86_64_vpclmul::splice,
            splice_cost: Cost { fixed: 96, region: 16, large: 2048, large_region: 16 },
        },
    ),
    // x86 since Westmere.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "pclmul",
        &[Feature::Pclmul, Feature::Sse42],
        Functions {
            update: x86_64_clmul::update,
            flip: x86_64_clmul::flip,
            toggle: x86_64_clmul::toggle,
            shift: x86_64_clmul::shift,
            splice: x86_64_clmul::splice,
            splice_cost: Cost { fixed: 128, region: 20, large: 1024, large_region: 48 },
        },
    ),
    // x86 since 2008.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "sse4.2",
        &[Feature::Sse42],
        Functions {
            update: x86_64_sse42::update,
            flip: portable::flip,
            toggle: portable::toggle,
            shift: portable::shift,
            splice: x86_64_sse42::splice,
            splice_cost: Cost { fixed: 640, region: 24, large: 4096, large_region: 144 },
        },
    ),
    // Nearly every AArch64 core with the cryptographic extension.
    #[cfg(target_arch = "aarch64")]
    Backend::new(
        "pmull",
        &[Feature::ArmCrc, Feature::Neon, Feature::ArmAes, Feature::ArmPmull],
        Functions {
            update: aarch64_pmull::update,
            flip: aarch64_pmull::flip,
            toggle: aarch64_pmull::toggle,
            shift: aarch64_pmull::shift,
            splice: aarch64_pmull::splice,
            splice_cost: Cost { fixed: 128, region: 20, large: 1024, large_region: 48 },
        },
    ),
    // AArch64 without it, such as the Raspberry Pi 4.
    #[cfg(target_arch = "aarch64")]
    Backend::new(
        "crc",
        &[Feature::ArmCrc],
        Functions {
            // The thresholds of AArch64 are those of the x86 rows of the same kind: not measured.
            update: aarch64_crc::update,
            flip: portable::flip,
            toggle: portable::toggle,
            shift: portable::shift,
            splice: aarch64_crc::splice,
            splice_cost: Cost { fixed: 640, region: 24, large: 2048, large_region: 144 },
        },
    ),
    // Everything else.
    Backend::new(
        "portable",
        &[],
        Functions {
            update: portable::update,
            flip: portable::flip,
            toggle: portable::toggle,
            shift: portable::shift,
            splice: portable::splice,
            splice_cost: Cost { fixed: 96, region: 17, large: 4096, large_region: 17 },
        },
    ),
];
