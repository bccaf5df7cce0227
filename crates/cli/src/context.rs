//! Context that every command shares: threads, CPU, output and progress.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use casemate::blockdev::{Events, Pool, Stream, u64_of};
use casemate::image_spec::ImageSpec;
use casemate::{Advice, Cpu, Error, Providers, Work};

use crate::advice;
use crate::answer::Answer;
use crate::progress::Reporter;
use crate::signals;
use crate::streams::{self, OWN_PREFIX, StandardOutput, say, visible_lines};

/// Options that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Print results as JSON.
    #[arg(long, global = true, help_heading = "Common options")]
    pub json: bool,
    /// Use N threads [default: one per core].
    #[arg(long, global = true, value_name = "N", value_parser = threads, help_heading = "Common options")]
    pub threads: Option<NonZeroUsize>,
    /// Use only these CPU features: "native", "portable", or a list such as "avx2,sha-ni" or "native,-avx512".
    #[arg(long, global = true, value_name = "FEATURES", help_heading = "Common options")]
    pub cpu: Option<String>,
    /// Report progress as JSON lines on standard error, in cryptsetup's format.
    #[arg(long, global = true, help_heading = "Common options")]
    pub progress_json: bool,
    /// Show no progress bar.
    #[arg(long, global = true, help_heading = "Common options")]
    pub no_progress: bool,
    /// Report success, also when no terminal is attached.
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Common options")]
    pub verbose: bool,
    /// Print results and errors only.
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub quiet: bool,
}

/// How cryptsetup was told to talk, and to ask.
#[derive(Clone, Debug)]
pub struct Manners {
    /// True if it reports what it does with key slots and tokens, and how it ended.
    pub verbose: bool,
    /// How often a passphrase is asked for at a terminal.
    pub tries: u32,
    /// How long it waits for one.
    pub timeout: Option<Duration>,
    /// Whether passphrases are asked for twice, if that does not follow from what they are for.
    pub verify: Option<bool>,
}

/// The common options, checked and ready.
#[derive(Debug)]
pub struct Context {
    common: Common,
    providers: Providers,
    /// Providers with the kernel's engines, which are looked for only if a driver is named.
    with_engines: OnceLock<Providers>,
    /// Beginning of messages.
    prefix: &'static str,
    output: StandardOutput,
    /// How cryptsetup talks, for its command line.
    manners: Option<Manners>,
    /// Whether layers were given as an image specification, in whose words advice is given then.
    specified: bool,
    /// Files that the command line names.
    named: Vec<PathBuf>,
}

/// Notes the errors of work on many things, of which one does not stop the others.
#[derive(Debug, Default)]
pub struct Failures {
    any: bool,
}

/// Keys, certificates and signatures are far smaller; more is not read into memory.
const SMALL_FILE: u64 = 1 << 20;

impl Context {
    pub fn new(common: Common) -> Result<Context, Error> {
        let cpu = |list: &String| Cpu::detect().restrict(list);
        let cpu = common.cpu.as_ref().map(cpu).transpose();
        let cpu = cpu.map_err(|error| Error::argument(error.to_string()))?;
        let providers = cpu.map_or_else(Providers::default, Providers::new);
        Ok(Context { common, providers, ..Context::default() })
    }

    /// Context of a command that does its work to the end, whether or not somebody reads what it prints.
    pub fn going_on(self) -> Context {
        Context { output: StandardOutput::goes_on(), ..self }
    }

    /// Context of a command line with these words.
    pub fn of_words(self, words: &[OsString]) -> Context {
        let has_layers = |spec: ImageSpec| !spec.layers().is_empty() || !spec.file_system().is_default();
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let mut words = words.iter().filter(|word| !is_option(word));
        let specified = words.any(|word| ImageSpec::of_argument(word).is_ok_and(has_layers));
        Context { specified, ..self }
    }

    /// For errors of a command line that asks for JSON, and is not understood.
    pub fn for_json() -> Context {
        Context { common: Common { json: true, ..Common::default() }, ..Context::default() }
    }

    /// For another tool's command line: its way to begin error messages, and neither JSON nor progress.
    pub fn for_tool(prefix: &'static str) -> Context {
        let common = Common { no_progress: true, ..Common::default() };
        Context { common, prefix, ..Context::default() }
    }

    /// For a command line of cryptsetup.
    pub fn for_cryptsetup(manners: Manners) -> Context {
        Context { manners: Some(manners), ..Context::for_tool("") }
    }

    /// Tells the files that the command line names.
    pub fn keep(&mut self, named: Vec<PathBuf>) {
        self.named = named;
    }

    /// Files that the command line names: a tree that is unpacked replaces none of them.
    pub fn named(&self) -> &[PathBuf] {
        &self.named
    }

    /// How cryptsetup talks, if the command line is its own.
    pub fn manners(&self) -> Option<&Manners> {
        self.manners.as_ref()
    }

