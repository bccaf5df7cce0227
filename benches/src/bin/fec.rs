//! Reed-Solomon parity as dm-verity's error correction needs it, beside byte-wise encoders.
//!
//! `fec [peers|backends|batches|stream|repair|image PATH|once PATH ROOTS]`: against the shift register that veritysetup has and a
//! Rust crate for the same code; back end against back end; rows given at once; a buffer larger than the caches; damaged
//! rounds. Without an argument: `peers`.

use std::hint::black_box;

use casemate_benches::Race;
use casemate_blockdev::{BlockDevice, FileDevice, Pool, Uuid};
use casemate_primitives::Cpu;
use casemate_primitives::reed_solomon::ReedSolomon;
use casemate_primitives::testing::Rng;
use casemate_providers::Work;
use casemate_verity::dm::fec::{FecDevices, FecLayout, check, encode as encode_image};
use casemate_verity::dm::{Layout, Parameters, format};

const WIDTH: usize = 4096;

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "peers".into());
    if mode == "image" {
        return image(&args.next().expect("the path of an image"));
    }
    if mode == "once" {
        let path = args.next().expect("the path of an image");
        return once(&path, args.next().expect("roots, or 0").parse().expect("a number"));
    }
    for roots in [2, 24] {
        match mode.as_str() {
            "peers" => peers(roots),
            "backends" => backends(roots),
            "batches" => batches(roots),
            "stream" => stream(roots),
            "repair" => repair(roots),
            other => panic!("{other} is none of peers, backends, batches, stream, repair"),
        }
    }
}

/// The whole parity of one set of codewords side by side.
fn encode(code: &ReedSolomon, rows: &[&[u8]], batch: usize, parity: &mut [u8]) {
    let mut encoder = code.encoder(rows[0].len());
    rows.chunks(batch).for_each(|rows| encoder.feed(rows));
    encoder.finish(parity);
}

/// One codeword at a time, one product table look-up for each message and parity symbol: libfec's encoder,
/// which veritysetup carries.
struct ByteWise {
    log: [u8; 256],
    exp: [u8; 512],
    generator_log: Vec<usize>,
}

impl ByteWise {
    fn new(roots: usize) -> ByteWise {
        let (mut log, mut exp) = ([0; 256], [0; 512]);
        let mut x = 1u16;
        for i in 0..255 {
            log[usize::from(x as u8)] = i as u8;
            exp[i] = x as u8;
            exp[i + 255] = x as u8;
            x = x << 1 ^ if x & 0x80 != 0 { 0x11d } else { 0 };
        }
        let mut generator = vec![1u8];
        for root in 0..roots {
            generator.push(0);
            for i in (1..generator.len()).rev() {
                let c = generator[i - 1];
                if c != 0 {
                    generator[i] ^= exp[usize::from(log[usize::from(c)]) + root];
                }
            }
        }
        let generator_log = generator[1..].iter().map(|c| usize::from(log[usize::from(*c)])).collect();
        ByteWise { log, exp, generator_log }
    }

    fn encode(&self, rows: &[&[u8]], parity: &mut [u8]) {
        let roots = self.generator_log.len();
        for (column, parity) in parity.chunks_exact_mut(roots).enumerate() {
            parity.fill(0);
            for row in rows {
                let feedback = row[column] ^ parity[0];
                parity.copy_within(1.., 0);
                parity[roots - 1] = 0;
                if feedback != 0 {
                    let feedback = usize::from(self.log[usize::from(feedback)]);
                    for (parity, g) in parity.iter_mut().zip(&self.generator_log) {
                        *parity ^= self.exp[feedback + g];
                    }
                }
            }
        }
    }
}

