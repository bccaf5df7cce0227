//! A command line of cryptsetup as the command of `casemate luks` that does its work.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use casemate::blockdev::usize_of;
use casemate::{Access, Image};

use super::options::Tool;
use crate::cmd::luks::confirm::Confirm;
use crate::cmd::luks::keys::{
    AddKey, ChangeKey, ConvertKey, Erase, KillSlot, NewKeyArgs, RemoveKey, SlotArgs,
};
use crate::cmd::luks::manners::CRYPTSETUP_LIMIT;
use crate::cmd::luks::options::{
    AreaArgs, EmptyArgs, HeaderArgs, OtherDataArgs, PassphraseArgs, PolicyArgs, UnlockArgs, VolumeArgs,
};
use crate::cmd::luks::pbkdf::PbkdfArgs;
use crate::cmd::luks::question::{IsLuks, TestPassphrase, Uuid};
use crate::cmd::luks::reencrypt::Resilience;
use crate::cmd::luks::volume_key::DumpVolumeKey;
use crate::cmd::luks::{Action, backup, benchmark, config, convert, dump, format, reencrypt, repair, token};
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::PlaceArgs;
use crate::context::Context;

/// A command of ours, and what must be so before it is run.
#[derive(Debug)]
pub(super) struct Line {
    pub action: Action,
    /// Question to ask first at a terminal.
    pub question: Option<String>,
    /// The files or block devices that must be there; the one with the header is the last.
    pub devices: Vec<PathBuf>,
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

impl Tool {
    /// As with that tool, nobody is asked where there is nobody at a terminal.
    pub(super) fn asks_nothing(&self) -> bool {
        self.batch_mode || !io::stdin().is_terminal()
    }

    fn confirm(&self) -> Confirm {
        Confirm { batch_mode: self.asks_nothing(), is_tool: true }
    }

    /// The part of a key file, or of standard input, that is taken. Of what is typed all is.
    fn keyfile_size(&self) -> Option<usize> {
        let size = self.keyfile_size.filter(|size| *size > 0 && !self.is_typed());
        size.map(usize_of)
    }

    /// The passphrase, in a file that is named by an option, or else by a word.
    fn passphrase(&self, word: Option<&OsString>) -> PassphraseArgs {
        let word = word.map(PathBuf::from).filter(|_| self.key_files.is_empty());
        PassphraseArgs {
            key_file: self.key_file().cloned().or(word).into_iter().collect(),
            key_fd: None,
            keyfile_offset: self.keyfile_offset,
            keyfile_size: self.keyfile_size(),
        }
    }

    /// A volume, and what opens it. That tool has other limits, and no option for them.
    fn volume(&self, place: PlaceArgs, key_slot: Option<u32>) -> VolumeArgs {
        let unlock = UnlockArgs {
            luks_header: None,
            key_slot,
            volume_key_file: None,
            kdf_limit: CRYPTSETUP_LIMIT,
            policy: PolicyArgs::default(),
        };
        VolumeArgs { place, passphrase: self.passphrase(None), unlock }
    }

    /// The costs of a key slot.
    fn pbkdf(&self) -> Result<PbkdfArgs, Refusal> {
        let bytes = |kib: u64| kib.checked_mul(1024).ok_or("--pbkdf-memory: this is too much".to_owned());
        Ok(PbkdfArgs {
            pbkdf: self.pbkdf,
            iter_time: self.iter_time,
            pbkdf_force_iterations: self.pbkdf_force_iterations,
            pbkdf_memory: self.pbkdf_memory.map(bytes).transpose()?,
            pbkdf_parallel: self.pbkdf_parallel,
        })
    }

    fn area(&self) -> AreaArgs {
        AreaArgs { keyslot_cipher: self.keyslot_cipher.clone(), keyslot_key_size: self.keyslot_key_size }
    }

