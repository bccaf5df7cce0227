//! The options of cryptsetup, and the actions that they are for.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};

/// Options that some actions alone have. The others are taken, and passed over where they say nothing, as that tool does.
const OWN: &[(&str, &[&str])] = &[
    ("align_payload", &["luksFormat", "reencrypt"]),
    ("device_size", &["open", "reencrypt"]),
    ("force_offline_reencrypt", &["reencrypt"]),
    ("hotzone_size", &["reencrypt"]),
    ("integrity", &["luksFormat", "reencrypt"]),
    ("integrity_no_wipe", &["luksFormat", "reencrypt"]),
    ("iter_time", MAKE_SLOTS),
    ("key_size", &["open", "benchmark", "luksFormat", "reencrypt", "luksAddKey"]),
    (
        "key_slot",
        &[
            "open",
            "reencrypt",
            "config",
            "luksFormat",
            "luksAddKey",
            "luksChangeKey",
            "luksConvertKey",
            "luksDump",
            "token",
        ],
    ),
    ("keyslot_cipher", MAKE_SLOTS),
    ("keyslot_key_size", MAKE_SLOTS),
    ("label", &["config", "luksFormat", "reencrypt"]),
    ("luks2_keyslots_size", &["luksFormat", "reencrypt"]),
    ("luks2_metadata_size", &["luksFormat", "reencrypt"]),
    ("new_key_slot", &["luksAddKey"]),
    ("new_keyfile", &["luksAddKey"]),
    ("offset", &["open", "luksFormat", "reencrypt"]),
    ("pbkdf", MAKE_SLOTS),
    ("pbkdf_force_iterations", MAKE_SLOTS),
    ("priority", &["config"]),
    ("sector_size", &["open", "luksFormat", "reencrypt"]),
    ("subsystem", &["config", "luksFormat", "reencrypt"]),
    ("test_passphrase", &["open"]),
    ("token_replace", &["token"]),
    ("unbound", &["luksAddKey", "luksDump", "open", "token"]),
    ("use_random", &["luksFormat", "reencrypt"]),
    ("use_urandom", &["luksFormat", "reencrypt"]),
    ("uuid", &["luksFormat", "luksUUID", "reencrypt"]),
];

/// Actions that make key slots; a benchmark is of what they cost.
const MAKE_SLOTS: &[&str] =
    &["benchmark", "luksFormat", "luksAddKey", "luksChangeKey", "luksConvertKey", "reencrypt"];

