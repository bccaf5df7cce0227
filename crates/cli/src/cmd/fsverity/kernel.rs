//! `casemate fsverity enable | measure | dump_metadata`: what the kernel does and knows.

use std::fs::File;
use std::path::PathBuf;

use clap::ValueEnum;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::blockdev::{u64_of, usize_of};
use casemate::fsverity::{self, KernelError, Metadata};

use super::parameters::TreeArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures, read_small};
use crate::size::bytes;

/// Enable fs-verity on a file: the kernel builds its tree, and the file is read-only from then on.
#[derive(clap::Args, Debug)]
pub struct EnableArgs {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    tree: TreeArgs,
    /// A built-in signature, which the kernel checks and keeps.
    #[arg(long, value_name = "SIGFILE")]
    signature: Option<PathBuf>,
}

/// Print the kernel's digests of files with fs-verity.
#[derive(clap::Args, Debug)]
pub struct MeasureArgs {
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Write fs-verity metadata that the kernel keeps for a file to standard output.
#[derive(clap::Args, Debug)]
pub struct DumpArgs {
    /// Metadata to dump.
    #[arg(value_name = "TYPE")]
    kind: Kind,
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Begin at this byte of the metadata.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, requires = "length")]
    offset: Option<u64>,
    /// Read at most this many bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, requires = "offset")]
    length: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    #[value(name = "merkle_tree", alias = "merkle-tree")]
    MerkleTree,
    Descriptor,
    Signature,
}

/// Metadata read at once.
const PART: u64 = 1 << 20;

impl EnableArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let signature = match &self.signature {
            None => Vec::new(),
            Some(path) => match read_small(path)? {
                empty if empty.is_empty() => {
                    return Err(Error::corrupt(format!("{}: the signature file is empty", path.display())));
                }
                bytes => bytes,
            },
        };
        let enabled = fsverity::enable(&self.file, &self.tree.parameters(None)?, &signature);
        enabled.map_err(|error| own_words(context, error))?;
        Ok(Answer::Yes)
    }
}

impl MeasureArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut failures = Failures::default();
        for path in &self.files {
            match fsverity::measure(path) {
                Ok(digest) if context.json() => context.print_json(&serde_json::json!({
                    "file": path.to_string_lossy(),
                    "digest": digest.to_string(),
                }))?,
                Ok(digest) => {
                    let digest = digest.to_string();
                    let name = path.as_os_str().as_bytes();
                    context.print([digest.as_bytes(), b" ", name, b"\n"].concat())?;
                }
                Err(error) => failures.add(context, own_words(context, error)),
            }
        }
        failures.finish()
    }
}

impl DumpArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let kind = match self.kind {
            Kind::MerkleTree => Metadata::MerkleTree,
            Kind::Descriptor => Metadata::Descriptor,
            Kind::Signature => Metadata::Signature,
        };
        let file = File::open(&self.file).map_err(|error| Error::io(self.file.display(), error))?;
        let mut offset = self.offset.unwrap_or(0);
        let mut left = self.length.unwrap_or(u64::MAX);
        // At most PART.
        let mut buf = vec![0; usize_of(left.min(PART))];
        while left > 0 {
            let part = &mut buf[..usize_of(left.min(PART))];
            let count = fsverity::read_metadata(&self.file, &file, kind, offset, part)
                .map_err(|error| own_words(context, error))?;
            if count == 0 {
                break;
            }
            context.print(&part[..count])?;
            offset += u64_of(count);
            left -= u64_of(count);
        }
        Ok(Answer::Yes)
    }
}

/// The kernel's answer explained, but for scripts that wait for fsverity's own words.
fn own_words(context: &Context, error: KernelError) -> Error {
    match context.is_other_tool() {
        true if !error.request.is_empty() => {
            let place = format!("{} failed on '{}'", error.request, error.file);
            Error::io(place, error.error)
        }
        _ => error.into(),
    }
}
