//! A build that is specified, run: the tree is read and everything decided, then everything is written.
//!
//! The order of steps and the rules of security are here, for every front.

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{Access, Medium, Stream, signatures};
use casemate_ext4::{BuildOptions, BuildReport, BuildSize, BuildTarget, Complete, Plan, Source, Tree};
use casemate_fscrypt::read_raw_key;
use casemate_primitives::secret::SecretVec;
use casemate_providers::Work;
use casemate_trees::Pattern;
use casemate_verity::dm::look_at_earlier;
use casemate_verity::fs::{Algorithm, Entry, FileDigest, Manifest, Parameters};
use casemate_verity::signature::{DigestAlgorithm, root_hash_bytes};

use super::build::{self, on_standard_output};
use super::encrypt::Encrypting;
use super::identity::Identity;
use super::protect::Protected;
use super::seal::Sealing;
use super::source_date_epoch;
use super::spec::{
    BuildSpec, DmVeritySpec, EncryptedFolder, FolderKey, LuksSpec, ParitySpec, Signer, VeritySpec,
};
use crate::luks::NewVolume;
use crate::target::{self, Consent, Loss, Made, Target};
use crate::verity::{Fec, FormatOptions, Formatted, Seed};
use crate::{Error, Image, Output};

/// Bytes of a block of dm-verity, and of fs-verity at the most: kernels take none that is larger than their pages.
const VERITY_BLOCK: u32 = 4096;

/// A build of which everything is decided and nothing written.
#[derive(Debug)]
pub struct Planned {
    plan: Plan,
    target: BuildTarget,
    android_sparse: bool,
    options: BuildOptions,
    inputs: Vec<PathBuf>,
    /// Whether sources or a size say what is made: nothing at all may be a mistake.
    is_meant: bool,
    sealing: Option<Arc<Sealing>>,
    signer: Option<Arc<Signer>>,
    dm_verity: Option<DmVeritySpec>,
    volume: Option<NewVolume>,
    seed: Option<String>,
}

/// A build that was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Built {
    /// Numbers of files, and the UUID.
    pub report: BuildReport,
    /// The file system's size in bytes.
    pub size: u64,
    /// dm-verity's hash area, with the root hash.
    pub dm_verity: Option<Formatted>,
    /// PKCS#7 signature of the root hash in DER, for the kernel, if there is a signer.
    pub root_hash_signature: Option<Vec<u8>>,
    /// The digests of files with fs-verity, by their paths.
    pub digests: BTreeMap<Vec<u8>, FileDigest>,
}

impl VeritySpec {
    /// Sealing that the specification asks for. `digests` are those that descriptions of the tree have.
    fn sealing(
        self,
        tree: &Tree,
        digests: impl IntoIterator<Item = (Vec<u8>, FileDigest)>,
        block_size: u32,
        signer: Option<Arc<Signer>>,
        work: &Work<'_>,
    ) -> Result<Sealing, Error> {
        let parameters = Parameters::new(self.algorithm, block_size.min(VERITY_BLOCK), &self.salt)?;
        let mut sealing = Sealing::new(parameters, work.providers.clone());
        sealing.signer = signer;
        // A manifest alone says all.
        if self.manifest.is_none() || !self.patterns.is_empty() {
            sealing.expect(tree, digests)?;
        }
        match &self.manifest {
            None if self.patterns.is_empty() => sealing.choose([Pattern::new(b"*")?]),
            _ => sealing.choose(self.patterns),
        }
        let Some(path) = &self.manifest else { return Ok(sealing) };
        let bytes = Stream::read_all(path).map_err(|error| Error::io(path.display(), error))?;
        let Manifest { entries, malformed } = Manifest::from_bytes(&bytes);
        if let Some(line) = malformed.first() {
            return Err(
                Error::corrupt(format!("line {line} does not hold a digest and a path")).at(path.display())
            );
        }
        if entries.is_empty() {
            return Err(Error::argument("the manifest names no file").at(path.display()));
        }
        let expected = entries.into_iter().map(|Entry { path, digest }| {
            let path = casemate_blockdev::os::OsStringExt::into_vec(path.into_os_string());
            (path, digest)
        });
        sealing.expect(tree, expected).map_err(|error| error.at(path.display()))?;
        Ok(sealing)
    }
}

