//! `casemate ext4 build`.

mod format;
mod luks;
mod tree;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgGroup, ValueEnum};
use serde_json::json;

use casemate::blockdev::os::{self, OsStrExt, OsStringExt};
use casemate::ext4::{
    Build, BuildReport, BuildSize, BuildTarget, Encrypting, Identity, Pattern, Protected, ProtectorSource,
    Sealing, Tree, on_stream, read_tree, source_date_epoch, uuid_text,
};
use casemate::fscrypt::read_raw_key;
use casemate::fsverity::{Algorithm, Entry, FileDigest, Manifest, Parameters, escape_name};
use casemate::luks::NewVolume;
use casemate::signature::{Certificate, DigestAlgorithm, SigningKey, root_hash_bytes, sign};
use casemate::target::{Loss, Made};
use casemate::verity::{Fec, FormatOptions, Formatted, Seed};
use casemate::{
    Access, Error, Image, Output, SecretSource, SecretVec, Target, Work, hex as hexadecimal, probe,
};

use format::FormatArgs;
use luks::LuksArgs;
use tree::TreeArgs;

use crate::answer::Answer;
use crate::cmd::fscrypt::FscryptPolicyArgs;
use crate::cmd::fsverity::{Hex, hex};
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::signer::read_certificate;
use crate::cmd::verity::info;
use crate::cmd::verity::options::FecArgs;
use crate::context::{Context, read_small};
use crate::size::bytes;

/// Make an ext4 image of a folder, of tar streams, or of layers of OCI images, in one pass.
///
/// Everything is planned before it is written, so the image is as small as what is in it allows, or as large as it is
/// said to be. Directories are indexed, files lie in one piece, holes stay holes. The same tree and options give the same
/// bytes: the UUID is made of the tree and its contents; times are those of the files, none later than the environment's
/// SOURCE_DATE_EPOCH.
#[derive(clap::Args, Debug)]
// -i is mke2fs's bytes for each inode.
#[command(mut_arg("iter_time", |arg| arg.short(None)))]
#[command(group = ArgGroup::new("signed").args(["verity", "verity_from_manifest", "root_hash_signature"]).multiple(true))]
#[command(group = ArgGroup::new("sealed").args(["verity", "verity_from_manifest"]).multiple(true))]
#[command(after_help = "Examples:\n  casemate ext4 build root.img --from rootfs\n  \
    casemate ext4 build root.img --from rootfs --size +64M -L root\n  \
    casemate ext4 build root.img --tar rootfs.tar.zst --owner 0:0\n  \
    casemate ext4 build root.img --layer base.tar --layer app.tar\n  \
    casemate ext4 build root.img --oci image:latest\n  \
    casemate ext4 build root.img --from rootfs --device-table devices --file-contexts file_contexts\n  \
    casemate ext4 build root.img --from rootfs --dm-verity append --root-hash-file root.hash.txt\n  \
    casemate ext4 build empty.img --size 1G")]
