//! Words of an image specification: how text is split into them, which there are, and how text is made of them again.

use std::ffi::{OsStr, OsString};

use casemate_blockdev::os::{OsStrExt, OsStringExt};

use crate::Error;

/// A kind of layer, or what reads the file system on top, as a specification names it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kind {
    /// The word that begins the layer.
    pub name: &'static str,
    /// Another word for it, or the same word.
    pub alias: &'static str,
    /// The value of that word, in capitals; empty if it takes none, in brackets if it may be left out.
    pub value: &'static str,
    /// The layer, in a few words.
    pub help: &'static str,
    /// The options that may follow.
    pub options: &'static [Choice],
}

/// An option of a layer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The option's name.
    pub name: &'static str,
    /// The value, in capitals; empty if the option takes none.
    pub value: &'static str,
    /// Whether the option may be given several times.
    pub repeats: bool,
    /// The option, in a few words.
    pub help: &'static str,
}

const fn choice(name: &'static str, value: &'static str, help: &'static str) -> Choice {
    Choice { name, value, repeats: false, help }
}

const fn repeated(name: &'static str, value: &'static str, help: &'static str) -> Choice {
    Choice { name, value, repeats: true, help }
}

/// All kinds of layers with their options.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "partition",
        alias: "partition",
        value: "WHICH",
        help: "a partition (GPT or MBR): its number, or a GPT's UUID or name",
        options: &[],
    },
    Kind {
        name: "offset",
        alias: "offset",
        value: "BYTES",
        help: "all bytes from this one on",
        options: &[choice("size", "BYTES", "how many bytes; up to the end if not given")],
    },
    Kind {
        name: "crypt",
        alias: "dm-crypt",
        value: "[SPEC]",
        help: "a dm-crypt mapping without a header, such as crypt=aes-xts-plain64",
        options: &[
            choice(
                "table",
                "FILE",
                "in place of SPEC: a file with a device-mapper table line, which has the key, too",
            ),
            choice("key-file", "FILE", "the key; - is standard input"),
            choice("key-fd", "NUMBER", "an open file descriptor with the key"),
            choice("keyfile-offset", "BYTES", "where the key begins in its file"),
            choice("key-size", "BITS", "the key's size; 256 bits if not given"),
            choice(
                "passphrase-hash",
                "HASH",
                "without a key file: the hash of the passphrase that is the key",
            ),
            choice("crypt-offset", "BYTES", "where the encrypted data begin"),
            choice(
                "skip",
                "SECTORS",
                "a number of 512-byte sectors that is added to each sector's number for its IV",
            ),
            choice("sector-size", "BYTES", "the size of an encryption sector"),
            choice("iv-large-sectors", "", "IVs count encryption sectors"),
            choice("allow-equal-halves", "", "an XTS key may have equal halves"),
            repeated(
                "provider",
                "DRIVER",
                "the implementation that must do the work: see casemate providers",
            ),
        ],
    },
    Kind {
        name: "luks",
        alias: "luks",
        value: "",
        help: "a LUKS1 or LUKS2 volume",
        options: &[
            choice("key-file", "FILE", "the passphrase, all of the file; - is standard input"),
            choice("key-fd", "NUMBER", "an open file descriptor with the passphrase"),
            choice("keyfile-offset", "BYTES", "where the passphrase begins in its file"),
            choice("volume-key-file", "FILE", "the volume key in place of a passphrase"),
            choice("header", "FILE", "a detached header"),
            choice("key-slot", "N", "the only key slot to try"),
            choice("kdf-limit", "TIMES", "how many times the usual KDF cost limits are allowed"),
            choice("policy", "FILE", "the policy that the header must meet"),
            choice("mac-key-file", "FILE", "the key of the policy's mac"),
            choice(
                "overwrite",
                "",
                "with a detached header: write even where another volume or a file system is seen",
            ),
        ],
    },
    Kind {
        name: "integrity",
        alias: "dm-integrity",
        value: "ALGORITHM",
        help: "a dm-integrity volume: crc32c, sha256, hmac-sha256, ...",
        options: &[
            choice("key-file", "FILE", "the key of the tags"),
            choice("data-device", "PATH", "the data, if they lie apart from the tags"),
            choice("bitmap-mode", "", "writes do not go through the journal"),
            choice("journal-integrity", "ALGORITHM", "the algorithm of the codes (MACs) in the journal"),
            choice("journal-integrity-key-file", "FILE", "the key of these codes"),
            choice("journal-crypt", "CIPHER", "the cipher of the journal: ctr-aes or cbc-aes"),
            choice("journal-crypt-key-file", "FILE", "the key of that cipher"),
        ],
    },
    Kind {
        name: "verity",
        alias: "dm-verity",
        value: "",
        help: "data that dm-verity verifies; they are read only",
        options: &[
            choice("root-hash", "HEX", "the root hash in hex, or @FILE"),
            choice("hash-device", "PATH", "the hash area's file or device; the image itself if not given"),
            choice("hash-offset", "BYTES", "where the hash area begins"),
            choice(
                "hash-partition",
                "WHICH",
                "the partition of the hash device; auto: the one that the root hash tells",
            ),
            choice("no-superblock", "", "there is no superblock: the options below give all parameters"),
            choice("hash", "NAME", "the hash algorithm"),
            choice("format", "NUMBER", "the format: 1, or 0 for Chrome OS"),
            choice("data-block-size", "BYTES", "the size of a data block"),
            choice("hash-block-size", "BYTES", "the size of a hash block"),
            choice("data-blocks", "BLOCKS", "the number of data blocks"),
            choice("salt", "HEX", "the salt; - for none"),
            choice("provider", "DRIVER", "the implementation that must hash: see casemate providers"),
        ],
    },
    Kind {
        name: "ext4",
        alias: "ext4",
        value: "",
        help: "the file system on top, for commands that read or change files",
        options: &[
            choice("superblock", "BLOCK", "the block of the superblock backup to use"),
            repeated(
                "fscrypt-key",
                "FILE",
                "a raw master key of encrypted files; DESCRIPTOR:FILE for version 1",
            ),
            repeated("fscrypt-passphrase-file", "FILE", "a passphrase of google/fscrypt"),
            repeated("protector", "FILE", "a protector in place of those in the image"),
            choice("fscrypt-metadata", "FOLDER", "policies and protectors in place of those in the image"),
            choice(
                "fscrypt-kdf-limit",
                "TIMES",
                "how many times the protectors' usual KDF cost limits are allowed",
            ),
        ],
    },
];