impl BuildSpec {
    /// Plans and writes the file system. `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// Errors of [`BuildSpec::plan`] and [`Planned::write`].
    pub fn run(self, consent: Consent<'_>, work: &Work<'_>) -> Result<Built, Error> {
        self.plan(work)?.write(consent, work)
    }

    /// Reads the tree, and decides everything. Nothing is written.
    ///
    /// # Errors
    /// `Argument` for what contradicts itself, for outputs that would replace inputs, and for what was asked for in vain;
    /// `Io` (`StorageFull`) for a size that is too small; what sources and descriptions say; those of
    /// [`prepare`](crate::luks::LuksFormatOptions::prepare).
    pub fn plan(self, work: &Work<'_>) -> Result<Planned, Error> {
        self.check()?;
        let inputs = self.all_inputs();
        if let Some(path) = self.target.path() {
            Output::check(path, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let volume = match &self.luks {
            Some(luks) => Some(luks.prepare(self.seed.as_deref(), work)?),
            None => None,
        };
        let mut tree = Tree::of_sources(&self.sources, &self.target, &self.reading, work)?;
        let digests = self.amendments.apply(&mut tree)?.into_iter();
        let digests =
            digests.map(|(path, digest)| (path, FileDigest::new(Algorithm::Sha256, digest.to_vec())));
        let keys = self.keys(&mut tree, work)?;
        let time = match self.time {
            Some(time) => Some(time),
            None => source_date_epoch()?,
        };
        if let Some(latest) = time {
            tree.clamp_times(latest);
        }
        // What follows from a tree tells something of encrypted names to whoever guesses them.
        let identity = match &self.seed {
            Some(text) => Identity::of_text(text, work),
            None if keys.is_empty() => Identity::of_tree(&tree, work),
            None => Identity::random()?,
        };
        let mut options = self.file_system.clone();
        options.time = time.or(options.time);
        options.hash_seed = Some(options.hash_seed.unwrap_or(identity.hash_seed));
        options.size = self.chosen_size(volume.as_ref())?;
        if let Some(BuildSize::Fitting { free, .. }) = self.size {
            options.min_free = options.min_free.max(free);
        }
        let encrypting = self.encrypting(&tree, keys, options.block_size, work)?;
        let of_seed = encrypting.as_ref().and_then(Encrypting::uuid);
        options.uuid = options.uuid.or(of_seed.map(Into::into)).or(Some(identity.uuid));
        let signer = self.signer.map(Arc::new);
        let sealing = match self.verity {
            Some(verity) => {
                let sealing = verity.sealing(&tree, digests, options.block_size, signer.clone(), work)?;
                Some(Arc::new(sealing))
            }
            None => None,
        };
        let plan = build::plan(tree, &options, sealing.clone(), encrypting);
        let plan = plan.map_err(|error| match self.target.path() {
            Some(path) => error.at(path.display()),
            None => error,
        })?;
        Ok(Planned {
            plan,
            target: self.target,
            android_sparse: self.android_sparse,
            options,
            inputs,
            is_meant: !self.sources.is_empty() || self.size.is_some(),
            sealing,
            signer,
            dm_verity: self.dm_verity,
            volume,
            seed: self.seed,
        })
    }

    /// Refuses what contradicts itself.
    fn check(&self) -> Result<(), Error> {
        let refuse = |text: &'static str| Err(Error::argument(text));
        let is_part = !matches!(self.target, BuildTarget::File(_) | BuildTarget::Stream);
        if self.dm_verity.is_some() && matches!(self.target, BuildTarget::Stream) {
            return refuse(
                "dm-verity's hash tree is made of an image that can be read again, not of standard output",
            );
        }
        if self.dm_verity.is_some() && is_part {
            return refuse(
                "a hash tree can't be appended inside a partition or a part of an image; make the file system there, and then the hash tree in a partition of its own",
            );
        }
        if self.signer.is_some() && self.verity.is_none() && self.dm_verity.is_none() {
            return refuse("there is nothing to sign: neither files with fs-verity nor dm-verity");
        }
        self.signer.as_ref().map_or(Ok(()), Signer::check)?;
        if self.android_sparse && (is_part || self.dm_verity.is_some() || self.luks.is_some()) {
            return refuse("a sparse image is a file of its own, without dm-verity and LUKS");
        }
        Ok(())
    }

    fn all_inputs(&self) -> Vec<PathBuf> {
        let sources = self.sources.iter().map(Source::path);
        let described =
            self.amendments.inputs().chain(self.verity.iter().flat_map(|one| one.manifest.as_deref()));
        let all = sources.chain(described).chain(self.inputs.iter().map(PathBuf::as_path));
        all.filter(|path| *path != Path::new("-")).map(Path::to_owned).collect()
    }

    /// The size, which a volume's header is not counted in.
    fn chosen_size(&self, volume: Option<&NewVolume>) -> Result<BuildSize, Error> {
        // dm-verity protects whole blocks.
        let align = if self.dm_verity.is_some() { VERITY_BLOCK.into() } else { 1 };
        let align = self.align.unwrap_or(align);
        let header_size = volume.map_or(0, NewVolume::offset);
        let room = match self.target.size()? {
            Some(size) if header_size > 0 && size <= header_size => {
                let text = format!("{size} bytes: the LUKS header before the file system has {header_size}");
                let error = io::Error::new(io::ErrorKind::StorageFull, text);
                return Err(match self.target.path() {
                    Some(path) => Error::io(path.display(), error),
                    None => error.into(),
                });
            }
            size => size.map(|size| size.saturating_sub(header_size)),
        };
        let is_appended = self.dm_verity.as_ref().is_some_and(|dm_verity| dm_verity.hash.is_none());
        Ok(match (self.size, room) {
            // Bytes that are to be free are the options': however they are given, one search finds the size.
            (Some(BuildSize::Fitting { .. }), _) => BuildSize::Fitting { free: 0, align },
            (Some(size), _) => size,
            // A device's rest has room for the hash tree.
            (None, Some(size)) if !is_appended => BuildSize::Bytes(size),
            (None, _) => BuildSize::Fitting { free: 0, align },
        })
    }

    /// The keys of directories, raw ones first. The files of new protectors are put into the tree.
    fn keys(&self, tree: &mut Tree, work: &Work<'_>) -> Result<Vec<(&EncryptedFolder, SecretVec)>, Error> {
        let (mut raw, mut random) = (Vec::new(), Vec::new());
        let mut protected = Protected::new(work.providers.clone());
        for folder in &self.encryption {
            match &folder.key {
                FolderKey::Raw(key) => raw.push((folder, read_raw_key(key)?)),
                FolderKey::Protector { source, secret } => {
                    let mut names = folder.path.rsplit(|byte| *byte == b'/');
                    let name = names.find(|name| !name.is_empty()).unwrap_or(b"root");
                    let name = String::from_utf8_lossy(name);
                    random.push((folder, protected.add(&name, *source, secret, &folder.policy)?));
                }
            }
        }
        if !random.is_empty() {
            protected.write(tree)?;
        }
        raw.append(&mut random);
        Ok(raw)
    }

    fn encrypting(
        &self,
        tree: &Tree,
        keys: Vec<(&EncryptedFolder, SecretVec)>,
        block_size: u32,
        work: &Work<'_>,
    ) -> Result<Option<Encrypting>, Error> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut encrypting = Encrypting::new(work.providers.clone());
        if let Some(seed) = &self.seed {
            // A random key is never another image's.
            let raw = keys.iter().filter(|(folder, _)| matches!(folder.key, FolderKey::Raw(_)));
            let folders: Vec<&[u8]> = raw.map(|(folder, _)| &folder.path[..]).collect();
            encrypting.set_seed(seed, tree, &folders, work)?;
        }
        for (folder, key) in keys {
            encrypting.add(&folder.path, key, &folder.policy, block_size)?;
        }
        Ok(Some(encrypting))
    }
}

impl LuksSpec {
    /// The volume. What follows from a seed needs a volume key, which is the caller's secret.
    fn prepare(&self, seed: Option<&str>, work: &Work<'_>) -> Result<NewVolume, Error> {
        let mut format = self.format.clone();
        if format.volume_key.is_some() && format.seed.is_none() {
            format.seed = seed.map(Seed::from_text);
        }
        format.prepare(&self.passphrase, work)
    }
}

impl Planned {
    /// The options of the file system, as they were chosen.
    pub fn options(&self) -> &BuildOptions {
        &self.options
    }

