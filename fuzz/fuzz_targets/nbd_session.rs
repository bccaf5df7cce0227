#![no_main]
//! A whole session with an NBD server over a socket: in clear, or within TLS. The server is still there afterwards.
//!
//! The first byte says which; the rest is what the client sends.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use casemate_blockdev::MemoryDevice;
use casemate_nbd::tls::Tls;
use casemate_nbd::{Export, Limits, Listener, Server};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Where the server listens, and what a client of it needs for TLS.
static SERVER: LazyLock<(PathBuf, Arc<ClientConfig>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder").keep();
    certificate(&folder);
    let socket = folder.join("socket");
    let device = Arc::new(MemoryDevice::new(vec![0; 1 << 20]));
    let export = Arc::new(Export::new(device, "disk", false, 4096));
    let tls = Tls::optional(&folder).expect("a certificate");
    let limits = Limits { negotiation: Duration::from_secs(1), memory: 33 << 20, ..Limits::default() };
    let server = Server::start(Listener::unix(&socket).expect("a socket"), vec![export], tls, limits, |_| ());
    std::mem::forget(server.expect("a server"));
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(folder.join("server-cert.pem")).expect("a certificate");
    roots.add(certificate).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    (socket, Arc::new(config))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, sent @ ..] = bytes else { return };
    let (socket, config) = &*SERVER;
    let mut stream = UnixStream::connect(socket).expect("the server is there");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    if how & 1 == 0 {
        let _ = stream.write_all(sent);
    } else {
        // Flags of the client (fixed newstyle, no zeros), and the option STARTTLS with no data.
        let start = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 5, 0, 0, 0, 0]].concat();
        stream.write_all(&start).expect("STARTTLS is heard");
        let mut reply = [0; 20];
        stream.read_exact(&mut reply).expect("STARTTLS is answered");
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
        let mut tls = StreamOwned::new(client, stream);
        let _ = tls.write_all(sent);
        let _ = tls.flush();
        stream = tls.sock;
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let end = (&mut stream).take(64 << 20).read_to_end(&mut answers);
    assert!(!end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "no end after a minute");
});

fn certificate(folder: &Path) {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost -keyout server-key.pem -out server-cert.pem";
    let output = Command::new("openssl").args(words.split_whitespace()).current_dir(folder).output();
    assert!(output.expect("openssl").status.success());
}
