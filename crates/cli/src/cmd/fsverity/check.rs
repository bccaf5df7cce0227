//! `casemate fsverity check`: files against a list of digests, or one file against its stored tree.

use std::io::Read;
use std::path::{Path, PathBuf};

use casemate::blockdev::{Events, Stream, u64_of};
use casemate::fsverity::{self, Algorithm, Descriptor, Entry, FileDigest, Manifest, escape_name};
use casemate::hex;
use casemate::tree::{Block, Fault, Finding, Summary};
use casemate::{Access, Error, ErrorKind, Image, probe};

use super::parameters::TreeArgs;
use crate::answer::Answer;
use crate::cmd::explained;
use crate::context::{Context, Failures, read_small};

/// Check files against a list of digests, or one file against its Merkle tree.
///
/// Lists are the output of 'casemate fsverity digest' or 'fsverity digest', read as 'sha256sum --check' reads its
/// lists. They do not record block size and salt, so give these again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fsverity check digests\n\
    \x20 casemate fsverity check --merkle-tree=f.tree --descriptor=f.descriptor f")]
pub struct Args {
    /// The lists; '-' or nothing is standard input. With --merkle-tree: the one file to check.
    #[arg(value_name = "LIST")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    stored: StoredArgs,
}

/// How lists are read, as sha256sum has it; with -q, nothing is printed for files that are right.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Lists")]
struct ListArgs {
    /// Print nothing; the exit status is the result.
    #[arg(long)]
    status: bool,
    /// Fail also if a line has the wrong format.
    #[arg(long)]
    strict: bool,
    /// Name lines with the wrong format.
    #[arg(short, long)]
    warn: bool,
    /// Don't fail for files that are missing.
    #[arg(long)]
    ignore_missing: bool,
}

/// The tree to check against.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "One file against its tree")]
struct StoredArgs {
    /// The file's tree, as written by --out-merkle-tree or 'dump_metadata merkle_tree'; every bad block is named.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strict", "warn", "ignore_missing"])]
    merkle_tree: Option<PathBuf>,
    /// The file's descriptor, which has root hash, block size and salt.
    #[arg(long, value_name = "FILE", requires = "merkle_tree", conflicts_with_all = ["hash_alg", "block_size", "salt"])]
    descriptor: Option<PathBuf>,
    /// The digest that the file should have. Without it and without a descriptor, the tree is trusted, and the length is not checked.
    #[arg(long, value_name = "DIGEST", requires = "merkle_tree")]
    digest: Option<FileDigest>,
}

