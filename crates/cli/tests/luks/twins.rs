//! A volume of which there are two, one that is changed here, and one that cryptsetup changes.

use std::fs;
use std::process::Command;

use casemate_testkit::{Place, run, run_any, tool};

use crate::{CASEMATE, says, yes};

pub const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// Two equal volumes, `ours` and `theirs`, with the passphrases `one` and `two` in slots 0 and 1.
pub struct Twins {
    pub place: Place,
    cryptsetup: std::path::PathBuf,
}

impl Twins {
    pub fn new(options: &str) -> Option<Twins> {
        let twins = Twins { place: Place::new(CASEMATE), cryptsetup: tool("cryptsetup")? };
        for key in ["one", "two", "three"] {
            twins.place.file(key, key);
        }
        fs::File::create(twins.place.path("theirs")).unwrap().set_len(3 << 20).unwrap();
        twins.theirs(&format!("luksFormat -q {CHEAP} {options} theirs one"));
        twins.theirs(&format!("luksAddKey -q {CHEAP} --key-file one theirs two"));
        twins.level();
        Some(twins)
    }

    /// Makes both equal again.
    pub fn level(&self) {
        fs::copy(self.place.path("theirs"), self.place.path("ours")).unwrap();
    }

    pub fn theirs(&self, line: &str) -> String {
        run(Command::new(&self.cryptsetup).args(line.split_whitespace()).current_dir(self.place.folder()))
    }

    pub fn status(&self, line: &str) -> i32 {
        let mut command = Command::new(&self.cryptsetup);
        let output = run_any(command.args(line.split_whitespace()).current_dir(self.place.folder()));
        output.status.code().unwrap()
    }

    #[track_caller]
    pub fn ours(&self, line: &str) -> String {
        yes(self.place.own(&format!("luks {line}")))
    }

    #[track_caller]
    pub fn refused(&self, line: &str, why: &str) {
        let before = self.place.read("ours");
        says(self.place.own(&format!("luks {line}")), 2, why);
        assert!(self.place.read("ours") == before, "{line} changed something");
    }

    /// The headers say the same, but for how often they were written.
    #[track_caller]
    pub fn same(&self, what: &str) {
        let dump = |file: &str| {
            let lines = self.theirs(&format!("luksDump {file}"));
            let is_kept =
                |line: &&str| !line.starts_with("Epoch:") && !line.starts_with("LUKS header information");
            lines.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(dump("ours"), dump("theirs"), "{what}");
        if dump("ours").contains("Keyslots area") {
            let json = |file: &str| self.theirs(&format!("luksDump --dump-json-metadata {file}"));
            assert_eq!(json("ours"), json("theirs"), "{what}");
        }
    }
}
