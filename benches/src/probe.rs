//! Clock and ALU throughput of the moment.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// What the core gave us in a few microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Dependent integer additions a nanosecond: the clock in GHz.
    pub clock_ghz: f64,
    /// 512-bit ternary-logic operations a cycle; 4 at most on Zen 5, 2.8 beside a busy neighbour. 0 without AVX-512.
    pub zmm_per_cycle: f64,
}

impl Probe {
    /// Takes the best of a few short samples.
    pub fn measure() -> Probe {
        let ghz = best(|| dependent_adds(1 << 14), f64::from(1 << 14) * 8.0);
        let zmm = zmm_rate().map_or(0.0, |per_ns| per_ns / ghz);
        Probe { clock_ghz: ghz, zmm_per_cycle: zmm }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GHz, {:.2} zmm ops/cycle", self.clock_ghz, self.zmm_per_cycle)
    }
}

/// The largest number of operations a nanosecond over some samples.
fn best(mut work: impl FnMut(), operations: f64) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            work();
            operations / start.elapsed().as_nanos() as f64
        })
        .fold(0.0, f64::max)
}

fn dependent_adds(rounds: u32) {
    let mut sum = 1u64;
    for _ in 0..rounds {
        // Each addition waits for the one before; black_box keeps them from being folded into one.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: eight additions on a register; no memory, no stack.
        unsafe {
            std::arch::asm!(
                "add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1",
                "add {0}, 1", "add {0}, 1", "add {0}, 1", "add {0}, 1",
                inout(reg) sum, options(nomem, nostack)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for _ in 0..8 {
            sum = black_box(sum + 1);
        }
    }
    black_box(sum);
}

#[cfg(target_arch = "x86_64")]
fn zmm_rate() -> Option<f64> {
    const ROUNDS: u32 = 1 << 13;
    if !is_x86_feature_detected!("avx512f") {
        return None;
    }
    // SAFETY: AVX-512F was found on the line above.
    Some(best(|| unsafe { ternlogs(ROUNDS) }, f64::from(ROUNDS) * 8.0))
}

#[cfg(not(target_arch = "x86_64"))]
fn zmm_rate() -> Option<f64> {
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn ternlogs(rounds: u32) {
    for _ in 0..rounds {
        // SAFETY: eight independent operations on registers that are declared as clobbered.
        unsafe {
            std::arch::asm!(
                "vpternlogd zmm16, zmm16, zmm16, 0x96", "vpternlogd zmm17, zmm17, zmm17, 0x96",
                "vpternlogd zmm18, zmm18, zmm18, 0x96", "vpternlogd zmm19, zmm19, zmm19, 0x96",
                "vpternlogd zmm20, zmm20, zmm20, 0x96", "vpternlogd zmm21, zmm21, zmm21, 0x96",
                "vpternlogd zmm22, zmm22, zmm22, 0x96", "vpternlogd zmm23, zmm23, zmm23, 0x96",
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                options(nomem, nostack)
            );
        }
    }
}
