//! Every command of cryptsetup's command line that needs no kernel, with input that is right and that is wrong: both end with
//! the same status, say so in one line, and leave the same, or what differs is known and has a reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use casemate_testkit::{Place, run_any, stderr, stdout, tool};

use crate::CASEMATE;
use crate::twins::CHEAP;

const LINES: &str = include_str!("walk.txt");

/// The folders of both, and what is in them.
struct Walk {
    theirs: Side,
    ours: Side,
}

/// A program, and where it is run.
struct Side {
    program: PathBuf,
    place: Place,
}

impl Walk {
    /// Both with a volume, or with none.
    fn new(cryptsetup: PathBuf, setup: &str) -> Walk {
        let [theirs, ours] = [(); 2].map(|()| Place::new(CASEMATE));
        symlink(CASEMATE, ours.path("cryptsetup")).unwrap();
        let link = ours.path("cryptsetup");
        let (size, options) = match setup.split_once('M') {
            Some((size, options)) if size.parse::<u64>().is_ok() => (size.parse().unwrap(), options.trim()),
            _ => (3, setup),
        };
        for (name, bytes) in [
            ("one", b"one".to_vec()),
            ("two", b"two".to_vec()),
            ("three", b"three".to_vec()),
            ("empty", Vec::new()),
            ("rnd", vec![b'x'; 100]),
            ("vk64", vec![b'k'; 64]),
            ("vk32", vec![b'k'; 32]),
            ("noise32", (0..32).map(|k| k * 7 + 3).collect()),
            ("noise65", (0..65).map(|k| k * 3 + 1).collect()),
            ("big", vec![b'z'; 9 << 20]),
            ("tok.json", br#"{"type":"note","keyslots":["0"]}"#.to_vec()),
            ("badtok.json", br#"{"type":"#.to_vec()),
            ("tiny", vec![0; 512]),
            ("small", vec![0; 100 << 10]),
            ("fresh", vec![0; 20 << 20]),
            ("rand", (0..1_u32 << 18).flat_map(|k| k.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()),
            ("disk", vec![0; size << 20]),
        ] {
            theirs.file(name, bytes);
        }
        fs::create_dir(theirs.path("dir")).unwrap();
        fs::create_dir(ours.path("dir")).unwrap();
        let walk = Walk {
            theirs: Side { program: cryptsetup, place: theirs },
            ours: Side { program: link, place: ours },
        };
        if options != "none" {
            for line in [
                format!("luksFormat -q CHEAP {options} disk one"),
                "luksAddKey -q CHEAP -d one disk two".to_owned(),
            ] {
                assert!(walk.theirs.run(&line, "").status.success(), "{line}");
            }
        }
        for entry in fs::read_dir(walk.theirs.place.folder()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), walk.ours.place.path(entry.file_name().to_str().unwrap())).unwrap();
            }
        }
        walk
    }

    /// Runs a line on both sides, and compares how they end and what they leave.
    fn step(&self, line: &str) {
        let (line, difference) = line.split_once(" ## ").unwrap_or((line, ""));
        let (line, is_same) = line.strip_prefix("= ").map_or((line, false), |line| (line, true));
        let (words, input) = line.split_once(" | ").unwrap_or((line, ""));
        let input = input.replace("\\n", "\n");
        let disks = || [&self.theirs, &self.ours].map(|side| side.place.read("disk"));
        let before = disks();
        let [theirs, ours] = [&self.theirs, &self.ours].map(|side| side.run(words, &input));
        let status = |output: &Output| output.status.code().unwrap();
        let said = stderr(&ours);
        let both = format!(
            "{line}\ncryptsetup {}: {}\ncasemate {}: {said}",
            status(&theirs),
            stderr(&theirs),
            status(&ours)
        );
        let expected = difference.split_once(", here ").map(|(theirs, rest)| {
            let (ours, _) = rest.split_once(": ").unwrap();
            [theirs, ours].map(|status| status.parse::<i32>().unwrap())
        });
        let is_known = !difference.is_empty();
        match expected {
            Some(expected) => assert_eq!([status(&theirs), status(&ours)], expected, "{both}"),
            None => assert_eq!(status(&ours), status(&theirs), "{both}"),
        }
        let is_printed = words.contains("--dump-volume-key") && !words.contains("--volume-key-file");
        if (is_printed || words.starts_with("token export") || words.starts_with("luksUUID")) && !is_known {
            assert_eq!(stdout(&ours).trim_end(), stdout(&theirs).trim_end(), "{both}");
        }
        if is_same && !is_known {
            let all = |output: &Output| [plain(&stdout(output)), plain(&stderr(output))];
            assert_eq!(all(&ours), all(&theirs), "{both}");
        }
        let after = disks();
        if status(&ours) != 0 {
            let last = said.rsplit_once("\n\ncryptsetup: ").map_or(&*said, |(_, last)| last);
            let is_silent = words.starts_with("isLuks") && said.is_empty();
            assert!(last.lines().count() == 1 || is_silent, "{both}");
            assert!(before[1] == after[1], "changed: {both}");
        }
        let is_changed = [0, 1].map(|k| before[k] != after[k]);
        if !is_known {
            assert_eq!(is_changed[0], is_changed[1], "{both}");
        }
        if is_changed == [true; 2] && !is_known {
            assert_eq!(self.dump(&self.ours), self.dump(&self.theirs), "{both}");
        }
        if is_known {
            fs::copy(self.theirs.place.path("disk"), self.ours.place.path("disk")).unwrap();
        }
    }

    /// Dump of a volume by cryptsetup, without random values and the count of writes.
    fn dump(&self, side: &Side) -> String {
        let mut dump = Command::new(&self.theirs.program);
        let output = run_any(dump.args(["luksDump", "disk"]).current_dir(side.place.folder()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_random = |line: &&str| {
            let line = line.trim_start();
            let names = ["Epoch", "Salt", "MK ", "UUID", "Digest:", "LUKS header inf"];
            let is_hex = |word: &str| word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            names.iter().any(|name| line.starts_with(name)) || line.split(' ').next().is_some_and(is_hex)
        };
        text.lines().filter(|line| !is_random(line)).collect::<Vec<_>>().join("\n")
    }
}

/// Output of a program without its warnings, which are meant for people.
fn plain(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("WARNING: ")).collect::<Vec<_>>().join("\n")
}

impl Side {
    fn run(&self, line: &str, input: &str) -> Output {
        self.place.file("input", input);
        let line = line.replace("CHEAP", CHEAP);
        let words = line.split_whitespace().map(|word| if word == "''" { "" } else { word });
        let input = fs::File::open(self.place.path("input")).unwrap();
        let mut command = Command::new(&self.program);
        run_any(command.args(words).current_dir(self.place.folder()).stdin(Stdio::from(input)))
    }
}

#[test]
fn every_command_ends_as_it_does_there() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        match (line.strip_prefix("@setup "), sections.last_mut()) {
            (Some(setup), _) => sections.push((setup, Vec::new())),
            (None, Some((setup, _))) if line == "@fresh" => {
                let setup = *setup;
                sections.push((setup, Vec::new()));
            }
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => panic!("{line}: no volume yet"),
        }
    }
    assert!(sections.iter().map(|(_, lines)| lines.len()).sum::<usize>() > 400);
    // Most of the time goes to waiting for the disk.
    thread::scope(|scope| {
        for (setup, lines) in &sections {
            let cryptsetup = cryptsetup.clone();
            scope.spawn(move || {
                let walk = Walk::new(cryptsetup, setup);
                lines.iter().for_each(|line| walk.step(line));
            });
        }
    });
}
