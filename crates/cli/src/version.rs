//! `casemate --version`, with `--verbose` or `--json` all that a report of a fault should say of the build and of the CPU.

use std::ffi::OsString;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use casemate::{Cpu, Crc32c, Error, Providers};

use crate::context::Context;
use crate::tools;

/// Versions of formats that are read and written.
const FORMATS: &[(&str, &str)] = &[
    ("ext4", "revisions 0 and 1"),
    ("LUKS", "1 and 2"),
    ("dm-verity", "superblock 1, hash types 0 and 1"),
    ("dm-integrity", "superblocks 1 to 6"),
    ("fs-verity", "descriptor 1"),
    ("fscrypt", "policies 1 and 2"),
    ("overlay", "1 to 4"),
    ("journal of crypt --in-place", "1"),
];

/// Algorithms whose back end is told.
const ALGORITHMS: &[&str] = &["xts(aes)", "cbc(aes)", "ctr(aes)", "sha256", "sha512"];

/// Features of this crate that a build can leave out.
const FEATURES: &[&str] = &[];

/// Prints what is asked for besides the version, if the command line asks for more.
pub fn print_more(args: &[OsString]) -> Option<Result<(), Error>> {
    let has = |names: &[&str]| args.iter().any(|word| names.iter().any(|name| word == name));
    let context = Context::default();
    let told = Told::new();
    match (has(&["--json"]), has(&["--verbose", "-v"])) {
        (true, _) => Some(context.print_json(&told.value())),
        (false, true) => Some(context.print(told.text())),
        (false, false) => None,
    }
}

/// Everything that there is to say.
struct Told {
    cpu: Vec<&'static str>,
    back_ends: Vec<(&'static str, String)>,
}

impl Told {
    fn new() -> Told {
        let cpu = Cpu::detect();
        let providers = Providers::new(cpu);
        // The first in the order of the rows that this CPU runs; the tests of each before its first use take their time.
        let of = |algorithm: &&'static str| {
            let rows = providers.registry().rows().iter();
            let usable = rows.filter(|row| row.algorithm == *algorithm && row.spec.is_ok());
            usable.max_by_key(|row| row.priority).map(|row| (*algorithm, row.driver.clone()))
        };
        let mut back_ends: Vec<_> = ALGORITHMS.iter().filter_map(of).collect();
        back_ends.push(("crc32c", Crc32c::new(cpu).name().to_owned()));
        let cpu = casemate::Feature::all().filter(|feature| cpu.has(*feature)).map(casemate::Feature::name);
        Told { cpu: cpu.collect(), back_ends }
    }

    fn text(&self) -> String {
        let mut text = format!("casemate {}\n", env!("CARGO_PKG_VERSION"));
        let mut line = |name: &str, value: &str| {
            let value = if value.is_empty() { "none" } else { value };
            writeln!(text, "{name}: {value}").expect("writing to a string");
        };
        line("commit", env!("CASEMATE_COMMIT"));
        line("target", env!("CASEMATE_TARGET"));
        line("features", &FEATURES.join(" "));
        line("CPU features", &self.cpu.join(" "));
        for (algorithm, driver) in &self.back_ends {
            line(algorithm, driver);
        }
        for (format, version) in FORMATS {
            line(format, version);
        }
        line("links answer as", &tools::VERSIONS.join(", "));
        text
    }

    fn value(&self) -> Value {
        let back_ends: Map<String, Value> = self
            .back_ends
            .iter()
            .map(|(name, driver)| ((*name).to_owned(), driver.as_str().into()))
            .collect();
        let formats: Map<String, Value> =
            FORMATS.iter().map(|(name, version)| ((*name).to_owned(), (*version).into())).collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "commit": env!("CASEMATE_COMMIT"),
            "target": env!("CASEMATE_TARGET"),
            "features": FEATURES,
            "cpu_features": self.cpu,
            "back_ends": back_ends,
            "formats": formats,
            "links": tools::VERSIONS,
        })
    }
}
