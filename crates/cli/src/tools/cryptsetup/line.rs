//! A command line of cryptsetup in the words of `casemate luks`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use casemate::image_spec::ImageSpec;
use casemate::{Access, Image};

use super::options::Tool;
use crate::cmd::luks::manners::CRYPTSETUP_LIMIT;
use crate::context::Context;

/// A command line of ours, and what must be so before it is run.
#[derive(Debug)]
pub(super) struct Line {
    pub args: Vec<OsString>,
    /// Question to ask first at a terminal.
    pub question: Option<String>,
    /// The files or block devices that must be there; the one with the header is the last.
    pub devices: Vec<OsString>,
    /// The version that the header must be of.
    pub version: Option<u32>,
}

/// Why a command line is none of ours.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not one of that tool either.
    Usage(String),
    /// It is, with the status that the tool ends with.
    Status(u8, String),
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::Usage(text)
    }
}

impl Line {
    fn new(command: &str) -> Line {
        let args = ["casemate", "luks"].into_iter().chain(command.split(' ')).map(OsString::from).collect();
        Line { args, question: None, devices: Vec::new(), version: None }
    }

    /// Line with an option added, if it was given.
    fn with(mut self, name: &str, value: Option<impl AsRef<OsStr>>) -> Line {
        if let Some(value) = value {
            let mut option = OsString::from(format!("--{name}="));
            option.push(value.as_ref());
            self.args.push(option);
        }
        self
    }

    fn flag(mut self, name: &str, given: bool) -> Line {
        if given {
            self.args.push(format!("--{name}").into());
        }
        self
    }

    fn on(mut self, device: &OsStr) -> Line {
        self.devices.insert(0, device.to_owned());
        // That tool's device is the name of a file, whatever commas there are in it.
        self.word(&ImageSpec::of_file(device).to_os_string())
    }

    fn word(mut self, word: &OsStr) -> Line {
        // A name may begin with a hyphen; "-" is standard input.
        let is_option = word.as_encoded_bytes().starts_with(b"-") && word != "-";
        self.args.push(if is_option {
            [OsStr::new("./"), word].iter().copied().collect()
        } else {
            word.to_owned()
        });
        self
    }
}

impl Tool {
    /// As with that tool, nobody is asked where there is nobody at a terminal.
    pub(super) fn asks_nothing(&self) -> bool {
        self.batch_mode || !io::stdin().is_terminal()
    }

    /// Line with the options that open the volume.
    fn opening(&self, line: Line) -> Line {
        self.part(line.with("key-file", self.key_file()))
    }

    /// The part of a key file, or of standard input, that is taken. Of what is typed all is.
    fn part(&self, line: Line) -> Line {
        let size = given(&self.keyfile_size).filter(|_| !self.is_typed());
        line.with("keyfile-offset", given(&self.keyfile_offset)).with("keyfile-size", size)
    }

    /// Where the header lies, if it lies apart; `is_there` if it must be there already.
    fn header(&self, line: Line, is_there: bool) -> Line {
        let mut line = line.with("luks-header", self.header.as_ref());
        line.devices.extend(self.header.clone().filter(|path| is_there || Path::new(path).exists()));
        line
    }

    /// Line with the options for the costs of a key slot.
    fn costs(&self, line: Line) -> Line {
        line.with("iter-time", self.iter_time.as_ref())
            .with("pbkdf", self.pbkdf.as_ref())
            .with("pbkdf-force-iterations", self.pbkdf_force_iterations.as_ref())
            .with("pbkdf-memory", self.pbkdf_memory.map(|kib| format!("{kib}K")))
            .with("pbkdf-parallel", self.pbkdf_parallel.as_ref())
            .with("hash", self.hash.as_ref())
    }

    /// The key slot that is made.
    fn slot(&self, line: Line) -> Line {
        self.costs(line)
            .with("keyslot-cipher", self.keyslot_cipher.as_ref())
            .with("keyslot-key-size", self.keyslot_key_size.as_ref())
            .with("new-keyfile-offset", given(&self.new_keyfile_offset))
            .with("new-keyfile-size", given(&self.new_keyfile_size))
    }

