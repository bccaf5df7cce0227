//! TLS: which connections are encrypted, and the certificates, in the folders that other NBD tools use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::protocol::TlsMode;

/// The TLS settings of a server: which connections are encrypted, and which clients are let in.
///
/// Certificates of clients can be demanded only where every connection is encrypted: in plain text nobody shows one.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    mode: TlsMode,
    config: Option<Arc<ServerConfig>>,
}

/// The clients that are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// All clients.
    Any,
    /// Clients with a certificate that is signed by one of `ca-cert.pem`.
    Certified,
}

impl Tls {
    /// Settings without TLS: no connection is encrypted.
    pub fn off() -> Tls {
        Tls::default()
    }

    /// Connections are encrypted when the client wants it, with `server-cert.pem` and `server-key.pem` of a folder.
    ///
    /// # Errors
    /// Which file is missing or not what it should be.
    pub fn optional(folder: &Path) -> io::Result<Tls> {
        Ok(Tls { mode: TlsMode::On, config: Some(config(folder, Clients::Any)?) })
    }

    /// All connections are encrypted, with `server-cert.pem` and `server-key.pem` of a folder.
    ///
    /// # Errors
    /// Which file is missing or not what it should be.
    pub fn required(folder: &Path, clients: Clients) -> io::Result<Tls> {
        Ok(Tls { mode: TlsMode::Require, config: Some(config(folder, clients)?) })
    }

    /// The use of TLS.
    pub fn mode(&self) -> TlsMode {
        self.mode
    }

    /// Certificate and key; `None` only where nothing is encrypted.
    pub(crate) fn config(&self) -> Option<&Arc<ServerConfig>> {
        self.config.as_ref()
    }
}

fn config(folder: &Path, clients: Clients) -> io::Result<Arc<ServerConfig>> {
    let wrong = |name: &str, error: &dyn std::fmt::Display| {
        let text = format!("{}: {error}", folder.join(name).display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let certificates = |name: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        let list = CertificateDer::pem_file_iter(folder.join(name)).map_err(|error| wrong(name, &error))?;
        let list: Vec<_> = list.collect::<Result<_, _>>().map_err(|error| wrong(name, &error))?;
        if list.is_empty() { Err(wrong(name, &"it holds no certificate")) } else { Ok(list) }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let builder = if clients == Clients::Certified {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(CA)? {
            roots.add(certificate).map_err(|error| wrong(CA, &error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| wrong(CA, &error))?)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).map_err(|error| wrong(KEY, &error))?;
    let config = builder.with_single_cert(certificates(CERTIFICATE)?, key);
    Ok(Arc::new(config.map_err(|error| wrong(CERTIFICATE, &error))?))
}

const CA: &str = "ca-cert.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
