//! `casemate licenses`: the licences of everything that is in the command.

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Print the licenses of all packages in this command, with their texts.
///
/// casemate itself is licensed under MIT or Apache-2.0.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate licenses > licenses.txt")]
pub struct Args {}

/// Names of the packages with their licences, and the texts; `cargo xtask licenses` writes it.
const TEXT: &str = include_str!("../licenses.txt");

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match context.json() {
            true => {
                let packages = TEXT.lines().skip(3).take_while(|line| !line.is_empty());
                for (package, license) in packages.filter_map(|line| line.split_once(": ")) {
                    let (name, version) = package.split_once(' ').unwrap_or((package, ""));
                    context.print_json(
                        &serde_json::json!({ "package": name, "version": version, "license": license }),
                    )?;
                }
            }
            false => context.print(TEXT)?,
        }
        Ok(Answer::Yes)
    }
}
