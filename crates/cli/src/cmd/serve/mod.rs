//! `casemate serve`.

mod options;
mod statistics;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use casemate::blockdev::{BlockDevice, Events};
use casemate::luks::Reencrypting;
use casemate::nbd::{Address, Export};
use casemate::serve::{ServeOptions, Service};
use casemate::{Error, ErrorKind, Image, Output};

pub use self::options::Args;
use self::options::Place;
use crate::answer::Answer;
use crate::background::{self, Faults, exit_status};
use crate::context::Context;
use crate::notify::Manager;
use crate::signals;
use crate::streams::{say, tell};

/// Event that the server waits for.
enum Event {
    Signal(i32),
    /// The command has ended.
    Ended(io::Result<ExitStatus>),
}

/// A server that stops when it is dropped, as an error between its start and its end does: nobody would find its socket.
struct Serving {
    service: Option<Service>,
    patience: Duration,
}

impl Serving {
    fn stop(mut self) -> Result<(), Error> {
        self.service.take().map_or(Ok(()), |service| service.stop(self.patience))
    }
}

impl Deref for Serving {
    type Target = Service;

    fn deref(&self) -> &Service {
        self.service.as_ref().expect("only the end takes it")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            // The error that ends the command is the one to be told.
            let _ = service.stop(self.patience);
        }
    }
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.fork && !self.forked {
            let ending = |pid| Some(format!("the server goes on in the background; kill {pid} ends it"));
            return background::start("the server", ending, context);
        }
        if self.forked {
            background::end_with_parent()?;
        }
        let mut options = ServeOptions::default();
        options.tls = self.tls()?;
        options.limits = self.limits(context);
        let faults = Faults::default();
        options.events = Some(faults.events());
        let (images, reencrypting) = self.images(context)?;
        let read_only = images.iter().all(|(_, image)| image.is_read_only());
        let files = self.files()?;
        let paths: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
        let log = self.log.open(&paths)?;
        let manager = if self.forked { Manager::none() } else { Manager::of_environment() };
        let Place { listener, folder: _folder, is_given } = self.listener(read_only, context)?;
        raise_file_limit();

        let (events, incoming) = mpsc::channel();
        // Before the first client, so that no signal finds the server without its handler.
        background::send_signals(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1], &events, Event::Signal)?;
        let named: Vec<(&str, &Image)> = images.iter().map(|(name, image)| (&**name, image)).collect();
        let service = Service::start(&named, listener, &options)?;
        let service = Serving { service: Some(service), patience: Duration::from_secs(self.patience) };
        signals::is_up();
        let served: Vec<(Arc<Export>, &Image)> =
            service.exports().iter().cloned().zip(images.iter().map(|(_, image)| image)).collect();
        // Whoever reads the URIs finds it.
        let _pid_file = self.pid_file.as_deref().map(|path| PidFile::write(path, &paths)).transpose()?;
        let mut child = None;
        match &self.exec {
            Some(command) => {
                child = Some(run_command(command, service.uris(), service.address(), events)?);
            }
            None if is_given => {}
            None if context.json() => {
                for (uri, (name, image)) in service.uris().iter().zip(&images) {
                    context.print_json(&json!({
                        "uri": uri,
                        "address": service.address().to_string(),
                        "export_name": name,
                        "size": image.device().size(),
                        "read_only": image.is_read_only(),
                        "pid": std::process::id(),
                    }))?;
                }
            }
            None => service.uris().iter().try_for_each(|uri| context.print(format!("{uri}\n")))?,
        }
        for (_, image) in &images {
            if !image.has_layer() && image.begins_with_luks().unwrap_or(false) {
                context.hint(&format!(
                    "{} is a LUKS volume: clients get its header and ciphertext; use --luks to serve the plaintext",
                    image.name()
                ));
            }
        }
        if self.says_nothing_of_writing() {
            context.hint(
                "clients can only read; use --write to let them write, or --read-only to hide this note",
            );
        }
        if self.forked {
            background::leave(log)?;
        } else {
            log.begin();
        }
        let serving = format!("serving {}", service.uris().join(" "));
        self.log.note(&serving);
        manager.ready(&serving);

        let is_ending = AtomicBool::new(false);
        let answer = thread::scope(|scope| {
            if let Some(reencrypting) = reencrypting {
                let events = Beside { is_ending: &is_ending };
                scope.spawn(move || reencrypt(reencrypting, &events, context));
            }
            let print = Print { context, is_given };
            let answer = self.wait(&incoming, &service, &served, child, &print);
            is_ending.store(true, Ordering::Relaxed);
            answer
        })?;
        manager.stopping();
        let clients = service.clients();
        service.stop()?;
        if context.json() {
            Print { context, is_given }.report(&served, clients)?;
        }
        self.log.note("the server ended");
        Ok(answer)
    }

    /// Waits until the server is to end.
    fn wait(
        &self,
        incoming: &Receiver<Event>,
        service: &Service,
        served: &[(Arc<Export>, &Image)],
        child: Option<Pid>,
        print: &Print<'_>,
    ) -> Result<Answer, Error> {
        loop {
            let event = match self.exit_with_last {
                false => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
                true => incoming.recv_timeout(LOOK),
            };
            let event = match event {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    let were_there = served.iter().any(|(export, _)| export.statistics().connections > 0);
                    match were_there && service.clients() == 0 {
                        true => return Ok(Answer::Yes),
                        false => continue,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(Answer::Yes),
            };
            match event {
                Event::Signal(SIGUSR1) => print.report(served, service.clients())?,
                Event::Signal(_) => {
                    // A command that has ended meanwhile can't be told, and need not be.
                    let _ = child.map(|child| rustix::process::kill_process(child, Signal::TERM));
                    return Ok(Answer::Yes);
                }
                Event::Ended(status) => {
                    let status = status.map_err(|error| Error::io("the command", error))?;
                    return Ok(Answer::Status(exit_status(status)));
                }
            }
        }
    }
}

