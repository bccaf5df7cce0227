//! CRC-32C: whole buffers, joined parts, and buffers that changed a little.
//!
//! `crc32c full|combine|flip|splice|toggle|patch|cold|thrash ...`, all of them without arguments. Sizes are
//! those of the published flip and splice proposal for ext4; its nibble-table algorithm is a contestant.
//!
//! `crc32c time BYTES` prints the nanoseconds of one call, for programs in other languages to compare with.

use std::hint::black_box;
use std::time::Instant;

use casemate_benches::Race;
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_primitives::testing::Rng;

/// How many prepared operations one call of a contestant runs through.
const OPERATIONS: usize = 1024;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [word, bytes] = &wanted[..]
        && word == "time"
    {
        return time(bytes.parse().expect("a number of bytes"));
    }
    let sections: [(&str, fn()); 8] = [
        ("full", full),
        ("combine", combine),
        ("flip", flip),
        ("splice", splice),
        ("toggle", toggle),
        ("patch", patch),
        ("cold", cold),
        ("thrash", thrash),
    ];
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            section();
        }
    }
}

fn backends() -> Vec<Crc32c> {
    Crc32c::available(Cpu::detect()).collect()
}

fn best() -> Crc32c {
    Crc32c::new(Cpu::detect())
}

/// Nanoseconds of one call: the median of rounds.
fn time(size: usize) {
    let (crc32c, data) = (best(), Rng::new(2).bytes(size));
    let mut rounds: Vec<_> = (0..31)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..OPERATIONS {
                black_box(crc32c.update(!0, black_box(&data)));
            }
            begin.elapsed().as_nanos() as f64 / OPERATIONS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{}", rounds[rounds.len() / 2]);
}

/// Whole buffers.
fn full() {
    for size in
        [12, 32, 64, 96, 128, 256, 512, 1000, 1024, 1025, 2048, 4084, 4096, 8192, 16_384, 65_536, 1 << 20]
    {
        let data = Rng::new(size as u64).bytes(size);
        let wanted = crc32c::crc32c(&data);
        assert_eq!(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &data), u64::from(wanted));
        let data = &data;
        let mut race = Race::new(format!("crc32c of {size} bytes"), size);
        for crc32c in backends() {
            assert_eq!(!crc32c.update(!0, data), wanted, "{}", crc32c.name());
            race.add(crc32c.name(), move || {
                black_box(crc32c.update(!0, black_box(data)));
            });
        }
        race.add("crc-fast 1.10", move || {
            black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, black_box(data)));
        });
        race.add("crate crc32c 0.6", move || {
            black_box(crc32c::crc32c(black_box(data)));
        });
        race.run();
    }
}

/// Two registers joined.
fn combine() {
    for len in [1u64, 100, 4096, 65_536, 1 << 20, 1 << 30, 1 << 60] {
        let mut race =
            Race::new(format!("join a part of {len} bytes, independent"), OPERATIONS).items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let len = black_box(len);
                black_box(
                    (0..OPERATIONS as u32)
                        .fold(0, |sum, i| sum ^ crc32c.combine(i, 5, len ^ u64::from(i & 7))),
                );
            });
        }
        if len < 1 << 40 {
            race.add("crc-fast 1.10", move || {
                for i in 0..OPERATIONS as u64 {
                    black_box(crc_fast::checksum_combine(
                        crc_fast::CrcAlgorithm::Crc32Iscsi,
                        i,
                        5,
                        black_box(len),
                    ));
                }
            });
            race.add("crate crc32c 0.6", move || {
                for i in 0..OPERATIONS as u32 {
                    black_box(crc32c::crc32c_combine(i, 5, black_box(len as usize)));
                }
            });
        }
        race.run();
        let mut race = Race::new(format!("join a part of {len} bytes, each waits for the last"), OPERATIONS)
            .items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let len = black_box(len);
                black_box((0..OPERATIONS as u32).fold(0, |crc, i| crc32c.combine(crc, i, len)));
            });
        }
        race.run();
    }
}

