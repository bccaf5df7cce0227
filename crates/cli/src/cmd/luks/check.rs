//! `casemate luks check`.

use std::path::PathBuf;

use clap::ArgGroup;
use serde_json::json;

use casemate::luks::Volume;
use casemate::{Access, Error, Image};

use super::options::PolicyArgs;
use crate::answer::Answer;
use crate::cmd::place::PlaceArgs;
use crate::context::Context;
use crate::streams::visible;

/// Check a LUKS header against a policy, without opening it. Exit status 1: a rule is broken; each is named.
///
/// Use it for headers that others could have changed: LUKS does not authenticate headers. A forged header may make
/// programs write data in plain text, or under an attacker's key. Without --luks-policy the rules of every policy
/// apply: no null cipher, no requirement, one segment over the whole device.
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("policy_source").args(["luks_policy", "print_policy"]),
    mut_arg("mac_key_file", |arg| arg.requires("policy_source")),
    after_help = "Examples:\n\
    \x20 casemate luks check vault.img --print-policy > vault.policy\n\
    \x20 casemate luks check vault.img --luks-policy vault.policy\n\
    \x20 casemate luks test-passphrase vault.img --luks-policy vault.policy --key-file pass.key\n\
    \n\
    A policy has a line for each rule; of those that may be there several times any is kept:\n\
    \x20 cipher SPEC, key-size BITS, pbkdf KDF BOUNDS...   must be there; the others need not\n\
    \x20 version, sector-size, hash, key-slot-cipher       the last one is as cipher if it is not there\n\
    \x20 token, flag                                       none are allowed but those that are there\n\
    \x20 integrity KIND                                    the data have one of these; \"none\" allows that they have none\n\
    \x20 key-slots LEAST..MOST\n\
    \x20 digest, mac                                       as --print-policy prints them")]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Read the LUKS header from this file: a detached header.
    #[arg(long, value_name = "FILE")]
    luks_header: Option<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Print a policy that this header meets, and as few others as possible; with --mac-key-file no other header meets
    /// it.
    #[arg(long)]
    print_policy: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let header =
            self.luks_header.as_ref().map(|path| Image::open(path, Access::ReadUnlocked)).transpose()?;
        let volume: Volume = self.place.volume(Access::ReadUnlocked, header.as_ref(), context)?;
        let own = volume.policy(self.policy.mac_key()?.as_ref(), context.providers())?;
        let policy = self.policy.policy()?.unwrap_or_else(|| {
            let mut own = own.clone();
            own.mac = None;
            own
        });
        let broken = volume.broken_rules(&policy, context.providers())?;
        if context.json() {
            let rules = broken.iter().map(|broken| json!({ "rule": broken.rule, "text": broken.text }));
            let policy = self.print_policy.then(|| own.to_text()).transpose()?;
            let value = json!({ "broken_rules": rules.collect::<Vec<_>>(), "policy": policy });
            match self.print_policy {
                true => context.print_data(context.json_line(&value)?)?,
                false => context.print_json(&value)?,
            }
        } else if self.print_policy && broken.is_empty() {
            context.print_data(own.to_text()?)?;
        } else {
            broken.iter().try_for_each(|broken| context.print(visible(&broken.to_string()) + "\n"))?;
        }
        if !broken.is_empty() {
            return Ok(Answer::No);
        }
        context.done(format_args!("{}: the header keeps the policy", self.place.file().display()));
        Ok(Answer::Yes)
    }
}