    /// The LUKS volume around it.
    pub fn volume(&self) -> Option<&NewVolume> {
        self.volume.as_ref()
    }

    /// Files that are read, and what is written: no other output may replace them.
    pub fn files(&self) -> Vec<&Path> {
        let dm_verity = self.dm_verity.iter();
        let places =
            dm_verity.flat_map(|one| one.hash.iter().chain(one.parity.iter().map(|parity| &parity.path)));
        self.inputs.iter().chain(places).map(PathBuf::as_path).chain(self.target.path()).collect()
    }

    /// Asks for consent if something would be lost at the target, before anything is begun.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn look(&self, consent: Consent<'_>) -> Result<(), Error> {
        self.look_at_full(consent)?;
        self.target.look(consent)
    }

    /// Asks for consent where nothing but a name was given, and the empty file system would replace one.
    fn look_at_full(&self, consent: Consent<'_>) -> Result<(), Error> {
        match &self.target {
            BuildTarget::File(path) if !self.is_meant => {
                // Everything else is asked for where the file is opened.
                let of_file_system =
                    |loss: &Loss| if loss.what() == signatures::EXT { consent(loss) } else { Ok(()) };
                target::look_at_path(path, Some(Made::Data), &of_file_system)
            }
            _ => Ok(()),
        }
    }