    /// The key slot that is made.
    fn slot(&self) -> Result<SlotArgs, Refusal> {
        Ok(SlotArgs { pbkdf: self.pbkdf()?, hash: self.hash.clone(), area: self.area() })
    }

    /// The key slot that is made, and its passphrase.
    fn new_key(&self, file: Option<PathBuf>) -> Result<NewKeyArgs, Refusal> {
        Ok(NewKeyArgs {
            new_key_file: file,
            new_keyfile_offset: self.new_keyfile_offset,
            new_keyfile_size: given(self.new_keyfile_size).map(usize_of),
            empty: EmptyArgs { allow_empty_key: true },
            slot: self.slot()?,
        })
    }

    /// First byte of the data.
    fn data_offset(&self) -> Result<Option<u64>, Refusal> {
        let bytes = |sectors: u64| sectors.checked_mul(512).ok_or("--offset: this is too far".to_owned());
        Ok(given(self.offset).map(bytes).transpose()?)
    }

    fn token_place(&self) -> Result<token::NewArgs, Refusal> {
        Ok(token::NewArgs { token_id: number(self.token_id, "token-id")?, overwrite: self.token_replace })
    }

    /// Translates the command line into ours.
    pub(super) fn line(&self) -> Result<Line, Refusal> {
        let Some((action, words)) = self.action().zip(self.words.get(1..)) else {
            return Err("Argument <action> missing.".to_owned().into());
        };
        let action = &*action;
        // The action of tokens comes before the device.
        let (kind, words) = match (action, words.split_first()) {
            ("token", Some((kind, words))) => (kind.to_string_lossy(), words),
            _ => ("".into(), words),
        };
        if action == "benchmark" {
            let action = Action::Benchmark(self.benchmark()?.into());
            return Ok(Line { action, question: None, devices: Vec::new(), version: None });
        }
        let Some((device, words)) = words.split_first() else {
            return Err(format!("{action}: requires <device> as argument").into());
        };
        let device = Path::new(device);
        // Of most commands the header alone is read and written: the data need not be there.
        let devices = match action {
            "luksFormat" | "open" | "repair" | "reencrypt" => {
                let is_made = match action {
                    "reencrypt" => self.encrypt || self.decrypt,
                    _ => action == "luksFormat",
                };
                let header = self.header.clone().filter(|path| !is_made || path.exists());
                [device.to_owned()].into_iter().chain(header).collect()
            }
            _ => vec![self.header.as_deref().unwrap_or(device).to_owned()],
        };
        let question = match action {
            "luksFormat" => Some(format!("This will overwrite data on {} irrevocably.", device.display())),
            "luksUUID" if self.uuid.is_some() => {
                Some("Do you really want to change UUID of device?".to_owned())
            }
            _ => None,
        };
        let version = match (action, self.kind.as_deref()) {
            _ if self.encrypt => None,
            // There it says something else, or nothing.
            ("luksFormat" | "convert" | "isLuks" | "luksHeaderBackup" | "luksHeaderRestore", _) => None,
            (_, Some("luks1")) => Some(1),
            (_, Some("luks2")) => Some(2),
            _ => None,
        };
        let action = match action {
            "token" => self.token(&kind, device)?,
            _ => self.command(action, device, words.first())?,
        };
        Ok(Line { action, question, devices, version })
    }

    /// The file that the header lies in, alone.
    fn header_place(&self, device: &Path) -> PlaceArgs {
        PlaceArgs::of_file(self.header.as_deref().unwrap_or(device))
    }

    fn header(&self, device: &Path) -> HeaderArgs {
        HeaderArgs { place: self.header_place(device), luks_header: None }
    }

