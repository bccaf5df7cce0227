//! `casemate serve`.

mod options;
mod statistics;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use casemate::blockdev::{BlockDevice, Events};
use casemate::nbd::{Address, Export};
use casemate::serve::ServeOptions;
use casemate::{Error, Image, Output};

pub use self::options::Args;
use self::options::Place;
use crate::answer::Answer;
use crate::context::Context;

/// What the server waits for.
enum Event {
    Signal(i32),
    /// The command has ended.
    Ended(io::Result<ExitStatus>),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.fork {
            return fork(context);
        }
        let mut options = ServeOptions::default();
        options.export_name = self.export_name.clone();
        options.tls = self.tls()?;
        options.limits = self.limits(context);
        options.events = Some(Arc::new(Faults));
        let image = self.image(context)?;
        let Place { listener, folder: _folder } = self.listener(image.is_read_only(), context)?;
        raise_file_limit();

        let (events, incoming) = mpsc::channel();
        // Before the first client, so that no signal finds the server without its handler.
        handle_signals(&events).map_err(|error| Error::io("signals", error))?;
        let service = image.serve(listener, &options)?;
        let export = Arc::clone(service.export());
        // Whoever reads the URI finds it.
        let _pid_file = self.pid_file.as_deref().map(|path| PidFile::write(path, &self.image)).transpose()?;
        let mut child = None;
        match &self.exec {
            Some(command) => {
                child = Some(run_command(command, service.uri(), service.address(), events)?);
            }
            None if context.json() => context.print_json(&json!({
                "uri": service.uri(),
                "address": service.address().to_string(),
                "export_name": self.export_name,
                "size": image.device().size(),
                "read_only": image.is_read_only(),
                "pid": std::process::id(),
            }))?,
            None => context.print(format!("{}\n", service.uri()))?,
        }
        if self.forked {
            leave().map_err(|error| Error::io("the background", error))?;
        }

        let mut answer = Answer::Yes;
        loop {
            let event = match self.exit_with_last {
                false => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
                true => incoming.recv_timeout(LOOK),
            };
            let event = match event {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    match export.statistics().connections > 0 && service.clients() == 0 {
                        true => break,
                        false => continue,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match event {
                Event::Signal(SIGUSR1) => report(context, &export, &image, service.clients())?,
                Event::Signal(_) => {
                    // A command that has ended meanwhile can't be told, and need not be.
                    let _ = child.map(|child| rustix::process::kill_process(child, Signal::TERM));
                    break;
                }
                Event::Ended(status) => {
                    answer =
                        Answer::Status(exit_status(status.map_err(|error| Error::io("the command", error))?));
                    break;
                }
            }
        }
        let clients = service.clients();
        let stopped = service.stop(Duration::from_secs(self.patience));
        if context.json() {
            report(context, &export, &image, clients)?;
        }
        stopped?;
        Ok(answer)
    }
}

/// Starts this command once more, as the server in the background, and ends when clients can connect to it: what it prints
/// then is printed here.
fn fork(context: &Context) -> Result<Answer, Error> {
    let start = || -> io::Result<(Vec<u8>, Child)> {
        let args = std::env::args_os().skip(1);
        let args = args.map(|arg| if arg == "--fork" { "--forked".into() } else { arg });
        let mut server = Command::new(std::env::current_exe()?).args(args).stdout(Stdio::piped()).spawn()?;
        let mut line = Vec::new();
        if let Some(stdout) = server.stdout.take() {
            BufReader::new(stdout).read_until(b'\n', &mut line)?;
        }
        Ok((line, server))
    };
    let (line, mut server) = start().map_err(|error| Error::io("the server", error))?;
    if line.is_empty() {
        // It has said why.
        let status = server.wait().map_err(|error| Error::io("the server", error))?;
        return Ok(Answer::Status(exit_status(status)));
    }
    context.print(line)?;
    Ok(Answer::Yes)
}

/// Leaves the terminal, and lets go of what a shell waits for: a pipe that it reads to its end, say.
fn leave() -> io::Result<()> {
    rustix::process::setsid()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Prints what goes wrong with single clients.
struct Faults;

impl Events for Faults {
    fn note(&self, text: &str) {
        eprintln!("casemate: {text}");
    }
}

/// How often it is seen whether the last client has gone.
const LOOK: Duration = Duration::from_millis(100);

/// A file with this process's number, which goes with it.
struct PidFile<'a>(&'a Path);

impl PidFile<'_> {
    fn write<'a>(path: &'a Path, image: &Path) -> Result<PidFile<'a>, Error> {
        Output::write_whole(path, &[image], PidFile::text().as_bytes())?;
        Ok(PidFile(path))
    }

    fn text() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Another server may have taken the name, and somebody else may have removed it.
        if std::fs::read_to_string(self.0).is_ok_and(|text| text == PidFile::text()) {
            let _ = std::fs::remove_file(self.0);
        }
    }
}

/// Prints what was done so far.
fn report(context: &Context, export: &Export, image: &Image, clients: usize) -> Result<(), Error> {
    let (export, layers) = (export.statistics(), image.statistics());
    if context.json() {
        return context.print_json(&statistics::value(&export, &layers, clients));
    }
    eprint!("{}", statistics::text(&export, &layers, clients));
    Ok(())
}

/// The command, which hears where the server is under the names that nbdkit uses.
fn run_command(line: &str, uri: &str, address: &Address, events: Sender<Event>) -> Result<Pid, Error> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).env("uri", uri);
    match address {
        Address::Unix(path) => command.env("unixsocket", path),
        Address::Tcp(address) => command.env("port", address.port().to_string()),
    };
    let child: io::Result<Child> = command.spawn();
    let mut child = child.map_err(|error| Error::io("the command", error))?;
    let pid = Pid::from_child(&child);
    thread::spawn(move || events.send(Event::Ended(child.wait())));
    Ok(pid)
}

fn handle_signals(events: &Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    let events = events.clone();
    thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            // Whoever asks twice will not wait.
            if signal != SIGUSR1 && std::mem::replace(&mut stopping, true) {
                std::process::exit(130);
            }
            if events.send(Event::Signal(signal)).is_err() && signal == SIGUSR1 {
                return;
            }
        }
    });
    Ok(())
}

/// As a shell says it.
fn exit_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(2)
}

/// Each client is an open file, and the usual limit is for programs that use `select`.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Without it fewer clients can be served, and those that can't are told.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}