    /// A command that changes a header alone, wherever that lies, and asks nothing where this tool does not.
    fn change(&self, command: &str, device: &OsStr) -> Line {
        Line::new(command)
            .flag("batch-mode", self.asks_nothing())
            .on(self.header.as_deref().unwrap_or(device))
    }

    /// Translates the command line into ours.
    pub(super) fn line(&self) -> Result<Line, Refusal> {
        let Some((action, words)) = self.action().zip(self.words.get(1..)) else {
            return Err("Argument <action> missing.".to_owned().into());
        };
        let version = match self.kind.as_deref() {
            _ if self.encrypt => None,
            // There it says something else, or nothing.
            _ if matches!(
                &*action,
                "luksFormat" | "convert" | "isLuks" | "luksHeaderBackup" | "luksHeaderRestore"
            ) =>
            {
                None
            }
            Some("luks1") => Some(1),
            Some("luks2") => Some(2),
            _ => None,
        };
        self.line_of(&action, words).map(|line| Line { version, ..line })
    }

    fn line_of(&self, action: &str, words: &[OsString]) -> Result<Line, Refusal> {
        // The action of tokens comes before the device.
        let (kind, words) = match (action, words.split_first()) {
            ("token", Some((kind, words))) => (kind.to_string_lossy(), words),
            _ => ("".into(), words),
        };
        if action == "benchmark" {
            let line = self.costs(Line::new("benchmark"));
            return Ok(line.with("crypt", self.cipher.as_ref()).with("key-size", given(&self.key_size)));
        }
        let Some((device, words)) = words.split_first() else {
            return Err(format!("{action}: requires <device> as argument").into());
        };
        let second = words.first();
        let needed =
            |value: Option<&OsString>, name: &str| value.cloned().ok_or(format!("Option {name} is missing."));
        let token = || self.token_id.as_ref().map(OsString::from);
        // Of most commands the header alone is read and written: the data need not be there.
        let header_alone = |line: Line| line.on(self.header.as_deref().unwrap_or(device));
        let header = |command: &str| header_alone(Line::new(command));
        // That tool has other limits, and no option for them.
        let raised = |line: Line| line.with("kdf-limit", Some(CRYPTSETUP_LIMIT.to_string()));
        let opening = |command: &str| raised(self.opening(Line::new(command)));
        let line = match (action, &*kind) {
            ("luksFormat", _) => {
                let line = self.header(self.costs(self.opening(Line::new("format"))), false);
                if self.offset.is_some_and(|sectors| !sectors.is_multiple_of(8)) {
                    return Err(Refusal::Status(1, "Data offset is not multiple of 4096 bytes.".to_owned()));
                }
                if self.integrity_legacy_padding && self.integrity.is_some() {
                    let text = "--integrity-legacy-padding: volumes with the old padding are not made here.";
                    return Err(Refusal::Status(1, text.to_owned()));
                }
                let key = if self.key_files.is_empty() { second } else { None };
                // The size of a volume key in a file is that of the cipher, never that of the file.
                let is_xts = self.cipher.as_ref().is_none_or(|cipher| cipher.contains("-xts-"));
                let usual = if is_xts { "512" } else { "256" }.to_owned();
                let usual = self.volume_key_file.as_ref().map(|_| &usual);
                let line = line
                    .with("type", self.kind.as_ref().filter(|kind| *kind != "luks"))
                    .with("crypt", self.cipher.as_ref())
                    .with("key-size", given(&self.key_size).or(usual))
                    .with("integrity", self.integrity.as_ref())
                    .with("sector-size", self.sectors(device))
                    .with(
                        "crypt-offset",
                        self.offset.filter(|sectors| *sectors > 0).map(|sectors| format!("{sectors}s")),
                    )
                    .with("keyslot-cipher", self.keyslot_cipher.as_ref())
                    .with("keyslot-key-size", self.keyslot_key_size.as_ref())
                    .with("align-payload", self.align_payload.as_ref())
                    .with("luks2-metadata-size", self.luks2_metadata_size.as_ref())
                    .with("luks2-keyslots-size", self.luks2_keyslots_size.as_ref())
                    .with("label", self.label.as_ref())
                    .with("subsystem", self.subsystem.as_ref())
                    .with("uuid", self.uuid.as_ref())
                    .with("volume-key-file", self.volume_key_file.as_ref())
                    .with("key-slot", self.key_slot.as_ref())
                    .with("key-file", key);
                let question =
                    format!("This will overwrite data on {} irrevocably", device.to_string_lossy());
                let line = line.flag("overwrite", true).flag("allow-empty-key", true);
                Line { question: Some(question), ..line.on(device) }
            }
            ("open", _) if self.test_passphrase => {
                let kind = self.kind.as_deref().unwrap_or("luks");
                if !matches!(kind, "luks" | "luks1" | "luks2") {
                    return Err(format!("--type {kind}: only passphrases of LUKS are tried.").into());
                }
                let line = self.header(opening("test-passphrase"), true);
                line.with("key-slot", self.key_slot.as_ref())
                    .flag("unbound", self.unbound && self.key_slot.is_none())
                    .with("volume-key-file", self.volume_key_file.as_ref())
                    .with("key-size", given(&self.key_size).filter(|_| self.volume_key_file.is_some()))
                    .on(device)
            }
            ("luksDump", _) if self.dump_volume_key => {
                let line = header_alone(opening("dump-volume-key"));
                match &self.volume_key_file {
                    Some(file) => line.word(file),
                    None => line.flag("batch-mode", self.asks_nothing()),
                }
            }
            ("luksDump", _) if self.unbound => {
                let line = opening("dump-volume-key");
                let slot = needed(self.key_slot.as_ref().map(OsString::from).as_ref(), "--key-slot")?;
                let line = header_alone(line.flag("unbound", true).with("key-slot", Some(slot)));
                match &self.volume_key_file {
                    Some(file) => line.word(file),
                    None => line.flag("batch-mode", self.asks_nothing()),
                }
            }
            ("luksDump", _) => {
                header_alone(Line::new("dump").flag("dump-json-metadata", self.dump_json_metadata))
            }
            ("luksUUID", _) => {
                let question =
                    self.uuid.as_ref().map(|_| "Do you really want to change UUID of device?".to_owned());
                Line { question, ..header("uuid").with("uuid", self.uuid.as_ref()) }
            }
            ("isLuks", _) if second.is_some() => {
                return Err(Refusal::Status(4, "Only one device can be asked for.".to_owned()));
            }
            ("isLuks", _) => header_alone(Line::new("is-luks").with("type", self.kind.as_ref())),
            ("luksAddKey", _) => {
                let opens = match self.unbound {
                    true => Line::new("add-key").flag("unbound", true),
                    false => opening("add-key"),
                };
                let is_size = self.unbound || self.volume_key_file.is_some();
                let line = self.slot(opens).with("key-size", given(&self.key_size).filter(|_| is_size));
                let opened = self.key_slot.as_ref().filter(|_| self.new_key_slot.is_some() && !self.unbound);
                let made = match self.unbound {
                    true => self.key_slot.as_ref(),
                    false => self.new_key_slot.as_ref().or(self.key_slot.as_ref()),
                };
                header_alone(
                    line.with("new-key-file", second.or(self.new_keyfile.as_ref()))
                        .flag("allow-empty-key", true)
                        .with("volume-key-file", self.volume_key_file.as_ref())
                        .with("key-slot", opened)
                        .with("new-key-slot", made),
                )
            }
            ("luksChangeKey", _) => header_alone(
                self.slot(opening("change-key"))
                    .with("new-key-file", second)
                    .flag("allow-empty-key", true)
                    .with("key-slot", self.key_slot.as_ref()),
            ),
            ("luksConvertKey", _) => {
                header_alone(self.slot(opening("convert-key")).with("key-slot", self.key_slot.as_ref()))
            }
            ("luksRemoveKey", _) => {
                let line = opening("remove-key").flag("batch-mode", self.asks_nothing());
                header_alone(line.with("key-file", if self.key_files.is_empty() { second } else { None }))
            }
            ("luksKillSlot", _) => match second {
                Some(slot) => {
                    // With -q nobody at a terminal is asked, but what a file or another input has is checked.
                    let is_asked = !self.batch_mode || !io::stdin().is_terminal();
                    let line = self.change("kill-slot", device).with("key-file", self.key_file());
                    let line = if is_asked || self.key_file().is_some() { self.part(line) } else { line };
                    line.flag("remaining", is_asked).word(slot)
                }
                None => {
                    return Err("luksKillSlot: requires <device> <key slot> as arguments".to_owned().into());
                }
            },
            ("erase", _) => self.change("erase", device),
            ("repair", _) => {
                let line = self.opening(Line::new("repair")).with("key-slot", self.key_slot.as_ref());
                self.header(line, true).flag("batch-mode", self.asks_nothing()).on(device)
            }
            ("convert", _) => match self.kind.as_deref() {
                Some("luks1" | "luks2") => self.change("convert", device).with("type", self.kind.as_ref()),
                _ => return Err("Invalid LUKS type, only luks1 and luks2 are supported.".to_owned().into()),
            },
            ("luksHeaderBackup", _) => header("header-backup")
                .word(&needed(self.header_backup_file.as_ref(), "--header-backup-file")?),
            ("luksHeaderRestore", _) => self
                .change("header-restore", device)
                .word(&needed(self.header_backup_file.as_ref(), "--header-backup-file")?),
            ("config", _) => header("config")
                .with("label", self.label.as_ref())
                // That tool has no way to keep one of the two.
                .with("subsystem", self.subsystem.as_ref().or(self.label.as_ref().map(|_| &EMPTY)))
                .with("priority", self.priority.as_ref())
                .with("key-slot", self.key_slot.as_ref()),
            ("reencrypt", _) => {
                // As there, what was begun goes on without a word; but not with other options.
                let goes_on = self.resume_only || !self.init_only && self.is_begun(device);
                let opens = |line: Line| if self.encrypt && !goes_on { line } else { raised(line) };
                self.refuse_for_reencrypt(second)?
                    .header(
                        opens(self.costs(self.opening(Line::new("reencrypt")))),
                        !self.encrypt && !self.decrypt,
                    )
                    .flag("encrypt", self.encrypt)
                    .flag("allow-empty-key", self.encrypt)
                    .flag("decrypt", self.decrypt)
                    .with("crypt", self.cipher.as_ref())
                    .with("key-size", given(&self.key_size))
                    .with(
                        "sector-size",
                        match self.encrypt && !goes_on {
                            true => self.sectors(device),
                            false => self.sector_size.clone(),
                        },
                    )
                    .with(
                        "crypt-offset",
                        self.offset.filter(|sectors| *sectors > 0).map(|sectors| format!("{sectors}s")),
                    )
                    .with("key-slot", self.key_slot.as_ref())
                    .with("resilience", self.resilience.as_ref())
                    .with("resilience-hash", self.resilience_hash.as_ref())
                    .with("hotzone-size", self.hotzone_size.as_ref())
                    .with("device-size", self.device_size.as_ref())
                    .with("reduce-device-size", self.reduce_device_size.as_ref())
                    .flag("init-only", self.init_only)
                    .flag("resume-only", goes_on)
                    .flag("batch-mode", self.asks_nothing())
                    .on(device)
            }
            ("token", "add") => header("token add")
                .with("key-description", self.key_description.as_ref())
                .with("key-slot", self.key_slot.as_ref())
                .with("token-id", self.token_id.as_ref())
                .flag("overwrite", self.token_replace)
                .flag("unbound", self.unbound),
            ("token", "import") => header("token import")
                .word(self.json_file.as_deref().unwrap_or(OsStr::new("-")))
                .with("key-slot", self.key_slot.as_ref())
                .with("token-id", self.token_id.as_ref())
                .flag("overwrite", self.token_replace),
            ("token", "export") => {
                let line = header("token export").word(&needed(token().as_ref(), "--token-id")?);
                match &self.json_file {
                    Some(file) => line.word(file),
                    None => line,
                }
            }
            ("token", "remove") => header("token remove").word(&needed(token().as_ref(), "--token-id")?),
            ("token", "unassign") => header("token unassign")
                .word(&needed(token().as_ref(), "--token-id")?)
                .word(&needed(self.key_slot.as_ref().map(OsString::from).as_ref(), "--key-slot")?),
            ("open" | "close" | "luksClose" | "status" | "resize" | "luksSuspend" | "luksResume", _) => {
                let text =
                    format!("{action} needs the kernel; 'casemate serve --luks' serves what is in a volume");
                return Err(Refusal::Status(if matches!(action, "open" | "status") { 1 } else { 4 }, text));
            }
            _ => return Err(format!("Unknown action '{action}'.").into()),
        };
        Ok(line)
    }

