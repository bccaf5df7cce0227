//! `casemate ext4 build`.

mod format;
mod luks;
mod tree;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, ValueEnum, ValueHint};
use serde_json::json;

use casemate::blockdev::PartitionId;
use casemate::blockdev::os::{self, OsStrExt};
use casemate::ext4::{
    BuildSize, BuildSpec, BuildTarget, Built, DmVeritySpec, EncryptedFolder, ParitySpec, Pattern, Planned,
    ProtectorSource, Signer, VeritySpec, uuid_text,
};
use casemate::fsverity::{Algorithm, FileDigest, escape_name};
use casemate::image_spec::{ImageSpec, LayerSpec};
use casemate::signature::SigningKey;
use casemate::target::Loss;
use casemate::verity::Formatted;
use casemate::{Access, Error, Output, SecretSource, hex as hexadecimal};

use format::FormatArgs;
use luks::LuksArgs;
use tree::TreeArgs;

use crate::answer::Answer;
use crate::cmd::fscrypt::FscryptPolicyArgs;
use crate::cmd::fsverity::{Hex, hex};
use crate::cmd::info::quoted;
use crate::cmd::layers::{Asking, spec_parser};
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::signer::read_certificate;
use crate::cmd::verity::info;
use crate::cmd::verity::options::FecArgs;
use crate::context::{Context, read_small};
use crate::hints::is_slip;
use crate::size::bytes;

/// Text of an error: a place that is said twice.
const TWICE: &str =
    "the image specification has layers, and options give others: give all of them in one place";

/// Help of --overwrite: a build replaces an ext4 image without it.
const OVERWRITE: &str = "Destroy what the target holds: a volume, a partition table, a file system of another kind; on a \
    device or in a part of an image any data [default: refuse, or ask at a terminal]. A regular file that holds an ext2, \
    ext3 or ext4 file system, or nothing known, is replaced WITHOUT this option, whoever made it, unless --luks or \
    --android-sparse makes something else of it";

/// Make an ext4 image of a folder, of tar streams, or of layers of OCI images, in one pass.
///
/// The whole image is planned before it is written, so it is as small as its contents allow, or has the size of --size.
/// Directories are indexed, files lie in one piece, holes stay holes. New files get their names when all of them are complete,
/// the image last; devices are written in place. The same tree and options give the same bytes:
/// the UUID follows from the tree and its contents; times are those of the files, none later than the environment's
/// SOURCE_DATE_EPOCH. For the same bytes on another machine give SOURCE_DATE_EPOCH and --owner: a checkout has its own times and
/// its builder's owner.
#[derive(clap::Args, Debug)]
// -i is mke2fs's bytes for each inode.
#[command(mut_arg("iter_time", |arg| arg.short(None)))]
#[command(mut_arg("overwrite", |arg| arg.help(OVERWRITE)))]
#[command(mut_arg("fec_device", |arg| arg.help("Parity for error correction, in a file or device of its own")))]
#[command(group = ArgGroup::new("signed").args(["verity", "verity_from_manifest", "root_hash_signature"]).multiple(true))]
#[command(group = ArgGroup::new("sealed").args(["verity", "verity_from_manifest"]).multiple(true))]
#[command(after_help = "Examples:\n  casemate ext4 build root.img --from rootfs\n  \
    casemate ext4 build root.img --from rootfs --size +64M -L root\n  \
    casemate ext4 build root.img --tar rootfs.tar.zst --owner 0:0\n  \
    casemate ext4 build root.img --layer base.tar --layer app.tar\n  \
    casemate ext4 build root.img --oci image:latest\n  \
    casemate ext4 build root.img --from rootfs --device-table devices --file-contexts file_contexts\n  \
    casemate ext4 build root.img --from rootfs --dm-verity append --root-hash-file root.hash.txt\n  \
    casemate ext4 build empty.img --size 1G\n  \
    casemate ext4 build empty.luks,luks,key-file=pass.key --from private")]
