//! `casemate fscrypt backup` and `casemate fscrypt extract`.

use std::ffi::OsString;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use casemate::backup::{self, RestoreOptions};
use casemate::blockdev::{Events, Stream};
use casemate::ext4::ExtractReport;
use casemate::{Error, Output};

use crate::answer::Answer;
use crate::cmd::ext4::image::{ImageArgs, Verity};
use crate::cmd::ext4::keys::KeyArgs;
use crate::context::{Context, error_value};

/// Copy a directory of an ext4 image into a tar stream, with encrypted files as ciphertext, without their key.
///
/// Names, contents and targets stay ciphertext; the stream also has contexts with nonces, sizes, modes, times, owners,
/// attributes and hard links. casemate fscrypt extract reads the files with their key. docs/fscrypt-backup.md has the
/// format.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt backup root.img /home home.tar\n\
    \x20 casemate fscrypt backup root.img / - | zstd > root.tar.zst")]
pub struct BackupArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// The directory of the image.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// The tar file to write; "-" is standard output.
    #[arg(value_name = "TAR")]
    tar: PathBuf,
}

/// Restore a backup into a folder, decrypted.
///
/// The result is as from casemate ext4 extract with the same keys. Files without a key are named and left out.
/// Passphrases open the protectors of google/fscrypt in a backup of the root (its /.fscrypt), or in --fscrypt-metadata.
/// A backup has no fs-verity trees, so nothing is checked against them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt extract home.tar home --fscrypt-key master.key")]
pub struct ExtractArgs {
    /// The backup; "-" is standard input.
    #[arg(value_name = "TAR")]
    tar: PathBuf,
    /// The folder to restore into; created if missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    /// Give files to the user who runs this, not to their owners.
    #[arg(long)]
    no_owners: bool,
    /// Leave extended attributes out.
    #[arg(long)]
    no_xattrs: bool,
}

impl BackupArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open_with(Verity::default(), context)?;
        let progress = context.progress(fs.name(), fs.used_bytes());
        let work = context.work(context.providers().clone(), &progress);
        let write = |out: &mut dyn Write| backup::write(&fs, &self.path, out, &work);
        let is_standard = self.tar == Path::new("-");
        let report = if is_standard {
            write(&mut BufWriter::with_capacity(1 << 20, context.output_of_data()?))?
        } else {
            let output = Output::create(&self.tar, &[self.image.file()])?;
            self.image.narrow(&output)?;
            let mut out = BufWriter::with_capacity(1 << 20, output);
            let report = write(&mut out)?;
            let output =
                out.into_inner().map_err(|error| Error::io(self.tar.display(), error.into_error()))?;
            output.commit()?;
            report
        };
        drop(progress);
        let ExtractReport { files, directories, others, bytes, failures, failures_left_out, .. } = report;
        let errors = failures.into_iter().map(|failure| {
            let path = String::from_utf8_lossy(&failure.path).into_owned();
            failure.error.at(format!("/{path}"))
        });
        let complained = complain(context, errors);
        if failures_left_out > 0 {
            context.note(&format!("{failures_left_out} more failures"));
        }
        let failures = (complained, failures_left_out);
        finish(context, [files, directories, others, bytes], failures, !is_standard)
    }
}

impl ExtractArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut keys = self.keys.keys()?;
        let name = self.tar.display().to_string();
        if keys.open_protectors() && !keys.have_metadata() {
            if self.tar == Path::new("-") {
                return Err(Error::argument(
                    "a stream is read once, and the protectors may lie at its end: --fscrypt-metadata says where else \
                     they are",
                ));
            }
            keys = keys.with_metadata_of_backup(&mut open(&self.tar)?, &name)?;
        }
        let mut input = open(&self.tar)?;
        let mut options = RestoreOptions::default();
        (options.owners, options.xattrs) = (!self.no_owners, !self.no_xattrs);
        let report = backup::extract(&mut input, &name, &self.folder, &keys, &options, &context.opening())?;
        let complained = complain(context, report.failures);
        let counts = [report.files, report.directories, report.others, report.bytes];
        finish(context, counts, (complained, 0), true)
    }
}

/// A backup to read; "-" is standard input.
pub fn open(tar: &Path) -> Result<Box<dyn Read>, Error> {
    if tar == Path::new("-") {
        let input = Stream::input().map_err(|error| Error::io("standard input", error))?;
        return Ok(Box::new(BufReader::with_capacity(1 << 20, input)));
    }
    let file = Stream::open(tar).map_err(|error| Error::io(tar.display(), error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// Prints all errors. What programs are told of them.
fn complain(context: &Context, errors: impl IntoIterator<Item = Error>) -> Vec<Value> {
    let errors = errors.into_iter().inspect(|error| context.complain(error));
    errors.map(|error| json!({"path": error.place().file, "error": error_value(&error)})).collect()
}

fn finish(
    context: &Context,
    [files, directories, others, bytes]: [u64; 4],
    (failures, left_out): (Vec<Value>, u64),
    print: bool,
) -> Result<Answer, Error> {
    if context.json() && print {
        context.print_json(&json!({
            "files": files,
            "directories": directories,
            "others": others,
            "bytes": bytes,
            "failures": failures,
            "failures_left_out": left_out,
        }))?;
    }
    Ok(if failures.is_empty() { Answer::Yes } else { Answer::Failed })
}
