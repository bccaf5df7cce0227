//! `casemate fsverity sign`.

use std::io::Write;
use std::path::{Path, PathBuf};

use casemate::blockdev::name_all;
use casemate::fsverity::{self, Algorithm, FileDigest};
use casemate::signature::DigestAlgorithm;
use casemate::{Error, Output};

use super::digest::open;
use super::parameters::TreeArgs;
use crate::answer::Answer;
use crate::cmd::signer::SignerArgs;
use crate::context::Context;

/// Sign a file for the kernel's built-in signature verification.
///
/// The signature is a detached PKCS#7 structure over the file's formatted digest, as 'fsverity enable
/// --signature' takes it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fsverity sign f f.sig --signing-key=key.pem --cert=cert.pem\n\
    \x20 casemate fsverity sign f --print-tbs > tbs\n\
    \x20 openssl dgst -sha256 -sign key.pem -out bare tbs\n\
    \x20 casemate fsverity sign f f.sig --bare-signature=bare --cert=cert.pem")]
pub struct Args {
    /// The file to sign; '-' is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file for the signature.
    #[arg(value_name = "OUT_SIGFILE", required_unless_present = "print_tbs")]
    out: Option<PathBuf>,
    #[command(flatten)]
    signer: SignerArgs,
    #[command(flatten)]
    tree: TreeArgs,
    /// Write the Merkle tree to this file, root level first.
    #[arg(long, value_name = "FILE")]
    out_merkle_tree: Option<PathBuf>,
    /// Write the 256-byte descriptor, whose hash is the digest, to this file.
    #[arg(long, value_name = "FILE")]
    out_descriptor: Option<PathBuf>,
    #[arg(long, hide = true)]
    pkcs11_engine: Option<PathBuf>,
    #[arg(long, hide = true)]
    pkcs11_module: Option<PathBuf>,
    #[arg(long, hide = true)]
    pkcs11_keyid: Option<String>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.pkcs11_engine.is_some() || self.pkcs11_module.is_some() || self.pkcs11_keyid.is_some() {
            let text = "PKCS#11 tokens are not supported; let the token sign what --print-tbs prints, and attach \
                        the result with --bare-signature";
            return Err(Error::unsupported(text.to_owned()));
        }
        let parameters = self.tree.parameters(None)?;
        let providers = self.tree.providers(&parameters, context)?;
        let (name, input) = open(&self.file)?;
        let progress = context.progress(&name.display().to_string(), input.size().unwrap_or(0));
        let tree = self.out_merkle_tree.as_deref();
        let work = context.work(providers, &progress);
        let inputs: Vec<&Path> = self.signer.inputs().chain([&*self.file]).collect();
        let others: Vec<&Path> = inputs.iter().copied().chain(tree).collect();
        let output = self.out_descriptor.as_ref().map(|path| Output::begin(path, &others)).transpose()?;
        let others: Vec<&Path> = others.into_iter().chain(self.out_descriptor.as_deref()).collect();
        let is_file = |path: &&PathBuf| path.as_os_str() != "-" && !self.signer.prints_tbs();
        let signed = self.out.as_ref().filter(is_file);
        let signed = signed.map(|path| Output::begin(path, &others)).transpose()?;
        let (descriptor, tree) = fsverity::describe_keeping(&name, input, &parameters, &work, tree)?;
        drop(progress);
        // None of them takes the place of what had its name before all are complete.
        let output = output.map(|file| file.with(&descriptor.to_bytes())).transpose()?;
        let beside = tree.into_iter().chain(output);
        let digest = descriptor.digest(context.providers())?;
        let message = digest.bytes_to_sign();
        if self.signer.print_tbs(context, &message)? {
            name_all(beside.collect(), &[])?;
            return Ok(Answer::Yes);
        }
        let (signature, _) = self.signer.signature(&message, message_digest(&digest), context)?;
        let out = self.out.as_ref().ok_or_else(|| Error::argument("no file for the signature"))?;
        let Some(signed) = signed else {
            context
                .output_of_data()?
                .write_all(signature.der())
                .map_err(|error| Error::io("standard output", error))?;
            name_all(beside.collect(), &[])?;
            return Ok(Answer::Yes);
        };
        name_all(beside.chain([signed.with(signature.der())?]).collect(), &[])?;
        if context.json() {
            context.print_json(&serde_json::json!({
                "file": self.file.to_string_lossy(),
                "digest": digest.to_string(),
                "signature": out.to_string_lossy(),
            }))?;
        } else {
            context.print(format!("Signed file '{}' ({digest})\n", self.file.display()))?;
        }
        Ok(Answer::Yes)
    }
}

/// The message digest of the signature: `fsverity` takes the one of the tree.
fn message_digest(digest: &FileDigest) -> DigestAlgorithm {
    match digest.algorithm() {
        Algorithm::Sha256 => DigestAlgorithm::Sha256,
        Algorithm::Sha512 => DigestAlgorithm::Sha512,
    }
}