pub struct Args {
    /// The image to make: a file, which appears only when it is complete, or a block device; a partition of either, such as
    /// disk.img,partition=2, or an existing volume, such as disk.img,luks,key-file=pw; "-" is standard output.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    tree: TreeArgs,
    /// The image's size: "auto", small, though not always the least that is possible; "+N", with N bytes free; or N bytes
    /// [default: auto, and all of a block device].
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Size")]
    size: Option<BuildSize>,
    /// Leave at least N bytes free for users. An automatic size is made large enough; a given size that is too small is refused.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, default_value = "0", help_heading = "Size")]
    min_free: u64,
    /// Round an automatic size up to a multiple of N bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, help_heading = "Size")]
    align: Option<u64>,
    /// Make the file system at this byte of an existing file, whose other bytes stay.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with = "partition", help_heading = "Size")]
    offset: Option<u64>,
    /// Make the file system in this partition (GPT or MBR) of an existing image: its number, counted from 1, or a GPT's UUID or
    /// name.
    #[arg(short = 'P', long, value_name = "WHICH", help_heading = "Size")]
    partition: Option<PartitionId>,
    /// Write a sparse image of Android, as fastboot and simg2img take it.
    #[arg(
        long,
        conflicts_with_all = ["offset", "partition", "dm_verity", "luks"],
        help_heading = "Output"
    )]
    android_sparse: bool,
    #[command(flatten, next_help_heading = "Output")]
    overwrite: OverwriteArgs,
    /// Plan everything, and write nothing: shows whether there is room, and the image's numbers.
    #[arg(short = 'n', long, help_heading = "Output")]
    dry_run: bool,
    /// Print all choices for the file system and fs-verity as JSON, with the options that make them again.
    #[arg(long, help_heading = "Output")]
    print_config: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// Enable fs-verity on regular files: all, or those with a name that matches a pattern; each pattern must match a file.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "*",
        help_heading = "fs-verity")]
    verity: Vec<String>,
    /// Enable fs-verity on the files of this manifest, as "casemate fsverity digest" prints it. Missing files and other
    /// digests are refused, and so is an empty manifest.
    #[arg(long, value_name = "FILE", help_heading = "fs-verity")]
    verity_from_manifest: Option<PathBuf>,
    /// Hash algorithm of files' fs-verity trees: sha256 or sha512.
    #[arg(
        long,
        value_name = "NAME",
        requires = "sealed",
        default_value = "sha256",
        help_heading = "fs-verity"
    )]
    hash_alg: String,
    /// Salt of files' fs-verity trees in hex, at most 32 bytes.
    #[arg(long, value_name = "HEX", requires = "sealed", value_parser = hex, help_heading = "fs-verity")]
    salt: Option<Hex>,
    /// Sign the digests of files with this private key in PEM, for the kernel's built-in signatures, and the root hash.
    #[arg(long, value_name = "KEYFILE", requires = "signed", requires = "cert", help_heading = "fs-verity")]
    signing_key: Option<PathBuf>,
    /// The signer's certificate in PEM or DER.
    #[arg(long, value_name = "CERTFILE", requires = "signing_key", help_heading = "fs-verity")]
    cert: Option<PathBuf>,
    /// Write the files' digests to this file, as a manifest for "casemate fsverity check".
    #[arg(long, value_name = "FILE", requires = "sealed", help_heading = "fs-verity")]
    manifest: Option<PathBuf>,
    /// Make a dm-verity hash tree over the whole image, and print its root hash. The tree goes behind the file system
    /// ("append"), or to this file. Salt and UUID follow from --seed, or from the file system's UUID.
    #[arg(long, value_name = "append|FILE", conflicts_with_all = ["offset", "partition"], help_heading = "dm-verity")]
    dm_verity: Option<PathBuf>,
    /// Write the root hash in hex to this file.
    #[arg(long, value_name = "FILE", requires = "dm_verity", help_heading = "dm-verity")]
    root_hash_file: Option<PathBuf>,
    /// Write the root hash's PKCS#7 signature to this file, made with --signing-key and --cert.
    #[arg(
        long,
        value_name = "SIGFILE",
        requires = "dm_verity",
        requires = "signing_key",
        help_heading = "dm-verity"
    )]
    root_hash_signature: Option<PathBuf>,
    #[command(flatten, next_help_heading = "dm-verity")]
    fec: FecArgs,
    /// Encrypt a directory of the tree, with its contents, with the raw master key in a file (16 to 64 bytes). The
    /// image gets the feature encrypt; without --seed, its UUID and bytes differ each time.
    #[arg(long, value_name = "DIR=KEYFILE", value_parser = OsStringValueParser::new().try_map(encrypted), help_heading = "fscrypt")]
    encrypt: Vec<(Vec<u8>, PathBuf)>,
    /// Encrypt a directory of the tree with a random key, which google/fscrypt opens with the passphrase in the first line of a
    /// file: "fscrypt unlock DIR" on the device. Its files are put into /.fscrypt.
    #[arg(long, value_name = "DIR=PASSFILE", value_parser = OsStringValueParser::new().try_map(encrypted), help_heading = "fscrypt")]
    protect: Vec<(Vec<u8>, PathBuf)>,
    /// Kind of secret in the files of --protect: a passphrase, or a raw key of 32 bytes.
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        default_value = "custom_passphrase",
        help_heading = "fscrypt"
    )]
    protector_source: Source,
    #[command(flatten, next_help_heading = "fscrypt")]
    policy: FscryptPolicyArgs,
    #[command(flatten)]
    luks: LuksArgs,
    /// Derive the UUID, the hash seed and nonces of encrypted files from this text, so that each build gives the same bytes. Nonces
    /// also follow from the keys, the tree and its contents; with --flag iv-ino-lblk64 or iv-ino-lblk32 the UUID does, too.
    /// Without --seed the hash seed follows from the tree, and the UUID from the tree and its contents. With --encrypt both are
    /// random then.
    #[arg(long, value_name = "SEED", help_heading = "Identity")]
    seed: Option<String>,
}