/// Counts of the lists' lines, by their outcome.
#[derive(Debug, Default)]
struct Tally {
    right: u64,
    wrong: u64,
    unreadable: u64,
    /// Files that are not there, of the unreadable ones: a list that names one is not fulfilled.
    missing: u64,
    malformed: u64,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match &self.stored.merkle_tree {
            Some(tree) => match &self.files[..] {
                [file] => self.check_tree(context, file, tree),
                _ => Err(Error::argument("--merkle-tree takes one file to check")),
            },
            None => self.check_lists(context),
        }
    }

    fn check_lists(&self, context: &Context) -> Result<Answer, Error> {
        let stdin = [PathBuf::from("-")];
        let lists = if self.files.is_empty() { &stdin[..] } else { &self.files[..] };
        let (mut answer, mut failures) = (Answer::Yes, Failures::default());
        for list in lists {
            match self.check_list(context, list, &mut failures) {
                Ok(Answer::Yes) => {}
                Ok(other) => answer = other,
                Err(error) if error.is_interrupt() || error.is_broken_pipe() => return Err(error),
                Err(error) if error.kind() == ErrorKind::Mismatch => {
                    if !self.list.status {
                        context.complain(&error);
                    }
                    answer = Answer::No;
                }
                Err(error) => failures.add(context, error),
            }
        }
        if answer == Answer::Yes { failures.finish() } else { Ok(answer) }
    }

    fn check_list(&self, context: &Context, list: &Path, failures: &mut Failures) -> Result<Answer, Error> {
        let manifest = read_list(list)?;
        let mut tally = Tally { malformed: u64_of(manifest.malformed.len()), ..Tally::default() };
        let show = !self.list.status;
        if self.list.warn && show {
            for line in &manifest.malformed {
                let name = list.display();
                context.complain(&Error::corrupt(format!("{name}: {line}: improperly formatted line")));
            }
        }
        let entries = &manifest.entries;
        if entries.is_empty() {
            let text = format!("{}: no properly formatted digest lines found", list.display());
            return Err(Error::corrupt(match of_image(list) {
                Some(advice) => format!("{text}; {advice}"),
                None => text,
            }));
        }
        for entry in entries {
            self.tree.check_algorithm(entry.digest.algorithm()).map_err(|error| error.at(list.display()))?;
        }
        for group in entries.chunk_by(|a, b| a.digest.algorithm() == b.digest.algorithm()) {
            self.check_group(context, group, &mut tally, failures)?;
        }
        if show {
            tally.warn(context, list);
        }
        if show && tally.missing == u64_of(entries.len()) {
            context.note(&format!(
                "{}: none of its files is here: names count from the current folder",
                list.display()
            ));
        }
        let nothing = self.list.ignore_missing && tally.right + tally.wrong == 0;
        if nothing {
            return Err(Error::mismatch(format!("{}: no file was verified", list.display())));
        }
        let wrong = tally.wrong > 0 || tally.missing > 0 || (self.list.strict && tally.malformed > 0);
        Ok(if wrong { Answer::No } else { Answer::Yes })
    }

    /// Checks entries of one algorithm.
    fn check_group(
        &self,
        context: &Context,
        entries: &[Entry],
        tally: &mut Tally,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let parameters = self.tree.parameters(Some(entries[0].digest.algorithm()))?;
        let providers = self.tree.providers(&parameters, context)?;
        let paths: Vec<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
        let total = context.total_size(&paths);
        let progress = context.progress(&format!("{} files", paths.len()), total);
        let mut expected = entries.iter();
        let work = context.work(providers, &progress);
        fsverity::describe_many(&paths, &parameters, &work, |results| {
            let mut lines = Vec::new();
            for ((path, result), entry) in results.into_iter().zip(&mut expected) {
                let digest = result.and_then(|descriptor| descriptor.digest(context.providers()));
                let found = digest.as_ref().ok().map(FileDigest::to_string);
                let verdict = match digest {
                    Ok(digest) if digest == entry.digest => {
                        tally.right += 1;
                        "OK"
                    }
                    Ok(_) => {
                        tally.wrong += 1;
                        "FAILED"
                    }
                    Err(error) if self.list.ignore_missing && error.is_not_found() => continue,
                    Err(error) => {
                        tally.unreadable += 1;
                        tally.missing += u64::from(error.is_not_found());
                        if self.list.status {
                            failures.add_silently()
                        } else {
                            failures.add(context, error)
                        }
                        "FAILED open or read"
                    }
                };
                if !(self.list.status || context.quiet() && verdict == "OK") {
                    let digests = (Some(entry.digest.to_string()), found);
                    lines.extend(self.line(context, path, verdict, digests)?);
                }
            }
            context.print(lines)
        })
    }

    /// A file's line; the digests that are expected and found are for programs.
    fn line(
        &self,
        context: &Context,
        path: &Path,
        verdict: &str,
        (expected, found): (Option<String>, Option<String>),
    ) -> Result<Vec<u8>, Error> {
        if context.json() {
            let file = path.to_string_lossy();
            return context.json_line(&serde_json::json!({
                "file": file, "result": verdict, "expected": expected, "found": found,
            }));
        }
        let verdict = verdict.as_bytes();
        let plain = || path.as_os_str().as_encoded_bytes().to_vec();
        let (escaped, name) = escape_name(path).map_or_else(|| (&b""[..], plain()), |name| (b"\\", name));
        Ok([escaped, &name, b": ", verdict, b"\n"].concat())
    }

    fn check_tree(&self, context: &Context, file: &Path, tree: &Path) -> Result<Answer, Error> {
        let descriptor = match &self.stored.descriptor {
            None => None,
            Some(path) => {
                let read = Descriptor::from_bytes(&read_small(path)?);
                Some(read.map_err(|error| error.at(path.display()))?)
            }
        };
        if let (Some(descriptor), Some(digest)) = (&descriptor, &self.stored.digest) {
            let found = descriptor.digest(context.providers())?;
            if found != *digest {
                let text = format!("the descriptor's digest is {found}, not {digest}");
                return Err(Error::mismatch(text));
            }
        }
        let is_alone = descriptor.is_none() && self.stored.digest.is_none();
        if is_alone && std::fs::metadata(tree).is_ok_and(|tree| tree.is_file() && tree.len() == 0) {
            let block_size = u64_of(self.tree.parameters(None)?.block_size());
            let blocks = std::fs::metadata(file).map_or(0, |metadata| metadata.len().div_ceil(block_size));
            let text = match blocks {
                0 | 1 => "its tree is empty, as that of every file of one block, and tells nothing of it; give its --digest or --descriptor"
                    .to_owned(),
                blocks => format!("{} is empty, as a tree of {blocks} blocks of {block_size} bytes is not: it is that of another file", tree.display()),
            };
            return Err(Error::argument(text).at(file.display()));
        }
        let algorithm: Option<Algorithm> = self.stored.digest.as_ref().map(FileDigest::algorithm);
        let checked = algorithm.map_or(Ok(()), |algorithm| self.tree.check_algorithm(algorithm));
        checked.map_err(|error| error.at(file.display()))?;
        let parameters = self.tree.parameters(algorithm)?;
        let hashed = descriptor.as_ref().map_or(&parameters, Descriptor::parameters);
        let providers = self.tree.providers(hashed, context)?;
        let total = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        let progress = context.progress(&file.display().to_string(), total);
        let mut report = |finding: Finding| {
            let Some(line) = self.finding(context, file, &finding) else { return Ok(()) };
            context.print(line)
        };
        let work = context.work(providers, &progress);
        let checked = fsverity::check_tree(file, tree, descriptor.as_ref(), &parameters, &work, &mut report);
        let (summary, descriptor) = checked?;
        drop(progress);
        let digest = descriptor.digest(context.providers())?;
        let right = self.stored.digest.as_ref().is_none_or(|expected| *expected == digest);
        let clean = summary.is_clean() && right;
        if context.json() {
            context.print_json(&json_summary(file, &summary, &digest, (clean, !is_alone)))?;
        } else if !self.list.status {
            if !summary.unverified.is_empty() {
                let name = file.display();
                let blocks = summary.unverified.count();
                context.print(format!("{name}: {blocks} data blocks lie below bad tree blocks\n"))?;
            }
            if let Some(expected) = self.stored.digest.as_ref().filter(|_| !right) {
                let name = file.display();
                context.print(format!("{name}: the tree is one of {digest}, not of {expected}\n"))?;
            }
            context.print(self.line(context, file, if clean { "OK" } else { "FAILED" }, (None, None))?)?;
            if is_alone && clean {
                context.note(&format!(
                    "{}: the tree was taken for right, and does not tell the file's length: zeros at its end may be too many or too \
                     few; --digest or --descriptor tells",
                    file.display()
                ));
            }
        }
        Ok(if clean { Answer::Yes } else { Answer::No })
    }

    /// The line for a wrong block; none for blocks of which nothing is known because one above is bad.
    fn finding(&self, context: &Context, file: &Path, finding: &Finding) -> Option<Vec<u8>> {
        if self.list.status || matches!(finding.fault, Fault::Digest { trusted: false, .. }) {
            return None;
        }
        let block = match finding.block {
            Block::Data(index) => format!("data block {index}"),
            Block::Hash { level, index } => format!("tree block {index} of level {level}"),
        };
        let fault = match &finding.fault {
            Fault::Digest { expected, found, .. } => {
                format!("expected {}, found {}", hex::encode(expected), hex::encode(found))
            }
            Fault::NotZero { offset } => format!("byte {offset} is not zero"),
            Fault::Unreadable { reason, .. } => format!("can't be read: {reason}"),
        };
        if context.json() {
            let json = serde_json::json!({ "file": file.to_string_lossy(), "block": block, "fault": fault });
            return context.json_line(&json).ok();
        }
        Some(format!("{}: {block}: {fault}\n", file.display()).into_bytes())
    }
}