    /// Prints one JSON value and a line end to standard output.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), Error> {
        self.print(self.json_line(value)?)
    }

    /// One JSON value and a line end, to be printed later.
    pub fn json_line(&self, value: &impl Serialize) -> Result<Vec<u8>, Error> {
        let text = serde_json::to_string(value).expect("results have string keys");
        Ok((streams::json(text) + "\n").into_bytes())
    }

    /// Prints an error to standard error: a line of text, or of JSON.
    pub fn complain(&self, error: &Error) {
        match self.json() {
            true => streams::tell(streams::json(json!({"error": error_value(error)}).to_string()) + "\n"),
            // Other tools have other options.
            false if self.is_other_tool() => say(format_args!("{}{error}", self.prefix)),
            false => say(format_args!("{}{}", self.prefix, advice::worded(error, self.specified))),
        }
    }

    /// Reports that something is done, at a terminal or with --verbose.
    pub fn done(&self, text: impl Display) {
        let waits = || streams::is_watched() && !self.common.quiet;
        if !self.is_other_tool() && !self.json() && (self.common.verbose || waits()) {
            say(format_args!("{}{text}", self.prefix));
        }
    }

    /// Prints a note that only a person at a terminal needs, or one who asked for more with --verbose.
    pub fn hint(&self, text: &str) {
        if streams::is_watched() || self.common.verbose {
            self.note(text);
        }
    }

    /// Reports that something is done with a file, or would be in a dry run.
    pub fn done_or_tried(&self, dry_run: bool, file: &Path, what: &str) {
        let dry = if dry_run { ", but nothing was written: this was a dry run" } else { "" };
        self.done(format_args!("{}: {what}{dry}", file.display()));
    }

    /// Prints text to standard output: as it is into a file or a pipe, and without what would steer it to a terminal.
    pub fn print(&self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let (mut out, text) = (self.output(), text.as_ref());
        let result = match out.is_terminal() {
            true => out.write_all(visible_lines(&String::from_utf8_lossy(text)).as_bytes()),
            false => out.write_all(text),
        };
        result.map_err(|error| Error::io("standard output", error))
    }

    /// Prints data that are of no use unless all of them arrive: a reader who has closed the pipe is an error, also of a command
    /// that goes on without one to find its answer.
    pub fn print_data(&self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        let (mut out, text) = (&StandardOutput::default(), text.as_ref());
        let result = match out.is_terminal() {
            true => out.write_all(visible_lines(&String::from_utf8_lossy(text)).as_bytes()),
            false => out.write_all(text),
        };
        result.map_err(|error| Error::io("standard output", error))
    }

    /// Where results go, and data.
    pub fn output(&self) -> &StandardOutput {
        &self.output
    }

    /// Standard output for a copy of what the command reads: it leads to no file that the command line names.
    ///
    /// # Errors
    /// Errors of [`StandardOutput::apart_from`].
    pub fn output_of_copy(&self) -> Result<&StandardOutput, Error> {
        self.output.apart_from(&self.named)
    }

    /// Standard output for a copy that is not text.
    ///
    /// # Errors
    /// Errors of [`Context::output_of_copy`] and of [`StandardOutput::for_data`].
    pub fn output_of_data(&self) -> Result<&StandardOutput, Error> {
        self.output_of_copy()?.for_data()
    }

    /// Makes the first signal stop the next [`Context::progress`] instead of ending the process. Called before something is begun
    /// that would stay unfinished.
    pub fn heed_signals(&self) {
        signals::heed();
    }

    /// Starts reporting on work of `total` bytes on `device`, and lets signals stop it.
    pub fn progress(&self, device: &str, total: u64) -> Reporter<'_> {
        Reporter::new(self, device, total, self.common.progress_json, self.bar())
    }

    /// The bytes of all these files, for [`Context::progress`]: 0 if nobody will see them, because asking for the
    /// sizes of many small files takes as long as hashing them.
    pub fn total_size(&self, paths: &[&Path]) -> u64 {
        let bar = self.bar() && streams::is_watched();
        if !bar && !self.common.progress_json {
            return 0;
        }
        paths.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
    }

    /// Whether the command line is that of another tool.
    pub fn is_other_tool(&self) -> bool {
        self.prefix != OWN_PREFIX
    }

    /// Providers with these drivers, which the user named; the default ones if there are none.
    pub fn naming(&self, drivers: &[impl AsRef<str>]) -> Providers {
        match drivers {
            [] => self.providers.clone(),
            _ => self.with_engines.get_or_init(|| Providers::with_engines(self.cpu())).naming(drivers),
        }
    }

    /// Providers with this driver for the hash `name`, and for nothing else.
    ///
    /// # Errors
    /// `Argument` if the driver does not compute this hash.
    pub fn hashing(&self, name: &str, driver: Option<&str>) -> Result<Providers, Error> {
        let providers = self.naming(driver.as_slice());
        check_driver(&providers, name, driver)?;
        Ok(providers)
    }

    /// Providers where no driver was named.
    pub fn providers(&self) -> &Providers {
        &self.providers
    }

    /// These implementations on all threads that are wanted, and who hears.
    pub fn work<'a>(&self, providers: Providers, events: &'a dyn Events) -> Work<'a> {
        Work { providers, pool: self.pool(), events }
    }

    /// Work of opening images and reading from them: notes are printed, without a progress bar.
    pub fn opening(&self) -> Work<'_> {
        self.work(self.providers.clone(), self)
    }

    /// Reports faults of the engines that the user named, after which the CPU did their work.
    pub fn mention_trouble(&self) {
        let troubles = self.with_engines.get().into_iter().flat_map(|all| all.registry().troubles());
        troubles.for_each(|trouble| say(format_args!("{}{trouble}; the CPU did its work", self.prefix)));
    }

    pub fn json(&self) -> bool {
        self.common.json
    }

    /// Whether more is wanted than is usually said.
    pub fn verbose(&self) -> bool {
        self.common.verbose
    }

    /// Whether only results and errors are wanted.
    pub fn quiet(&self) -> bool {
        self.common.quiet
    }

    fn bar(&self) -> bool {
        !(self.common.no_progress || self.common.quiet)
    }

    pub fn cpu(&self) -> Cpu {
        self.providers.cpu()
    }

    /// The number of threads, if one was given.
    pub fn threads(&self) -> Option<NonZeroUsize> {
        self.common.threads
    }

    pub fn pool(&self) -> Pool {
        Pool::new(self.common.threads)
    }
}