    /// Refuses what a reencryption here has no use for, though that tool may.
    fn refuse_for_reencrypt(&self, name: Option<&OsString>) -> Result<&Tool, Refusal> {
        if let Some(name) = name {
            let text =
                format!("{}: mapping the data while they are encrypted needs the kernel.", name.display());
            return Err(Refusal::Status(1, text));
        }
        let given = [
            ("align-payload", self.align_payload.is_some()),
            ("integrity", self.integrity.is_some()),
            ("keep-key", self.keep_key),
            ("active-name", self.active_name.is_some()),
            ("token-only", self.token_only),
            ("keyslot-cipher", self.keyslot_cipher.is_some()),
            ("label", self.label.is_some()),
            ("luks2-keyslots-size", self.luks2_keyslots_size.is_some()),
            ("luks2-metadata-size", self.luks2_metadata_size.is_some()),
            ("subsystem", self.subsystem.is_some()),
            ("uuid", self.uuid.is_some()),
            ("volume-key-file", self.volume_key_file.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(Refusal::Status(1, format!("Option --{name} is not supported for reencrypt here.")))
            }
            None => Ok(self),
        }
    }

    /// Whether a reencryption of a device, or its encryption or decryption, was begun and is not finished.
    fn is_begun(&self, device: &OsStr) -> bool {
        let open = |path: &OsStr| Image::open(path, Access::Read);
        let begun = || {
            let header = self.header.as_deref().map(open).transpose()?;
            open(device)?.luks_volume(header.as_ref(), Context::default().providers())?.begun()
        };
        // The command itself refuses what is not a volume.
        begun().is_ok_and(|mode| mode.is_some())
    }

