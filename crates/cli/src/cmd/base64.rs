//! `casemate base64 encode` and `casemate base64 decode`.

use clap::{Subcommand, ValueEnum};

use casemate::Error;
use casemate::base64::{Alphabet, Base64, Padding, StreamError};

use super::ends::Ends;
use crate::answer::Answer;
use crate::context::Context;

/// Encode and decode base64 with any alphabet, padded or not, streams of any length.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write data as base64 text.
    #[command(after_help = "Examples:\n  casemate base64 encode photo.jpg > photo.txt\n  \
        printf 'a?b>' | casemate base64 encode --variant url-safe --no-padding --wrap 0")]
    Encode {
        #[command(flatten)]
        ends: Ends,
        #[command(flatten)]
        form: Form,
        /// Characters in a line; 0 writes one line without an end.
        #[arg(short, long, value_name = "COLUMNS", default_value_t = 76)]
        wrap: usize,
    },
    /// Write the data that base64 text stands for.
    ///
    /// Exactly the texts that encode writes are accepted, with line feeds anywhere: no other white space, no character of
    /// another alphabet, padding where it belongs and only there, no unused bits. The first error is named with its
    /// position; data before it may have been written to standard output, a file is written whole or not at all.
    #[command(after_help = "Examples:\n  casemate base64 decode photo.txt --output photo.jpg\n  \
        casemate base64 decode --variant url-safe --no-padding --strict token")]
    Decode {
        #[command(flatten)]
        ends: Ends,
        #[command(flatten)]
        form: Form,
        /// Refuse line feeds too, except one at the end.
        #[arg(long)]
        strict: bool,
    },
}

/// Form of the text: alphabet, padding, line length.
#[derive(clap::Args, Debug)]
struct Form {
    /// The alphabet: its last two characters are "+/", "-_" or "+,".
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// Another alphabet: 64 distinct ASCII characters in the order of their values, without "=".
    #[arg(long, value_name = "CHARACTERS", conflicts_with = "variant")]
    alphabet: Option<String>,
    /// Neither write nor accept "=" at the end.
    #[arg(long)]
    no_padding: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Variant {
    /// RFC 4648 section 4.
    #[default]
    Standard,
    /// RFC 4648 section 5, for names and addresses.
    UrlSafe,
    /// RFC 3501 section 5.1.3, for file names.
    Imap,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::Encode { ends, form, wrap } => {
                let alphabet = form.alphabet()?;
                let codec = Base64::new(context.cpu(), &alphabet, form.padding());
                ends.open(context, |(input, input_name), (output, output_name)| {
                    let encoded = codec.encode_stream(input, output, wrap);
                    encoded.map_err(|error| named(error, input_name, output_name))
                })
            }
            Command::Decode { ends, form, strict } => {
                let alphabet = form.alphabet()?;
                let codec = Base64::new(context.cpu(), &alphabet, form.padding());
                ends.open(context, |(input, input_name), (output, output_name)| {
                    let decoded = codec.decode_stream(input, output, !strict);
                    decoded.map_err(|error| named(error, input_name, output_name))
                })
            }
        }
    }
}

/// An error of a stream with the name of its file.
fn named(error: StreamError, input: &str, output: &str) -> Error {
    match error {
        StreamError::Input(error) => Error::io(input, error),
        StreamError::Output(error) => Error::io(output, error),
        StreamError::Text(error) => Error::corrupt(format!("{input}: {error}")),
    }
}

impl Form {
    fn padding(&self) -> Padding {
        if self.no_padding { Padding::Unpadded } else { Padding::Padded }
    }

    fn alphabet(&self) -> Result<Alphabet, Error> {
        let Some(characters) = &self.alphabet else {
            return Ok(match self.variant {
                Variant::Standard => Alphabet::STANDARD,
                Variant::UrlSafe => Alphabet::URL_SAFE,
                Variant::Imap => Alphabet::IMAP,
            });
        };
        let alphabet = Alphabet::new(characters.as_bytes())
            .map_err(|error| Error::argument(format!("--alphabet: {error}")))?;
        match alphabet.value(b'\n') {
            None => Ok(alphabet),
            Some(_) => Err(Error::argument("--alphabet: a line feed separates lines")),
        }
    }
}