/// Does what is left of a reencryption, and says what became of it; clients are served whatever that is.
fn reencrypt(reencrypting: Reencrypting, events: &Beside<'_>, context: &Context) {
    match reencrypting.run(&context.work(context.providers().clone(), events)) {
        Ok(()) => context.note("the reencryption is done"),
        Err(error) if error.is_interrupt() => {}
        Err(error) => context.complain(&error),
    }
}

/// Work that ends with the server.
struct Beside<'a> {
    is_ending: &'a AtomicBool,
}

impl Events for Beside<'_> {
    fn advance(&self, _: u64) -> Result<(), Error> {
        match self.is_ending.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Interrupted, "the server ends")),
            false => Ok(()),
        }
    }

    fn note(&self, text: &str) {
        say(format_args!("casemate: {text}"));
    }
}

/// How often it is seen whether the last client has gone.
const LOOK: Duration = Duration::from_millis(100);

/// A file with this process's number, which goes with it.
struct PidFile<'a>(&'a Path);

impl PidFile<'_> {
    fn write<'a>(path: &'a Path, images: &[&Path]) -> Result<PidFile<'a>, Error> {
        // What has the name may be somebody's file. To open a FIFO would wait for its other end.
        let file_type = path.metadata().map(|metadata| metadata.file_type());
        if file_type.is_ok_and(|kind| !kind.is_file() && !kind.is_char_device()) {
            return Err(Error::argument("not a regular file; a PID file is written anew").at(path.display()));
        }
        if path.is_file() {
            let mut old = Vec::new();
            let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut old));
            read.map_err(|error| Error::io(path.display(), error))?;
            let digits = old.trim_ascii();
            if digits.len() > 20 || !digits.iter().all(u8::is_ascii_digit) {
                let text =
                    "there is a file of this name that is not a PID file: it holds more than one number";
                return Err(Error::argument(text).at(path.display()));
            }
        }
        Output::write_whole(path, images, PidFile::text().as_bytes())?;
        Ok(PidFile(path))
    }

    fn text() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Another server may have taken the name, and somebody else may have removed it.
        if self.0.is_file() && std::fs::read_to_string(self.0).is_ok_and(|text| text == PidFile::text()) {
            let _ = std::fs::remove_file(self.0);
        }
    }
}

/// Where statistics go.
struct Print<'a> {
    context: &'a Context,
    /// Whether standard output is another program's.
    is_given: bool,
}

impl Print<'_> {
    /// Prints what was done so far.
    fn report(&self, served: &[(Arc<Export>, &Image)], clients: usize) -> Result<(), Error> {
        let context = self.context;
        for (export, image) in served {
            let (name, export, layers) =
                (&*export.description().name, export.statistics(), image.statistics());
            let name_of_several = (served.len() > 1).then_some(name);
            match (context.json(), self.is_given) {
                (true, false) => context.print_json(&statistics::value(name, &export, &layers, clients))?,
                (true, true) => {
                    let line = context.json_line(&statistics::value(name, &export, &layers, clients))?;
                    tell(String::from_utf8_lossy(&line));
                }
                (false, _) => tell(statistics::text(name_of_several, &export, &layers, clients)),
            }
        }
        Ok(())
    }
}

/// The command, which hears where the server is under the names that nbdkit uses, and of all exports in $uris.
fn run_command(line: &str, uris: &[String], address: &Address, events: Sender<Event>) -> Result<Pid, Error> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).env("uri", &uris[0]).env("uris", uris.join(" "));
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

/// Each client is an open file, and the usual limit is for programs that use `select`.
fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Without it fewer clients can be served, and those that can't are told.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}
