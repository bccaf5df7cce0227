//! `casemate verity sign` and `casemate verity verify-signature`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::signature::{Certificate, DigestAlgorithm, Signature, VeritySig, root_hash_bytes};
use casemate::verity::hex;
use casemate::{Access, Error, Image, ImageSpec, Output, Providers};

use super::options::RootHashFileArgs;
use crate::answer::Answer;
use crate::cmd::layers::Asking;
use crate::cmd::signer::{SignerArgs, read_certificate};
use crate::context::{Context, read_small};
use crate::outputs;
use crate::size::bytes;

/// Bytes of a partition that a signature may lie in.
const MOST_IN_PARTITION: usize = 16 << 20;

/// Sign a root hash for the kernel: a detached PKCS#7 signature of its hex digits.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity sign @root.hash.txt root.sig --signing-key=key.pem --cert=cert.pem\n\
    \x20 casemate verity sign @root.hash.txt --print-tbs > tbs\n\
    \x20 casemate verity sign @root.hash.txt root.json --systemd \\\n\
    \x20     --signature=root.sig --cert=cert.pem")]
pub struct Args {
    /// The root hash in hex or as @FILE, unless --root-hash-file is given, and the file for the signature; "-" is
    /// standard output.
    #[arg(value_names = ["ROOT_HASH", "OUT_SIGFILE"], num_args = 0..=2)]
    words: Vec<OsString>,
    #[command(flatten)]
    root_hash: RootHashFileArgs,
    #[command(flatten)]
    signer: SignerArgs,
    /// Write the JSON object of systemd's verity-sig partitions instead of the signature alone.
    #[arg(long)]
    systemd: bool,
    /// Pad the JSON object with NUL to a multiple of N bytes.
    #[arg(long = "fill-to", alias = "padding", value_name = "BYTES", default_value = "16384", value_parser = bytes::<u64>, requires = "systemd")]
    padding: u64,
}

/// Verify the signature of a root hash with a certificate.
///
/// The certificate itself is trusted: its dates and issuer are not checked.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "casemate verity verify-signature [OPTIONS] --cert <CERTFILE> [ROOT_HASH] <SIGFILE>"
)]
#[command(after_help = "Example:\n\
    \x20 casemate verity verify-signature @root.hash.txt root.sig --cert=cert.pem")]
pub struct VerifyArgs {
    /// The root hash in hex or as @FILE, unless --root-hash-file is given, and the signature, or the contents of a
    /// verity-sig partition.
    #[arg(value_names = ["ROOT_HASH", "SIGFILE"], num_args = 1..=2)]
    words: Vec<OsString>,
    #[command(flatten)]
    root_hash: RootHashFileArgs,
    /// The signer's certificate in PEM or DER.
    #[arg(long, value_name = "CERTFILE")]
    cert: PathBuf,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (root_hash, out) = self.root_hash.split(&self.words)?;
        let message = root_hash_bytes(&root_hash);
        if self.signer.print_tbs(context, &message)? {
            return Ok(Answer::Yes);
        }
        let (signature, certificate) = self.signer.signature(&message, DigestAlgorithm::Sha256, context)?;
        let out = out.ok_or_else(|| Error::argument("no file for the signature"))?;
        let providers = context.providers();
        let padding = usize::try_from(self.padding).ok();
        let padding =
            padding.filter(|padding| (1..=MOST_IN_PARTITION).contains(padding)).ok_or_else(|| {
                Error::argument(format!("--fill-to: {} bytes; 1 to {MOST_IN_PARTITION} can be", self.padding))
            })?;
        let bytes = match self.systemd {
            true => {
                VeritySig::new(&root_hash, &signature, &certificate, providers)?.to_bytes(padding, providers)
            }
            false => signature.der().to_vec(),
        };
        if out == Path::new("-") {
            context
                .output_of_data()?
                .write_all(&bytes)
                .map_err(|error| Error::io("standard output", error))?;
            return Ok(Answer::Yes);
        }
        outputs::refuse_specification(&out)?;
        let others: Vec<&Path> =
            self.signer.inputs().chain(context.named().iter().map(PathBuf::as_path)).collect();
        Output::write_whole(&out, &others, &bytes)?;
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
        let (root_hash, path) = self.root_hash.split(&self.words)?;
        let path = path.ok_or_else(|| Error::argument("no signature to verify"))?;
        let certificate = read_certificate(&self.cert)?;
        let bytes = stored(&path, context)?;
        let signature = read(&path, &bytes, &root_hash, &certificate, context.providers())?;
        let verified = signature.verify(&root_hash_bytes(&root_hash), &certificate, context.providers());
        let signer = verified.map_err(|error| error.at(path.display()))?;
        if context.json() {
            context.print_json(&json!({
                "root_hash": hex::encode(&root_hash),
                "signer": signer,
                "verified": true,
            }))?;
        } else {
            context.print(format!("Verified signature of {} by {signer}\n", hex::encode(&root_hash)))?;
        }
        Ok(Answer::Yes)
    }
}

/// The bytes of a file, or of a part of an image such as `disk.img,partition=3`.
fn stored(path: &Path, context: &Context) -> Result<Vec<u8>, Error> {
    let spec = match ImageSpec::parse(path) {
        Ok(spec) if !path.exists() && !spec.layers().is_empty() => spec,
        _ => return read_small(path),
    };
    let image = spec.lay_all(Image::open(spec.file(), Access::Read)?, &Asking::of(context))?;
    let device = image.device();
    let len = usize::try_from(device.size()).ok().filter(|len| *len <= MOST_IN_PARTITION);
    let len = len.ok_or_else(|| {
        let (size, most) = (device.size(), MOST_IN_PARTITION);
        Error::argument(format!("{size} bytes; a signature has at most {most}")).at(image.name())
    })?;
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, 0).map_err(|error| error.at(image.name()))?;
    Ok(bytes)
}

/// The signature alone, or from the JSON object of a verity-sig partition, which must be of this root hash and this
/// certificate.
fn read(
    path: &Path,
    bytes: &[u8],
    root_hash: &[u8],
    certificate: &Certificate,
    providers: &Providers,
) -> Result<Signature, Error> {
    if bytes.first() != Some(&b'{') {
        return Signature::from_bytes(bytes).map_err(|error| error.at(path.display()));
    }
    let on_file = |error: Error| error.at(path.display());
    let partition = VeritySig::from_bytes(bytes, providers).map_err(on_file)?;
    if partition.root_hash != root_hash {
        let (name, other) = (path.display(), hex::encode(&partition.root_hash));
        return Err(Error::mismatch(format!("{name}: signs the root hash {other}")));
    }
    partition.verify(certificate, providers).map_err(on_file)?;
    Signature::from_bytes(&partition.signature).map_err(on_file)
}
