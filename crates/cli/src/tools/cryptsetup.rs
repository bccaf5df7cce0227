//! The command line of `cryptsetup` 2.6.1 for what it does to headers of LUKS: exit status 0, 1 for wrong parameters, 2 for
//! a wrong passphrase, 3 without memory, 4 for a wrong device, 5 for one in use.
//!
//! A command line becomes one of `casemate luks`, whose options have the same names or units that are written out.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;

use casemate::{Error, ErrorKind};

use crate::Cli;
use crate::answer::Answer;
use crate::cmd::luks::confirm::Confirm;
use crate::context::Context;

/// The version whose command line this is.
const VERSION: &str = "cryptsetup 2.6.1";

const USAGE: &str = "\
Usage: cryptsetup [OPTION...] <action> <action-specific>

<action> is one of:
\tluksFormat <device> [<new key file>]
\topen --test-passphrase <device>
\tluksDump, luksUUID, isLuks <device>
\tluksAddKey <device> [<new key file>]
\tluksChangeKey <device> [<new key file>]
\tluksConvertKey <device>
\tluksRemoveKey <device> [<key file>]
\tluksKillSlot <device> <key slot>
\tluksHeaderBackup, luksHeaderRestore <device> --header-backup-file=file
\terase, repair, convert, config, reencrypt <device>
\ttoken <add|remove|import|export|unassign> <device>
\tbenchmark

This is casemate under the name cryptsetup; 'casemate luks COMMAND --help' says more of each. What needs the kernel (open,
close, resize, status) it has not; see 'casemate serve --help' and 'casemate luks extract --help'.
";

#[derive(Debug, Parser)]
#[command(
    name = "cryptsetup",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true
)]
struct Tool {
    #[arg(short = '?', long, visible_alias = "usage")]
    help: bool,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short = 'q', long)]
    batch_mode: bool,
    /// What changes nothing here: talk, questions, and how the kernel is asked.
    #[arg(short = 'v', long, visible_aliases = ["debug", "debug-json", "force-password", "disable-locks", "disable-keyring",
        "disable-external-tokens", "use-random", "use-urandom", "force-offline-reencrypt",
        "integrity-no-wipe"])]
    verbose: bool,
    #[arg(short = 'y', long)]
    verify_passphrase: bool,
    #[arg(short = 't', long, visible_alias = "tries", short_alias = 'T')]
    timeout: Option<u32>,
    #[arg(long)]
    test_passphrase: bool,
    #[arg(long)]
    unbound: bool,
    #[arg(long)]
    dump_json_metadata: bool,
    #[arg(long, visible_alias = "dump-master-key")]
    dump_volume_key: bool,
    #[arg(long)]
    token_replace: bool,
    #[arg(short = 'M', long = "type")]
    kind: Option<String>,
    #[arg(short, long)]
    cipher: Option<String>,
    #[arg(short = 's', long)]
    key_size: Option<String>,
    #[arg(short = 'I', long)]
    integrity: Option<String>,
    #[arg(short = 'h', long)]
    hash: Option<String>,
    #[arg(long)]
    sector_size: Option<String>,
    #[arg(short, long)]
    offset: Option<u64>,
    #[arg(long)]
    align_payload: Option<String>,
    #[arg(long, value_parser = size)]
    luks2_metadata_size: Option<String>,
    #[arg(long, value_parser = size)]
    luks2_keyslots_size: Option<String>,
    #[arg(long)]
    label: Option<String>,
    #[arg(long)]
    subsystem: Option<String>,
    #[arg(long)]
    uuid: Option<String>,
    #[arg(long)]
    priority: Option<String>,
    #[arg(short = 'S', long)]
    key_slot: Option<String>,
    #[arg(long)]
    new_key_slot: Option<String>,
    #[arg(short = 'd', long)]
    key_file: Option<OsString>,
    #[arg(long)]
    keyfile_offset: Option<String>,
    #[arg(short = 'l', long)]
    keyfile_size: Option<String>,
    #[arg(long)]
    new_keyfile: Option<OsString>,
    #[arg(long)]
    new_keyfile_offset: Option<String>,
    #[arg(long)]
    new_keyfile_size: Option<String>,
    #[arg(long, visible_alias = "master-key-file")]
    volume_key_file: Option<OsString>,
    #[arg(long)]
    header: Option<OsString>,
    #[arg(long)]
    header_backup_file: Option<OsString>,
    #[arg(short = 'i', long)]
    iter_time: Option<String>,
    #[arg(long)]
    pbkdf: Option<String>,
    #[arg(long)]
    pbkdf_force_iterations: Option<String>,
    #[arg(long)]
    pbkdf_memory: Option<u64>,
    #[arg(long)]
    pbkdf_parallel: Option<String>,
    #[arg(long)]
    keyslot_cipher: Option<String>,
    #[arg(long)]
    keyslot_key_size: Option<String>,
    #[arg(long)]
    token_id: Option<String>,
    #[arg(long)]
    key_description: Option<String>,
    #[arg(long)]
    json_file: Option<OsString>,
    #[arg(long)]
    init_only: bool,
    #[arg(long)]
    resume_only: bool,
    #[arg(long)]
    resilience: Option<String>,
    #[arg(long)]
    resilience_hash: Option<String>,
    #[arg(long, value_parser = size)]
    hotzone_size: Option<String>,
    #[arg(long, value_parser = size)]
    device_size: Option<String>,
    #[arg(long, value_parser = size)]
    reduce_device_size: Option<String>,
    words: Vec<OsString>,
}