fn peers(roots: usize) {
    let message = Rng::new(1).bytes((255 - roots) * WIDTH);
    let rows: Vec<&[u8]> = message.chunks_exact(WIDTH).collect();
    let mut expected = vec![0; roots * WIDTH];
    let byte_wise = ByteWise::new(roots);
    byte_wise.encode(&rows, &mut expected);
    let (rows, expected, byte_wise) = (&rows[..], &expected, &byte_wise);
    let mut race = Race::new(format!("one round of 4096 codewords, {roots} roots"), message.len()).rounds(9);
    for code in ReedSolomon::available(Cpu::detect(), roots).unwrap() {
        let mut parity = vec![0; roots * WIDTH];
        encode(&code, rows, 32, &mut parity);
        assert!(parity == *expected, "{code:?}: wrong parity");
        let name = format!("casemate {}", code.backend());
        race.add(name, move || encode(&code, black_box(rows), 32, black_box(&mut parity)));
    }
    let crate_encoder = reed_solomon::Encoder::new(roots);
    let mut parity = vec![0; roots * WIDTH];
    let mut column = vec![0; rows.len()];
    let mut by_crate = move |rows: &[&[u8]]| {
        for (c, parity) in parity.chunks_exact_mut(roots).enumerate() {
            column.iter_mut().zip(rows).for_each(|(symbol, row)| *symbol = row[c]);
            parity.copy_from_slice(crate_encoder.encode(&column).ecc());
        }
        parity == *expected
    };
    assert!(by_crate(rows), "reed-solomon: wrong parity");
    race.add("reed-solomon 0.2", move || {
        black_box(by_crate(black_box(rows)));
    });
    let mut parity = vec![0; roots * WIDTH];
    race.add("byte-wise shift register", move || byte_wise.encode(black_box(rows), black_box(&mut parity)));
    race.run();
}

fn backends(roots: usize) {
    for width in [512, 4096, 16384] {
        let message = Rng::new(1).bytes((255 - roots) * width);
        let rows: Vec<&[u8]> = message.chunks_exact(width).collect();
        let mut race = Race::new(format!("width {width}, {roots} roots"), message.len());
        for code in ReedSolomon::available(Cpu::detect(), roots).unwrap() {
            let (rows, mut parity) = (rows.clone(), vec![0; roots * width]);
            let name = code.backend();
            race.add(name, move || encode(&code, black_box(&rows), 32, black_box(&mut parity)));
        }
        race.run();
    }
}

/// The same few rows again and again, so that everything stays in the caches: what the arithmetic can do.
fn batches(roots: usize) {
    let code = &ReedSolomon::new(Cpu::detect(), roots).unwrap();
    for width in [1024, 4096, 16384] {
        let count = 240 / 24 * 24 - 24;
        let message = Rng::new(1).bytes(8 * width);
        let rows: Vec<&[u8]> = message.chunks_exact(width).cycle().take(count).collect();
        let mut race =
            Race::new(format!("{count} rows of {width} in the cache, {roots} roots"), count * width);
        for batch in [4, 8, 16, 24, 36, 54, 108, 216] {
            let (rows, mut encoder) = (rows.clone(), code.encoder(width));
            race.add(format!("{} rows at once", batch), move || {
                encoder.reset();
                black_box(&rows).chunks(batch).for_each(|rows| encoder.feed(rows));
            });
        }
        let rows: Vec<&[u8]> = message.chunks_exact(width).cycle().take(255 - roots).collect();
        let mut parity = vec![0; roots * width];
        race.add("whole codewords, 32 rows at once", move || encode(code, black_box(&rows), 32, &mut parity));
        race.run();
    }
}

/// 256 MiB of message, taken in panels of some rounds, as the error correction of an image is made.
fn stream(roots: usize) {
    let rounds = 280;
    let code = &ReedSolomon::new(Cpu::detect(), roots).unwrap();
    let message = Rng::new(1).bytes((255 - roots) * rounds * WIDTH);
    let message = &message;
    let mut race = Race::new(format!("{} MiB, {roots} roots", message.len() >> 20), message.len()).rounds(7);
    for rounds_at_once in [1, 2, 4, 8, 14] {
        for batch in [16, 32, 253] {
            let width = rounds_at_once * WIDTH;
            let mut encoder = code.encoder(width);
            let mut parity = vec![0; roots * width];
            race.add(format!("{rounds_at_once} rounds, {batch} rows at once"), move || {
                for first in (0..rounds).step_by(rounds_at_once) {
                    let rows: Vec<&[u8]> = message
                        .chunks_exact(rounds * WIDTH)
                        .map(|row| &row[first * WIDTH..][..width])
                        .collect();
                    rows.chunks(batch).for_each(|rows| encoder.feed(rows));
                    encoder.finish(black_box(&mut parity));
                }
            });
        }
    }
    let mut copy = vec![0; 1 << 19];
    race.add("memcpy into 512 KiB", move || {
        for part in message.chunks(copy.len()) {
            copy[..part.len()].copy_from_slice(part);
            black_box(&mut copy);
        }
    });
    race.run();
}

