//! `casemate fscrypt encrypt` and `casemate fscrypt decrypt`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use casemate::crypt::Direction;
use casemate::fscrypt::transform;
use casemate::{Error, Output};

use super::inode::InodeArgs;
use crate::Answer;
use crate::context::Context;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  casemate fscrypt decrypt --key key --context HEX blocks --size 10000 --output file"
)]
pub struct Args {
    #[command(flatten)]
    inode: InodeArgs,
    /// The file to read; "-" is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// The file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The number of the first data unit in its file.
    #[arg(long, value_name = "UNIT", default_value_t = 0)]
    first: u64,
    /// Write only this many bytes, the file's size.
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
}

impl Args {
    pub fn run(self, direction: Direction, context: &Context) -> Result<Answer, Error> {
        let (key, inode) = self.inode.keyed(context)?;
        let cipher = key.contents(&inode)?;
        let (mut input, input_name): (Box<dyn Read>, _) = if self.input == Path::new("-") {
            (Box::new(io::stdin().lock()), "standard input".into())
        } else {
            let file = File::open(&self.input).map_err(|error| Error::io(self.input.display(), error))?;
            (Box::new(file), self.input.to_string_lossy())
        };
        let mut run = |output: &mut dyn Write, name: &str| {
            let size = self.size.unwrap_or(u64::MAX);
            transform(&cipher, direction, self.first, (&mut *input, &input_name), (output, name), size)
        };
        match &self.output {
            Some(path) => {
                let mut output = Output::create(path)?;
                run(&mut output, &path.to_string_lossy())?;
                output.commit()?;
            }
            None => run(&mut io::stdout().lock(), "standard output")?,
        }
        Ok(Answer::Yes)
    }
}
