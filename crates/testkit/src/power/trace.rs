//! The output of strace, as changes of files and names.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::Files;
use super::disk::{Change, Recording, Step, What};

/// The calls that change files, make changes stable, or do it in a way that can't be noted.
pub(super) const CALLS: &str = "?open,?creat,openat,?openat2,lseek,write,writev,pwrite64,pwritev,?pwritev2,ftruncate,\
    ?truncate,fallocate,fsync,fdatasync,?sync,?syncfs,?msync,?rename,?renameat,renameat2,?link,linkat,?unlink,unlinkat,\
    ?symlink,symlinkat,?mkdir,mkdirat,?rmdir,?copy_file_range,?sendfile,?splice,mmap,?io_uring_setup,exit_group";

/// A call with the lines at which it began and ended.
struct Call<'a> {
    begun: usize,
    ended: usize,
    name: &'a str,
    arguments: Vec<&'a str>,
    /// The text behind the equals sign.
    result: &'a str,
}

/// Turns notes into a recording of what happened in `folder`, which held the files `before`.
pub(super) fn parse(text: &str, folder: &Path, before: Files) -> Recording {
    let mut lines: Vec<(usize, usize, String)> = Vec::new();
    let mut unfinished: HashMap<&str, (usize, &str)> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let Some((process, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(first) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, (number, first));
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let (begun, first) = unfinished.remove(process).expect("a call that began");
            let second = resumed.split_once(" resumed>").expect("the end of a call").1;
            lines.push((begun, number, format!("{first}{second}")));
        } else if !rest.starts_with(['+', '-']) {
            lines.push((number, number, rest.to_owned()));
        }
    }
    lines.sort();
    let mut parser = Parser::new(folder, before);
    for (begun, ended, text) in &lines {
        // strace puts blanks before the equals sign, so that results stand below each other.
        let Some((called, result)) = text.rsplit_once(" = ") else { continue };
        let Some(called) = called.trim_end().strip_suffix(')') else { continue };
        let Some((name, arguments)) = called.split_once('(') else { continue };
        let call = Call { begun: *begun, ended: *ended, name, arguments: split(arguments), result };
        parser.call(&call);
    }
    parser.recording
}

struct Parser {
    folder: String,
    recording: Recording,
    /// Which file has a name now, and which one had a name that is gone.
    names: BTreeMap<String, usize>,
    gone: BTreeMap<String, usize>,
    sizes: Vec<u64>,
    /// Where the next `write` of a descriptor goes.
    positions: HashMap<(u64, usize), u64>,
}

/// The file that a path or a descriptor leads to.
enum Target {
    File(usize),
    Folder,
    Elsewhere,
}