pub struct Args {
    /// The image to make: a file, which is there whole or not at all, or a block device; "-" is standard output.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    tree: TreeArgs,
    /// The image's size: "auto", as small as possible; "+BYTES", with so much free; or so many bytes [default: auto, and
    /// all of a block device].
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Size")]
    size: Option<BuildSize>,
    /// Refuse a size that leaves fewer bytes free for users; an automatic one leaves so many.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, default_value = "0", help_heading = "Size")]
    min_free: u64,
    /// Round an automatic size up to a multiple of so many bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, help_heading = "Size")]
    align: Option<u64>,
    /// The byte that the file system begins at in a file that is there already, and keeps its other bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with = "partition", help_heading = "Size")]
    offset: Option<u64>,
    /// Make the file system in this partition (GPT or MBR) of an image that is there already, counted from 1.
    #[arg(short = 'P', long, value_name = "N", help_heading = "Size")]
    partition: Option<u32>,
    /// Write a sparse image of Android, as fastboot and simg2img take it.
    #[arg(
        long,
        conflicts_with_all = ["offset", "partition", "dm_verity", "luks"],
        help_heading = "Output"
    )]
    android_sparse: bool,
    #[command(flatten, next_help_heading = "Output")]
    overwrite: OverwriteArgs,
    /// Plan everything, and write nothing: whether there is room is known then, and the numbers.
    #[arg(short = 'n', long, help_heading = "Output")]
    dry_run: bool,
    /// Print all that was chosen as JSON, with the options that choose it again.
    #[arg(long, help_heading = "Output")]
    print_config: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// Put fs-verity on regular files: all, or those that match a pattern; there must be one for each pattern.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = "*",
        help_heading = "fs-verity")]
    verity: Vec<String>,
    /// Put fs-verity on the files of this manifest, as "casemate fsverity digest" prints it, and refuse files whose digests
    /// are others. All of them must be there, and one at least.
    #[arg(long, value_name = "FILE", help_heading = "fs-verity")]
    verity_from_manifest: Option<PathBuf>,
    /// The hash algorithm of their trees: sha256 or sha512.
    #[arg(
        long,
        value_name = "NAME",
        requires = "sealed",
        default_value = "sha256",
        help_heading = "fs-verity"
    )]
    hash_alg: String,
    /// The salt of their trees in hex, at most 32 bytes.
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
    /// Make a hash tree of dm-verity over the whole image, and print its root hash: behind the file system, as "append", or in
    /// this file. Salt and UUID follow from --seed, or from the file system's UUID.
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
    /// Encrypt a directory of the tree, with all that is in it, with the raw master key in a file (16 to 64 bytes); the
    /// image has the feature encrypt then, and its UUID and bytes are others each time but with --seed.
    #[arg(long, value_name = "DIR=KEYFILE", value_parser = OsStringValueParser::new().try_map(encrypted), help_heading = "fscrypt")]
    encrypt: Vec<(Vec<u8>, PathBuf)>,
    /// Encrypt a directory of the tree with a random key, which google/fscrypt opens with the passphrase in the first line of a
    /// file: "fscrypt unlock DIR" on the device. Its files are put into /.fscrypt.
    #[arg(long, value_name = "DIR=PASSFILE", value_parser = OsStringValueParser::new().try_map(encrypted), help_heading = "fscrypt")]
    protect: Vec<(Vec<u8>, PathBuf)>,
    /// What these files have: a passphrase, or a raw key of 32 bytes.
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
    /// Make UUID and hash seed from this text, and nonces of encrypted files from it, the keys, the tree and their contents (also the
    /// UUID with --flag iv-ino-lblk64 and iv-ino-lblk32); else both are made from the tree, the UUID from contents too, or random
    /// with --encrypt.
    #[arg(long, value_name = "SEED", help_heading = "Identity")]
    seed: Option<String>,
}

