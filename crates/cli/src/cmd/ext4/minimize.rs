//! `casemate ext4 minimize`.

use serde_json::json;

use casemate::Error;
use casemate::ext4::{Resize, Tail};

use super::change::ChangeArgs;
use super::resize::run;
use crate::answer::Answer;
use crate::context::Context;

/// Make a file system as small as it can be, and cut its file.
///
/// Files are moved together; those that need not move stay where they are. A file keeps its size if something other than
/// the file system is behind it, such as a hash tree.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  casemate ext4 minimize root.img\n  casemate ext4 minimize root.img --print-size"
)]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// Print the size in bytes that is estimated, and change nothing.
    #[arg(long)]
    print_size: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.print_size {
            let bytes = self.change.least_size(context)?;
            match context.json() {
                true => context.print_json(&json!({ "bytes": bytes }))?,
                false => context.print(format!("{bytes}\n"))?,
            }
            return Ok(Answer::Yes);
        }
        let mut resize = Resize::default();
        resize.least = true;
        resize.tail = Tail::CutIfEmpty;
        run(&self.change, resize, context)
    }
}
