//! What every command shares: threads, CPU, output and progress.

use std::io::{self, Write};
use std::num::NonZeroUsize;

use clap::Args;
use serde::Serialize;

use casemate::blockdev::Pool;
use casemate::{Cpu, Error};

use crate::progress::Reporter;

/// Options that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Print results as JSON.
    #[arg(long, global = true, help_heading = "Common options")]
    pub json: bool,
    /// Work with this many threads [default: one for each core].
    #[arg(long, global = true, value_name = "N", help_heading = "Common options")]
    pub threads: Option<NonZeroUsize>,
    /// Let only these CPU features be used, for measurements: "native", "portable", or a list such as
    /// "avx2,sha-ni" or "native,-avx512".
    #[arg(long, global = true, value_name = "FEATURES", help_heading = "Common options")]
    pub cpu: Option<String>,
    /// Report progress as JSON lines on standard error, in cryptsetup's format.
    #[arg(long, global = true, help_heading = "Common options")]
    pub progress_json: bool,
    /// Show no progress bar.
    #[arg(long, global = true, help_heading = "Common options")]
    pub no_progress: bool,
}

/// The common options, checked and ready.
#[derive(Debug)]
pub struct Context {
    common: Common,
    cpu: Cpu,
}

impl Context {
    pub fn new(common: Common) -> Result<Context, Error> {
        let cpu = match &common.cpu {
            Some(list) => Cpu::detect().restrict(list).map_err(|error| Error::Argument(error.to_string()))?,
            None => Cpu::detect(),
        };
        Ok(Context { common, cpu })
    }

    /// Prints one JSON value and a line end to standard output.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(value).expect("results have string keys");
        text.push('\n');
        self.print(text)
    }

    /// Prints text to standard output as it is.
    pub fn print(&self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let result = out.write_all(text.as_ref()).and_then(|()| out.flush());
        result.map_err(|error| Error::io("standard output", error))
    }

    /// Starts reporting on work of `total` bytes on `device`, and lets SIGINT and SIGTERM stop it.
    pub fn progress(&self, device: &str, total: u64) -> Reporter {
        Reporter::new(device, total, self.common.progress_json, !self.common.no_progress)
    }

    pub fn json(&self) -> bool {
        self.common.json
    }

    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    pub fn pool(&self) -> Pool {
        Pool::new(self.common.threads)
    }
}
