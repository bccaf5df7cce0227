//! Every back end against polynomial division and against damage of every kind.

use super::field::{evaluate, multiply_bitwise, power};
use super::*;
use crate::testing::{Guarded, Rng};

/// All back ends of this machine.
fn all(roots: usize) -> Vec<ReedSolomon> {
    ReedSolomon::available(Cpu::detect(), roots).unwrap()
}

/// The oracle: the remainder of message(x) * x^roots divided by the product of (x - alpha^i).
fn naive_parity(message: &[u8], roots: usize) -> Vec<u8> {
    // Coefficients with the highest power first.
    let mut generator = vec![1];
    let mut root = 1;
    for _ in 0..roots {
        let mut next = generator.clone();
        next.push(0);
        for (i, c) in generator.iter().enumerate() {
            next[i + 1] ^= multiply_bitwise(*c, root);
        }
        generator = next;
        root = multiply_bitwise(root, 2);
    }
    let mut dividend = message.to_vec();
    dividend.resize(message.len() + roots, 0);
    for i in 0..message.len() {
        let factor = dividend[i];
        for (j, c) in generator.iter().enumerate() {
            dividend[i + j] ^= multiply_bitwise(factor, *c);
        }
    }
    dividend.split_off(message.len())
}

fn naive_parity_of_rows(rows: &[u8], width: usize, roots: usize) -> Vec<u8> {
    let column = |c: usize| rows[c..].iter().step_by(width).copied().collect::<Vec<u8>>();
    (0..width).flat_map(|c| naive_parity(&column(c), roots)).collect()
}

fn encode(code: &ReedSolomon, message: &[u8], width: usize, batch: usize) -> Vec<u8> {
    let rows: Vec<&[u8]> = message.chunks_exact(width).collect();
    let mut encoder = code.encoder(width);
    rows.chunks(batch).for_each(|rows| encoder.feed(rows));
    let mut parity = vec![0; code.roots() * width];
    encoder.finish(&mut parity);
    parity
}

#[test]
fn every_back_end_divides() {
    for roots in 2..=24 {
        let message = Rng::new(roots as u64).bytes((255 - roots) * 67);
        let expected = naive_parity_of_rows(&message, 67, roots);
        for code in all(roots) {
            for batch in [1, 2, 7, 32, 255] {
                assert_eq!(encode(&code, &message, 67, batch), expected, "{code:?}, {batch} rows at once");
            }
        }
    }
}

#[test]
fn every_width_and_number_of_rows() {
    for roots in [2, 3, 5, 8, 12, 13, 24] {
        let message = Rng::new(7).bytes(255 * 600);
        for width in (1..=9).chain([31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 193, 255, 256, 257, 512, 600])
        {
            for fed in [0, 1, 2, 3, 100, 255 - roots] {
                let rows = &message[..fed * width];
                let mut whole = rows.to_vec();
                whole.resize((255 - roots) * width, 0);
                // The naive division is slow, so it sees the first, the last and one other column.
                let columns = [0, width / 3, width - 1];
                for code in all(roots) {
                    let parity = encode(&code, rows, width, 16);
                    for c in columns {
                        let column: Vec<u8> = whole[c..].iter().step_by(width).copied().collect();
                        let expected = naive_parity(&column, roots);
                        let got = &parity[c * roots..][..roots];
                        assert_eq!(got, expected, "{code:?}, width {width}, {fed} rows, column {c}");
                    }
                }
            }
        }
    }
}

#[test]
fn back_ends_agree_on_whole_blocks() {
    for roots in 2..=24 {
        for width in [512, 1024, 4096] {
            let message = Rng::new(width as u64).bytes((255 - roots) * width);
            let mut codes = all(roots);
            let portable = codes.pop().unwrap();
            let expected = encode(&portable, &message, width, 255);
            for code in codes {
                assert_eq!(encode(&code, &message, width, 32), expected, "{code:?}, width {width}");
            }
        }
    }
}

#[test]
fn codewords_vanish_at_the_roots() {
    let message = Rng::new(3).bytes(231);
    let code = ReedSolomon::new(Cpu::detect(), 24).unwrap();
    let mut codeword = message.clone();
    codeword.extend(encode(&code, &message, 1, 231));
    codeword.reverse();
    for i in 0..24 {
        assert_eq!(evaluate(&codeword, power(i)), 0, "alpha^{i}");
    }
}