    /// The sector size of a new volume, if it is not the smallest: as large as the file system's blocks for a file, where the
    /// data are as many.
    fn sectors(&self, device: &OsStr) -> Option<String> {
        let is_luks2 = self.kind.as_deref() != Some("luks1");
        if self.sector_size.is_some() || !is_luks2 || self.integrity.is_some() {
            return self.sector_size.clone();
        }
        let len = fs::metadata(device).ok().filter(fs::Metadata::is_file)?.len();
        let align = self.align_payload.as_ref().and_then(|sectors| sectors.parse::<u64>().ok());
        // As there, an offset counts in sectors, and so does an alignment where that is the offset.
        let is_apart = self.header.is_some();
        let offset = self.offset.or(align.filter(|_| is_apart)).unwrap_or(0);
        let before = align.unwrap_or(0).checked_mul(512)?;
        let is_whole = len.wrapping_sub(before).is_multiple_of(4096) && offset.is_multiple_of(4096);
        is_whole.then(|| "4096".to_owned())
    }
}

/// A number that was given; 0 is as good as none, as for that tool.
fn given(number: &Option<String>) -> Option<&String> {
    number.as_ref().filter(|number| *number != "0")
}

/// Why a passphrase that a token names is not had.
pub(super) const NO_KEYRING: &str = "passphrases in the kernel's keyring, which tokens name, are not read here; give the passphrase or a key file";

static EMPTY: String = String::new();
