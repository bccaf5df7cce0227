//! A whole build as one value: what goes in, where it goes, and what protects it. [`BuildSpec::run`] makes it.

use std::fmt;
use std::path::PathBuf;

use casemate_ext4::{Amendments, BuildOptions, BuildSize, BuildTarget, Source, Time, TreeOptions};
use casemate_fscrypt::{Mode, NewPolicy};
use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;
use casemate_trees::Pattern;
use casemate_verity::fs::{Algorithm, Parameters};
use casemate_verity::signature::{Certificate, DigestAlgorithm, SigningKey, assemble, check_key, sign};

use super::ProtectorSource;
use crate::luks::LuksFormatOptions;
use crate::verity::FormatOptions;
use crate::{Error, SecretSource};

/// A new file system, and all that is to be in it and around it.
///
/// ```
/// use casemate::Work;
/// use casemate::ext4::BuildSpec;
/// use casemate::target::refuse;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = |name: &str| folder.path().join(name);
/// # std::fs::create_dir(path("root"))?;
/// # std::fs::write(path("root/file"), "1")?;
/// let spec = BuildSpec::new(path("root.img")).folder(path("root")).dm_verity(Default::default());
/// let built = spec.run(&refuse, &Work::default())?;
/// println!("{}", casemate::hex::encode(&built.dm_verity.unwrap().root_hash));
/// # assert_eq!(built.report.files, 1);
/// # Ok::<(), casemate::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct BuildSpec {
    /// The place of the image.
    pub target: BuildTarget,
    /// Whether the image is a sparse one of Android.
    pub android_sparse: bool,
    /// Sources of files, later ones over earlier ones.
    pub sources: Vec<Source>,
    /// The manner in which sources are read.
    pub reading: TreeOptions,
    /// Changes of the files' attributes.
    pub amendments: Amendments,
    /// Other files that are read, which nothing that is written may replace.
    pub inputs: Vec<PathBuf>,
    /// The size; all of a device or of the rest of a file, and otherwise the automatic one, if `None`.
    pub size: Option<BuildSize>,
    /// Unit of an automatic size in bytes; if `None`, a data block of dm-verity where there is one.
    pub align: Option<u64>,
    /// The file system. Its size and time are those of the other fields. A UUID or hash seed that it has not follows from the
    /// seed, or from the tree, the UUID from contents too; both are random where directories are encrypted.
    pub file_system: BuildOptions,
    /// fs-verity on files.
    pub verity: Option<VeritySpec>,
    /// The signer of the digests of files with fs-verity, and of the root hash of dm-verity.
    pub signer: Option<Signer>,
    /// Directories that are encrypted.
    pub encryption: Vec<EncryptedFolder>,
    /// dm-verity over the file system.
    pub dm_verity: Option<DmVeritySpec>,
    /// A LUKS volume around all of that.
    pub luks: Option<LuksSpec>,
    /// The text that identity, salts and nonces follow from.
    pub seed: Option<String>,
    /// The latest time of any file; that of [`source_date_epoch`](super::source_date_epoch) if `None`.
    pub time: Option<Time>,
}

/// fs-verity on regular files of a new file system.
#[derive(Debug)]
#[non_exhaustive]
pub struct VeritySpec {
    /// Files that get hash trees, by patterns of which each must match one; all, if there are none, nor a manifest.
    pub patterns: Vec<Pattern>,
    /// A manifest in a file: its files get hash trees, and must have its digests.
    pub manifest: Option<PathBuf>,
    /// The hash algorithm.
    pub algorithm: Algorithm,
    /// The salt, at most 32 bytes.
    pub salt: Vec<u8>,
}

/// Function that signs bytes elsewhere, with a hash of this kind: an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in DER.
pub type SignFn = Box<dyn Fn(&[u8], DigestAlgorithm) -> Result<Vec<u8>, Error> + Send + Sync>;

/// A certificate, and its private key, or a function that signs with that elsewhere.
pub struct Signer {
    certificate: Certificate,
    by: By,
}

enum By {
    Key(SigningKey),
    Function(SignFn),
}

/// A directory of a new file system that is encrypted with everything below it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EncryptedFolder {
    /// The directory.
    pub path: Vec<u8>,
    /// The key.
    pub key: FolderKey,
    /// The policy.
    pub policy: NewPolicy,
}

/// The master key of an encrypted directory.
#[derive(Clone, Debug)]
pub enum FolderKey {
    /// A raw key of 16 to 64 bytes.
    Raw(SecretSource),
    /// A random key under a new protector of google/fscrypt, whose files are put into the file system.
    Protector {
        /// The kind of the protector.
        source: ProtectorSource,
        /// The secret that opens it.
        secret: SecretSource,
    },
}

