//! The options of `casemate serve`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, ValueEnum, ValueHint};
use listenfd::ListenFd;

use casemate::blockdev::Events;
use casemate::image_spec::{ImageSpec, LayerSpec};
use casemate::luks::Reencrypting;
use casemate::nbd::protocol::MAX_NAME;
use casemate::nbd::tls::{Clients, Tls};
use casemate::nbd::{Limits, Listener};
use casemate::{Access, Error, Image, probe};

use crate::background::LogArgs;
use crate::cmd::layers::{Asking, LayerArgs, spec_parser};
use crate::cmd::place::PartArgs;
use crate::context::Context;
use crate::size::bytes;

/// Export an image over NBD, decrypted, encrypted or verified on the fly.
///
/// Does in a process what dm-crypt and dm-verity do in the kernel: no root, device-mapper or kernel module. Prints
/// the URI for clients, and runs until SIGTERM or SIGINT. Then it answers requests that have arrived, flushes
/// everything to stable storage, and disconnects. SIGUSR1 prints statistics.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate serve --socket disk.sock disk.img\n\
    \x20 casemate serve disk.enc,crypt=aes-xts-plain64,key-file=disk.key,key-size=512 \\\n\
    \x20     --exec 'nbdcopy \"$uri\" plain.img'\n\
    \x20 casemate serve --dm-verity root.verity @root.hash.txt --overlay changes.ovl root.img \\\n\
    \x20     --exec 'qemu-io -f raw -c \"write 0 4k\" \"$uri\"'\n\
    \x20 casemate serve --socket vm.sock --export root=root.img --export disk=disk.img\n\
    \x20 qemu-system-x86_64 -drive file=nbd+unix:///?socket=disk.sock,format=raw\n\
    \x20 nbd-client -unix disk.sock /dev/nbd0\n\
    \x20 uri=$(casemate serve -r --fork --exit-with-last --socket copy.sock disk.img)\n\
    \x20 nbdcopy \"$uri\" copy.img\n\
    \n\
    A socket that a service manager hands over (LISTEN_FDS, as systemd does it) is used instead of --socket and --tcp.\n\
    \n\
    From the image upwards: its layers, then --overlay. Clients can only read, unless --write or --overlay is given.",
    // A service manager may have opened a socket.
    group = ArgGroup::new("place")
        .args(["socket", "tcp", "exec"])
        .multiple(true)
        .required(std::env::var_os("LISTEN_FDS").is_none()),
    // Names of earlier days.
    mut_arg("dm_verity", |arg| arg.alias("verity")),
    mut_arg("key_file", |arg| arg.short_alias('d')),
    mut_arg("key_size", |arg| arg.short_alias('s')))]