impl Parser {
    fn new(folder: &Path, before: Files) -> Parser {
        let names =
            before.keys().cloned().enumerate().map(|(id, name)| (name, id)).collect::<BTreeMap<_, _>>();
        let sizes = before.values().map(|bytes| bytes.len() as u64).collect();
        Parser {
            folder: folder.to_str().expect("a folder's name in UTF-8").to_owned(),
            recording: Recording::new(names.clone(), before.into_values().collect()),
            names,
            gone: BTreeMap::new(),
            sizes,
            positions: HashMap::new(),
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        let failed = call.result.starts_with('-');
        let argument = |at: usize| call.arguments.get(at).copied().unwrap_or("");
        match call.name {
            "exit_group" => {}
            "open" | "creat" | "openat" | "openat2" if !failed => self.open(call),
            "fsync" | "fdatasync" => {
                let file = match self.target(argument(0)) {
                    Target::File(file) => Some(file),
                    Target::Folder => None,
                    Target::Elsewhere => return,
                };
                self.note(call, What::Sync { file, done: !failed });
            }
            _ if failed => {}
            "lseek" => {
                if let Target::File(file) = self.target(argument(0)) {
                    self.positions.insert((descriptor(argument(0)), file), number(call.result));
                }
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => self.write(call),
            "ftruncate" => {
                if let Target::File(file) = self.target(argument(0)) {
                    self.resize(call, file, number(argument(1)));
                }
            }
            "fallocate" => self.fallocate(call),
            "rename" => self.rename(call, argument(0), argument(1), ""),
            "renameat" => self.rename(call, argument(1), argument(3), ""),
            "renameat2" => self.rename(call, argument(1), argument(3), argument(4)),
            "unlink" => self.unlink(call, argument(0)),
            "unlinkat" => self.unlink(call, argument(1)),
            // All that AArch64 has: the folder that it begins at may be this one, without being where the path leads.
            "mkdirat" => assert!(self.inside(&unescaped(argument(1))).is_none(), "a folder can't be noted"),
            "mmap" => {
                let shared = argument(2).contains("PROT_WRITE") && argument(3).contains("MAP_SHARED");
                let inside = matches!(self.target(argument(4)), Target::File(_));
                assert!(!(shared && inside), "a file is changed through memory: {}", call.name);
            }
            "sync" | "syncfs" | "msync" | "io_uring_setup" => panic!("{} can't be noted", call.name),
            // The rest matters where it touches the folder.
            _ => {
                let inside =
                    call.arguments.iter().any(|argument| !matches!(self.target(argument), Target::Elsewhere));
                assert!(!inside, "{} can't be noted", call.name);
            }
        }
    }

    fn open(&mut self, call: &Call<'_>) {
        let flags = call.arguments.iter().find(|argument| argument.contains("O_")).copied().unwrap_or("");
        let Some(name) = self.inside(&path_of(call.result)) else { return };
        if name.is_empty() {
            return;
        }
        let file = match self.names.get(&name) {
            Some(file) => *file,
            None => {
                assert!(flags.contains("O_CREAT"), "{name}: opened, but never made");
                let file = self.sizes.len();
                self.sizes.push(0);
                self.recording.add_file();
                self.name(call, vec![(name, Some(file))]);
                file
            }
        };
        if flags.contains("O_TRUNC") && self.sizes[file] > 0 {
            self.resize(call, file, 0);
        }
        assert!(!flags.contains("SYNC"), "files that flush by themselves can't be noted");
        let start = if flags.contains("O_APPEND") { self.sizes[file] } else { 0 };
        self.positions.insert((descriptor(call.result), file), start);
    }

    fn write(&mut self, call: &Call<'_>) {
        let Target::File(file) = self.target(call.arguments[0]) else { return };
        let mut bytes = Vec::new();
        // Each string of the call, whether it is alone or in a list.
        for (at, part) in call.arguments[1].split('"').enumerate() {
            if at % 2 == 1 {
                unescape(part, &mut bytes);
            }
        }
        // Less may have been written than was asked for.
        bytes.truncate(number(call.result) as usize);
        let offset = match call.name {
            "write" | "writev" => {
                let position = self.positions.entry((descriptor(call.arguments[0]), file)).or_default();
                let offset = *position;
                *position += bytes.len() as u64;
                offset
            }
            _ => number(call.arguments[3]),
        };
        self.sizes[file] = self.sizes[file].max(offset + bytes.len() as u64);
        self.note(call, What::Change(Change::Write { file, offset, bytes }));
    }

    fn fallocate(&mut self, call: &Call<'_>) {
        let Target::File(file) = self.target(call.arguments[0]) else { return };
        let (mode, start, len) = (call.arguments[1], number(call.arguments[2]), number(call.arguments[3]));
        if mode.contains("PUNCH_HOLE") || mode.contains("ZERO_RANGE") {
            assert!(mode.contains("KEEP_SIZE"), "fallocate {mode} can't be noted");
            let end = (start + len).min(self.sizes[file]);
            if start < end {
                let bytes = vec![0; (end - start) as usize];
                self.note(call, What::Change(Change::Write { file, offset: start, bytes }));
            }
        } else if !mode.contains("KEEP_SIZE") {
            assert_eq!(mode, "0", "fallocate {mode} can't be noted");
            self.resize(call, file, self.sizes[file].max(start + len));
        }
    }

    fn resize(&mut self, call: &Call<'_>, file: usize, size: u64) {
        let old = std::mem::replace(&mut self.sizes[file], size);
        if size < old {
            // What is cut off reads as zeros if the file grows again.
            let bytes = vec![0; (old - size) as usize];
            self.note(call, What::Change(Change::Write { file, offset: size, bytes }));
        }
        self.note(call, What::Change(Change::Size { file, size }));
    }

    fn rename(&mut self, call: &Call<'_>, from: &str, to: &str, flags: &str) {
        let (from, to) = (self.inside(&unescaped(from)), self.inside(&unescaped(to)));
        let (Some(from), Some(to)) = (from, to) else { return };
        assert!(!flags.contains("EXCHANGE"), "names that are exchanged can't be noted");
        let file = self.names[&from];
        self.name(call, vec![(from, None), (to, Some(file))]);
    }

    fn unlink(&mut self, call: &Call<'_>, path: &str) {
        if let Some(name) = self.inside(&unescaped(path)) {
            self.name(call, vec![(name, None)]);
        }
    }

    fn name(&mut self, call: &Call<'_>, set: Vec<(String, Option<usize>)>) {
        for (name, file) in &set {
            let old = match file {
                Some(file) => self.names.insert(name.clone(), *file),
                None => self.names.remove(name),
            };
            self.gone.extend(old.map(|old| (name.clone(), old)));
        }
        self.note(call, What::Change(Change::Names(set)));
    }

    fn note(&mut self, call: &Call<'_>, what: What) {
        self.recording.note(call.name, Step { begun: call.begun, ended: call.ended, what });
    }

    /// The target of a descriptor with its path: `3<\x2f...>`.
    fn target(&self, argument: &str) -> Target {
        if !argument.contains('<') {
            return Target::Elsewhere;
        }
        match self.inside(&path_of(argument)) {
            Some(name) if name.is_empty() => Target::Folder,
            Some(name) => {
                let names = if argument.ends_with("(deleted)") { &self.gone } else { &self.names };
                Target::File(*names.get(&name).unwrap_or_else(|| panic!("{name}: never made")))
            }
            None => Target::Elsewhere,
        }
    }

    /// The name that a path has in the folder: empty for the folder itself, `None` elsewhere.
    fn inside(&self, path: &str) -> Option<String> {
        let name = match path.starts_with('/') {
            true => path.strip_prefix(&self.folder)?,
            false => path,
        };
        let name = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/");
        assert!(!name.contains('/'), "{path}: folders in the folder can't be noted");
        Some(name)
    }
}

/// A call's arguments. Text is in hexadecimal, so that it has none of the signs.
fn split(arguments: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, sign) in arguments.char_indices() {
        match sign {
            '[' | '{' | '<' => depth += 1,
            ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(arguments[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[start..].trim());
    parts
}

fn unescape(hex: &str, bytes: &mut Vec<u8>) {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("text in hexadecimal") as u8;
    bytes.extend(hex.as_bytes().chunks_exact(4).map(|code| digit(code[2]) << 4 | digit(code[3])));
}

/// The text of an argument in quotes.
fn unescaped(argument: &str) -> String {
    let mut bytes = Vec::new();
    unescape(argument.trim_matches('"'), &mut bytes);
    String::from_utf8(bytes).expect("a path in UTF-8")
}

/// The path behind a descriptor; the root for sockets, pipes and the like, which have none.
fn path_of(descriptor: &str) -> String {
    let path =
        descriptor.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
    if path.starts_with("\\x2f") { unescaped(path) } else { "/".to_owned() }
}

/// The number that a text begins with.
fn number(text: &str) -> u64 {
    let digits = text.split(|sign: char| !sign.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or_else(|_| panic!("{text}: no number"))
}

fn descriptor(argument: &str) -> u64 {
    number(argument)
}