/// dm-verity over a new file system.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DmVeritySpec {
    /// The file or device of the hash area; behind the file system if `None`.
    pub hash: Option<PathBuf>,
    /// The hash area. Its offset and number of blocks are what follows from the file system.
    pub format: FormatOptions,
    /// Parity for error correction.
    pub parity: Option<ParitySpec>,
}

/// Parity of dm-verity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ParitySpec {
    /// The file or device.
    pub path: PathBuf,
    /// The byte that it begins at there.
    pub offset: u64,
    /// Parity bytes for each codeword of 255: 2 to 24, and 2 if `None`.
    pub roots: Option<u32>,
}

/// A LUKS volume around a new file system.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LuksSpec {
    /// The passphrase of the key slot.
    pub passphrase: SecretVec,
    /// The volume. Only with a volume key it follows from the build's seed.
    pub format: LuksFormatOptions,
}

impl Default for VeritySpec {
    fn default() -> VeritySpec {
        let algorithm = Parameters::default().algorithm();
        VeritySpec { patterns: Vec::new(), manifest: None, algorithm, salt: Vec::new() }
    }
}

impl VeritySpec {
    /// fs-verity on all regular files.
    pub fn new() -> VeritySpec {
        VeritySpec::default()
    }

    /// Gives hash trees to files whose path matches a pattern alone, and to those of other patterns and of a manifest.
    #[must_use]
    pub fn pattern(mut self, pattern: Pattern) -> VeritySpec {
        self.patterns.push(pattern);
        self
    }

    /// Demands the digests of a manifest.
    #[must_use]
    pub fn manifest(mut self, path: impl Into<PathBuf>) -> VeritySpec {
        self.manifest = Some(path.into());
        self
    }

    /// Hashes with an algorithm.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> VeritySpec {
        self.algorithm = algorithm;
        self
    }

    /// Hashes with a salt.
    #[must_use]
    pub fn salt(mut self, salt: impl Into<Vec<u8>>) -> VeritySpec {
        self.salt = salt.into();
        self
    }
}

impl Signer {
    /// Signs with a private key.
    pub fn new(key: SigningKey, certificate: Certificate) -> Signer {
        Signer { certificate, by: By::Key(key) }
    }

    /// Has a function sign, such as one that asks a token. Each signature is verified with the certificate.
    pub fn external(certificate: Certificate, sign: SignFn) -> Signer {
        Signer { certificate, by: By::Function(sign) }
    }

    /// The certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Refuses a private key that is not the certificate's, before anything is written. Of a function that is known with its first
    /// signature.
    ///
    /// # Errors
    /// `Mismatch`.
    pub fn check(&self) -> Result<(), Error> {
        match &self.by {
            By::Key(key) => check_key(key, &self.certificate),
            By::Function(_) => Ok(()),
        }
    }