/// A command line of ours, and whether it is asked for before.
#[derive(Debug)]
struct Line {
    args: Vec<OsString>,
    /// What is asked first, where somebody can be asked.
    question: Option<String>,
    /// The file or block device that must be there.
    device: Option<OsString>,
}

impl Line {
    fn new(command: &str) -> Line {
        let args = ["casemate", "luks"].into_iter().chain(command.split(' ')).map(OsString::from).collect();
        Line { args, question: None, device: None }
    }

    /// The same with an option, if it was given.
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
        self.device = Some(device.to_owned());
        self.word(device)
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

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Tool::try_parse_from(args)
        .is_ok_and(|tool| tool.line().is_ok_and(|line| Cli::try_parse_from(line.args).is_ok()))
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let context = Context::for_tool("");
    let tool = match Tool::try_parse_from(args) {
        Ok(tool) => tool,
        Err(error) => return wrong_usage(&first_line(&error)),
    };
    let text = match (tool.help, tool.version) {
        (true, _) => Some(USAGE.to_owned()),
        (false, true) => Some(format!("{VERSION} flags: CASEMATE\n")),
        (false, false) => None,
    };
    if let Some(text) = text {
        return if context.print(text).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let line = match tool.line() {
        Ok(line) => line,
        Err(text) => return wrong_usage(&text),
    };
    if let Some(device) = line.device.as_ref().filter(|device| fs::metadata(device).is_err()) {
        eprintln!("Device {} does not exist or access denied.", device.to_string_lossy());
        return ExitCode::from(4);
    }
    let cli = match Cli::try_parse_from(&line.args) {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&first_line(&error)),
    };
    if let Some(question) = &line.question
        && let Err(error) = (Confirm { batch_mode: tool.asks_nothing() }).ask(question)
    {
        return exit(&Err(error), &context);
    }
    exit(&cli.command.run(&context), &context)
}

