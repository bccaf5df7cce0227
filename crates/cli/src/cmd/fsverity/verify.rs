//! `casemate fsverity verify-signature`.

use std::path::PathBuf;

use casemate::Error;
use casemate::fsverity::{self, FileDigest};

use super::digest::open;
use super::parameters::TreeArgs;
use crate::answer::Answer;
use crate::cmd::signer::{read_certificate, read_signature};
use crate::context::Context;

/// Verify a built-in signature of a file with a certificate.
///
/// The certificate itself is trusted: its dates and issuer are not checked.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate fsverity verify-signature f f.sig --cert=cert.pem")]
pub struct Args {
    /// The file that was signed (not with --digest), and the signature.
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// The signer's certificate in PEM or DER.
    #[arg(long, value_name = "CERTFILE")]
    cert: PathBuf,
    /// The digest that was signed, instead of the file.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<FileDigest>,
    #[command(flatten)]
    tree: TreeArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (digest, signature) = match (&self.files[..], &self.digest) {
            ([signature], Some(digest)) => (digest.clone(), signature),
            ([file, signature], None) => {
                let parameters = self.tree.parameters(None)?;
                let providers = self.tree.providers(&parameters, context)?;
                let (name, input) = open(file)?;
                let progress = context.progress(&name.display().to_string(), input.size().unwrap_or(0));
                let work = context.work(providers, &progress);
                let descriptor = fsverity::describe(&name, input, &parameters, &work, None)?;
                (descriptor.digest(context.providers())?, signature)
            }
            _ => {
                return Err(Error::argument("give a file and its signature, or --digest and the signature"));
            }
        };
        let certificate = read_certificate(&self.cert)?;
        let read = read_signature(signature).map_err(|error| match &self.files[..] {
            [first, _] if read_signature(first).is_ok() => Error::argument(format!(
                "{}: this is a signature; give the file that was signed before it",
                first.display()
            )),
            _ => error,
        })?;
        let verified = read.verify(&digest.bytes_to_sign(), &certificate, context.providers());
        let signer = verified.map_err(|error| error.at(signature.display()))?;
        if context.json() {
            context.print_json(&serde_json::json!({
                "digest": digest.to_string(),
                "signer": signer,
                "verified": true,
            }))?;
        } else {
            context.print(format!("Verified signature of {digest} by {signer}\n"))?;
        }
        Ok(Answer::Yes)
    }
}