/// A run of bits inverted in a bitmap; the range depends on the result before it where the title says so.
fn flip() {
    for bytes in [1024u64, 2048, 4096, 8192, 16_384, 32_768, 65_536, 1 << 27, 1 << 37, 1 << 60] {
        let total = bytes * 8;
        let ranges = &ranges(total);
        let bitmap = Rng::new(bytes).bytes(bytes.min(1 << 16) as usize);
        let recompute = |race: &mut Race| {
            if bytes <= 1 << 16 {
                let (crc32c, bitmap) = (best(), bitmap.clone());
                race.add("whole bitmap anew (per call)", move || {
                    for _ in 0..OPERATIONS {
                        black_box(crc32c.update(!0, black_box(&bitmap)));
                    }
                });
            }
        };
        let published = Published::new();
        for (crc32c, (first, bits)) in backends().into_iter().zip(ranges) {
            if total <= 1 << 19 {
                assert_eq!(
                    Ok(published.flip_range(7, total, *first, *bits)),
                    crc32c.flip_range(7, total, *first, *bits)
                );
            }
        }
        let mut race =
            Race::new(format!("flip_range in {bytes} bytes, independent"), OPERATIONS).items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let mut sum = 0;
                for (first, bits) in black_box(ranges) {
                    sum ^= crc32c.flip_range(0, total, *first, *bits).unwrap();
                }
                black_box(sum);
            });
        }
        if total <= 1 << 19 {
            let published = published.clone();
            race.add("published algorithm, 9.5 KiB of tables", move || {
                let mut sum = 0;
                for (first, bits) in black_box(ranges) {
                    sum ^= published.flip_range(0, total, *first, *bits);
                }
                black_box(sum);
            });
        }
        recompute(&mut race);
        race.run();
        let mut race = Race::new(format!("flip_range in {bytes} bytes, each waits for the last"), OPERATIONS)
            .items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let (mut crc, zero) = (0, black_box(0));
                for (first, bits) in black_box(ranges) {
                    crc = crc32c.flip_range(crc, total, first ^ u64::from(crc & zero), *bits).unwrap();
                }
                black_box(crc);
            });
        }
        race.run();
    }
}

fn ranges(total: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(total);
    let range = |_| {
        let first = rng.below(total);
        (first, rng.below(total - first) + 1)
    };
    (0..OPERATIONS).map(range).collect()
}

/// A region replaced in a block.
fn splice() {
    for (block, region) in [1024usize, 4096, 65_536]
        .into_iter()
        .flat_map(|block| [12usize, 32, 64, 128, 264, 512, 1024, 4096].map(|region| (block, region)))
        .filter(|(block, region)| region <= block)
    {
        let data = Rng::new(9).bytes(block);
        let new = &Rng::new(10).bytes(region);
        let data = &data;
        let offsets = &offsets(block - region);
        let total = block as u64;
        let title = format!("splice of {region} bytes into {block}");
        let mut race = Race::new(format!("{title}, independent"), OPERATIONS).items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let mut sum = 0;
                for at in black_box(offsets) {
                    sum ^= crc32c.splice(0, total, *at as u64, &data[*at..*at + region], new).unwrap();
                }
                black_box(sum);
            });
        }
        race.add("whole block anew (per call)", {
            let crc32c = best();
            move || {
                for _ in 0..OPERATIONS {
                    black_box(crc32c.update(!0, black_box(data)));
                }
            }
        });
        race.run();
        let mut race = Race::new(format!("{title}, each waits for the last"), OPERATIONS).items(OPERATIONS);
        for crc32c in backends() {
            race.add(crc32c.name(), move || {
                let (mut crc, zero) = (0, black_box(0));
                for at in black_box(offsets) {
                    let at = at ^ (crc & zero) as usize;
                    crc = crc32c.splice(crc, total, at as u64, &data[at..at + region], new).unwrap();
                }
                black_box(crc);
            });
        }
        race.run();
    }
}

fn offsets(end: usize) -> Vec<usize> {
    let mut rng = Rng::new(end as u64);
    (0..OPERATIONS).map(|_| rng.below(end as u64 + 1) as usize).collect()
}