impl Tally {
    /// Prints the warnings with which sha256sum ends a list.
    fn warn(&self, context: &Context, list: &Path) {
        let say = |count: u64, one: &str, many: &str| {
            if count > 0 {
                let what = if count == 1 { one } else { many };
                let text = format!("{}: WARNING: {count} {what}", list.display());
                context.complain(&Error::mismatch(text));
            }
        };
        say(self.malformed, "line is improperly formatted", "lines are improperly formatted");
        say(self.unreadable, "listed file could not be read", "listed files could not be read");
        say(self.wrong, "computed digest did NOT match", "computed digests did NOT match");
    }
}

fn read_list(list: &Path) -> Result<Manifest, Error> {
    let mut bytes = Vec::new();
    let read = match list.as_os_str() == "-" {
        true => Stream::input().and_then(|mut file| file.read_to_end(&mut bytes)),
        false => Stream::open(list).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|error| Error::io(list.display(), error))?;
    Ok(Manifest::from_bytes(&bytes))
}

/// Advice where an image was given for a list of digests.
fn of_image(list: &Path) -> Option<String> {
    let image = Image::open(list, Access::ReadUnlocked).ok()?;
    let found = probe::look(&image).ok().filter(|found| found.what == Some(probe::EXT))?;
    Some(format!(
        "this is {}; its files are compared with a list by: casemate ext4 digest --tree {} | diff LIST -",
        explained::name(&found),
        list.display()
    ))
}

fn json_summary(
    file: &Path,
    summary: &Summary,
    digest: &FileDigest,
    (clean, is_length_checked): (bool, bool),
) -> serde_json::Value {
    let ranges = |ranges: &casemate::tree::Ranges| -> Vec<[u64; 2]> {
        ranges.iter().map(|range| [range.start, range.end]).collect()
    };
    serde_json::json!({
        "file": file.to_string_lossy(),
        "result": if clean { "OK" } else { "FAILED" },
        "digest": digest.to_string(),
        "length_checked": is_length_checked,
        "bad_data_blocks": summary.bad_data.count(),
        "unverified_data_blocks": summary.unverified.count(),
        "bad_hash_blocks": summary.bad_hash_blocks,
        "bad_data_ranges": ranges(&summary.bad_data),
        "unverified_data_ranges": ranges(&summary.unverified),
    })
}