pub struct Args {
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(required_unless_present = "export", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: Option<ImageSpec>,
    /// Export another image under this name; may be repeated. All images use the same options; an image with layers of its own
    /// takes no options of layers.
    #[arg(
        long,
        value_name = "NAME=IMAGE",
        value_parser = export,
        conflicts_with_all = ["overlay", "dm_verity", "luks_header", "recovery_file"]
    )]
    export: Vec<(String, ImageSpec)>,
    /// Listen on this Unix socket, for this user only; "-" creates one in a private folder.
    #[arg(short = 'U', long, value_name = "PATH", conflicts_with = "tcp")]
    socket: Option<PathBuf>,
    /// Listen on TCP: a port of 127.0.0.1, which every local user can reach, or ADDRESS:PORT. Port 0 picks a free
    /// one.
    #[arg(short = 'p', long, value_name = "[ADDRESS:]PORT", alias = "port")]
    tcp: Option<String>,
    /// Allow an address that other machines reach. All of them can use the export; without --tls=require anyone on
    /// the network path can read and change the traffic.
    #[arg(long, requires = "tcp")]
    allow_remote: bool,
    /// Run this shell command while serving, and exit with its status. It gets $uri (and $uris with several exports),
    /// and $unixsocket or $port. Without --socket and --tcp the socket is in a private folder.
    #[arg(long, value_name = "COMMAND", alias = "run")]
    pub exec: Option<String>,
    /// Name of the image's export, which clients must ask for.
    #[arg(
        short = 'e',
        long,
        alias = "exportname",
        short_alias = 'x',
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        value_parser = export_name
    )]
    export_name: String,
    /// Allow clients to write to the image [default: read-only, unless --overlay is given].
    #[arg(short, long, conflicts_with_all = ["read_only", "dm_verity", "overlay"])]
    write: bool,
    /// Refuse writes, which is the default, without a note.
    #[arg(short, long)]
    read_only: bool,
    #[command(flatten)]
    part: PartArgs,
    /// Limit the image to N bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with = "partition")]
    size: Option<u64>,
    /// Recovery file of a file system without a journal [default: IMAGE.casemate-redo].
    #[arg(long, value_name = "FILE")]
    recovery_file: Option<PathBuf>,
    /// Keep clients' writes in this file, created if missing; the image does not change. With --read-only clients see
    /// an existing overlay.
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Take the image for what it was when the overlay was made, although it has another time of modification: after a copy.
    #[arg(long, requires = "overlay")]
    trust_image: bool,
    /// Continue a reencryption that casemate luks reencrypt --init-only began, or that was interrupted, while clients
    /// read and write. Requests for data being rewritten wait. The server stays when it is done. If it ends before,
    /// the same command continues.
    #[arg(
        long,
        help_heading = "LUKS",
        requires = "write",
        conflicts_with_all = ["export", "allow_discards"]
    )]
    reencrypt: bool,
    /// Rewrite at most this many bytes at a time [default: 16M].
    #[arg(long, help_heading = "LUKS", value_name = "BYTES", value_parser = bytes::<u64>, requires = "reencrypt")]
    hotzone_size: Option<u64>,
    /// Exit when the last client disconnects.
    #[arg(long)]
    pub exit_with_last: bool,
    /// Go to the background once clients can connect, after printing the URI. SIGTERM ends the server.
    #[arg(long, conflicts_with = "exec")]
    pub fork: bool,
    /// Option of the process in the background.
    #[arg(long, hide = true, requires = "fork")]
    pub forked: bool,
    /// Write the process ID to this file once clients can connect; it is removed at exit. An older PID file is replaced,
    /// another file is refused.
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
    /// Maximum number of clients; more are refused. All together have 1 GiB of memory for requests and replies.
    #[arg(long, value_name = "N", default_value = "4096")]
    max_clients: NonZero<usize>,
    /// Seconds for a client to choose an export, including the TLS handshake.
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    handshake_timeout: NonZero<u64>,
    /// Seconds for clients to take their replies when the server ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub patience: u64,
    #[command(flatten)]
    tls_options: TlsArgs,
    #[command(flatten)]
    layers: LayerArgs,
    /// Pass discards down: anyone who sees the image then sees which sectors are in use.
    #[arg(
        long,
        help_heading = "dm-crypt",
        requires = "write",
        conflicts_with_all = ["read_only", "dm_verity", "overlay"]
    )]
    allow_discards: bool,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "TLS")]
struct TlsArgs {
    /// Encrypt connections: never, when the client asks, or always.
    #[arg(
        long,
        value_enum,
        default_value_t,
        requires_if("on", "tls_certificates"),
        requires_if("require", "tls_certificates")
    )]
    tls: Mode,
    /// The folder with server-cert.pem, server-key.pem, and ca-cert.pem for --tls-verify-peer.
    #[arg(long, value_name = "FOLDER", requires = "tls")]
    tls_certificates: Option<PathBuf>,
    /// Accept only clients with a certificate signed by ca-cert.pem; needs --tls=require.
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    #[default]
    Off,
    On,
    Require,
}

/// Clients can't ask for longer names.
fn export_name(name: &str) -> Result<String, String> {
    match name.len() {
        0..=MAX_NAME => Ok(name.to_owned()),
        len => Err(format!("{len} bytes are too many for a name; {MAX_NAME} is the most")),
    }
}

/// A name, and the image behind the first "=".
fn export(text: &str) -> Result<(String, ImageSpec), String> {
    match text.split_once('=') {
        Some((name, image)) if !image.is_empty() => {
            let image = ImageSpec::of_argument(image).map_err(|error| error.to_string())?;
            Ok((export_name(name)?, image))
        }
        _ => Err("give a name and an image, as in root=root.img".to_owned()),
    }
}

/// The images by their exports' names, and what is to be done to one while it is served.
pub type Images = (Vec<(String, Image)>, Option<Reencrypting>);

/// A socket, and the folder that was made for it.
pub struct Place {
    pub listener: Listener,
    pub folder: Option<tempfile::TempDir>,
    /// Whether another program has opened the socket (`LISTEN_FDS`): a client that starts its server so shares its standard
    /// output with it, and expects nothing there.
    pub is_given: bool,
}