/// The kinds that a file system, and nothing else, is read by.
pub const FILE_SYSTEM: &str = "ext4";

/// Words that people may take for an option with a secret in it.
const SECRETS: &[&str] =
    &["key", "passphrase", "password", "secret", "passwd", "pass", "volume-key", "key-data"];

/// A word: a name, and a value behind "=".
pub struct Word {
    pub name: String,
    pub value: Option<OsString>,
    /// Where it begins, in characters, counted from 1.
    pub at: usize,
}

impl Word {
    /// The name as far as it has letters, digits and hyphens, as all names of layers and options do.
    fn begin(&self) -> &str {
        let is_other = |letter: char| !letter.is_alphanumeric() && letter != '-' && letter != '_';
        self.name.split(is_other).next().unwrap_or_default()
    }

    /// The name for an error, without what may be a secret that somebody has put behind another sign than "=".
    fn shown(&self) -> String {
        let known = match SECRETS.contains(&self.begin()) {
            true => self.begin(),
            false => self.name.split(':').next().unwrap_or_default(),
        };
        if known.len() == self.name.len() { known.to_owned() } else { format!("{known}...") }
    }
}

/// A layer as it is written.
pub struct Group {
    pub kind: &'static Kind,
    pub head: Word,
    options: Vec<Word>,
}