    /// The command for an action that is not one of tokens.
    fn command(&self, action: &str, device: &Path, second: Option<&OsString>) -> Result<Action, Refusal> {
        let header = || self.header(device);
        let volume = |key_slot| self.volume(self.header_place(device), key_slot);
        let backup_file = || needed(self.header_backup_file.clone(), "--header-backup-file");
        Ok(match action {
            "luksFormat" => Action::Format(self.format(device, second)?.into()),
            "open" if self.test_passphrase => Action::TestPassphrase(self.test_passphrase(device)?.into()),
            "luksDump" if self.dump_volume_key || self.unbound => {
                let slot = || needed(self.key_slot, "--key-slot");
                let unbound = self.unbound && !self.dump_volume_key;
                Action::DumpVolumeKey(
                    DumpVolumeKey {
                        volume: volume(unbound.then(slot).transpose()?),
                        file: self.volume_key_file.clone(),
                        unbound,
                        confirm: self.confirm(),
                    }
                    .into(),
                )
            }
            "luksDump" => {
                let dump_json_metadata = self.dump_json_metadata;
                Action::Dump(dump::Args { header: header(), dump_json_metadata, unbound: false }.into())
            }
            "luksUUID" => Action::Uuid(Uuid { header: header(), uuid: self.uuid.clone() }.into()),
            "isLuks" if second.is_some() => {
                return Err(Refusal::Status(4, "Only one device can be asked for.".to_owned()));
            }
            "isLuks" => {
                let kind = self.luks_kind()?.to_owned();
                Action::IsLuks(IsLuks { place: self.header_place(device), kind }.into())
            }
            "luksAddKey" => Action::AddKey(self.add_key(device, second)?.into()),
            "luksChangeKey" => {
                let new = self.new_key(second.map(PathBuf::from))?;
                Action::ChangeKey(ChangeKey { volume: volume(self.key_slot), new }.into())
            }
            "luksConvertKey" => {
                Action::ConvertKey(ConvertKey { volume: volume(self.key_slot), slot: self.slot()? }.into())
            }
            "luksRemoveKey" => {
                let volume = VolumeArgs { passphrase: self.passphrase(second), ..volume(None) };
                Action::RemoveKey(RemoveKey { volume, confirm: self.confirm() }.into())
            }
            "luksKillSlot" => Action::KillSlot(self.kill_slot(device, second)?.into()),
            "erase" => Action::Erase(Erase { header: header(), confirm: self.confirm() }.into()),
            "repair" => Action::Repair(
                repair::Args {
                    header: HeaderArgs {
                        place: PlaceArgs::of_file(device),
                        luks_header: self.header.clone(),
                    },
                    key_slot: self.key_slot,
                    passphrase: self.passphrase(None),
                    confirm: self.confirm(),
                }
                .into(),
            ),
            "convert" => match self.kind.as_deref() {
                Some(kind @ ("luks1" | "luks2")) => {
                    let kind = kind.to_owned();
                    Action::Convert(convert::Args { header: header(), kind, confirm: self.confirm() }.into())
                }
                _ => return Err("Invalid LUKS type, only luks1 and luks2 are supported.".to_owned().into()),
            },
            "luksHeaderBackup" => {
                Action::HeaderBackup(backup::Backup { header: header(), file: backup_file()? }.into())
            }
            "luksHeaderRestore" => {
                let (place, file) = (self.header_place(device), backup_file()?);
                Action::HeaderRestore(backup::Restore { place, file, confirm: self.confirm() }.into())
            }
            "config" => {
                if self.label.is_none() && self.subsystem.is_none() && self.priority.is_none() {
                    return Err("Option --priority, --label or --subsystem is missing.".to_owned().into());
                }
                // That tool has no way to keep one of the two.
                let subsystem = self.subsystem.clone().or(self.label.as_ref().map(|_| String::new()));
                Action::Config(
                    config::Args {
                        header: header(),
                        label: self.label.clone(),
                        subsystem,
                        key_slot: self.key_slot,
                        priority: self.priority,
                        persistent: None,
                    }
                    .into(),
                )
            }
            "reencrypt" => Action::Reencrypt(self.reencrypt(device, second)?.into()),
            "open" | "close" | "luksClose" | "status" | "resize" | "luksSuspend" | "luksResume" => {
                let text =
                    format!("{action} needs the kernel; 'casemate serve --luks' serves what is in a volume");
                return Err(Refusal::Status(if matches!(action, "open" | "status") { 1 } else { 4 }, text));
            }
            _ => return Err(format!("Unknown action '{action}'.").into()),
        })
    }

