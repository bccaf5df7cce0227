//! The two ends of a command that turns one stream into another.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use casemate::blockdev::Stream;
use casemate::{Error, Output};

use crate::answer::Answer;
use crate::context::Context;

/// Input and output of a command that transforms a stream.
#[derive(clap::Args, Debug)]
pub struct Ends {
    /// The file to read; "-" is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// The file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Refuses what would replace one of the files that a command reads. "-" is a standard stream on either side.
///
/// # Errors
/// `Argument`, with both names.
pub fn check_output(path: &Path, inputs: &[&Path]) -> Result<(), Error> {
    let standard = Path::new("-");
    let files: Vec<_> = inputs.iter().copied().filter(|input| *input != standard).collect();
    if path == standard { Ok(()) } else { Output::check(path, &files) }
}

impl Ends {
    /// Calls `work` with the input and the output, each with its name for errors. A file is written whole or not at all.
    pub fn open(
        &self,
        context: &Context,
        work: impl FnOnce((&mut dyn Read, &str), (&mut dyn Write, &str)) -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let (input, input_name) = match self.input == Path::new("-") {
            true => (Stream::input(), "standard input".into()),
            false => (Stream::open(&self.input), self.input.to_string_lossy()),
        };
        let mut input = input.map_err(|error| Error::io(&input_name, error))?;
        let input: (&mut dyn Read, &str) = (&mut input, &input_name);
        match &self.output {
            Some(path) if path != Path::new("-") => {
                check_output(path, &[&self.input])?;
                let mut output = Output::create(path, &[])?;
                output.narrow_to(&self.input);
                work(input, (&mut output, &path.to_string_lossy()))?;
                output.commit()?;
            }
            _ => work(input, (&mut context.output_of_copy()?, "standard output"))?,
        }
        Ok(Answer::Yes)
    }
}