/// Sources of a protector's key, by google/fscrypt's names.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Source {
    CustomPassphrase,
    RawKey,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.check(context)?;
        let planned = self.spec(context)?.plan(&context.opening())?;
        context.heed_signals();
        let outputs = if self.dry_run { Outputs::default() } else { self.outputs(&planned)? };
        if self.dry_run {
            planned.look(&|loss| self.overwrite.rehearse(loss))?;
        }
        let (size, geometry) = (planned.size(), planned.geometry().clone());
        let progress = context.progress(&self.image.file().display().to_string(), planned.contents_size());
        if self.print_config || self.dry_run && context.json() {
            let uuid = planned.uuid(&context.opening())?;
            let config = format::config(planned.options(), &uuid, &geometry, size, self.verity_options());
            context.print_json(&config)?;
        }
        if self.dry_run {
            let text = format!("{size} bytes, {} blocks, {} inodes", geometry.blocks, geometry.inodes());
            context.done(format_args!("{}: {text}", self.image.file().display()));
            return Ok(Answer::Yes);
        }
        let work = context.work(context.providers().clone(), &progress);
        let volume = planned.volume().map(luks::told);
        let consent = |loss: &Loss| self.overwrite.consent(loss);
        let built = planned.write_beside(&consent, &work, |built| outputs.complete(built))?;
        drop(progress);
        if context.json() && !self.is_stream() && !self.print_config {
            let report = &built.report;
            context.print_json(&json!({
                "image": self.image.file().to_string_lossy(),
                "size": size,
                "uuid": uuid_text(&report.uuid),
                "block_size": geometry.block_size,
                "blocks": geometry.blocks,
                "inodes": geometry.inodes(),
                "files": report.files,
                "directories": report.directories,
                "others": report.others,
                "bytes": report.bytes,
                "luks": volume,
                "dm_verity": built.dm_verity.as_ref().map(|formatted| info::formatted_json(formatted, false)),
            }))?;
        } else if let Some(formatted) = &built.dm_verity {
            let place = self
                .dm_verity
                .as_ref()
                .filter(|_| !self.is_appended())
                .map_or(self.image.file(), |path| path);
            let mut text = info::formatted_lines(&place.display(), self.fec.fec_offset, formatted);
            // Where file system and tree lie one behind the other, they are no two partitions.
            match self.is_appended() {
                true => text += &self.appended_lines(place, formatted),
                false => text += &info::partition_lines(&formatted.root_hash),
            }
            context.print(text)?;
        }
        context.done(format_args!(
            "{}: {size} bytes, {} files",
            self.image.file().display(),
            built.report.files
        ));
        Ok(Answer::Yes)
    }

    /// Refuses options that contradict each other on this command line.
    fn check(&self, context: &Context) -> Result<(), Error> {
        if self.is_stream() {
            context.output_of_data()?;
        }
        if self.luks.reads_standard_input() && self.tree.reads_standard_input() {
            return Err(Error::argument("standard input can't be both the passphrase and a tar stream"));
        }
        if self.print_config && self.is_stream() && !self.dry_run {
            return Err(Error::argument(
                "standard output can't be both the image and the JSON of --print-config; -n",
            ));
        }
        if self.fec.fec_device.is_some() && self.dm_verity.is_none() {
            return Err(Error::argument("--fec-device: parity goes with --dm-verity"));
        }
        if let Some(place) = self.dm_verity.as_ref().and_then(|place| place.to_str())
            && !self.is_appended()
            && is_slip(place, "append")
        {
            let text = format!(
                "--dm-verity {place}: for a tree behind the file system say append, for this file ./{place}"
            );
            return Err(Error::argument(text));
        }
        self.tree.check()
    }

    /// Specification of the image to build.
    fn spec(&self, context: &Context) -> Result<BuildSpec, Error> {
        let mut spec = BuildSpec::new(self.target(context)?);
        spec.luks = self.luks.spec(self.seed.is_some(), self.image.file(), context)?;
        spec.android_sparse = self.android_sparse;
        spec.sources = self.tree.sources();
        spec.reading = self.tree.options();
        spec.amendments = self.tree.amendments(context)?;
        spec.inputs = self.inputs();
        (spec.size, spec.align) = (self.size, self.align);
        spec.file_system = self.format.options()?;
        spec.file_system.min_free = self.min_free;
        spec.verity = self.verity()?;
        spec.signer = self.signer()?;
        spec.encryption = self.encryption();
        spec.dm_verity = self.dm_verity.as_ref().map(|place| {
            let mut dm_verity = DmVeritySpec::new();
            dm_verity.hash = (!self.is_appended()).then(|| place.clone());
            dm_verity.parity = self.fec.fec_device.as_ref().map(|path| {
                let mut parity = ParitySpec::new(path);
                (parity.offset, parity.roots) = (self.fec.fec_offset, self.fec.fec_roots);
                parity
            });
            dm_verity
        });
        spec.seed = self.seed.clone();
        Ok(spec)
    }

    fn is_stream(&self) -> bool {
        self.image.file() == Path::new("-")
    }

    fn target(&self, context: &Context) -> Result<BuildTarget, Error> {
        let part = match (self.offset, self.partition.clone()) {
            (Some(offset), _) => Some(LayerSpec::Window { offset, size: None }),
            (None, id) => id.map(LayerSpec::Partition),
        };
        let wrong = |text: &str| Err(Error::argument(text.to_owned()).at(self.image.file().display()));
        if !self.image.parts().1.is_empty() {
            if part.is_some() {
                return wrong(TWICE);
            }
            let access = if self.dry_run { Access::ReadUnlocked } else { Access::Change };
            let image = self.image.open(access, &Asking::of(context))?;
            if !self.dry_run {
                image.check_writable()?;
            }
            return Ok(BuildTarget::Image(Box::new(image.into())));
        }
        let path = self.image.file().to_owned();
        let target = match (self.image.layers(), part) {
            ([], None) if self.is_stream() => return Ok(BuildTarget::Stream),
            ([], None) => return Ok(BuildTarget::File(path)),
            ([_, ..], Some(_)) => {
                return wrong(TWICE);
            }
            ([], Some(part)) => part,
            ([part], None) => part.clone(),
            _ => {
                return wrong(
                    "image specification: a new file system goes to one place: partition=, or offset=",
                );
            }
        };
        match target {
            LayerSpec::Partition(id) => Ok(BuildTarget::Partition { path, id }),
            LayerSpec::Window { offset, size: None } => Ok(BuildTarget::Within { path, offset }),
            _ => wrong(
                "image specification: the size of a new file system is given with --size, not with size=",
            ),
        }
    }

    /// Files with keys and certificates.
    fn inputs(&self) -> Vec<PathBuf> {
        let keys = self.encrypt.iter().chain(&self.protect).map(|(_, file)| file);
        let keys = keys.chain(&self.signing_key).chain(&self.cert).cloned();
        keys.chain(self.luks.inputs().map(Path::to_owned)).collect()
    }

    /// Whether dm-verity's hash tree lies behind the file system.
    fn is_appended(&self) -> bool {
        self.dm_verity.as_deref() == Some(Path::new("append"))
    }

    /// Lines on a tree that lies behind the file system: where, and the command that checks both.
    fn appended_lines(&self, image: &Path, formatted: &Formatted) -> String {
        let offset = formatted.layout.hash_offset();
        let root_hash = match &self.root_hash_file {
            Some(file) => format!("--root-hash-file={}", quoted(file)),
            None => hexadecimal::encode(&formatted.root_hash),
        };
        // In a specification two commas are one of a name. Both lie in the volume, if there is one.
        let spec = self.luks.layer().into_iter().fold(ImageSpec::of_file(image), ImageSpec::with_layer);
        let image = quoted(Path::new(&spec.to_os_string()));
        format!("Hash offset:      \t{offset} [bytes]\n$ casemate verity verify {image} {root_hash}\n")
    }

    /// Begins what is written beside the image.
    fn outputs<'a>(&'a self, planned: &'a Planned) -> Result<Outputs, Error> {
        let mut files = planned.files();
        let mut create = |path: &'a Option<PathBuf>| {
            let Some(path) = path else { return Ok(None) };
            let output = Output::create(path, &files)?;
            files.push(path);
            Ok::<_, Error>(Some(output))
        };
        Ok(Outputs {
            manifest: create(&self.manifest)?,
            root_hash: create(&self.root_hash_file)?,
            signature: create(&self.root_hash_signature)?,
        })
    }

    /// The key and certificate that sign.
    fn signer(&self) -> Result<Option<Signer>, Error> {
        let Some((key, cert)) = self.signing_key.as_ref().zip(self.cert.as_ref()) else { return Ok(None) };
        let pem = zeroize::Zeroizing::new(read_small(key)?);
        let key = SigningKey::from_pem(&pem).map_err(|error| error.at(key.display()))?;
        Ok(Some(Signer::new(key, read_certificate(cert)?)))
    }

    /// The options that choose fs-verity again.
    fn verity_options(&self) -> Vec<String> {
        let file = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(format!("{name}={}", path.display()))
        };
        let mut options: Vec<_> = self.verity.iter().map(|pattern| format!("--verity={pattern}")).collect();
        options.extend(file("--verity-from-manifest", &self.verity_from_manifest));
        if options.is_empty() {
            return options;
        }
        options.push(format!("--hash-alg={}", self.hash_alg));
        options.extend(self.salt.as_ref().map(|salt| format!("--salt={}", hexadecimal::encode(&salt.0))));
        options.extend(file("--signing-key", &self.signing_key));
        options.extend(file("--cert", &self.cert));
        options
    }

    /// fs-verity, if it is wanted.
    fn verity(&self) -> Result<Option<VeritySpec>, Error> {
        if self.verity.is_empty() && self.verity_from_manifest.is_none() {
            return Ok(None);
        }
        let mut verity = VeritySpec::new();
        let algorithm = Algorithm::named(&self.hash_alg);
        verity.algorithm = algorithm.ok_or_else(|| Error::argument("--hash-alg: sha256 or sha512"))?;
        verity.salt = self.salt.as_ref().map_or(Vec::new(), |salt| salt.0.clone());
        let patterns = self.verity.iter().map(|pattern| Pattern::new(pattern.as_bytes()));
        verity.patterns = patterns.collect::<Result<_, _>>()?;
        verity.manifest = self.verity_from_manifest.clone();
        Ok(Some(verity))
    }

    /// Directories that are encrypted.
    fn encryption(&self) -> Vec<EncryptedFolder> {
        let source = match self.protector_source {
            Source::CustomPassphrase => ProtectorSource::CustomPassphrase,
            Source::RawKey => ProtectorSource::RawKey,
        };
        let raw =
            self.encrypt.iter().map(|(path, file)| EncryptedFolder::new(&path[..], SecretSource::file(file)));
        let protected = self
            .protect
            .iter()
            .map(|(path, file)| EncryptedFolder::protected(&path[..], source, SecretSource::file(file)));
        raw.chain(protected).map(|folder| folder.policy(self.policy.policy())).collect()
    }
}

