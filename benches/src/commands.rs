//! A race between whole commands, on files in the page cache.

use std::process::Command;
use std::time::Instant;

use crate::{Probe, median};

/// A command that is timed, and what is done before it each time, in a shell.
pub struct Contestant {
    name: String,
    before: String,
    line: String,
}

impl Contestant {
    /// A command line, whose words are separated by single spaces; `before` is not timed.
    pub fn new(name: &str, before: &str, line: &str) -> Contestant {
        Contestant { name: name.to_owned(), before: before.to_owned(), line: line.to_owned() }
    }
}

/// Runs the contestants in turn. Prints what each took and how often that is the first one's speed; the seconds of each
/// are in the order of the contestants.
pub fn race(title: &str, rounds: u64, contestants: &[Contestant]) -> Vec<Vec<f64>> {
    println!("{title}, {rounds} rounds; before: {}", Probe::measure());
    let mut seconds = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for (contestant, seconds) in contestants.iter().zip(&mut seconds) {
            shell(&contestant.before);
            seconds.push(run(&contestant.line));
        }
    }
    for (contestant, own) in contestants.iter().zip(&seconds) {
        let ratio = median(seconds[0].iter().zip(own).map(|(first, own)| first / own).collect());
        let best = own.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "  {:<36} {:>7.3} s  best {best:>7.3}   {ratio:>5.2} of the first one's speed",
            contestant.name,
            median(own.clone())
        );
    }
    seconds
}

/// How many times as fast one contestant was as another, round by round.
pub fn ratio(own: &[f64], other: &[f64]) -> f64 {
    median(own.iter().zip(other).map(|(own, other)| other / own).collect())
}

/// Runs a script, which must succeed.
pub fn shell(script: &str) {
    let status = Command::new("sh").args(["-e", "-c", script]).status().expect("a shell");
    assert!(status.success(), "{script}");
}

/// Runs a command and gives the seconds that it took. qemu-img now and then can't time its key derivation and stops at
/// once; then it is run again.
pub fn run(line: &str) -> f64 {
    loop {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        let start = Instant::now();
        let output = Command::new(program).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        if output.status.success() {
            return start.elapsed().as_secs_f64();
        }
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("accurate CPU usage"), "{line}: {why}");
    }
}