impl Default for Context {
    fn default() -> Context {
        Context {
            common: Common::default(),
            providers: Providers::default(),
            with_engines: OnceLock::new(),
            prefix: OWN_PREFIX,
            output: StandardOutput::default(),
            manners: None,
            specified: false,
            named: Vec::new(),
        }
    }
}

/// Prints to standard error what a person should know.
impl Events for Context {
    fn waiting(&self, time: Duration, reason: &str) {
        self.note(&format!("{reason}; this takes up to {} seconds", time.as_secs()));
    }

    fn note(&self, text: &str) {
        // Other tools have no such notes, and their tests compare what they print.
        match (self.common.quiet || self.is_other_tool(), self.json()) {
            (true, _) => {}
            (false, false) => say(format_args!("{}note: {text}", self.prefix)),
            (false, true) => streams::tell(streams::json(json!({"note": text}).to_string()) + "\n"),
        }
    }

    fn advise(&self, text: &str, advice: Advice) {
        let option = advice::option(&advice).filter(|_| !self.is_other_tool());
        let option = option.map_or_else(String::new, |option| format!(" ({option})"));
        self.note(&format!("{text}; {advice}{option}"));
    }
}

impl Failures {
    /// Prints an error and notes it.
    pub fn add(&mut self, context: &Context, error: Error) {
        context.complain(&error);
        self.any = true;
    }

    /// Notes an error that is not to be printed.
    pub fn add_silently(&mut self) {
        self.any = true;
    }

    /// Yes if there were none.
    pub fn finish(self) -> Result<Answer, Error> {
        Ok(if self.any { Answer::Failed } else { Answer::Yes })
    }
}

/// An error for programs.
pub fn error_value(error: &Error) -> Value {
    let place = error.place();
    let option = advice::option;
    let advice: Vec<Value> = error.advice().iter().map(advice_value).collect();
    json!({
        "kind": error.kind().name(),
        "code": error.code().name(),
        "place": {
            "file": place.file,
            "structure": place.structure,
            "block": place.block,
            "group": place.group,
            "inode": place.inode,
        },
        "text": error.text_worded(&option),
        "advice": advice,
    })
}

/// Advice for programs.
pub fn advice_value(advice: &Advice) -> Value {
    json!({"name": advice.name(), "text": advice.to_string(), "option": advice::option(advice)})
}

/// Refuses a driver that was named for the hash `name`, and does not make it.
pub fn check_driver(providers: &Providers, name: &str, driver: Option<&str>) -> Result<(), Error> {
    match driver {
        Some(driver) if providers.hash(name)?.driver() != driver => {
            Err(Error::argument(format!("{driver} does not make {name}")))
        }
        _ => Ok(()),
    }
}

/// A key, certificate or signature, which is refused if it is too large to be one.
pub fn read_small(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = match path.as_os_str() == "-" {
            true => Stream::input()?,
            false => Stream::open(path)?,
        };
        file.take(SMALL_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| Error::io(path.display(), error))?;
    if u64_of(bytes.len()) > SMALL_FILE {
        let text = format!("{}: larger than any key, certificate or signature", path.display());
        return Err(Error::corrupt(text));
    }
    Ok(bytes)
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a number from 1 on".to_owned())
}
