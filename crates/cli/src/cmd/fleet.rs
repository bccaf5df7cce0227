//! `casemate fleet`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Python program that runs the module. It names a missing module in one line. Interpreters before 3.11 do not know
/// `PYTHONSAFEPATH`: the current folder leaves the path before anything is imported that could lie there (`sys` is built in).
const PROGRAM: &str = "\
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import os, runpy
def fail(text):
    try:
        print(f'casemate: {text}', file=sys.stderr, flush=True)
    finally:
        os._exit(2)
try:
    import casemate, fsspec
except ModuleNotFoundError as error:
    fail(f\"Python has no module {error.name}: install casemate's wheel, and fsspec, for {sys.executable}; docs/python.md\")
except ImportError as error:
    fail(error)
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
        let mut command = Command::new(&python);
        // No module comes from the current folder, which may hold anything; workers that engines start here inherit this.
        command.env("PYTHONSAFEPATH", "1");
        // Nothing is left to be done here: signals and answers are the interpreter's.
        let error = command.args(["-c", PROGRAM]).args(self.arguments).exec();
        Err(Error::io(python.display(), error))
    }
}
