//! `casemate fsverity digest`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use casemate::blockdev::name_all;
use casemate::blockdev::os::{self, OsStrExt};
use casemate::fsverity::{self, Descriptor, Entry, Input};
use casemate::{Error, Output, hex};

use super::parameters::TreeArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// Compute the fs-verity digests of files.
///
/// The digest is the one that the kernel measures once verity is enabled on the file. Each line is the digest and the
/// file's name; 'casemate fsverity check' reads such lines. With -r, a folder stands for all regular files in it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fsverity digest *.so > digests\n\
    \x20 casemate fsverity digest -r rootfs > rootfs.digests && casemate fsverity check rootfs.digests\n\
    \x20 casemate fsverity digest --hash-alg=sha512 --salt=a1b2c3 --out-merkle-tree=f.tree f\n\
    \x20 zstd -dc rootfs.tar.zst | casemate fsverity digest --compact -")]
pub struct Args {
    /// The files; '-' is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Digest all regular files in folders, in the order of their names. Links are not followed.
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    tree: TreeArgs,
    /// Write the Merkle tree to this file, root level first.
    #[arg(long, value_name = "FILE")]
    out_merkle_tree: Option<PathBuf>,
    /// Write the 256-byte descriptor, whose hash is the digest, to this file.
    #[arg(long, value_name = "FILE")]
    out_descriptor: Option<PathBuf>,
    /// Print only the digests, in hex.
    #[arg(long)]
    compact: bool,
    /// Print in hex the bytes that a built-in signature signs.
    #[arg(long)]
    for_builtin_sig: bool,
}

/// A file's digest for programs.
#[derive(Serialize)]
struct Json {
    file: String,
    digest: String,
    size: u64,
    block_size: usize,
    salt: String,
    root_hash: String,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let parameters = self.tree.parameters(None)?;
        let providers = self.tree.providers(&parameters, context)?;
        if let [file] = &self.files[..]
            && !file.is_dir()
        {
            let (name, input) = open(file)?;
            let progress = context.progress(&name.display().to_string(), input.size().unwrap_or(0));
            let work = context.work(providers, &progress);
            let tree = self.out_merkle_tree.as_deref();
            let others: Vec<&Path> = [&**file].into_iter().chain(tree).collect();
            let output = self.out_descriptor.as_ref().map(|path| Output::begin(path, &others)).transpose()?;
            let (descriptor, tree) = fsverity::describe_keeping(&name, input, &parameters, &work, tree)?;
            let output = output.map(|file| file.with(&descriptor.to_bytes())).transpose()?;
            name_all([tree, output].into_iter().flatten().collect(), &[])?;
            drop(progress);
            context.print(self.line(context, file, &descriptor)?)?;
            return Ok(Answer::Yes);
        }
        if self.out_merkle_tree.is_some() || self.out_descriptor.is_some() {
            let text = "--out-merkle-tree and --out-descriptor take one input file";
            return Err(Error::argument(text.to_owned()));
        }
        let mut failures = Failures::default();
        let mut files = Vec::new();
        for path in &self.files {
            match self.recursive && path.is_dir() {
                true => add_files(path, &mut files, &mut |error| failures.add(context, error)),
                false => files.push(path.clone()),
            }
        }
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let progress = context.progress(&format!("{} files", paths.len()), context.total_size(&paths));
        let work = context.work(providers, &progress);
        // Standard input is in no folder, so it goes between the files before and after it.
        for group in paths.chunk_by(|a, b| !is_stdin(a) && !is_stdin(b)) {
            if is_stdin(group[0]) {
                let described = open(group[0])
                    .and_then(|(name, input)| fsverity::describe(&name, input, &parameters, &work, None));
                self.report(context, vec![(group[0], described)], &mut failures)?;
            } else {
                fsverity::describe_many(group, &parameters, &work, |results| {
                    self.report(context, results, &mut failures)
                })?;
            }
        }
        failures.finish()
    }

    fn report(
        &self,
        context: &Context,
        results: Vec<(&Path, Result<Descriptor, Error>)>,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let mut lines = Vec::new();
        for (path, result) in results {
            match result {
                Ok(descriptor) => lines.extend(self.line(context, path, &descriptor)?),
                Err(error) if error.is_interrupt() => return Err(error),
                Err(error) if path.is_dir() && !context.is_other_tool() => {
                    failures.add(
                        context,
                        error.map_text(|text| format!("{text}; --recursive (-r) digests its files")),
                    );
                }
                Err(error) => failures.add(context, error),
            }
        }
        context.print(lines)
    }

    fn line(&self, context: &Context, path: &Path, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let digest = descriptor.digest(context.providers())?;
        if context.json() {
            return context.json_line(&Json {
                file: path.to_string_lossy().into_owned(),
                digest: digest.to_string(),
                size: descriptor.data_size(),
                block_size: descriptor.parameters().block_size(),
                salt: hex::encode(descriptor.parameters().salt()),
                root_hash: hex::encode(descriptor.root_hash()),
            });
        }
        let shown = if self.for_builtin_sig { hex::encode(&digest.bytes_to_sign()) } else { digest.hex() };
        let name = path.as_os_str().as_bytes();
        Ok(if self.compact {
            format!("{shown}\n").into_bytes()
        } else if self.for_builtin_sig {
            [shown.as_bytes(), b" ", name, b"\n"].concat()
        } else if context.is_other_tool() {
            [digest.to_string().as_bytes(), b" ", name, b"\n"].concat()
        } else {
            Entry { path: path.to_owned(), digest }.to_line()
        })
    }
}

/// Adds the regular files in a folder and all below it, in the order of their names.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>, failed: &mut impl FnMut(Error)) {
    let read = fs::read_dir(folder).and_then(|entries| {
        let kinds = entries.map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))));
        kinds.collect::<io::Result<Vec<_>>>()
    });
    let mut entries = read.unwrap_or_else(|error| {
        failed(Error::io(folder.display(), error));
        Vec::new()
    });
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, kind) in entries {
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => add_files(&path, files, failed),
            (_, true) => files.push(path),
            _ => {}
        }
    }
}

/// The input called `path`, where '-' is standard input, and how it is called in messages.
pub fn open(path: &Path) -> Result<(PathBuf, Input), Error> {
    if !is_stdin(path) {
        return Ok((path.to_owned(), Input::open(path)?));
    }
    let input = os::input().and_then(Input::from_file);
    let input = input.map_err(|error| Error::io("standard input", error))?;
    Ok((PathBuf::from("standard input"), input))
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