fn exit(result: &Result<Answer, Error>, context: &Context) -> ExitCode {
    let error = match result {
        Ok(Answer::Yes) => return ExitCode::SUCCESS,
        Ok(Answer::No | Answer::Failed | Answer::Status(_)) => return ExitCode::FAILURE,
        Err(error) if error.is_broken_pipe() => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    context.complain(error);
    ExitCode::from(match error.kind() {
        ErrorKind::Mismatch => 2,
        ErrorKind::Busy => 5,
        _ => 1,
    })
}

fn wrong_usage(text: &str) -> ExitCode {
    eprintln!("{USAGE}\ncryptsetup: {text}");
    ExitCode::from(1)
}

/// What is wrong, without clap's own usage and hints.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl Tool {
    /// As with that tool, nobody is asked where there is nobody at a terminal.
    fn asks_nothing(&self) -> bool {
        self.batch_mode || !io::stdin().is_terminal()
    }

    /// What opens the volume.
    fn opening(&self, line: Line) -> Line {
        line.with("key-file", self.key_file.as_ref())
            .with("keyfile-offset", self.keyfile_offset.as_ref())
            .with("keyfile-size", self.keyfile_size.as_ref())
            .with("luks-header", self.header.as_ref())
    }

    /// What a key slot costs.
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
            .with("new-keyfile-offset", self.new_keyfile_offset.as_ref())
            .with("new-keyfile-size", self.new_keyfile_size.as_ref())
    }

    /// A command that changes a header, asks nothing where this tool does not, and opens nothing.
    fn change(&self, command: &str, device: &OsStr) -> Line {
        let line = Line::new(command).with("luks-header", self.header.as_ref());
        line.flag("batch-mode", self.asks_nothing()).on(device)
    }

    /// What the command line is in our words.
    fn line(&self) -> Result<Line, String> {
        let Some((action, words)) = self.words.split_first() else {
            return Err("Argument <action> missing.".to_owned());
        };
        let action = action.to_string_lossy();
        // The action of tokens comes before the device.
        let (kind, words) = match (&*action, words.split_first()) {
            ("token", Some((kind, words))) => (kind.to_string_lossy(), words),
            _ => ("".into(), words),
        };
        if action == "benchmark" {
            let line = self.costs(Line::new("benchmark"));
            return Ok(line.with("crypt", self.cipher.as_ref()).with("key-size", self.key_size.as_ref()));
        }
        let Some((device, words)) = words.split_first() else {
            return Err(format!("{action}: requires <device> as argument"));
        };
        let second = words.first();
        let needed =
            |value: Option<&OsString>, name: &str| value.cloned().ok_or(format!("Option {name} is missing."));
        let token = || self.token_id.as_ref().map(OsString::from);
        let header = |command: &str| Line::new(command).with("luks-header", self.header.as_ref()).on(device);
        let line = match (&*action, &*kind) {
            ("luksFormat" | "format", _) => {
                let line = self.costs(self.opening(Line::new("format")));
                let key = if self.key_file.is_some() { None } else { second };
                let line = line
                    .with("type", self.kind.as_ref().filter(|kind| *kind != "luks"))
                    .with("crypt", self.cipher.as_ref())
                    .with("key-size", self.key_size.as_ref())
                    .with("integrity", self.integrity.as_ref())
                    .with("sector-size", self.sector_size.as_ref())
                    .with("crypt-offset", self.offset.map(|sectors| format!("{sectors}s")))
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
                Line { question: Some(question), ..line.flag("overwrite", true).on(device) }
            }
            ("open" | "luksOpen", _) if self.test_passphrase => self
                .opening(Line::new("test-passphrase"))
                .with("key-slot", self.key_slot.as_ref())
                .with("volume-key-file", self.volume_key_file.as_ref())
                .on(device),
            ("luksDump", _) if self.dump_volume_key => self
                .opening(Line::new("dump-volume-key"))
                .with("key-slot", self.key_slot.as_ref())
                .on(device)
                .word(&needed(self.volume_key_file.as_ref(), "--volume-key-file")?),
            ("luksDump", _) if self.unbound && self.volume_key_file.is_some() => self
                .opening(Line::new("dump-volume-key"))
                .with(
                    "key-slot",
                    Some(needed(self.key_slot.as_ref().map(OsString::from).as_ref(), "--key-slot")?),
                )
                .on(device)
                .word(&needed(self.volume_key_file.as_ref(), "--volume-key-file")?),
            ("luksDump", _) => {
                let line = Line::new("dump").flag("dump-json-metadata", self.dump_json_metadata);
                line.flag("unbound", self.unbound).on(self.header.as_ref().unwrap_or(device))
            }
            ("luksUUID", _) => header("uuid").with("uuid", self.uuid.as_ref()),
            ("isLuks", _) => Line::new("is-luks")
                .with("type", self.kind.as_ref())
                .on(self.header.as_ref().unwrap_or(device)),
            ("luksAddKey", _) => {
                let opens = if self.unbound {
                    Line::new("add-key").flag("unbound", true)
                } else {
                    self.opening(Line::new("add-key"))
                };
                let line = self.slot(opens).with("key-size", self.key_size.as_ref());
                line.with("new-key-file", self.new_keyfile.as_ref().or(second))
                    .with("volume-key-file", self.volume_key_file.as_ref())
                    .with("new-key-slot", self.new_key_slot.as_ref().or(self.key_slot.as_ref()))
                    .on(device)
            }
            ("luksChangeKey", _) => self
                .slot(self.opening(Line::new("change-key")))
                .with("new-key-file", self.new_keyfile.as_ref().or(second))
                .with("key-slot", self.key_slot.as_ref())
                .on(device),
            ("luksConvertKey", _) => {
                let line = self.slot(self.opening(Line::new("convert-key")));
                line.with("key-slot", self.key_slot.as_ref()).on(device)
            }
            ("luksRemoveKey", _) => {
                let line = self.opening(Line::new("remove-key")).flag("batch-mode", self.asks_nothing());
                line.with("key-file", if self.key_file.is_some() { None } else { second }).on(device)
            }
            ("luksKillSlot", _) => match second {
                Some(slot) => {
                    // With -q nobody at a terminal is asked, but what a file or another input has is checked.
                    let is_asked = !self.batch_mode || !io::stdin().is_terminal();
                    self.change("kill-slot", device)
                        .with("key-file", self.key_file.as_ref())
                        .with("keyfile-offset", self.keyfile_offset.as_ref())
                        .with("keyfile-size", self.keyfile_size.as_ref())
                        .flag("remaining", is_asked)
                        .word(slot)
                }
                None => return Err("luksKillSlot: requires <device> <key slot> as arguments".to_owned()),
            },
            ("luksErase" | "erase", _) => self.change("erase", device),
            ("repair", _) => self.change("repair", device),
            ("convert", _) => match self.kind.as_deref() {
                Some("luks1" | "luks2") => self.change("convert", device).with("type", self.kind.as_ref()),
                _ => return Err("Invalid LUKS type, only luks1 and luks2 are supported.".to_owned()),
            },
            ("luksHeaderBackup", _) => header("header-backup")
                .word(&needed(self.header_backup_file.as_ref(), "--header-backup-file")?),
            ("luksHeaderRestore", _) => {
                let line = Line::new("header-restore").flag("batch-mode", self.asks_nothing()).on(device);
                line.word(&needed(self.header_backup_file.as_ref(), "--header-backup-file")?)
            }
            ("config", _) => header("config")
                .with("label", self.label.as_ref())
                // That tool has no way to keep one of the two.
                .with("subsystem", self.subsystem.as_ref().or(self.label.as_ref().map(|_| &EMPTY)))
                .with("priority", self.priority.as_ref())
                .with("key-slot", self.key_slot.as_ref()),
            ("reencrypt", _) => self
                .costs(self.opening(Line::new("reencrypt")))
                .with("crypt", self.cipher.as_ref())
                .with("key-size", self.key_size.as_ref())
                .with("sector-size", self.sector_size.as_ref())
                .with("key-slot", self.key_slot.as_ref())
                .with("resilience", self.resilience.as_ref())
                .with("resilience-hash", self.resilience_hash.as_ref())
                .with("hotzone-size", self.hotzone_size.as_ref())
                .with("device-size", self.device_size.as_ref())
                .with("reduce-device-size", self.reduce_device_size.as_ref())
                .flag("init-only", self.init_only)
                .flag("resume-only", self.resume_only)
                .on(device),
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
            ("token", "export") if self.json_file.is_none() => {
                header("token export").word(&needed(token().as_ref(), "--token-id")?)
            }
            ("token", "remove") => header("token remove").word(&needed(token().as_ref(), "--token-id")?),
            ("token", "unassign") => header("token unassign")
                .word(&needed(token().as_ref(), "--token-id")?)
                .word(&needed(self.key_slot.as_ref().map(OsString::from).as_ref(), "--key-slot")?),
            ("open" | "luksOpen" | "close" | "luksClose" | "status" | "resize", _) => {
                return Err(format!(
                    "'{action}' needs the kernel; 'casemate serve --luks' serves what is in a volume"
                ));
            }
            _ => return Err(format!("Unknown action '{action}'.")),
        };
        Ok(line)
    }
}

static EMPTY: String = String::new();

/// A size as this tool takes it, in bytes: a letter of either case is a power of 1024, with a B behind it one of 1000.
fn size(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let (letter, base) = match &text[digits.len()..] {
        unit if unit.len() < 2 => (unit, 1024_u64),
        unit => match (unit.strip_suffix("iB"), unit.strip_suffix('B')) {
            (Some(letter), _) => (letter, 1024),
            (None, letter) => (letter.unwrap_or("none"), 1000),
        },
    };
    let factor = match letter {
        "" => Some(1),
        "s" => Some(512),
        _ => {
            let power = ["k", "m", "g", "t"].iter().position(|known| letter.eq_ignore_ascii_case(known));
            // OK to cast: at most 4.
            power.map(|power| base.pow(power as u32 + 1))
        }
    };
    let number = digits.parse::<u64>().ok().zip(factor);
    let bytes = number.and_then(|(number, factor)| number.checked_mul(factor));
    bytes.map(|bytes| bytes.to_string()).ok_or_else(|| "Invalid size specification".to_owned())
}