/// Scattered bits.
fn toggle() {
    for bytes in [4096u64, 65_536, 1 << 37] {
        for bits in [1, 2, 4, 8, 64] {
            let mut rng = Rng::new(bits);
            let positions: Vec<u64> = (0..bits * 64).map(|_| rng.below(8 * bytes)).collect();
            let positions = &positions;
            let mut race = Race::new(format!("toggle of {bits} bits in {bytes} bytes"), OPERATIONS).items(64);
            for crc32c in backends() {
                race.add(crc32c.name(), move || {
                    for some in black_box(positions).chunks(bits as usize) {
                        black_box(crc32c.toggle(0, 8 * bytes, some).unwrap());
                    }
                });
            }
            race.run();
        }
    }
}

/// `patch` must not lose against what it decides between.
fn patch() {
    for crc32c in backends() {
        for block in [64usize, 128, 256, 512, 1024, 2048, 4096, 16_384, 65_536] {
            for region in
                [4, 12, 32, 64, 128, 264, 512, 1024, 2048, 4096, 8192].into_iter().filter(|r| *r <= block)
            {
                let data = &Rng::new(9).bytes(block);
                let new = &Rng::new(10).bytes(region);
                let offsets = &offsets(block - region)[..64];
                let mut race = Race::new(
                    format!(
                        "{}: {region} bytes of {block} ({})",
                        crc32c.name(),
                        crc32c.splice_pays(block, region)
                    ),
                    64,
                )
                .items(64)
                .rounds(11);
                race.add("patch", move || {
                    for at in black_box(offsets) {
                        black_box(crc32c.patch(!0, 0, data, *at, new).unwrap());
                    }
                });
                race.add("splice", move || {
                    for at in black_box(offsets) {
                        black_box(
                            crc32c
                                .splice(0, block as u64, *at as u64, &data[*at..*at + region], new)
                                .unwrap(),
                        );
                    }
                });
                race.add("anew", move || {
                    for _ in black_box(offsets) {
                        black_box(crc32c.update(!0, black_box(data)));
                    }
                });
                race.run();
            }
        }
    }
}

/// One operation after everything else was pushed out of the first two caches.
fn cold() {
    let mut other = vec![1u8; 4 << 20];
    let data = Rng::new(1).bytes(4096);
    let crc32c = best();
    let portable = Crc32c::new(Cpu::portable());
    let published = Published::new();
    let region = [1; 12];
    type Operation<'a> = (&'a str, Box<dyn Fn(u64) -> u32 + 'a>);
    let operations: [Operation; 7] = [
        ("nothing (cost of measuring)", Box::new(|at| at as u32)),
        ("flip_range", Box::new(|at| crc32c.flip_range(0, 1 << 15, at, 77).unwrap())),
        ("flip_range, portable", Box::new(|at| portable.flip_range(0, 1 << 15, at, 77).unwrap())),
        ("flip_range, published algorithm", Box::new(|at| published.flip_range(0, 1 << 15, at, 77))),
        ("toggle of 1 bit", Box::new(|at| crc32c.toggle(0, 1 << 15, &[at]).unwrap())),
        ("splice of 12 bytes", Box::new(|at| crc32c.splice(0, 4096, at / 8, &region, &[2; 12]).unwrap())),
        ("4096 bytes anew", Box::new(|_| crc32c.update(!0, &data))),
    ];
    println!("one operation in or on 4096 bytes, mean of the middle half of 4001, nanoseconds");
    println!("  {:<34} {:>10} {:>10}", "", "warm", "cold");
    for (name, operation) in &operations {
        let mut rng = Rng::new(5);
        let mut measure = |evict: &mut dyn FnMut()| {
            let mut sample = || {
                let at = rng.below((1 << 15) - 100);
                evict();
                let start = std::time::Instant::now();
                black_box(operation(black_box(at)));
                start.elapsed().as_nanos() as f64
            };
            middle_mean((0..4001).map(|_| sample()).collect())
        };
        let warm = measure(&mut || {});
        let cold =
            measure(&mut || other.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1)));
        println!("  {name:<34} {warm:>10.1} {cold:>10.1}");
    }
}

