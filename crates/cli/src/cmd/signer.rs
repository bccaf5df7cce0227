//! Where a signature comes from: options that both verities' `sign` share.

use std::path::{Path, PathBuf};

use casemate::Error;
use casemate::signature::{Certificate, DigestAlgorithm, Signature, SigningKey, assemble, sign};

use crate::context::{Context, read_small};

/// Where the signature comes from.
#[derive(clap::Args, Debug)]
pub struct SignerArgs {
    /// The private key in PEM: RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384; not encrypted.
    #[arg(long = "signing-key", alias = "key", value_name = "KEYFILE")]
    key: Option<PathBuf>,
    /// The signer's certificate in PEM or DER [default: in the key's file].
    #[arg(long, value_name = "CERTFILE")]
    cert: Option<PathBuf>,
    /// Attach this PKCS#7 signature, made elsewhere, after verifying it with the certificate.
    #[arg(long, value_name = "SIGFILE", conflicts_with = "key")]
    signature: Option<PathBuf>,
    /// Attach this bare signature, made elsewhere (such as by a token): an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in
    /// DER. It is verified and wrapped in PKCS#7.
    #[arg(long, value_name = "SIGFILE", conflicts_with_all = ["key", "signature"])]
    bare_signature: Option<PathBuf>,
    /// Write the exact bytes to sign to standard output and do nothing else.
    #[arg(long, conflicts_with_all = ["key", "signature", "bare_signature"])]
    print_tbs: bool,
}

impl SignerArgs {
    /// The files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        [&self.key, &self.cert, &self.signature, &self.bare_signature]
            .into_iter()
            .flatten()
            .map(|path| &**path)
    }

    /// If only the bytes to sign are wanted: prints them and says so.
    pub fn print_tbs(&self, context: &Context, message: &[u8]) -> Result<bool, Error> {
        if self.print_tbs {
            context.print(message)?;
        }
        Ok(self.print_tbs)
    }

    /// Whether what is signed is printed, and nothing is signed.
    pub fn prints_tbs(&self) -> bool {
        self.print_tbs
    }

    /// The signature of `message`, made or checked, and the signer's certificate.
    pub fn signature(
        &self,
        message: &[u8],
        digest: DigestAlgorithm,
        context: &Context,
    ) -> Result<(Signature, Certificate), Error> {
        let Some(cert) = self.cert.as_ref().or(self.key.as_ref()) else {
            return Err(Error::argument(
                "no certificate specified; use --cert, and --signing-key for the private key",
            ));
        };
        let certificate = read_certificate(cert)?;
        let der = if let Some(path) = &self.signature {
            let signature = read_signature(path)?;
            signature
                .verify(message, &certificate, context.providers())
                .map_err(|error| error.at(path.display()))?;
            return Ok((signature, certificate));
        } else if let Some(path) = &self.bare_signature {
            assemble(message, &read_small(path)?, &certificate, digest, context.providers())
                .map_err(|error| error.at(path.display()))?
        } else if let Some(path) = &self.key {
            let on_key = |error: Error| error.at(path.display());
            let key = SigningKey::from_pem(&zeroize::Zeroizing::new(read_small(path)?)).map_err(on_key)?;
            sign(message, &key, &certificate, digest, context.providers()).map_err(on_key)?
        } else {
            let text = "no private key specified; use --signing-key, or --signature or --bare-signature for a signature \
                        made elsewhere";
            return Err(Error::argument(text.to_owned()));
        };
        Ok((Signature::from_bytes(&der)?, certificate))
    }
}

/// Reads a certificate's file.
pub fn read_certificate(path: &Path) -> Result<Certificate, Error> {
    Certificate::from_bytes(&read_small(path)?).map_err(|error| error.at(path.display()))
}

/// Reads the file of a PKCS#7 signature.
pub fn read_signature(path: &Path) -> Result<Signature, Error> {
    Signature::from_bytes(&read_small(path)?).map_err(|error| error.at(path.display()))
}