/// A damaged round is copied and repaired; the clean one shows what finding damage costs.
fn repair(roots: usize) {
    let code = ReedSolomon::new(Cpu::detect(), roots).unwrap();
    let message = Rng::new(1).bytes((255 - roots) * WIDTH);
    let rows: Vec<&[u8]> = message.chunks_exact(WIDTH).collect();
    let mut parity = vec![0; roots * WIDTH];
    encode(&code, &rows, 32, &mut parity);
    let good = code.join(&message, &parity);
    let damaged = |count: usize| {
        let mut bad = good.clone();
        (0..count).for_each(|i| Rng::new(9).fill(&mut bad[i * 9 * WIDTH..][..WIDTH]));
        bad
    };
    let mut scattered = good.clone();
    let mut rng = Rng::new(4);
    for column in (0..WIDTH).step_by(8) {
        scattered[rng.below(255) as usize * WIDTH + column] ^= 1;
    }
    let erasures: Vec<usize> = (0..roots).map(|i| i * 9).collect();
    let mut race = Race::new(format!("repair one round of 4096, {roots} roots"), message.len());
    for (name, bad, erasures) in [
        ("clean", good.clone(), &[][..]),
        ("one bad block, known", damaged(1), &[0][..]),
        ("one bad block, unknown", damaged(1), &[]),
        ("as many bad blocks as roots, known", damaged(roots), &erasures),
        ("half as many bad blocks, unknown", damaged(roots / 2), &[]),
        ("512 scattered symbols", scattered, &[]),
    ] {
        let mut work = good.clone();
        let (code, good) = (&code, &good);
        race.add(name, move || {
            work.copy_from_slice(&bad);
            let repair = code.repair(&mut work, WIDTH, erasures).unwrap();
            assert!(repair.unrepaired.is_empty() && work == *good, "{name}");
        });
    }
    race.run();
}

/// A new file beside the image.
fn new_file(path: &str, suffix: &str) -> FileDevice {
    let path = format!("{path}.{suffix}");
    std::fs::File::create(&path).unwrap();
    FileDevice::open_writable(path).unwrap()
}

fn layout_of(path: &str) -> Layout {
    let size = std::fs::metadata(path).unwrap().len();
    let uuid = Some(Uuid::from_bytes([1; 16]));
    Layout::new(Parameters::new("sha256").unwrap(), size / 4096, 0, uuid).unwrap()
}

fn work(threads: usize) -> Work<'static> {
    Work { pool: Pool::new(std::num::NonZeroUsize::new(threads)), ..Work::default() }
}

/// Formats once, with parity if `roots` is not 0: to be timed from outside, as veritysetup is.
fn once(path: &str, roots: u32) {
    let (data, hash, parity) =
        (FileDevice::open(path).unwrap(), new_file(path, "hash"), new_file(path, "fec"));
    let (layout, work) = (layout_of(path), work(2));
    format(&layout, &data, &hash, &work).unwrap();
    if roots != 0 {
        let fec = FecLayout::new(&layout, roots, layout.hash_device_size()).unwrap();
        let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
        encode_image(&fec, &devices, &work).unwrap();
    }
}

/// What a device costs with and without error correction: `PATH` is the data; hash area and parity go beside it.
fn image(path: &str) {
    let data = FileDevice::open(path).unwrap();
    let (hash, parity) = (new_file(path, "hash"), new_file(path, "fec"));
    let size = data.size();
    let layout = &layout_of(path);
    format(layout, &data, &hash, &work(2)).unwrap();
    let devices = &FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    for threads in [1, 2] {
        let work = &work(threads);
        let mut race = Race::new(format!("{} MiB, {threads} threads", size >> 20), size as usize).rounds(5);
        race.add("hash tree", || drop(black_box(format(layout, &data, &hash, work).unwrap())));
        for roots in [2, 24] {
            let fec = FecLayout::new(layout, roots, layout.hash_device_size()).unwrap();
            race.add(format!("parity, {roots} roots"), move || encode_image(&fec, devices, work).unwrap());
            race.add(format!("check of parity, {roots} roots"), move || {
                assert!(check(&fec, devices, work).unwrap().is_empty());
            });
        }
        race.run();
    }
}