impl Args {
    /// The images by their exports' names, with everything on them.
    pub fn images(&self, context: &Context) -> Result<Images, Error> {
        let (mut images, mut reencrypting, mut opened) = (Vec::new(), None, Vec::new());
        for (name, spec) in self.specs()? {
            images.push((name.clone(), self.image(&spec, &mut opened, &mut reencrypting, context)?));
        }
        Ok((images, reencrypting))
    }

    /// The files of all images and of their layers, which no output may replace.
    ///
    /// # Errors
    /// `Argument` for layers that are given in two ways.
    pub fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let specs = self.specs()?;
        let files =
            specs.iter().flat_map(|(_, spec)| std::iter::once(spec.file()).chain(spec.files_beside()));
        Ok(files.map(Path::to_owned).collect())
    }

    /// The images by their exports' names, each with its layers.
    fn specs(&self) -> Result<Vec<(&String, ImageSpec)>, Error> {
        let image = self.image.iter().map(|image| (&self.export_name, image));
        let others = self.export.iter().map(|(name, image)| (name, image));
        let spec = |(name, image): (_, &ImageSpec)| {
            image.check_device()?;
            Ok((name, self.part.sized(image, self.size, self.layers.specs()?)?))
        };
        image.chain(others).map(spec).collect()
    }

    /// An image with everything on it. A file of which several parts are served is opened once: its lock keeps out others, and
    /// leases keep its parts apart.
    fn image(
        &self,
        spec: &ImageSpec,
        opened: &mut Vec<Image>,
        reencrypting: &mut Option<Reencrypting>,
        context: &Context,
    ) -> Result<Image, Error> {
        let protected = !self.write;
        if self.allow_discards && !spec.layers().iter().any(LayerSpec::is_decryption) {
            return Err(Error::argument(
                "--allow-discards is for an image that is decrypted: --crypt or --luks",
            ));
        }
        let access = if protected { Access::Read } else { Access::Change };
        let known = opened.iter().find(|image| image.is_file(spec.file())).cloned();
        let file = known.map_or_else(|| Image::open(spec.file(), access), Ok)?;
        opened.push(file.clone());
        let mut image = spec.part_of(file, false)?;
        if let Ok(Some(what @ (probe::QCOW2 | probe::SPARSE))) = probe::device(&*image.device()) {
            let name = image.name();
            context.note(&format!("{name}: {what}: served as it is, not the disk in it (see casemate info)"));
        }
        image = image.settled(self.recovery_file.as_deref(), &context.opening())?;
        image = if self.reencrypt {
            let [LayerSpec::Luks(luks)] = spec.parts().1 else {
                return Err(Error::argument("--reencrypt is of a LUKS volume (--luks) with no other layer"));
            };
            let of = image.name().to_owned();
            let (volume, key, options) = luks.volume(&image, &of, Access::Change, &Asking::of(context))?;
            let (image, rest) =
                volume.open_reencrypting(&key, &options, self.hotzone_size, &context.opening())?;
            *reencrypting = Some(rest);
            image
        } else {
            spec.lay(image, &Asking::of(context).allowing_discards(self.allow_discards))?
        };
        image.note_noise(context);
        match &self.overlay {
            Some(path) if self.read_only && !path.exists() => {
                Err(Error::io(path.display(), io::ErrorKind::NotFound))
            }
            Some(path) => {
                let image = match self.trust_image {
                    true => image.overlay_on_trust(path, context.providers())?,
                    false => image.overlay(path, context.providers())?,
                };
                Ok(if self.read_only { image.make_read_only() } else { image })
            }
            None if self.write => image.check_writable().map(|()| image),
            None => Ok(image),
        }
    }

    /// Whether no option decides if clients may write, so that a note is useful.
    pub fn says_nothing_of_writing(&self) -> bool {
        let verify = |(_, spec): (_, ImageSpec)| {
            spec.layers().iter().any(|layer| matches!(layer, LayerSpec::Verity(_)))
        };
        let verifies = || self.specs().is_ok_and(|specs| specs.into_iter().any(verify));
        !(self.write || self.read_only || self.overlay.is_some() || verifies())
    }

    /// Begins to listen where the options say.
    pub fn listener(&self, read_only: bool, context: &Context) -> Result<Place, Error> {
        let at = |error| Error::io("the socket", error);
        if let Some(listener) = self.given_listener().transpose()? {
            return Ok(Place { listener, folder: None, is_given: true });
        }
        if let Some(text) = &self.tcp {
            let address = self.tcp_address(text, read_only, context)?;
            return Ok(Place {
                listener: Listener::tcp(address).map_err(|error| Error::io(text, error))?,
                folder: None,
                is_given: false,
            });
        }
        if let Some(path) = self.socket.as_ref().filter(|path| path.as_os_str() != "-") {
            let listener = Listener::unix(path).map_err(|error| Error::io(path.display(), error))?;
            return Ok(Place { listener, folder: None, is_given: false });
        }
        if self.socket.is_none() && self.exec.is_none() {
            return Err(Error::argument(
                "name a place for clients: --socket, --tcp, or --exec with their command",
            ));
        }
        let folder = tempfile::TempDir::new().map_err(at)?;
        let listener = Listener::unix(&folder.path().join("socket")).map_err(at)?;
        Ok(Place { listener, folder: Some(folder), is_given: false })
    }

    /// The socket that a service manager has opened for this process, if there is one.
    fn given_listener(&self) -> Option<Result<Listener, Error>> {
        let mut given = ListenFd::from_env();
        if given.len() == 0 {
            return None;
        }
        let listener = match given.len() {
            1 => {
                let unix = given.take_unix_listener(0).ok().flatten().map(Listener::given_unix);
                let tcp =
                    || given.take_tcp_listener(0).transpose().map(|tcp| tcp.and_then(Listener::given_tcp));
                unix.or_else(tcp).unwrap_or_else(|| Err(io::ErrorKind::InvalidInput.into()))
            }
            number => {
                let text = format!("LISTEN_FDS has {number} sockets; this server listens on one");
                return Some(Err(Error::argument(text)));
            }
        };
        if self.socket.is_some() || self.tcp.is_some() || self.fork {
            let text = "LISTEN_FDS has the socket, so --socket, --tcp and --fork are not for this server";
            return Some(Err(Error::argument(text)));
        }
        Some(listener.map_err(|error| Error::io("the socket of LISTEN_FDS", error)))
    }

    fn tcp_address(&self, text: &str, read_only: bool, context: &Context) -> Result<SocketAddr, Error> {
        let port = text.parse::<u16>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let Ok(address) = port.or_else(|_| text.parse::<SocketAddr>()) else {
            let text =
                format!("--tcp {text}: give a port, or a numeric address and a port such as [::1]:10809");
            return Err(Error::argument(text));
        };
        if address.ip().is_loopback() {
            if self.allow_remote {
                let text =
                    format!("--tcp {text}: no other machine reaches this address; leave --allow-remote out");
                return Err(Error::argument(text));
            }
            return Ok(address);
        }
        let what = if read_only { "read" } else { "read and write" };
        if !self.allow_remote {
            return Err(Error::argument(format!(
                "--tcp {text}: other machines reach this address, and every one of them could {what} the image; \
                 use --allow-remote to confirm"
            )));
        }
        if !matches!(self.tls_options.tls, Mode::Require) {
            context.note(&format!(
                "{address}: everybody who reaches it can {what} the image, and nothing sent is protected"
            ));
        } else if !self.tls_options.tls_verify_peer {
            context.note(&format!("{address}: everybody who reaches it can {what} the image"));
        }
        Ok(address)
    }

    /// Which connections are encrypted, and who is let in.
    pub fn tls(&self) -> Result<Tls, Error> {
        let TlsArgs { tls, tls_certificates, tls_verify_peer } = &self.tls_options;
        let wrong = |text: &str| Err(Error::argument(text.to_owned()));
        let made = match (tls, tls_certificates, tls_verify_peer) {
            (Mode::Off, None, false) => return Ok(Tls::off()),
            (Mode::Off, ..) => {
                return wrong("--tls=off uses no certificates; leave them out, or say --tls=require");
            }
            (Mode::On | Mode::Require, None, _) => return wrong("TLS needs --tls-certificates"),
            (Mode::On, _, true) => {
                return wrong(
                    "--tls-verify-peer needs --tls=require: with --tls=on a client without a certificate is let in \
                     in plain text",
                );
            }
            (Mode::On, Some(folder), false) => Tls::optional(folder),
            (Mode::Require, Some(folder), true) => Tls::required(folder, Clients::Certified),
            (Mode::Require, Some(folder), false) => Tls::required(folder, Clients::Any),
        };
        made.map_err(|error| Error::argument(error.to_string()))
    }

    pub fn limits(&self, context: &Context) -> Limits {
        let default = Limits::default();
        let threads = context.threads().map_or(default.threads, |threads| threads.get());
        let negotiation = Duration::from_secs(self.handshake_timeout.get());
        Limits { clients: self.max_clients.get(), threads, negotiation, ..default }
    }
}