    fn benchmark(&self) -> Result<benchmark::Args, Refusal> {
        Ok(benchmark::Args {
            // That tool measures one kind of things.
            crypt: self.cipher.clone().filter(|_| self.hash.is_none()),
            key_size: given(self.key_size),
            hash: self.hash.clone(),
            pbkdf: self.pbkdf()?,
        })
    }

    fn format(&self, device: &Path, second: Option<&OsString>) -> Result<format::Args, Refusal> {
        if self.offset.is_some_and(|sectors| !sectors.is_multiple_of(8)) {
            return Err(Refusal::Status(1, "Data offset is not multiple of 4096 bytes.".to_owned()));
        }
        if self.integrity_legacy_padding && self.integrity.is_some() {
            let text = "--integrity-legacy-padding: volumes with the old padding are not made here.";
            return Err(Refusal::Status(1, text.to_owned()));
        }
        // The size of a volume key in a file is that of the cipher, never that of the file.
        let is_xts = self.cipher.as_ref().is_none_or(|cipher| cipher.contains("-xts-"));
        let usual = self.volume_key_file.as_ref().map(|_| if is_xts { 512 } else { 256 });
        Ok(format::Args {
            place: PlaceArgs::of_file(device),
            from: None,
            size: None,
            overwrite: OverwriteArgs { overwrite: true },
            luks_header: self.header.clone(),
            kind: if self.luks_kind()? == "luks1" { "luks1" } else { "luks2" }.to_owned(),
            crypt: self.cipher.clone().unwrap_or_else(|| "aes-xts-plain64".to_owned()),
            key_size: given(self.key_size).or(usual),
            integrity: self.integrity.clone(),
            hash: self.hash.clone().unwrap_or_else(|| "sha256".to_owned()),
            sector_size: self.sectors(device).unwrap_or(512),
            crypt_offset: self.data_offset()?,
            align_payload: self.align_payload.map(u64::from),
            luks2_metadata_size: self.luks2_metadata_size,
            luks2_keyslots_size: self.luks2_keyslots_size,
            label: self.label.clone().unwrap_or_default(),
            subsystem: self.subsystem.clone().unwrap_or_default(),
            uuid: self.uuid.clone(),
            seed: None,
            volume_key_file: self.volume_key_file.clone(),
            key_slot: self.key_slot.unwrap_or(0),
            area: self.area(),
            pbkdf: self.pbkdf()?,
            passphrase: self.passphrase(second),
            empty: EmptyArgs { allow_empty_key: true },
        })
    }

    fn test_passphrase(&self, device: &Path) -> Result<TestPassphrase, Refusal> {
        self.luks_kind()?;
        let mut volume = self.volume(PlaceArgs::of_file(device), self.key_slot);
        volume.unlock.luks_header.clone_from(&self.header);
        volume.unlock.volume_key_file.clone_from(&self.volume_key_file);
        Ok(TestPassphrase {
            volume,
            unbound: self.unbound && self.key_slot.is_none(),
            key_size: given(self.key_size).filter(|_| self.volume_key_file.is_some()),
        })
    }

