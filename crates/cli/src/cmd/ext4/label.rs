//! `casemate ext4 label`.

use std::ffi::OsString;

use serde_json::json;

use casemate::Error;
use casemate::blockdev::os::OsStringExt;
use casemate::ext4::Tuning;

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::streams::visible;

/// Print the label of a file system, or set it.
///
/// A label has at most 16 bytes. An empty one removes it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 label root.img\n  casemate ext4 label root.img system")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The new label.
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let Some(label) = self.label else {
            let fs = self.change.open_to_read(context)?;
            let label = fs.inodes().superblock().label();
            match context.json() {
                true => context.print_json(&json!({ "label": label }))?,
                false => context.print(format!("{}\n", visible(&label)))?,
            }
            return Ok(Answer::Yes);
        };
        let mut tuning = Tuning::default();
        tuning.label = Some(label.into_vec());
        self.change.change(context, |writer| self.change.place(writer.tune(&tuning)))
    }
}