#[test]
fn nothing_outside_the_slices_is_touched() {
    for roots in [2, 7, 24] {
        for width in [1, 15, 16, 17, 63, 64, 100, 129] {
            for at_end in [false, true] {
                let guard = |bytes: &[u8]| match at_end {
                    true => Guarded::copy_at_end(bytes),
                    false => Guarded::copy_at_start(bytes),
                };
                let message = Rng::new(11).bytes(5 * width);
                for code in all(roots) {
                    let rows: Vec<Guarded> = message.chunks_exact(width).map(guard).collect();
                    let rows: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
                    let mut encoder = code.encoder(width);
                    encoder.feed(&rows);
                    let mut parity = guard(&vec![0; roots * width]);
                    encoder.finish(&mut parity);
                    assert_eq!(parity[..], encode(&code, &message, width, 5), "{code:?}, width {width}");

                    let mut sum = guard(&message[..width]);
                    code.multiply_add(0x8e, rows[1], &mut sum);
                    for c in 0..width {
                        let expected = rows[0][c] ^ multiply_bitwise(0x8e, rows[1][c]);
                        assert_eq!(sum[c], expected, "{code:?}, width {width}, column {c}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_encoder_starts_afresh_after_finish_and_reset() {
    for code in all(5) {
        let message = Rng::new(5).bytes(250 * 70);
        let rows: Vec<&[u8]> = message.chunks_exact(70).collect();
        let (mut first, mut second) = (vec![0; 350], vec![0; 350]);
        let mut encoder = code.encoder(70);
        encoder.feed(&rows);
        encoder.finish(&mut first);
        encoder.feed(&rows[..3]);
        encoder.reset();
        encoder.feed(&rows);
        encoder.finish(&mut second);
        assert_eq!(first, second, "{code:?}");
    }
}

/// A damaged set of codewords and what it was.
struct Case {
    good: Vec<u8>,
    bad: Vec<u8>,
}

impl Case {
    fn new(code: &ReedSolomon, width: usize, seed: u64) -> Case {
        let message = Rng::new(seed).bytes(code.message_symbols() * width);
        let good = code.join(&message, &encode(code, &message, width, 32));
        Case { bad: good.clone(), good }
    }

    /// Damages `count` distinct rows of one column, none of them in `spared`, and gives the rows.
    fn damage(
        &mut self,
        width: usize,
        column: usize,
        count: usize,
        spared: &[usize],
        rng: &mut Rng,
    ) -> Vec<usize> {
        let mut rows: Vec<usize> = Vec::new();
        while rows.len() < count {
            let row = rng.below(255) as usize;
            if !rows.contains(&row) && !spared.contains(&row) {
                self.bad[row * width + column] ^= 1 + rng.below(255) as u8;
                rows.push(row);
            }
        }
        rows
    }
}

#[test]
fn scattered_damage_up_to_the_capacity_is_repaired() {
    let width = 40;
    for roots in 2..=24 {
        for code in all(roots) {
            for erased in [0, 1, roots / 2, roots - 1, roots] {
                let seed = (roots * 100 + erased) as u64;
                let mut rng = Rng::new(seed);
                let mut case = Case::new(&code, width, seed);
                let erasures = case.damage(width, 0, erased, &[], &mut rng);
                let mut symbols = erased;
                for column in 1..width {
                    // Erased rows are damaged in some columns only, other rows anywhere within the capacity.
                    for row in &erasures {
                        let xor = rng.below(3) as u8;
                        case.bad[row * width + column] ^= xor;
                        symbols += usize::from(xor != 0);
                    }
                    let count = rng.below(((roots - erased) / 2) as u64 + 1) as usize;
                    symbols += case.damage(width, column, count, &erasures, &mut rng).len();
                }
                let repair = code.repair(&mut case.bad, width, &erasures).unwrap();
                assert!(case.bad == case.good, "{code:?}, {erased} erasures, seed {seed}");
                assert!(repair.unrepaired.is_empty(), "{code:?}, {erased} erasures, seed {seed}");
                assert_eq!(repair.symbols, symbols, "{code:?}, {erased} erasures, seed {seed}");
            }
        }
    }
}

#[test]
fn whole_rows_are_repaired_with_and_without_erasures() {
    let width = 512;
    for roots in [2, 3, 8, 23, 24] {
        for code in all(roots) {
            for erased in [false, true] {
                let mut rng = Rng::new(roots as u64);
                let mut case = Case::new(&code, width, 99);
                let count = if erased { roots } else { roots / 2 };
                let mut rows = case.damage(width, 0, count, &[], &mut rng);
                for row in &rows {
                    rng.fill(&mut case.bad[row * width..][..width]);
                }
                let erasures = if erased { rows.clone() } else { vec![] };
                let repair = code.repair(&mut case.bad, width, &erasures).unwrap();
                assert!(case.bad == case.good, "{code:?}, erased {erased}");
                rows.sort_unstable();
                assert_eq!(repair.rows, rows, "{code:?}, erased {erased}");
                assert!(repair.unrepaired.is_empty(), "{code:?}, erased {erased}");
            }
        }
    }
}

#[test]
fn damage_beyond_the_capacity_is_reported_and_left_alone() {
    // With 24 roots a random word lies within 12 errors of a codeword once in about 12! times: never here.
    // The mix has clean columns, repairable ones and hopeless ones.
    let width = 90;
    for code in all(24) {
        for erased in [0, 4] {
            let mut rng = Rng::new(erased);
            let mut case = Case::new(&code, width, 1);
            let erasures = case.damage(width, 0, erased as usize, &[], &mut rng);
            let capacity = (24 - erasures.len()) / 2;
            let mut hopeless = Vec::new();
            for column in 1..width {
                let count = [0, capacity, capacity + 1, 30][column % 4];
                case.damage(width, column, count, &erasures, &mut rng);
                if count > capacity {
                    hopeless.push(column);
                    for row in case.good.chunks_exact_mut(width).zip(case.bad.chunks_exact(width)) {
                        row.0[column] = row.1[column];
                    }
                }
            }
            let repair = code.repair(&mut case.bad, width, &erasures).unwrap();
            assert_eq!(repair.unrepaired, hopeless, "{code:?}, {erased} erasures");
            assert!(case.bad == case.good, "{code:?}, {erased} erasures");
        }
    }
}

#[test]
fn beyond_the_capacity_of_two_roots_the_outcome_is_a_codeword_or_a_report() {
    let width = 200;
    for code in all(2) {
        let mut case = Case::new(&code, width, 2);
        let mut rng = Rng::new(2);
        for column in 0..width {
            case.damage(width, column, 2, &[], &mut rng);
        }
        let before = case.bad.clone();
        let repair = code.repair(&mut case.bad, width, &[]).unwrap();
        assert!(!repair.unrepaired.is_empty());
        let parity = encode(&code, &case.bad[..253 * width], width, 32);
        let consistent = code.join(&case.bad[..253 * width], &parity);
        for column in 0..width {
            let expected = if repair.unrepaired.contains(&column) { &before } else { &consistent };
            for row in 0..255 {
                let i = row * width + column;
                assert_eq!(case.bad[i], expected[i], "{code:?}, row {row}, column {column}");
            }
        }
    }
}

#[test]
fn wrong_requests_are_refused() {
    for roots in [0, 1, 25, 255] {
        assert_eq!(ReedSolomon::new(Cpu::detect(), roots).err(), Some(RsError::Roots(roots)));
    }
    let code = ReedSolomon::new(Cpu::detect(), 2).unwrap();
    let mut codewords = vec![0; 255];
    assert_eq!(code.repair(&mut codewords, 1, &[255]), Err(RsError::Erasure(255)));
    assert_eq!(code.repair(&mut codewords, 1, &[4, 4]), Err(RsError::Erasure(4)));
    assert_eq!(code.repair(&mut codewords, 1, &[1, 2, 3]), Err(RsError::TooManyErasures(3)));
    assert_eq!(code.repair(&mut codewords, 1, &[1, 2]), Ok(Repair::default()));
    assert_eq!(code.repair(&mut [], 0, &[1]), Ok(Repair::default()));
}

#[test]
fn the_list_of_back_ends_ends_with_portable() {
    let names: Vec<&str> = all(2).iter().map(ReedSolomon::backend).collect();
    println!("back ends: {}", names.join(", "));
    assert_eq!(names.last(), Some(&"portable"));
    assert_eq!(ReedSolomon::new(Cpu::portable(), 2).unwrap().backend(), "portable");
}