    fn add_key(&self, device: &Path, second: Option<&OsString>) -> Result<AddKey, Refusal> {
        let new_slot = number(self.new_key_slot.filter(|_| !self.unbound), "new-key-slot")?;
        let opened = self.key_slot.filter(|_| new_slot.is_some());
        let mut volume = self.volume(self.header_place(device), opened);
        volume.unlock.volume_key_file.clone_from(&self.volume_key_file);
        let is_size = self.unbound || self.volume_key_file.is_some();
        Ok(AddKey {
            volume,
            new: self.new_key(second.map(PathBuf::from).or(self.new_keyfile.clone()))?,
            new_key_slot: new_slot.or(self.key_slot),
            unbound: self.unbound,
            key_size: given(self.key_size).filter(|_| is_size),
        })
    }

    fn kill_slot(&self, device: &Path, second: Option<&OsString>) -> Result<KillSlot, Refusal> {
        let Some(slot) = second else {
            return Err("luksKillSlot: requires <device> <key slot> as arguments".to_owned().into());
        };
        let slot = slot.to_string_lossy();
        // With -q nobody at a terminal is asked, but what a file or another input has is checked.
        let remaining = !self.batch_mode || !io::stdin().is_terminal();
        let is_part = remaining || self.key_file().is_some();
        Ok(KillSlot {
            header: self.header(device),
            slot: slot.parse().map_err(|_| format!("luksKillSlot: '{slot}': a key slot is a number"))?,
            key_file: self.key_file().cloned(),
            keyfile_offset: if is_part { self.keyfile_offset } else { 0 },
            keyfile_size: self.keyfile_size().filter(|_| is_part),
            remaining,
            confirm: self.confirm(),
        })
    }

    fn reencrypt(&self, device: &Path, second: Option<&OsString>) -> Result<reencrypt::Args, Refusal> {
        self.refuse_for_reencrypt(second)?;
        // As there, what was begun goes on without a word; but not with other options.
        let goes_on = self.resume_only || !self.init_only && self.is_begun(device);
        let is_new = self.encrypt && !goes_on;
        let mut volume = self.volume(PlaceArgs::of_file(device), self.key_slot);
        volume.unlock.luks_header.clone_from(&self.header);
        if is_new {
            volume.unlock.kdf_limit = 1;
        }
        let resilience = self.resilience.as_deref().map(|name| {
            Resilience::from_str(name, false).map_err(|_| format!("--resilience {name} is not known here."))
        });
        Ok(reencrypt::Args {
            volume,
            encrypt: self.encrypt,
            decrypt: self.decrypt,
            crypt: self.cipher.clone(),
            key_size: given(self.key_size),
            sector_size: if is_new { self.sectors(device) } else { self.sector_size },
            hash: self.hash.clone(),
            empty: EmptyArgs { allow_empty_key: self.encrypt },
            pbkdf: self.pbkdf()?,
            resilience: resilience.transpose()?,
            resilience_hash: self.resilience_hash.clone(),
            hotzone_size: self.hotzone_size,
            device_size: self.device_size,
            reduce_device_size: self.reduce_device_size,
            crypt_offset: self.data_offset()?,
            init_only: self.init_only,
            resume_only: goes_on,
            other_data: OtherDataArgs { luks_overwrite: false },
            confirm: self.confirm(),
            is_part_meant: false,
        })
    }

    /// The command for an action of tokens.
    fn token(&self, action: &str, device: &Path) -> Result<Action, Refusal> {
        let header = self.header(device);
        let (key_slot, unbound) = (self.key_slot, self.unbound);
        let token = || needed(number(self.token_id, "token-id")?, "--token-id");
        let action = match action {
            "add" => token::Action::Add(token::Add {
                header,
                key_description: needed(self.key_description.clone(), "--key-description")?,
                key_slot,
                unbound,
                new: self.token_place()?,
            }),
            "import" => token::Action::Import(token::Import {
                header,
                file: self.json_file.clone().unwrap_or_else(|| "-".into()),
                key_slot,
                new: self.token_place()?,
            }),
            "export" => {
                token::Action::Export(token::Export { header, token: token()?, file: self.json_file.clone() })
            }
            "remove" => token::Action::Remove(token::Remove { header, token: token()? }),
            "unassign" => token::Action::Unassign(token::Unassign {
                header,
                token: token()?,
                slot: needed(key_slot, "--key-slot")?,
            }),
            _ => return Err(format!("Unknown action '{action}'.").into()),
        };
        Ok(Action::Token(token::Args { action }.into()))
    }