    /// A PKCS#7 signature of a message in DER.
    ///
    /// # Errors
    /// `Mismatch` if the signature is not one of the certificate's key; whatever the function says.
    pub fn sign(
        &self,
        message: &[u8],
        digest: DigestAlgorithm,
        providers: &Providers,
    ) -> Result<Vec<u8>, Error> {
        match &self.by {
            By::Key(key) => sign(message, key, &self.certificate, digest, providers),
            By::Function(function) => {
                assemble(message, &function(message, digest)?, &self.certificate, digest, providers)
            }
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl EncryptedFolder {
    /// A directory under a raw key.
    pub fn new(path: impl Into<Vec<u8>>, key: SecretSource) -> EncryptedFolder {
        EncryptedFolder { path: path.into(), key: FolderKey::Raw(key), policy: NewPolicy::default() }
    }

    /// A directory under a random key, which a new protector opens with a secret.
    pub fn protected(
        path: impl Into<Vec<u8>>,
        source: ProtectorSource,
        secret: SecretSource,
    ) -> EncryptedFolder {
        let key = FolderKey::Protector { source, secret };
        EncryptedFolder { path: path.into(), key, policy: NewPolicy::default() }
    }

    /// Encrypts by a policy.
    #[must_use]
    pub fn policy(mut self, policy: NewPolicy) -> EncryptedFolder {
        self.policy = policy;
        self
    }

    /// Encrypts with modes of contents and of names.
    #[must_use]
    pub fn modes(mut self, contents: Mode, names: Mode) -> EncryptedFolder {
        (self.policy.contents, self.policy.names) = (contents, names);
        self
    }
}

impl DmVeritySpec {
    /// A hash area behind the file system.
    pub fn new() -> DmVeritySpec {
        DmVeritySpec::default()
    }

    /// Makes the hash area in a file or on a device of its own.
    #[must_use]
    pub fn hash(mut self, path: impl Into<PathBuf>) -> DmVeritySpec {
        self.hash = Some(path.into());
        self
    }

    /// Makes the hash area in a manner of its own.
    #[must_use]
    pub fn format(mut self, format: FormatOptions) -> DmVeritySpec {
        self.format = format;
        self
    }

    /// Makes parity, too.
    #[must_use]
    pub fn parity(mut self, parity: ParitySpec) -> DmVeritySpec {
        self.parity = Some(parity);
        self
    }
}

impl ParitySpec {
    /// Parity in a file or on a device.
    pub fn new(path: impl Into<PathBuf>) -> ParitySpec {
        ParitySpec { path: path.into(), offset: 0, roots: None }
    }

    /// Begins the parity at a byte.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> ParitySpec {
        self.offset = offset;
        self
    }

    /// Makes so many parity bytes for each codeword.
    #[must_use]
    pub fn roots(mut self, roots: u32) -> ParitySpec {
        self.roots = Some(roots);
        self
    }
}

impl LuksSpec {
    /// A volume of LUKS2 that a passphrase opens.
    pub fn new(passphrase: SecretVec) -> LuksSpec {
        LuksSpec { passphrase, format: LuksFormatOptions::default() }
    }

    /// Makes the volume in a manner of its own.
    #[must_use]
    pub fn format(mut self, format: LuksFormatOptions) -> LuksSpec {
        self.format = format;
        self
    }
}

impl BuildSpec {
    /// An ext4 file system without files, in a new file or on a block device.
    pub fn new(target: impl Into<BuildTarget>) -> BuildSpec {
        BuildSpec {
            target: target.into(),
            android_sparse: false,
            sources: Vec::new(),
            reading: TreeOptions::default(),
            amendments: Amendments::default(),
            inputs: Vec::new(),
            size: None,
            align: None,
            file_system: BuildOptions::default(),
            verity: None,
            signer: None,
            encryption: Vec::new(),
            dm_verity: None,
            luks: None,
            seed: None,
            time: None,
        }
    }

    /// Copies a folder's contents.
    #[must_use]
    pub fn folder(self, path: impl Into<PathBuf>) -> BuildSpec {
        self.source(Source::Folder(path.into()))
    }

    /// Copies what a tar stream has.
    #[must_use]
    pub fn tar(self, path: impl Into<PathBuf>) -> BuildSpec {
        self.source(Source::Tar(path.into()))
    }

    /// Copies what a source has, over what earlier ones had.
    #[must_use]
    pub fn source(mut self, source: Source) -> BuildSpec {
        self.sources.push(source);
        self
    }

    /// Reads sources in a manner of its own.
    #[must_use]
    pub fn reading(mut self, reading: TreeOptions) -> BuildSpec {
        self.reading = reading;
        self
    }

    /// Changes attributes of files.
    #[must_use]
    pub fn amendments(mut self, amendments: Amendments) -> BuildSpec {
        self.amendments = amendments;
        self
    }

    /// Makes a sparse image of Android.
    #[must_use]
    pub fn android_sparse(mut self, sparse: bool) -> BuildSpec {
        self.android_sparse = sparse;
        self
    }

    /// Makes the file system of a size.
    #[must_use]
    pub fn size(mut self, size: BuildSize) -> BuildSpec {
        self.size = Some(size);
        self
    }

    /// Makes the file system with these options; its time and size are the specification's.
    #[must_use]
    pub fn file_system(mut self, options: BuildOptions) -> BuildSpec {
        self.file_system = options;
        self
    }

    /// Puts fs-verity on files.
    #[must_use]
    pub fn verity(mut self, verity: VeritySpec) -> BuildSpec {
        self.verity = Some(verity);
        self
    }

    /// Signs the digests of files with fs-verity, and the root hash of dm-verity.
    #[must_use]
    pub fn signer(mut self, signer: Signer) -> BuildSpec {
        self.signer = Some(signer);
        self
    }

    /// Encrypts a directory.
    #[must_use]
    pub fn encrypt(mut self, folder: EncryptedFolder) -> BuildSpec {
        self.encryption.push(folder);
        self
    }

    /// Makes dm-verity over the file system.
    #[must_use]
    pub fn dm_verity(mut self, dm_verity: DmVeritySpec) -> BuildSpec {
        self.dm_verity = Some(dm_verity);
        self
    }

    /// Makes a LUKS volume around everything.
    #[must_use]
    pub fn luks(mut self, luks: LuksSpec) -> BuildSpec {
        self.luks = Some(luks);
        self
    }

    /// Makes identity, salts and nonces follow from a text.
    #[must_use]
    pub fn seed(mut self, seed: impl Into<String>) -> BuildSpec {
        self.seed = Some(seed.into());
        self
    }

    /// Gives the file system a UUID.
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> BuildSpec {
        self.file_system.uuid = Some(uuid.into());
        self
    }

    /// Makes later times of files be this one.
    #[must_use]
    pub fn time(mut self, latest: Time) -> BuildSpec {
        self.time = Some(latest);
        self
    }
}