/// Files beside the image.
#[derive(Default)]
struct Outputs {
    manifest: Option<Output>,
    root_hash: Option<Output>,
    signature: Option<Output>,
}

impl Outputs {
    /// Writes their contents; their names come with the image's.
    fn complete(self, built: &Built) -> Result<Vec<Output>, Error> {
        let lines = || built.digests.iter().flat_map(|(path, digest)| line(path, digest)).collect();
        let root_hash = built.dm_verity.as_ref().map(|formatted| hexadecimal::encode(&formatted.root_hash));
        let files = [
            self.manifest.map(|file| (file, lines())),
            self.root_hash.zip(root_hash.map(String::into_bytes)),
            self.signature.zip(built.root_hash_signature.clone()),
        ];
        files.into_iter().flatten().map(|(file, bytes)| file.with(&bytes)).collect()
    }
}

/// A size: automatic, with so much free, or given.
fn size(text: &str) -> Result<BuildSize, String> {
    match (text, text.strip_prefix('+')) {
        ("auto", _) => Ok(BuildSize::Fitting { free: 0, align: 1 }),
        (_, Some(free)) => Ok(BuildSize::Fitting { free: bytes(free)?, align: 1 }),
        _ => bytes(text).map(BuildSize::Bytes),
    }
}

/// A directory and the file of its key, which has no "=" in its name.
fn encrypted(text: OsString) -> Result<(Vec<u8>, PathBuf), String> {
    let bytes = text.as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'=');
    let at = at.ok_or_else(|| format!("{}: not DIR=KEYFILE", text.display()))?;
    Ok((bytes[..at].to_vec(), os::path(&bytes[at + 1..]).into_owned()))
}

/// A line of a manifest.
fn line(path: &[u8], digest: &FileDigest) -> Vec<u8> {
    let escaped = escape_name(&os::path(path));
    let begin = if escaped.is_some() { "\\" } else { "" };
    [begin.as_bytes(), digest.to_string().as_bytes(), b" ", escaped.as_deref().unwrap_or(path), b"\n"]
        .concat()
}