    /// Writes everything. Files are there whole or not at all, and new ones get their names when all are complete, the image last.
    /// `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// `Io`; that a source changed since it was read; [`Error::is_busy`] if the target is in use; `Argument` for a size that is not
    /// whole blocks of what is around it; `Unsupported` for parity within a LUKS volume; whatever the consent says.
    pub fn write(self, consent: Consent<'_>, work: &Work<'_>) -> Result<Built, Error> {
        self.write_beside(consent, work, |_| Ok(Vec::new()))
    }

    /// Writes everything as [`Planned::write`] does, and files of the caller's beside it: when all else is complete, `beside` writes
    /// their contents, and returns them to get their names before the image.
    ///
    /// # Errors
    /// Errors of [`Planned::write`]; whatever `beside` says. No new file has a name then.
    pub fn write_beside(
        self,
        consent: Consent<'_>,
        work: &Work<'_>,
        beside: impl FnOnce(&Built) -> Result<Vec<Output>, Error>,
    ) -> Result<Built, Error> {
        self.look_at_full(consent)?;
        let size = self.size();
        let Planned { plan, target, volume, .. } = self;
        let mut media = Vec::new();
        let (report, dm_verity, complete) = match (self.dm_verity, volume) {
            (None, None) => {
                let (report, complete) = match self.android_sparse {
                    true => plan.write_android_sparse(&target, consent, work)?,
                    false => plan.write_to(&target, consent, work)?,
                };
                (report, None, complete)
            }
            (None, Some(volume)) if matches!(target, BuildTarget::Stream) => {
                let (report, complete) =
                    on_standard_output(|image: &Target| build::write_luks(&plan, image, &volume, work))?;
                (report, None, complete)
            }
            (None, Some(volume)) => {
                let image = target.open(Made::Known(signatures::LUKS), consent)?;
                let report = build::write_luks(&plan, &image, &volume, work)?;
                media.push(image.into_image().into());
                (report, None, Complete::Medium)
            }
            (Some(dm_verity), volume) => {
                let (hash, format) =
                    dm_verity.open(&self.inputs, &target, self.seed.as_deref(), consent, work)?;
                media.extend(format.area.fec.iter().map(|fec| fec.medium.clone()));
                media.extend(hash.iter().map(|hash| Medium::clone(hash)));
                let made = Made::Known(if volume.is_some() { signatures::LUKS } else { signatures::EXT });
                let image = target.open(made, consent)?;
                let (report, formatted) = match volume {
                    Some(volume) => {
                        build::write_luks_verified(&plan, &image, &volume, hash.as_ref(), format, work)?
                    }
                    None => build::write_verified(&plan, &image, hash.as_ref(), format, work)?,
                };
                media.push(image.into_image().into());
                (report, Some(formatted), Complete::Medium)
            }
        };
        let digests = self.sealing.map(|sealing| sealing.digests()).unwrap_or_default();
        let root_hash_signature = match (&self.signer, &dm_verity) {
            (Some(signer), Some(Formatted { root_hash, .. })) => {
                Some(signer.sign(&root_hash_bytes(root_hash), DigestAlgorithm::Sha256, &work.providers)?)
            }
            _ => None,
        };
        let built = Built { report, size, dm_verity, root_hash_signature, digests };
        let beside = beside(&built)?;
        complete.finish(beside, &media)?;
        Ok(built)
    }
}

