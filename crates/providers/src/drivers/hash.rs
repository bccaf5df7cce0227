//! The hashes that run on the CPU: a row for each of our own back ends, and one for each algorithm of the vetted crates.

use casemate_primitives::Cpu;
use casemate_primitives::sha256::Sha256;
use casemate_primitives::sha512::Sha512;

use crate::engine::{ALGORITHMS, Algorithm, Engine};
use crate::flags::{Flags, Origin};
use crate::row::{HashSpec, Row};

/// As for ciphers: above everything of other origins, and falling in the primitives' order.
const HIGHEST_PRIORITY: u32 = 800;

/// Below every one of our own rows.
const CRATE_PRIORITY: u32 = 50;

pub(crate) fn rows(cpu: Cpu) -> Vec<Row> {
    let mut rows = Vec::new();
    let sha256 = Sha256::available(cpu).map(|hash| ("sha256", hash.name(), Engine::Sha256(hash)));
    for (place, own) in (0..).zip(sha256) {
        rows.push(own_row(place, own));
    }
    let sha512 = Sha512::available(cpu).map(|hash| ("sha512", hash.name(), Engine::Sha512(hash)));
    for (place, own) in (0..).zip(sha512) {
        rows.push(own_row(place, own));
    }
    for name in ALGORITHMS.iter().map(Algorithm::name) {
        let spec = HashSpec::cold(name);
        rows.push(Row::new(name, format!("{name}-crate"), CRATE_PRIORITY, Flags::NONE, Origin::Crate, spec));
    }
    rows
}

fn own_row(place: u32, (algorithm, back_end, engine): (&str, &str, Engine)) -> Row {
    let priority = HIGHEST_PRIORITY.saturating_sub(100 * place);
    let driver = format!("{algorithm}-{back_end}");
    Row::new(algorithm, driver, priority, Flags::NONE, Origin::Own, HashSpec::own(algorithm, engine))
}
