//! A race between contestants on a machine that is not always quiet.
//!
//! Samples are interleaved: every round times each contestant once, in turn, so that a disturbance meets all
//! of them. What is printed is the median of the rounds, the best round, and the median of the ratios to the
//! first contestant, taken round by round. A probe of clock and ALU throughput is printed beside the figures:
//! it tells a quiet core from one that shares its units with a neighbour.

use std::hint::black_box;
use std::time::{Duration, Instant};

pub mod commands;
pub mod nbd;
pub mod peers;
mod probe;

pub use probe::Probe;

/// How many rounds a race has; an odd number, so that the median is a sample.
const ROUNDS: usize = 31;

/// How long one sample of one contestant should take.
const SAMPLE: Duration = Duration::from_micros(200);

/// Contestants that do the same work, timed in turn.
pub struct Race<'a> {
    title: String,
    bytes: usize,
    items: usize,
    rounds: usize,
    contestants: Vec<(String, Box<dyn FnMut() + 'a>)>,
}

/// One contestant's result.
#[derive(Clone, Debug)]
pub struct Score {
    /// The contestant's name.
    pub name: String,
    /// Median time of one call, in nanoseconds.
    pub median_ns: f64,
    /// Best time of one call, in nanoseconds.
    pub best_ns: f64,
    /// Median over the rounds of this contestant's speed divided by the first one's.
    pub ratio: f64,
}

impl<'a> Race<'a> {
    /// A race in which one call of a contestant works on `bytes` bytes.
    pub fn new(title: impl Into<String>, bytes: usize) -> Race<'a> {
        Race { title: title.into(), bytes, items: 1, rounds: ROUNDS, contestants: Vec::new() }
    }

    /// Says that one call does `items` operations; times are then printed per operation.
    pub fn items(mut self, items: usize) -> Race<'a> {
        self.items = items;
        self
    }

    /// Another number of rounds, for work that takes long.
    pub fn rounds(mut self, rounds: usize) -> Race<'a> {
        self.rounds = rounds;
        self
    }

    /// Enters a contestant. The first one is what the others are compared with.
    pub fn add(&mut self, name: impl Into<String>, work: impl FnMut() + 'a) -> &mut Race<'a> {
        self.contestants.push((name.into(), Box::new(work)));
        self
    }

    /// Runs the race, prints its table and gives the scores back in the order of entry.
    pub fn run(mut self) -> Vec<Score> {
        let calls: Vec<u32> = self.contestants.iter_mut().map(|(_, work)| calibrate(work)).collect();
        let mut samples = vec![Vec::with_capacity(self.rounds); self.contestants.len()];
        let before = Probe::measure();
        for _ in 0..self.rounds {
            for (i, (_, work)) in self.contestants.iter_mut().enumerate() {
                samples[i].push(time(work, calls[i]));
            }
        }
        let after = Probe::measure();
        println!("{}  [probe before {before}, after {after}]", self.title);
        let scores: Vec<Score> = self
            .contestants
            .iter()
            .zip(&samples)
            .map(|((name, _), times)| Score {
                name: name.clone(),
                median_ns: median(times.clone()) / self.items as f64,
                best_ns: times.iter().copied().fold(f64::INFINITY, f64::min) / self.items as f64,
                ratio: median(samples[0].iter().zip(times).map(|(first, own)| first / own).collect()),
            })
            .collect();
        for score in &scores {
            let per_item = self.bytes as f64 / self.items as f64;
            println!(
                "  {:<44} {:>12.1} ns  best {:>12.1}  {:>8.2} GB/s  x{:.2}",
                score.name,
                score.median_ns,
                score.best_ns,
                per_item / score.median_ns,
                score.ratio
            );
        }
        scores
    }
}

/// The middle one of `values` when sorted.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn time(work: &mut impl FnMut(), calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        work();
        black_box(());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// How many calls make up a sample; also warms the caches.
fn calibrate(work: &mut impl FnMut()) -> u32 {
    let mut calls = 1;
    loop {
        let total = time(work, calls) * f64::from(calls);
        if total >= SAMPLE.as_nanos() as f64 / 2.0 || calls >= 1 << 24 {
            return calls;
        }
        calls *= 2;
    }
}
