//! `casemate verity sign` and `casemate verity verify-signature`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde_json::json;

use casemate::signature::{Certificate, DigestAlgorithm, Signature, VeritySig, root_hash_bytes};
use casemate::verity::hex;
use casemate::{Error, Output, Providers};

use super::options::parse_root_hash;
use crate::answer::Answer;
use crate::cmd::signer::{SignerArgs, read_certificate, read_signature};
use crate::context::{Context, read_small};

/// Sign a root hash for the kernel: a detached PKCS#7 signature of its hex digits.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  casemate verity sign 4392712b... root.sig --key=key.pem --cert=cert.pem\n  \
    casemate verity sign 4392712b... --print-tbs > tbs\n  \
    casemate verity sign 4392712b... root.json --signature=made-elsewhere.p7s --cert=cert.pem --systemd"
)]
pub struct Args {
    /// The root hash in hex.
    #[arg(value_name = "ROOT_HASH")]
    root_hash: String,
    /// Where the signature goes.
    #[arg(value_name = "OUT_SIGFILE", required_unless_present = "print_tbs")]
    out: Option<PathBuf>,
    #[command(flatten)]
    signer: SignerArgs,
    /// Write the JSON object that systemd's verity-sig partitions hold, instead of the signature alone.
    #[arg(long)]
    systemd: bool,
    /// Fill the JSON object up with NUL to a multiple of so many bytes.
    #[arg(long, value_name = "BYTES", default_value = "16384", requires = "systemd")]
    padding: NonZeroUsize,
}

/// Verify the signature of a root hash with a certificate.
///
/// The certificate is trusted because it is given; its dates and its issuer are not looked at.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate verity verify-signature 4392712b... root.sig --cert=cert.pem")]
pub struct VerifyArgs {
    /// The root hash in hex.
    #[arg(value_name = "ROOT_HASH")]
    root_hash: String,
    /// The signature, or the contents of a verity-sig partition.
    #[arg(value_name = "SIGFILE")]
    signature: PathBuf,
    /// The signer's certificate in PEM or DER.
    #[arg(long, value_name = "CERTFILE")]
    cert: PathBuf,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let root_hash = parse_root_hash(&self.root_hash)?;
        let message = root_hash_bytes(&root_hash);
        if self.signer.print_tbs(context, &message)? {
            return Ok(Answer::Yes);
        }
        let (signature, certificate) = self.signer.signature(&message, DigestAlgorithm::Sha256, context)?;
        let out = self.out.ok_or_else(|| Error::argument("no file for the signature"))?;
        let providers = context.providers();
        let bytes = match self.systemd {
            true => VeritySig::new(&root_hash, &signature, &certificate, providers)?
                .to_bytes(self.padding.get(), providers),
            false => signature.der().to_vec(),
        };
        Output::write_whole(&out, &bytes)?;
        if context.json() {
            context.print_json(&json!({
                "root_hash": hex::encode(&root_hash),
                "signature": out.to_string_lossy(),
                "certificate_fingerprint": hex::encode(&certificate.fingerprint(providers)?),
            }))?;
        }
        Ok(Answer::Yes)
    }
}

impl VerifyArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let root_hash = parse_root_hash(&self.root_hash)?;
        let certificate = read_certificate(&self.cert)?;
        let signature = self.read(&root_hash, &certificate, context.providers())?;
        let verified = signature.verify(&root_hash_bytes(&root_hash), &certificate, context.providers());
        verified.map_err(|error| error.at(self.signature.display()))?;
        if context.json() {
            context.print_json(&json!({
                "root_hash": hex::encode(&root_hash),
                "signer": signature.signer(),
                "verified": true,
            }))?;
        } else {
            context.print(format!("Verified signature of {} by {}\n", self.root_hash, signature.signer()))?;
        }
        Ok(Answer::Yes)
    }

    /// The signature alone, or from the JSON object of a verity-sig partition, which must be of this root hash and
    /// this certificate.
    fn read(
        &self,
        root_hash: &[u8],
        certificate: &Certificate,
        providers: &Providers,
    ) -> Result<Signature, Error> {
        let bytes = read_small(&self.signature)?;
        if bytes.first() != Some(&b'{') {
            return read_signature(&self.signature);
        }
        let on_file = |error: Error| error.at(self.signature.display());
        let partition = VeritySig::from_bytes(&bytes, providers).map_err(on_file)?;
        if partition.root_hash != root_hash {
            let (name, other) = (self.signature.display(), hex::encode(&partition.root_hash));
            return Err(Error::mismatch(format!("{name}: signs the root hash {other}")));
        }
        partition.verify(certificate, providers).map_err(on_file)?;
        Signature::from_bytes(&partition.signature).map_err(on_file)
    }
}
