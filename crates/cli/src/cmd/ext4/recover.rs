//! `casemate ext4 recover`.

use casemate::Error;

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Complete an interrupted change: replay the journal, or the recovery file beside the image, and delete orphans.
///
/// Every command that changes an image does this first. Without an interrupted change nothing happens.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 recover root.img")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.open(context)?;
        self.change.print_change(context)?;
        self.change.done(context, "nothing to complete");
        Ok(Answer::Yes)
    }
}
