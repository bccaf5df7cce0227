//! One volume, changed here and by cryptsetup in turn, in sequences that nobody has thought of; after each step both say
//! the same of it, and what opened it does.

use std::fs;
use std::process::Command;

use casemate_testkit::{Place, Rng, run, run_any, slow_tests, tool};

use crate::twins::CHEAP;
use crate::{CASEMATE, yes};

/// Steps of a sequence, and how many sequences there are in slow tests.
const STEPS: usize = 30;
const SLOW: u64 = 30;

/// Passphrases at the most: LUKS1 has eight slots, and a change needs a free one.
const MOST_KEYS: usize = 5;

struct Sequence {
    place: Place,
    cryptsetup: std::path::PathBuf,
    rng: Rng,
    is_luks2: bool,
    /// The files of the passphrases that open the volume.
    keys: Vec<String>,
    /// How many passphrases there have been.
    made: u32,
    tokens: Vec<u32>,
    backup: Option<(Vec<String>, Vec<u32>)>,
    steps: Vec<String>,
}

impl Sequence {
    fn new(seed: u64, is_luks2: bool) -> Option<Sequence> {
        let cryptsetup = tool("cryptsetup")?;
        let place = Place::new(CASEMATE);
        fs::File::create(place.path("disk")).unwrap().set_len(5 << 20).unwrap();
        let rng = Rng::new(seed);
        let (keys, tokens, steps) = Default::default();
        let mut sequence =
            Sequence { place, cryptsetup, rng, is_luks2, keys, made: 0, tokens, backup: None, steps };
        let first = sequence.new_key();
        let (ours, theirs) = match is_luks2 {
            true => ("--crypt-offset 4M", "--type luks2 --offset 8192 --sector-size 512"),
            false => ("--type luks1 --crypt-offset 4M", "--type luks1 --offset 8192"),
        };
        sequence.either(
            &format!("format disk --key-file {first} {ours} {CHEAP}"),
            &format!("luksFormat -q {theirs} {CHEAP} disk {first}"),
        );
        sequence.keys.push(first);
        yes(sequence.place.own(&format!("luks extract disk plain --key-file {}", sequence.keys[0])));
        Some(sequence)
    }

    fn new_key(&mut self) -> String {
        self.made += 1;
        let name = format!("key{}", self.made);
        self.place.file(&name, &name);
        name
    }

    /// Any of the passphrases, and its place.
    fn any_key(&mut self) -> (usize, String) {
        let at = self.rng.below(self.keys.len() as u64) as usize;
        (at, self.keys[at].clone())
    }