/// A planned build has the numbers of its file system.
impl Deref for Planned {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl DmVeritySpec {
    /// The image of the hash area, if there is one, and the format of the area, with its parity.
    fn open(
        self,
        inputs: &[PathBuf],
        target: &BuildTarget,
        seed: Option<&str>,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(Option<Target>, FormatOptions), Error> {
        let mut others: Vec<&Path> = inputs.iter().map(PathBuf::as_path).chain(target.path()).collect();
        let mut format = self.format;
        if format.seed.is_none() {
            format.seed = seed.map(Seed::from_text);
        }
        let hash = match &self.hash {
            Some(path) => {
                Output::check(path, &others)?;
                others.push(path);
                Some(path)
            }
            None => None,
        };
        if let Some(path) = hash.filter(|path| path.is_file()) {
            let parity = self.parity.as_ref().filter(|parity| parity.offset == 0 && parity.path.is_file());
            let earlier = |parity: &ParitySpec| {
                let mut fec = Fec::new(Medium::open(&parity.path, Access::Read)?);
                fec.roots = parity.roots;
                Ok::<_, Error>(fec)
            };
            let (hash, parity) = (Medium::open(path, Access::Read)?, parity.map(earlier).transpose()?);
            look_at_earlier(&hash, parity.as_ref(), consent, work)?;
        }
        if let Some(parity) = &self.parity {
            Output::check(&parity.path, &others)?;
            let mut fec = Fec::new(parity.open(consent)?);
            (fec.offset, fec.roots) = (parity.offset, parity.roots);
            format.area.fec = Some(fec);
        }
        let hash =
            hash.map(|path| Target::anew(path, Made::Known(signatures::VERITY), consent)).transpose()?;
        Ok((hash, format))
    }
}

impl ParitySpec {
    /// Opens the place of the parity. What surrounds parity at an offset stays.
    fn open(&self, consent: Consent<'_>) -> Result<Image, Error> {
        if self.offset == 0 {
            return Ok(Target::anew(&self.path, Made::Data, consent)?.into_image());
        }
        let image = Image::from(Medium::create(&self.path)?);
        if !image.is_new() {
            let start = self.offset.min(image.top().size());
            Target::on(image.clone().window(start, None)?, Made::Data, consent)?;
        }
        Ok(image)
    }
}
