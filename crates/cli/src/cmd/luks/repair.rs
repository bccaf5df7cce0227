//! `casemate luks repair`.

use serde_json::json;

use casemate::{Access, Error, probe};

use super::confirm::Confirm;
use super::dump::shown;
use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Mend a damaged LUKS header, and say what was wrong.
///
/// Of LUKS2 a copy that is damaged or older is written from the other one. Of LUKS1, which has one copy, damage that old
/// tools and partitioners are known to do is mended. Nothing else ever mends a header on the way.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate luks repair vault.img")]
pub struct Args {
    #[command(flatten)]
    header: HeaderArgs,
    #[command(flatten)]
    confirm: Confirm,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let image = self.header.image(Access::Change)?;
        if !image.begins_with_luks()? {
            let there = probe::beginning(&*image.device())?.unwrap_or("something that is not known");
            self.confirm.ask(&format!(
                "{}: there is no primary LUKS header but {there}, which is lost if a secondary one is found behind it",
                image.name()
            ))?;
        }
        let mended = image.luks_repair(&context.opening())?;
        let lines: Vec<String> = mended.iter().map(|line| shown(line)).collect();
        if context.json() {
            context.print_json(&json!({ "mended": lines }))?;
        } else {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            context.print(lines)?;
        }
        self.header.done(context, if mended.is_empty() { "nothing was wrong" } else { "mended" });
        Ok(Answer::Yes)
    }
}