/// What opens a protector, as google/fscrypt calls it.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Source {
    CustomPassphrase,
    RawKey,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let is_stream = self.image == Path::new("-");
        let target = match self.offset {
            _ if is_stream => {
                context.output().for_data()?;
                BuildTarget::Stream
            }
            Some(offset) => BuildTarget::Within(&self.image, offset),
            None => match self.partition {
                Some(number) => BuildTarget::Partition(&self.image, number),
                None => BuildTarget::File(&self.image),
            },
        };
        if self.luks.reads_standard_input() && self.tree.reads_standard_input() {
            return Err(Error::argument("standard input can't be both the passphrase and a tar stream"));
        }
        if self.print_config && is_stream && !self.dry_run {
            return Err(Error::argument("standard output can't be both the image and what was chosen; -n"));
        }
        if self.dm_verity.is_some() && is_stream {
            let text =
                "dm-verity's hash tree is made of an image that can be read again, not of standard output";
            return Err(Error::argument(text));
        }
        if self.fec.fec_device.is_some() && self.dm_verity.is_none() {
            return Err(Error::argument("--fec-device: parity goes with --dm-verity"));
        }
        self.tree.check()?;
        if !is_stream {
            let inputs = self.inputs();
            Output::check(&self.image, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let volume = self.luks.volume(self.seed.as_deref(), &self.image, context)?;
        let work = context.opening();
        let amendments = self.tree.amendments(context)?;
        let mut tree = read_tree(&self.tree.sources(), &target, &self.tree.options(), &work)?;
        let digests = amendments.apply(&mut tree)?;
        let protected = self.protected(&mut tree, context)?;
        let time = source_date_epoch()?;
        if let Some(latest) = time {
            tree.clamp_times(latest);
        }
        // What follows from a tree tells something of encrypted names to whoever guesses them.
        let identity = match &self.seed {
            Some(text) => Identity::of_text(text, &work),
            None if self.encrypt.is_empty() && self.protect.is_empty() => Identity::of_tree(&tree, &work),
            None => Identity::random()?,
        };
        let mut options = self.format.options(identity)?;
        options.time = time;
        options.min_free = self.min_free;
        // dm-verity protects whole blocks.
        let align = self.align.unwrap_or(if self.dm_verity.is_some() { 4096 } else { 1 });
        let header_size = volume.as_ref().map_or(0, NewVolume::offset);
        let room = target.size()?.map(|size| size.saturating_sub(header_size));
        options.size = match (self.size, room) {
            (Some(BuildSize::Fitting { free, .. }), _) => BuildSize::Fitting { free, align },
            (Some(size), _) => size,
            // A device's rest has room for the hash tree.
            (None, Some(_)) if self.is_appended() => BuildSize::Fitting { free: 0, align },
            (None, Some(size)) => BuildSize::Bytes(size),
            (None, None) => BuildSize::Fitting { free: 0, align },
        };
        let sealing = self.sealing(context, options.block_size, &tree, digests)?.map(Arc::new);
        context.heed_signals();
        let manifest = match self.manifest.as_ref().filter(|_| !self.dry_run) {
            Some(path) => Some(Output::create(path, &[&self.image])?),
            None => None,
        };
        let encrypting = self.encrypting(context, &tree, options.block_size, protected)?;
        if let Some(uuid) = encrypting.as_ref().and_then(Encrypting::uuid).filter(|_| !self.format.has_uuid())
        {
            options.uuid = uuid.into();
        }
        let build = Build::protected(tree, &options, sealing.clone(), encrypting);
        let build = build.map_err(|error| error.at(self.image.display()))?;
        let consent = |loss: &Loss| self.overwrite.consent(loss);
        if self.dry_run {
            target.look(&|loss| self.overwrite.rehearse(loss))?;
        }
        let size = build.size();
        let progress = context.progress(&self.image.display().to_string(), build.contents_size());
        let geometry = build.geometry().clone();
        if self.print_config || self.dry_run && context.json() {
            let uuid = build.uuid(&work)?;
            context.print_json(&format::config(&options, &uuid, &geometry, size))?;
        }
        if self.dry_run {
            let text = format!("{size} bytes, {} blocks, {} inodes", geometry.blocks, geometry.inodes());
            context.done(format_args!("{}: {text}", self.image.display()));
            return Ok(Answer::Yes);
        }
        let work = context.work(context.providers().clone(), &progress);
        let (report, formatted) = match (&self.dm_verity, &volume) {
            (None, None) if self.android_sparse => {
                (build.write_android_sparse(&target, &consent, &work)?, None)
            }
            (None, None) => (build.write(&target, &consent, &work)?, None),
            (None, Some(volume)) if is_stream => {
                let write = |image: &Target| build.write_luks(image, volume, &work);
                (on_stream(context.output(), "standard output", write)?, None)
            }
            (None, Some(volume)) => (build.write_luks(&self.place()?, volume, &work)?, None),
            (Some(place), volume) => {
                let volume = volume.as_ref();
                let made = self.verified(build, place, volume, context, &work)?;
                (made.0, Some(made.1))
            }
        };
        drop(progress);
        if let Some((manifest, sealing)) = manifest.zip(sealing) {
            let lines = sealing.digests().into_iter().flat_map(|(path, digest)| line(&path, &digest));
            manifest.finish(&lines.collect::<Vec<u8>>())?;
        }
        if context.json() && !is_stream && !self.print_config {
            context.print_json(&json!({
                "image": self.image.to_string_lossy(),
                "size": size,
                "uuid": uuid_text(&report.uuid),
                "block_size": geometry.block_size,
                "blocks": geometry.blocks,
                "inodes": geometry.inodes(),
                "files": report.files,
                "directories": report.directories,
                "others": report.others,
                "bytes": report.bytes,
                "luks": volume.as_ref().map(|volume| json!({
                    "uuid": volume.header().uuid(),
                    "data_offset": volume.offset(),
                })),
                "dm_verity": formatted.as_ref().map(|formatted| info::formatted_json(formatted, false)),
            }))?;
        } else if let Some(formatted) = &formatted {
            let place =
                if self.is_appended() { &self.image } else { self.dm_verity.as_ref().unwrap_or(&self.image) };
            let mut text = info::formatted_lines(&place.display(), self.fec.fec_offset, formatted);
            // Where file system and tree lie one behind the other, they are no two partitions.
            if !self.is_appended() {
                text += &info::partition_lines(&formatted.root_hash);
            }
            context.print(text)?;
        }
        context.done(format_args!("{}: {size} bytes, {} files", self.image.display(), report.files));
        Ok(Answer::Yes)
    }

    /// Files that are read.
    fn inputs(&self) -> Vec<PathBuf> {
        let keys = self.encrypt.iter().chain(&self.protect).map(|(_, file)| file);
        let more = keys.chain(&self.signing_key).chain(&self.cert).chain(&self.verity_from_manifest).cloned();
        let more = more.chain(self.luks.inputs().map(Path::to_owned));
        self.tree.inputs().into_iter().chain(more).filter(|path| path != Path::new("-")).collect()
    }

    /// The image that a volume is made on.
    fn place(&self) -> Result<Target, Error> {
        let (made, consent) = (Made::Known(probe::LUKS), |loss: &Loss| self.overwrite.consent(loss));
        let image = || Image::open(&self.image, Access::Change);
        match (self.offset, self.partition) {
            (None, None) => Target::anew(&self.image, made, &consent),
            (_, Some(number)) => Target::on(image()?.partition(number)?, made, &consent),
            (Some(offset), None) => Target::on(image()?.window(offset, None)?, made, &consent),
        }
    }

    /// Whether dm-verity's hash tree lies behind the file system.
    fn is_appended(&self) -> bool {
        self.dm_verity.as_deref() == Some(Path::new("append"))
    }

    /// Writes the file system with dm-verity over it, and what is told of the root hash in files.
    fn verified(
        &self,
        build: Build,
        place: &Path,
        volume: Option<&NewVolume>,
        context: &Context,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Formatted), Error> {
        let inputs = self.inputs();
        let mut others: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        others.push(&self.image);
        let create = |path: &PathBuf| Output::create(path, &[&others[..], &[place]].concat());
        let root_hash_file = self.root_hash_file.as_ref().map(create).transpose()?;
        let signature_file = self.root_hash_signature.as_ref().map(create).transpose()?;
        let consent = |loss: &Loss| self.overwrite.consent(loss);
        let mut format = FormatOptions::default();
        format.seed = self.seed.as_deref().map(Seed::from_text);
        if let Some(path) = &self.fec.fec_device {
            Output::check(path, &[&others[..], &[place]].concat())?;
            let mut fec = Fec::new(Target::anew(path, Made::Data, &consent)?.into_image());
            (fec.offset, fec.roots) = (self.fec.fec_offset, self.fec.fec_roots);
            format.area.fec = Some(fec);
        }
        let hash = match self.is_appended() {
            true => None,
            false => {
                Output::check(place, &others)?;
                Some(Target::anew(place, Made::Known(probe::VERITY), &consent)?)
            }
        };
        let signer = self.signer()?;
        let made = Made::Known(if volume.is_some() { probe::LUKS } else { probe::EXT });
        let image = Target::anew(&self.image, made, &consent)?;
        let (report, formatted) = match volume {
            Some(volume) => build.write_luks_verified(&image, volume, hash.as_ref(), format, work)?,
            None => build.write_verified(&image, hash.as_ref(), format, work)?,
        };
        if let Some(file) = root_hash_file {
            file.finish(hexadecimal::encode(&formatted.root_hash).as_bytes())?;
        }
        if let Some((file, (key, certificate))) = signature_file.zip(signer) {
            let message = root_hash_bytes(&formatted.root_hash);
            let signed = sign(&message, &key, &certificate, DigestAlgorithm::Sha256, context.providers())?;
            file.finish(&signed)?;
        }
        Ok((report, formatted))
    }

    /// The key and certificate that sign.
    fn signer(&self) -> Result<Option<(SigningKey, Certificate)>, Error> {
        let Some((key, cert)) = self.signing_key.as_ref().zip(self.cert.as_ref()) else { return Ok(None) };
        let pem = zeroize::Zeroizing::new(read_small(key)?);
        let key = SigningKey::from_pem(&pem).map_err(|error| error.at(key.display()))?;
        Ok(Some((key, read_certificate(cert)?)))
    }

    /// fs-verity, if it is wanted; `digests` are those that descriptions of the tree have.
    fn sealing(
        &self,
        context: &Context,
        block_size: u32,
        tree: &Tree,
        digests: BTreeMap<Vec<u8>, FileDigest>,
    ) -> Result<Option<Sealing>, Error> {
        if self.verity.is_empty() && self.verity_from_manifest.is_none() {
            return Ok(None);
        }
        let algorithm = Algorithm::named(&self.hash_alg);
        let algorithm = algorithm.ok_or_else(|| Error::argument("--hash-alg: sha256 or sha512"))?;
        let salt = self.salt.as_ref().map_or(&[][..], |salt| &salt.0);
        // A kernel takes no larger blocks than its pages and those of the file system.
        let parameters = Parameters::new(algorithm, block_size.min(4096), salt)?;
        let mut sealing = Sealing::new(parameters, context.providers().clone());
        let patterns = self.verity.iter().map(|pattern| Pattern::new(pattern.as_bytes()));
        sealing.choose(patterns.collect::<Result<Vec<_>, _>>()?);
        sealing.signer = self.signer()?;
        if let Some(path) = &self.verity_from_manifest {
            let bytes = std::fs::read(path).map_err(|error| Error::io(path.display(), error))?;
            let Manifest { entries, malformed } = Manifest::from_bytes(&bytes);
            if let Some(line) = malformed.first() {
                return Err(Error::corrupt(format!("line {line} does not hold a digest and a path"))
                    .at(path.display()));
            }
            if entries.is_empty() {
                return Err(Error::argument("the manifest names no file").at(path.display()));
            }
            let expected =
                entries.into_iter().map(|Entry { path, digest }| (path.into_os_string().into_vec(), digest));
            sealing.expect(tree, expected).map_err(|error| error.at(path.display()))?;
        }
        if !self.verity.is_empty() {
            sealing.expect(tree, digests)?;
        }
        Ok(Some(sealing))
    }

    /// Keys of directories under new protectors, whose files are put into the tree.
    fn protected(&self, tree: &mut Tree, context: &Context) -> Result<Vec<(&[u8], SecretVec)>, Error> {
        let source = match self.protector_source {
            Source::CustomPassphrase => ProtectorSource::CustomPassphrase,
            Source::RawKey => ProtectorSource::RawKey,
        };
        let (mut protected, mut keys) = (Protected::new(context.providers().clone()), Vec::new());
        for (path, file) in &self.protect {
            let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(b"root");
            let name = String::from_utf8_lossy(name);
            let key = protected.add(&name, source, &SecretSource::file(file), &self.policy.policy())?;
            keys.push((&path[..], key));
        }
        if !keys.is_empty() {
            protected.write(tree)?;
        }
        Ok(keys)
    }

    /// fscrypt, if it is wanted.
    fn encrypting(
        &self,
        context: &Context,
        tree: &Tree,
        block_size: u32,
        protected: Vec<(&[u8], SecretVec)>,
    ) -> Result<Option<Encrypting>, Error> {
        if self.encrypt.is_empty() && protected.is_empty() {
            return Ok(None);
        }
        let mut encrypting = Encrypting::new(context.providers().clone());
        if let Some(seed) = &self.seed {
            let directories: Vec<&[u8]> = self.encrypt.iter().map(|(path, _)| &path[..]).collect();
            encrypting.set_seed(seed, tree, &directories, &context.opening())?;
        }
        for (path, file) in &self.encrypt {
            let key = read_raw_key(&SecretSource::file(file))?;
            encrypting.add(path, key, &self.policy.policy(), block_size)?;
        }
        for (path, key) in protected {
            encrypting.add(path, key, &self.policy.policy(), block_size)?;
        }
        Ok(Some(encrypting))
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