/// The file's name, and the words behind it.
pub fn split(text: &OsStr) -> Result<(OsString, Vec<Group>), Error> {
    let mut words = pieces(text.as_bytes()).into_iter();
    let (_, file) = words.next().unwrap_or_default();
    if file.is_empty() {
        return Err(wrong("it does not begin with the name of a file"));
    }
    let mut groups: Vec<Group> = Vec::new();
    for (at, piece) in words {
        let word = word(at, &piece);
        match kind(&word.name) {
            Some(kind) => {
                check_value(&word, kind.value, "")?;
                if let Some(last) = groups.last().filter(|last| last.kind.name == FILE_SYSTEM) {
                    let text = format!("no layer lies on {}, which comes last", last.kind.name);
                    return Err(at_word(&word, &text));
                }
                groups.push(Group { kind, head: word, options: Vec::new() });
            }
            None => match groups.last_mut() {
                Some(group) => group.add(word)?,
                None => return Err(unknown(&word, None)),
            },
        }
    }
    Ok((OsString::from_vec(file), groups))
}

/// The words with the character that each begins at. Two commas are one that belongs to the word.
fn pieces(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut words = vec![(1, Vec::new())];
    let mut character = 0;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        // The others go on with a character of UTF-8.
        character += usize::from(byte & 0xc0 != 0x80);
        let doubled = byte == b',' && bytes.next_if_eq(&b',').is_some();
        match words.last_mut() {
            Some((_, word)) if byte != b',' || doubled => word.push(byte),
            _ => words.push((character + 1, Vec::new())),
        }
        character += usize::from(doubled);
    }
    words
}

fn word(at: usize, piece: &[u8]) -> Word {
    let (name, value) = match piece.iter().position(|byte| *byte == b'=') {
        Some(end) => (&piece[..end], Some(OsString::from_vec(piece[end + 1..].to_vec()))),
        None => (piece, None),
    };
    Word { name: String::from_utf8_lossy(name).into_owned(), value, at }
}

fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name || kind.alias == name)
}

/// An error of a specification.
pub fn wrong(text: &str) -> Error {
    Error::argument(format!("image specification: {text}"))
}

/// An error of a word. Values are not repeated: one may be a secret that somebody has put there.
pub fn at_word(word: &Word, text: &str) -> Error {
    wrong(&format!("'{}' at character {}: {text}", word.shown(), word.at))
}

fn check_value(word: &Word, wanted: &str, of: &str) -> Result<(), Error> {
    match (&word.value, wanted) {
        (Some(_), "") => Err(at_word(word, &format!("it takes no value{of}"))),
        (Some(value), _) if value.is_empty() => Err(at_word(word, "its value is empty")),
        (None, wanted) if !wanted.is_empty() && !wanted.starts_with('[') => {
            Err(at_word(word, &format!("a value is missing: {}={wanted}", word.name)))
        }
        _ => Ok(()),
    }
}

/// The error of a word that is no layer, nor an option of the one before it.
fn unknown(word: &Word, group: Option<&Group>) -> Error {
    if word.name.is_empty() && word.value.is_none() {
        return wrong(&format!("nothing follows the comma before character {}", word.at));
    }
    if SECRETS.contains(&word.begin()) {
        let text = "no secret is given on a command line: key-file=FILE or key-fd=NUMBER reads it";
        return at_word(word, text);
    }
    let options = group.map_or(&[][..], |group| group.kind.options);
    let names = KINDS.iter().map(|kind| kind.name).chain(options.iter().map(|choice| choice.name));
    let closest = names.map(|name| (distance(name, &word.name), name)).min();
    let (what, of) = match group {
        Some(group) => ("layer or option", format!(" of {}", group.kind.name)),
        None => ("layer", String::new()),
    };
    let hint = match closest {
        Some((distance, name)) if distance <= (name.len() / 2).min(2) => format!("; did you mean {name}?"),
        _ if group.is_none() => "; a comma in the name of a file is written twice".to_owned(),
        _ => String::new(),
    };
    // Somebody else's option, with the layer that has it.
    let elsewhere = || {
        let has = |kind: &&Kind| kind.options.iter().any(|choice| choice.name == word.name);
        KINDS.iter().find(has).map(|kind| format!("; it is an option of {}", kind.name))
    };
    let hint = elsewhere().unwrap_or(hint);
    wrong(&format!("unknown {what} '{}'{of} at character {}{hint}", word.shown(), word.at))
}

