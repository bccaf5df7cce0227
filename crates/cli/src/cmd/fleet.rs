//! `casemate fleet`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Python program that runs the module. It names a missing module in one line.
const PROGRAM: &str = "\
import runpy, sys
try:
    import casemate, fsspec
except ModuleNotFoundError as error:
    text = f\"casemate: Python has no module {error.name}: install casemate's wheel, and fsspec, for {sys.executable}; docs/python.md\"
    sys.exit(print(text, file=sys.stderr) or 2)
except ImportError as error:
    sys.exit(print(f\"casemate: {error}\", file=sys.stderr) or 2)
sys.argv[0] = 'casemate fleet'
runpy.run_module('casemate.fleet', run_name='__main__')
";

/// fs-verity and dm-verity on many machines, with Ray, Dask or Spark.
///
/// The Python package does this: `casemate fleet --help` lists its commands. The interpreter is the one beside this
/// command, or else python3.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// A command with its arguments: digest, tree, manifest, sum, format, verify or check.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Args {
    pub fn run(self, _: &Context) -> Result<Answer, Error> {
        let beside = std::env::current_exe().ok().map(|path| path.with_file_name("python3"));
        let python = beside.filter(|path| path.exists()).unwrap_or(PathBuf::from("python3"));
        // Nothing is left to be done here: signals and answers are the interpreter's.
        let error = Command::new(&python).args(["-c", PROGRAM]).args(self.arguments).exec();
        Err(Error::io(python.display(), error))
    }
}
