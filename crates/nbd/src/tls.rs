//! Certificates for TLS, in the folders that other NBD tools use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

pub use rustls::ServerConfig as Config;

/// Reads `server-cert.pem` and `server-key.pem` from a folder. With `verify_client` only clients whose certificate is
/// signed by one of `ca-cert.pem` are let in.
///
/// # Errors
/// Which file is missing or not what it should be.
pub fn config(folder: &Path, verify_client: bool) -> io::Result<Arc<Config>> {
    let wrong = |name: &str, error: &dyn std::fmt::Display| {
        let text = format!("{}: {error}", folder.join(name).display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let certificates = |name: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        let list = CertificateDer::pem_file_iter(folder.join(name)).map_err(|error| wrong(name, &error))?;
        let list: Vec<_> = list.collect::<Result<_, _>>().map_err(|error| wrong(name, &error))?;
        if list.is_empty() { Err(wrong(name, &"no certificate in it")) } else { Ok(list) }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = Config::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let builder = if verify_client {
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