    /// The type that was named, which is one of LUKS.
    fn luks_kind(&self) -> Result<&str, Refusal> {
        match self.kind.as_deref().unwrap_or("luks") {
            kind @ ("luks" | "luks1" | "luks2") => Ok(kind),
            kind => Err(format!("--type {kind}: only volumes of LUKS are made and opened here.").into()),
        }
    }

    /// Refuses what a reencryption here has no use for, though that tool may.
    fn refuse_for_reencrypt(&self, name: Option<&OsString>) -> Result<(), Refusal> {
        if let Some(name) = name {
            let text =
                format!("{}: mapping the data while they are encrypted needs the kernel.", name.display());
            return Err(Refusal::Status(1, text));
        }
        let given = [
            ("align-payload", self.align_payload.is_some()),
            ("integrity", self.integrity.is_some()),
            ("keep-key", self.keep_key),
            ("init-only", self.init_only && self.resume_only),
            ("offset", given(self.offset).is_some() && !self.encrypt),
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
            None => Ok(()),
        }
    }

    /// Whether a reencryption of a device, or its encryption or decryption, was begun and is not finished. One whose last step was cut off
    /// is finished for cryptsetup, which begins another one.
    fn is_begun(&self, device: &Path) -> bool {
        let is_any = self.encrypt || self.decrypt;
        let open = |path: &Path| Image::open(path, Access::ReadUnlocked);
        let begun = || {
            let header = self.header.as_deref().map(open).transpose()?;
            let volume = open(device)?.luks_volume(header.as_ref(), Context::default().providers())?;
            volume.begun().map(|mode| mode.is_some() && (is_any || !volume.is_ending()))
        };
        // The command itself refuses what is not a volume.
        begun().unwrap_or(false)
    }

    /// The sector size of a new volume, if it is not the smallest: as large as the file system's blocks for a file, where the
    /// data are as many.
    fn sectors(&self, device: &Path) -> Option<u32> {
        let is_luks2 = self.kind.as_deref() != Some("luks1");
        if self.sector_size.is_some() || !is_luks2 || self.integrity.is_some() {
            return self.sector_size;
        }
        let len = fs::metadata(device).ok().filter(fs::Metadata::is_file)?.len();
        let align = self.align_payload.map(u64::from);
        // As there, an offset counts in sectors, and so does an alignment where that is the offset.
        let is_apart = self.header.is_some();
        let offset = self.offset.or(align.filter(|_| is_apart)).unwrap_or(0);
        let before = align.unwrap_or(0).checked_mul(512)?;
        let is_whole = len.wrapping_sub(before).is_multiple_of(4096) && offset.is_multiple_of(4096);
        is_whole.then_some(4096)
    }
}

/// A number that was given; 0 is as good as none, as for that tool.
fn given<T: Default + PartialEq>(number: Option<T>) -> Option<T> {
    number.filter(|number| *number != T::default())
}

/// A number that is not negative.
fn number(number: Option<i32>, name: &str) -> Result<Option<u32>, Refusal> {
    let positive = |number: i32| {
        u32::try_from(number).map_err(|_| format!("invalid value '{number}' for '--{name}'").into())
    };
    number.map(positive).transpose()
}

/// An option that an action can't do without.
fn needed<T>(value: Option<T>, name: &str) -> Result<T, Refusal> {
    value.ok_or_else(|| format!("Option {name} is missing.").into())
}

/// Why a passphrase that a token names is not had.
pub(super) const NO_KEYRING: &str = "passphrases in the kernel's keyring, which tokens name, are not read here; give the passphrase or a key file";