#[derive(Debug, Parser)]
#[command(
    name = "cryptsetup",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true
)]
pub(super) struct Tool {
    #[arg(short = '?', long, visible_alias = "usage")]
    pub(super) help: bool,
    #[arg(short = 'V', long)]
    pub(super) version: bool,
    #[arg(short = 'q', long)]
    pub(super) batch_mode: bool,
    /// What changes nothing here: talk, questions, and how the kernel is asked.
    #[arg(short = 'v', long, visible_aliases = ["debug", "debug-json", "force-password", "disable-locks", "disable-keyring",
        "disable-external-tokens"])]
    pub(super) verbose: bool,
    #[arg(long, conflicts_with = "use_urandom")]
    pub(super) use_random: bool,
    #[arg(long)]
    pub(super) use_urandom: bool,
    #[arg(long)]
    pub(super) force_offline_reencrypt: bool,
    #[arg(long, requires = "integrity")]
    pub(super) integrity_no_wipe: bool,
    /// The command line is looked at, and nothing is done.
    #[arg(long, hide = true)]
    pub(super) test_args: bool,
    #[arg(short = 'y', long)]
    pub(super) verify_passphrase: bool,
    #[arg(short = 't', long, visible_alias = "tries", short_alias = 'T')]
    pub(super) timeout: Option<u32>,
    #[arg(long)]
    pub(super) test_passphrase: bool,
    #[arg(long)]
    pub(super) unbound: bool,
    #[arg(long)]
    pub(super) dump_json_metadata: bool,
    #[arg(long, visible_alias = "dump-master-key")]
    pub(super) dump_volume_key: bool,
    #[arg(long)]
    pub(super) token_replace: bool,
    #[arg(short = 'M', long = "type")]
    pub(super) kind: Option<String>,
    #[arg(short, long)]
    pub(super) cipher: Option<String>,
    #[arg(short = 's', long)]
    pub(super) key_size: Option<String>,
    #[arg(short = 'I', long)]
    pub(super) integrity: Option<String>,
    #[arg(short = 'h', long)]
    pub(super) hash: Option<String>,
    #[arg(long)]
    pub(super) sector_size: Option<String>,
    #[arg(short, long)]
    pub(super) offset: Option<u64>,
    #[arg(long)]
    pub(super) align_payload: Option<String>,
    #[arg(long, value_parser = size)]
    pub(super) luks2_metadata_size: Option<String>,
    #[arg(long, value_parser = size)]
    pub(super) luks2_keyslots_size: Option<String>,
    #[arg(long)]
    pub(super) label: Option<String>,
    #[arg(long)]
    pub(super) subsystem: Option<String>,
    #[arg(long)]
    pub(super) uuid: Option<String>,
    #[arg(long)]
    pub(super) priority: Option<String>,
    #[arg(short = 'S', long)]
    pub(super) key_slot: Option<String>,
    #[arg(long)]
    pub(super) new_key_slot: Option<String>,
    #[arg(short = 'd', long)]
    pub(super) key_file: Option<OsString>,
    #[arg(long)]
    pub(super) keyfile_offset: Option<String>,
    #[arg(short = 'l', long)]
    pub(super) keyfile_size: Option<String>,
    #[arg(long)]
    pub(super) new_keyfile: Option<OsString>,
    #[arg(long)]
    pub(super) new_keyfile_offset: Option<String>,
    #[arg(long)]
    pub(super) new_keyfile_size: Option<String>,
    #[arg(long, visible_alias = "master-key-file")]
    pub(super) volume_key_file: Option<OsString>,
    #[arg(long)]
    pub(super) header: Option<OsString>,
    #[arg(long)]
    pub(super) header_backup_file: Option<OsString>,
    #[arg(short = 'i', long)]
    pub(super) iter_time: Option<String>,
    #[arg(long)]
    pub(super) pbkdf: Option<String>,
    #[arg(long)]
    pub(super) pbkdf_force_iterations: Option<String>,
    #[arg(long)]
    pub(super) pbkdf_memory: Option<u64>,
    #[arg(long)]
    pub(super) pbkdf_parallel: Option<String>,
    #[arg(long, requires = "keyslot_key_size")]
    pub(super) keyslot_cipher: Option<String>,
    #[arg(long, requires = "keyslot_cipher")]
    pub(super) keyslot_key_size: Option<String>,
    #[arg(long)]
    pub(super) token_id: Option<String>,
    #[arg(long)]
    pub(super) key_description: Option<String>,
    #[arg(long)]
    pub(super) json_file: Option<OsString>,
    #[arg(long, visible_alias = "new", short = 'N')]
    pub(super) encrypt: bool,
    #[arg(long, conflicts_with = "encrypt")]
    pub(super) decrypt: bool,
    #[arg(long)]
    pub(super) init_only: bool,
    #[arg(long)]
    pub(super) resume_only: bool,
    #[arg(long)]
    pub(super) resilience: Option<String>,
    #[arg(long)]
    pub(super) resilience_hash: Option<String>,
    #[arg(long, value_parser = size)]
    pub(super) hotzone_size: Option<String>,
    #[arg(long, value_parser = size)]
    pub(super) device_size: Option<String>,
    #[arg(long, value_parser = size)]
    pub(super) reduce_device_size: Option<String>,
    pub(super) words: Vec<OsString>,
}

impl Tool {
    /// A command line, or what is wrong with it.
    pub(super) fn parse(args: &[OsString]) -> Result<Tool, String> {
        let matches = Tool::command().try_get_matches_from(args).map_err(|error| first_line(&error))?;
        let tool = Tool::from_arg_matches(&matches).map_err(|error| first_line(&error))?;
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(action) = tool.action() {
            let known = OWN.iter().filter(|(id, _)| is_given(id));
            if let Some((id, _)) = known.into_iter().find(|(_, actions)| !actions.contains(&&*action)) {
                return Err(format!("Option --{} is not for {action}.", id.replace('_', "-")));
            }
        }
        Ok(tool)
    }

    /// The action by its own name.
    pub(super) fn action(&self) -> Option<String> {
        let action = self.words.first()?.to_string_lossy().into_owned();
        Some(match &*action {
            "luksOpen" => "open".to_owned(),
            "luksErase" => "erase".to_owned(),
            "luksConfig" => "config".to_owned(),
            _ => action,
        })
    }
}

/// What is wrong, without clap's own usage and hints.
pub(super) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

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
