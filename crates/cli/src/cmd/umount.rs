//! `casemate umount`.

use std::path::PathBuf;

use casemate::Error;
use casemate_fuse::{Unmount, unmount};

use crate::answer::Answer;
use crate::context::Context;

/// Unmount folders that casemate mount shows files in.
///
/// All changes are made permanent first; where that fails, as on a disk that is full, the folder stays mounted, and the exit
/// status is 2. Ends when the process that served a folder has said that nothing is left to be written, and has ended, so that
/// its image is free. A folder whose process was killed becomes a plain one again, too.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folders.
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,
    /// Unmount what is in use, too: whoever has files open keeps them. Unmount also what can't be made permanent, and is lost
    /// then.
    #[arg(long)]
    lazy: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let when = if self.lazy { Unmount::Lazily } else { Unmount::WhenUnused };
        let mut failures = crate::context::Failures::default();
        for folder in &self.folders {
            match unmount(folder, when, context) {
                Ok(()) => context.done(format_args!("{}: unmounted", folder.display())),
                Err(error) => failures.add(context, error),
            }
        }
        failures.finish()
    }
}