    fn either(&mut self, ours: &str, theirs: &str) {
        let is_ours = self.rng.below(2) == 0;
        let (program, line) = match is_ours {
            true => (std::path::Path::new(CASEMATE), format!("luks {ours}")),
            false => (&*self.cryptsetup, theirs.to_owned()),
        };
        self.steps.push(format!("{} {line}", if is_ours { "casemate" } else { "cryptsetup" }));
        let output =
            run_any(Command::new(program).args(line.split_whitespace()).current_dir(self.place.folder()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}\n{}", output.status, self.steps.join("\n"));
    }

    fn step(&mut self) {
        let (at, key) = self.any_key();
        let cheap = CHEAP;
        match self.rng.below(if self.is_luks2 { 13 } else { 8 }) {
            0 | 1 if self.keys.len() < MOST_KEYS => {
                let new = self.new_key();
                self.either(
                    &format!("add-key disk --key-file {key} --new-key-file {new} {cheap}"),
                    &format!("luksAddKey -q {cheap} --key-file {key} disk {new}"),
                );
                self.keys.push(new);
            }
            2 if self.keys.len() > 1 => {
                self.either(
                    &format!("remove-key disk --key-file {key}"),
                    &format!("luksRemoveKey -q disk {key}"),
                );
                self.keys.remove(at);
            }
            3 if self.keys.len() > 1 => {
                let slot = self.slot_of(&key);
                self.either(&format!("kill-slot disk {slot}"), &format!("luksKillSlot -q disk {slot}"));
                self.keys.remove(at);
            }
            4 => {
                let new = self.new_key();
                self.either(
                    &format!("change-key disk --key-file {key} --new-key-file {new} {cheap}"),
                    &format!("luksChangeKey -q {cheap} --key-file {key} disk {new}"),
                );
                self.keys[at] = new;
            }
            5 => {
                let uuid = format!("{:08x}-1111-4222-8333-444444444444", self.rng.below(1 << 32));
                self.either(&format!("uuid disk --uuid {uuid}"), &format!("luksUUID -q --uuid {uuid} disk"));
            }
            6 => match self.backup.take() {
                None => {
                    let _ = fs::remove_file(self.place.path("backup"));
                    self.either(
                        "header-backup disk backup",
                        "luksHeaderBackup disk --header-backup-file backup",
                    );
                    self.backup = Some((self.keys.clone(), self.tokens.clone()));
                }
                Some((keys, tokens)) => {
                    self.either(
                        "header-restore disk backup --batch-mode",
                        "luksHeaderRestore -q disk --header-backup-file backup",
                    );
                    (self.keys, self.tokens) = (keys, tokens);
                }
            },
            7 if self.tokens.is_empty() => {
                let kind = if self.is_luks2 { "luks1" } else { "luks2" };
                let ours = format!("convert disk --type {kind} --batch-mode");
                // That tool takes back only headers whose first slot lies where it puts it.
                let is_usual =
                    self.is_luks2 || self.theirs("luksDump disk").contains("material offset:\t8\n");
                match is_usual {
                    true => self.either(&ours, &format!("convert -q --type {kind} disk")),
                    false => {
                        self.steps.push(format!("casemate luks {ours}"));
                        self.ours(&ours);
                    }
                }
                self.is_luks2 = !self.is_luks2;
                self.backup = None;
            }
            8 => {
                let label = format!("label{}", self.rng.below(100));
                self.either(
                    &format!("config disk --label {label} --subsystem sub"),
                    &format!("config --label {label} --subsystem sub disk"),
                );
            }
            9 => {
                let (slot, priority) = (self.slot_of(&key), ["prefer", "normal"][self.rng.below(2) as usize]);
                self.either(
                    &format!("config disk --key-slot {slot} --priority {priority}"),
                    &format!("config -S {slot} --priority {priority} disk"),
                );
            }
            10 if self.tokens.len() < 4 => {
                let id = (0..).find(|id| !self.tokens.contains(id)).unwrap();
                self.place
                    .file("token", format!("{{\"type\":\"t{id}\",\"keyslots\":[],\"x\":[1.50,\"a/b\"]}}"));
                let slot = self.slot_of(&key);
                match self.rng.below(2) {
                    0 => self.either(
                        "token add disk --key-description name",
                        "token add --key-description name disk",
                    ),
                    _ => self.either(
                        &format!("token import disk token --key-slot {slot}"),
                        &format!("token import --json-file token -S {slot} disk"),
                    ),
                }
                self.tokens.push(id);
            }
            11 if !self.tokens.is_empty() => {
                let id = self.tokens.pop().unwrap();
                self.either(
                    &format!("token remove disk {id}"),
                    &format!("token remove --token-id {id} disk"),
                );
            }
            12 => {
                let count = 1000 + self.rng.below(100);
                let costs = format!("--pbkdf pbkdf2 --pbkdf-force-iterations {count}");
                self.either(
                    &format!("convert-key disk --key-file {key} {costs}"),
                    &format!("luksConvertKey -q --key-file {key} {costs} disk"),
                );
            }
            _ => {}
        }
    }

    fn ours(&self, line: &str) -> String {
        let output = self.place.own(&format!("luks {line}"));
        assert!(
            output.status.success(),
            "{line}: {}\n{}",
            casemate_testkit::stderr(&output),
            self.steps.join("\n")
        );
        casemate_testkit::stdout(&output)
    }

    fn theirs(&self, line: &str) -> String {
        run(Command::new(&self.cryptsetup).args(line.split_whitespace()).current_dir(self.place.folder()))
    }

    fn slot_of(&self, key: &str) -> u64 {
        let said = self.ours(&format!("test-passphrase disk --json --key-file {key}"));
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["key_slot"].as_u64().unwrap()
    }

    /// Both see the same header, the keys open it and no others, and the data are what they were.
    fn check(&mut self) {
        let steps = || self.steps.join("\n");
        assert_eq!(self.ours("dump disk"), self.theirs("luksDump disk"), "{}", steps());
        let slots = self
            .ours("dump disk")
            .lines()
            .filter(|l| l.contains(": ENABLED") || l.ends_with(": luks2"))
            .count();
        assert_eq!(slots, self.keys.len(), "{}", steps());
        if self.is_luks2 {
            let json = self.ours("dump --dump-json-metadata disk");
            assert_eq!(json, self.theirs("luksDump --dump-json-metadata disk"), "{}", steps());
        }
        for key in &self.keys {
            self.slot_of(key);
        }
        let (_, key) = self.any_key();
        self.theirs(&format!("open --test-passphrase --key-file {key} disk"));
        let wrong = (1..=self.made).map(|number| format!("key{number}")).find(|key| !self.keys.contains(key));
        if let Some(wrong) = wrong {
            let output = self.place.own(&format!("luks test-passphrase disk --key-file {wrong}"));
            assert_eq!(output.status.code(), Some(1), "{wrong}\n{}", self.steps.join("\n"));
        }
    }
}

#[test]
fn cryptsetup_and_casemate_take_turns_at_random() {
    let seeds = if slow_tests() { SLOW } else { 1 };
    for seed in 1..=seeds {
        for is_luks2 in [false, true] {
            let Some(mut sequence) = Sequence::new(seed, is_luks2) else { return };
            for _ in 0..STEPS {
                sequence.step();
                sequence.check();
            }
            let key = sequence.keys[0].clone();
            sequence.ours(&format!("extract disk out --key-file {key}"));
            assert!(
                sequence.place.read("out") == sequence.place.read("plain"),
                "{}",
                sequence.steps.join("\n")
            );
            let by = |who: &str| sequence.steps.iter().filter(|step| step.starts_with(who)).count();
            assert!(by("casemate") > 3 && by("cryptsetup") > 3, "seed {seed}");
        }
    }
}