/// The mean of the middle half: finer than a clock that counts by ten nanoseconds, and deaf to interruptions.
fn middle_mean(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = &samples[samples.len() / 4..samples.len() * 3 / 4];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// Beside work that wants the whole first-level cache: what an operation adds to both.
fn thrash() {
    for work_bytes in [0usize, 16 << 10, 40 << 10, 46 << 10] {
        let work = Rng::new(3).bytes(work_bytes);
        let work = &work;
        let total = 1u64 << 15;
        let ranges = &ranges(total)[..64];
        let (crc32c, portable, published) = (best(), Crc32c::new(Cpu::portable()), Published::new());
        let new = &Rng::new(10).bytes(12);
        let block = &Rng::new(11).bytes(4096);
        let run = |operation: &dyn Fn(u64, u64) -> u32| {
            let mut sum = 0u64;
            for (first, bits) in black_box(ranges) {
                let words = black_box(work).chunks_exact(64);
                sum ^= words.map(|line| u64::from(line[0])).sum::<u64>();
                sum ^= u64::from(operation(*first, *bits));
            }
            black_box(sum);
        };
        let run = &run;
        let mut race = Race::new(format!("beside work on {} KiB", work_bytes >> 10), 64).items(64);
        race.add("the work alone", move || run(&|first, _| first as u32));
        race.add("and flip_range", move || {
            run(&|first, bits| crc32c.flip_range(0, total, first, bits).unwrap())
        });
        race.add("and flip_range, portable", move || {
            run(&|first, bits| portable.flip_range(0, total, first, bits).unwrap())
        });
        race.add("and flip_range, published algorithm", move || {
            run(&|first, bits| published.flip_range(0, total, first, bits))
        });
        race.add("and a splice of 12 bytes", move || {
            run(&|first, _| {
                let at = (first / 8 % 4084) as usize;
                crc32c.splice(0, 4096, at as u64, &block[at..at + 12], new).unwrap()
            })
        });
        race.add("and 4096 bytes anew", move || run(&|_, _| crc32c.update(!0, black_box(block))));
        race.run();
    }
}

/// The algorithm proposed for the kernel: an operator for each power of two of zero bits, as nibble tables.
#[derive(Clone)]
struct Published {
    /// `zeros[n][i][v]`: the register with nibble i = v and all others 0, after 2^n zero bits.
    zeros: [[[u32; 16]; 8]; 19],
    /// `ones[n]`: the register after 2^n one bits, started at 0.
    ones: [u32; 20],
}

impl Published {
    fn new() -> Published {
        let mut published = Published { zeros: [[[0; 16]; 8]; 19], ones: [0; 20] };
        let one = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        for n in 0..19 {
            for i in 0..8 {
                for value in 0..16 {
                    let crc = (value as u32) << (4 * i);
                    let twice = || published.apply(n - 1, published.apply(n - 1, crc));
                    published.zeros[n][i][value] = if n == 0 { one(crc) } else { twice() };
                }
            }
        }
        published.ones[0] = one(1);
        for n in 0..19 {
            published.ones[n + 1] = published.apply(n, published.ones[n]) ^ published.ones[n];
        }
        published
    }

    /// The register after 2^n zero bits.
    fn apply(&self, n: usize, crc: u32) -> u32 {
        (0..8).fold(0, |sum, i| sum ^ self.zeros[n][i][(crc >> (4 * i) & 15) as usize])
    }

    fn shift(&self, mut crc: u32, bits: u64) -> u32 {
        for n in 0..19 {
            if bits >> n & 1 == 1 {
                crc = self.apply(n, crc);
            }
        }
        crc
    }

    fn flip_range(&self, old: u32, total: u64, first: u64, bits: u64) -> u32 {
        let mut ones = 0;
        for n in 0..20 {
            if bits >> n & 1 == 1 {
                if n < 19 {
                    ones = self.shift(ones, 1 << n);
                }
                ones ^= self.ones[n];
            }
        }
        old ^ self.shift(ones, total - first - bits)
    }
}