/// How many characters one word differs in from another.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], line + 1);
        for (at, other) in right.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[at + 1];
            row[at + 1] = changed.min(corner + 1).min(row[at] + 1);
        }
    }
    row[right.len()]
}

impl Group {
    fn add(&mut self, mut word: Word) -> Result<(), Error> {
        let known = |name: &str| self.kind.options.iter().find(|choice| choice.name == name);
        // The command's own name of the option, which says the layer, too.
        let short = word.name.strip_prefix(self.kind.name).and_then(|name| name.strip_prefix('-'));
        let choice = known(&word.name).or_else(|| known(short?));
        let Some(choice) = choice else { return Err(unknown(&word, Some(self))) };
        word.name = choice.name.to_owned();
        check_value(&word, choice.value, &format!(" in {}", self.kind.name))?;
        if !choice.repeats && self.options.iter().any(|other| other.name == word.name) {
            return Err(at_word(&word, &format!("it is given twice to {}", self.kind.name)));
        }
        self.options.push(word);
        Ok(())
    }

    /// An option's word, if it was given.
    pub fn word(&self, name: &str) -> Option<&Word> {
        self.options.iter().find(|word| word.name == name)
    }

    /// Whether an option without a value was given.
    pub fn has(&self, name: &str) -> bool {
        self.word(name).is_some()
    }

    /// The value of an option, as it is.
    pub fn value(&self, name: &str) -> Option<OsString> {
        self.word(name).and_then(|word| word.value.clone())
    }

    /// All values of an option, as they are.
    pub fn values(&self, name: &str) -> Vec<OsString> {
        self.options.iter().filter(|word| word.name == name).filter_map(|word| word.value.clone()).collect()
    }

    /// The value of an option, read.
    pub fn read<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Error> {
        self.word(name).map(|word| read_word(word, read)).transpose()
    }

    /// The value of an option that is text.
    pub fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.read(name, |text| Ok(text.to_owned()))
    }

    /// Refuses two options that say the same.
    pub fn one_of(&self, names: &[&str]) -> Result<(), Error> {
        let mut given = names.iter().filter_map(|name| self.word(name));
        match (given.next(), given.next()) {
            (Some(first), Some(second)) => {
                Err(at_word(second, &format!("it does not go with '{}'", first.name)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an option without another that it belongs to.
    pub fn needs(&self, name: &str, others: &[&str]) -> Result<(), Error> {
        match self.word(name) {
            Some(word) if !others.iter().any(|other| self.has(other)) => {
                Err(at_word(word, &format!("it goes with {}", others.join(" or "))))
            }
            _ => Ok(()),
        }
    }
}

/// The value of a word, read.
pub fn read_word<T>(word: &Word, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Error> {
    let value = word.value.as_deref().unwrap_or_default();
    let text = value.to_str().ok_or_else(|| at_word(word, "its value is not valid UTF-8"))?;
    read(text).map_err(|error| at_word(word, &error))
}

/// Text of words, built up from the file's name.
pub struct Writing(Vec<u8>);

impl Writing {
    pub fn of_file(file: &OsStr) -> Writing {
        let mut text = Writing(Vec::new());
        text.escaped(file);
        text
    }

    /// A word without a value.
    pub fn flag(&mut self, name: &str, is_given: bool) {
        if is_given {
            self.0.push(b',');
            self.0.extend(name.as_bytes());
        }
    }

    /// A word with a value, if there is one.
    pub fn word(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            self.flag(name, true);
            self.0.push(b'=');
            self.escaped(value.as_ref());
        }
    }

    /// A word with a number, unless it is the usual one.
    pub fn number<T: ToString + PartialEq>(&mut self, name: &str, value: T, usual: T) {
        self.word(name, (value != usual).then(|| value.to_string()));
    }

    fn escaped(&mut self, text: &OsStr) {
        for byte in text.as_bytes() {
            self.0.push(*byte);
            if *byte == b',' {
                self.0.push(b',');
            }
        }
    }

    pub fn finish(self) -> OsString {
        OsString::from_vec(self.0)
    }
}
