//! ext4 images that are made: a specification that is filled in, and run.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use casemate::blockdev::PartitionId;
use casemate::ext4::{
    BuildSize, BuildSpec, BuildTarget, Description, EncryptedFolder, Features, LuksSpec, NewMode, NewPolicy,
    NewXattr, ParitySpec, Pattern, Signer, Source, VeritySpec, uuid_of,
};
use casemate::luks::{Argon2, Argon2Variant, LuksFormatOptions, Pbkdf};
use casemate::signature::{Certificate, DigestAlgorithm, SigningKey};
use casemate::{Error, SecretSource, SecretVec, Work};

use crate::boundary::{
    Options, Status, YES, bytes, c_options, c_path, free, get, give, place, room, run, text,
};
use crate::error::CError;
use crate::fsverity::{CDigest, FsverityOptions, store};

/// A specification of a new file system, its contents, and layers around it. It is built once; the signature of its root hash stays.
pub struct CBuild(Option<BuildSpec>, Option<Vec<u8>>);

/// Options of a new file system. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CBuildOptions {
    size: u32,
    /// 4096
    block_size: u32,
    /// "ext4", or "ext2", "ext3"
    kind: *const c_char,
    /// Features to add, or with a ^ to take away, with commas.
    features: *const c_char,
    label: *const c_char,
    /// NULL: of the contents.
    uuid: *const c_char,
    /// Text that identity, salts and nonces follow from.
    seed: *const c_char,
    /// Bytes of the file system; 0: as few as there can be, or all of a device.
    bytes: u64,
    /// Bytes that are free in the end, if `bytes` is 0.
    free_bytes: u64,
    /// Whether `uid` and `gid` own everything.
    has_owner: u32,
    uid: u32,
    gid: u32,
    /// Whether the image is a sparse one of Android.
    android_sparse: u32,
}

/// Options of a LUKS2 volume around a new file system. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CLuksOptions {
    size: u32,
    /// 512
    sector_size: u32,
    /// NULL: a random one. With one the volume follows from the seed of the build.
    volume_key: *const c_void,
    volume_key_len: usize,
    /// "argon2id", or "argon2i", "pbkdf2"
    kdf: *const c_char,
    /// Of the KDF.
    iterations: u32,
    /// Of Argon2, in KiB.
    memory: u32,
    /// Of Argon2.
    lanes: u32,
    /// 0
    reserved: u32,
}

/// Policy of an encrypted directory, but for its key; a field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CPolicyOptions {
    size: u32,
    /// 2, or 1
    version: u32,
    /// Bytes that names are padded to a multiple of: 32, or 4, 8, 16
    padding: u32,
    /// Bytes of a data unit; 0: of a block.
    data_unit_size: u32,
    /// "aes-256-xts"
    contents_mode: *const c_char,
    /// "aes-256-cts"
    names_mode: *const c_char,
    /// "file": a key for each file; or "direct", "inode64", "inode32": one for all, and IVs with the nonce or the inode's number
    ivs: *const c_char,
}

/// Numbers of a new file system, and its digests.
#[repr(C)]
pub struct CBuilt {
    /// Bytes of the file system.
    size: u64,
    files: u64,
    directories: u64,
    others: u64,
    uuid: [u8; 16],
    /// Of dm-verity; without it of no bytes.
    root_hash: CDigest,
    /// Zeros, for what comes later.
    reserved: [u64; 4],
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CBuildOptions {}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CLuksOptions {}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CPolicyOptions {}

/// Changes a specification.
///
/// # Safety
/// `build` is NULL or a build that nobody else uses meanwhile, and `error` is NULL or a place for a pointer.
unsafe fn change(
    build: *mut CBuild,
    error: *mut *mut CError,
    change: impl FnOnce(&mut BuildSpec) -> Result<(), Error>,
) -> Status {
    let changed = || {
        // SAFETY: the caller says what this pointer is.
        let build = unsafe { place(build, "build")? };
        change(build.0.as_mut().ok_or_else(used)?)?;
        Ok(YES)
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, changed) }
}

fn used() -> Error {
    Error::argument("this build was run already")
}

/// Begins to specify an image in a file, which appears only when it is complete, or on a block device.
///
/// @param path the file or block device
/// @param build where the specification is stored; the caller frees it with casemate_build_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_new(
    path: *const c_char,
    build: *mut *mut CBuild,
    error: *mut *mut CError,
) -> Status {
    let new = || {
        // SAFETY: the header says what these pointers are.
        let (path, build) = unsafe { (c_path(path, "path")?, place(build, "build")?) };
        Ok(give(build, CBuild(Some(BuildSpec::new(path)), None)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, new) }
}

/// Puts the file system into an existing file or device, from a byte on; the other bytes stay.
///
/// @param build the specification
/// @param offset first byte of the file system
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_at(
    build: *mut CBuild,
    offset: u64,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| within(spec, |path| BuildTarget::Within { path, offset });
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Puts the file system into a partition, counted from 1, of an existing file or device.
///
/// @param build the specification
/// @param number number of the partition
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_in_partition(
    build: *mut CBuild,
    number: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        within(spec, |path| BuildTarget::Partition { path, id: PartitionId::Number(number) })
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes a part of the target the target.
fn within(spec: &mut BuildSpec, part: impl FnOnce(PathBuf) -> BuildTarget) -> Result<(), Error> {
    let path = spec
        .target
        .path()
        .ok_or_else(|| Error::argument("the target is a stream; name a file or block device first"))?;
    spec.target = part(path.to_owned());
    Ok(())
}

/// Adds the contents of a folder of the host. They replace files of earlier sources.
///
/// @param build the specification
/// @param folder the folder
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_folder(
    build: *mut CBuild,
    folder: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, folder, Source::Folder, error) }
}

/// Adds the contents of a tar stream, plain or compressed with gzip or zstd; "-" is standard input.
///
/// @param build the specification
/// @param tar the file, or "-"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_tar(
    build: *mut CBuild,
    tar: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, tar, Source::Tar, error) }
}

/// Adds a layer of an OCI image: a tar stream whose whiteouts remove files of earlier sources.
///
/// @param build the specification
/// @param layer the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_layer(
    build: *mut CBuild,
    layer: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, layer, Source::Layer, error) }
}

/// Adds all layers of an image in an OCI layout folder: the only one for NULL, or the one with this name, digest or platform.
///
/// @param build the specification
/// @param folder the folder
/// @param image name, digest or platform of the image, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_oci(
    build: *mut CBuild,
    folder: *const c_char,
    image: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (folder, image) = unsafe { (c_path(folder, "folder")?, text(image, "image")?) };
        spec.sources.push(Source::Oci(folder.to_owned(), image.map(str::to_owned)));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// # Safety
/// As [`change`]; `path` is NULL, or ends with a zero byte.
unsafe fn add(
    build: *mut CBuild,
    path: *const c_char,
    source: fn(PathBuf) -> Source,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the caller says what this pointer is.
        spec.sources.push(source(unsafe { c_path(path, "path")? }.to_owned()));
        Ok(())
    };
    // SAFETY: the caller says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Sets options of the file system.
///
/// @param build the specification
/// @param options options, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_set_options(
    build: *mut CBuild,
    options: *const CBuildOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let how = unsafe { c_options(options)? };
        let ext4 = &mut spec.file_system;
        // SAFETY: the header says what these pointers are.
        let (kind, features) = unsafe { (text(how.kind, "kind")?, text(how.features, "features")?) };
        // SAFETY: the header says what these pointers are.
        let (uuid, seed) = unsafe { (text(how.uuid, "uuid")?, text(how.seed, "seed")?) };
        ext4.features = Features::of_type(kind.unwrap_or("ext4"))?;
        ext4.features.change(features.unwrap_or_default())?;
        ext4.block_size = if how.block_size == 0 { 4096 } else { how.block_size };
        // SAFETY: the header says what this pointer is.
        ext4.label = unsafe { text(how.label, "label")? }.unwrap_or_default().as_bytes().to_vec();
        if let Some(text) = uuid {
            let uuid = uuid_of(text).ok_or_else(|| Error::argument(format!("invalid UUID '{text}'")))?;
            ext4.uuid = Some(uuid.into());
        }
        spec.seed = seed.map(str::to_owned);
        spec.size = match (how.bytes, how.free_bytes) {
            (0, 0) => None,
            (0, free) => Some(BuildSize::Fitting { free, align: 1 }),
            (size, _) => Some(BuildSize::Bytes(size)),
        };
        spec.reading.owners.all = (how.has_owner != 0).then_some((how.uid, how.gid));
        spec.android_sparse = how.android_sparse != 0;
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Enables fs-verity on regular files that match a pattern, of which there must be one, or on all for NULL. Each call adds a
/// pattern. The block size follows from the file system: it is 0 in the options, of which the last ones count.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param options options, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_verity(
    build: *mut CBuild,
    pattern: *const c_char,
    options: *const FsverityOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let (algorithm, salt) = unsafe { FsverityOptions::of_tree(options)? };
        // SAFETY: the header says what this pointer is.
        let pattern = unsafe { matching(pattern)? };
        let verity = spec.verity.take().unwrap_or_default();
        spec.verity = Some(verity.pattern(pattern).algorithm(algorithm).salt(salt));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Enables fs-verity on the files of a manifest. Files with other digests are refused.
///
/// @param build the specification
/// @param manifest the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_verity_manifest(
    build: *mut CBuild,
    manifest: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let manifest = unsafe { c_path(manifest, "manifest")? };
        let verity: VeritySpec = spec.verity.take().unwrap_or_default();
        spec.verity = Some(verity.manifest(manifest));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Maps user IDs of the sources. Each call adds a range.
///
/// @param build the specification
/// @param to first ID in the image
/// @param from first ID of the source
/// @param count how many IDs
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_map_users(
    build: *mut CBuild,
    to: u32,
    from: u32,
    count: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.owners.users.push([to, from, count]);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Maps group IDs of the sources. Each call adds a range.
///
/// @param build the specification
/// @param to first ID in the image
/// @param from first ID of the source
/// @param count how many IDs
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_map_groups(
    build: *mut CBuild,
    to: u32,
    from: u32,
    count: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.owners.groups.push([to, from, count]);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Copies no extended attributes of the sources.
///
/// @param build the specification
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_no_xattrs(build: *mut CBuild, error: *mut *mut CError) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.xattrs = false;
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Changes permission bits of files that match a pattern, of which there must be one. Each call adds a rule.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param mode octal bits, or changes as of chmod(1), such as "u+x,go=r"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_mode(
    build: *mut CBuild,
    pattern: *const c_char,
    mode: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (pattern, mode) = unsafe { (matching(pattern)?, text(mode, "mode")?) };
        let mode = mode.ok_or_else(|| Error::argument("mode is NULL"))?;
        spec.amendments.modes.push(NewMode::change(pattern, mode.parse()?));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Sets an extended attribute on files that match a pattern, of which there must be one. Each call adds a rule.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param name name of the attribute, such as "user.origin"
/// @param value its value
/// @param value_len length of the value in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_xattr(
    build: *mut CBuild,
    pattern: *const c_char,
    name: *const c_char,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (pattern, name) = unsafe { (matching(pattern)?, c_path(name, "name")?) };
        // SAFETY: the header says what this pointer is.
        let value = unsafe { bytes(value, value_len, "value")? };
        spec.amendments.xattrs.push(NewXattr::new(pattern, name.as_os_str().as_bytes(), value));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// A pattern; that of all files for NULL.
///
/// # Safety
/// `pattern` is NULL, or ends with a zero byte.
unsafe fn matching(pattern: *const c_char) -> Result<Pattern, Error> {
    match pattern.is_null() {
        true => Pattern::new(b"*"),
        // SAFETY: the caller says what this pointer is.
        false => Pattern::new(unsafe { c_path(pattern, "pattern")? }.as_os_str().as_bytes()),
    }
}

/// Signs the digests of files with fs-verity, and the root hash of dm-verity, with a private key.
///
/// @param build the specification
/// @param key the private key in PEM: RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384; it is copied, and wiped by
///   casemate_build_free()
/// @param key_len its length in bytes
/// @param certificate the certificate in PEM or DER
/// @param certificate_len its length in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_signing_key(
    build: *mut CBuild,
    key: *const c_void,
    key_len: usize,
    certificate: *const c_void,
    certificate_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (key, certificate) =
            unsafe { (bytes(key, key_len, "key")?, bytes(certificate, certificate_len, "certificate")?) };
        spec.signer = Some(Signer::new(SigningKey::from_pem(key)?, Certificate::from_bytes(certificate)?));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Has a function of the caller sign the digests of files with fs-verity, and the root hash of dm-verity, such as with a token.
/// Each signature is verified with the certificate.
///
/// @param build the specification
/// @param sign called by any thread, and by several at the same time
/// @param context passed to `sign`; must live until casemate_build_run() returns
/// @param certificate the certificate in PEM or DER
/// @param certificate_len its length in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_signer(
    build: *mut CBuild,
    sign: SignatureFn,
    context: *mut c_void,
    certificate: *const c_void,
    certificate_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        let sign = sign.ok_or_else(|| Error::argument("sign is NULL"))?;
        // SAFETY: the header says what this pointer is.
        let certificate = unsafe { bytes(certificate, certificate_len, "certificate")? };
        let elsewhere = Elsewhere { sign, context };
        let signed = Box::new(move |message: &[u8], digest: DigestAlgorithm| elsewhere.sign(message, digest));
        spec.signer = Some(Signer::external(Certificate::from_bytes(certificate)?, signed));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Signs `message` with a hash, "sha256" or "sha512": stores an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in DER, in `signature`,
/// which has room for `*signature_len` bytes, and its length there. Returns 0, or a number of errno.h.
pub type SignatureFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        hash: *const c_char,
        message: *const c_void,
        message_len: usize,
        signature: *mut c_void,
        signature_len: *mut usize,
    ) -> c_int,
>;

/// The caller's function that signs, with what it is called with.
struct Elsewhere {
    sign: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        *const c_void,
        usize,
        *mut c_void,
        *mut usize,
    ) -> c_int,
    context: *mut c_void,
}

// SAFETY: the header says that the function is called by any thread, and at the same time.
unsafe impl Send for Elsewhere {}
// SAFETY: as above.
unsafe impl Sync for Elsewhere {}

/// Bytes of a signature at most: RSA of 4096 bits has 512.
const SIGNATURE: usize = 1024;

impl Elsewhere {
    fn sign(&self, message: &[u8], digest: DigestAlgorithm) -> Result<Vec<u8>, Error> {
        let hash = CString::new(digest.name()).map_err(|_| Error::argument("the name of the hash"))?;
        let (mut signature, mut len) = (vec![0; SIGNATURE], SIGNATURE);
        let (message, size) = (message.as_ptr().cast(), message.len());
        // SAFETY: the caller gave this function and its context for such calls; the buffers have so many bytes.
        let number = unsafe {
            (self.sign)(self.context, hash.as_ptr(), message, size, signature.as_mut_ptr().cast(), &mut len)
        };
        if number != 0 {
            return Err(Error::io("the function that signs", io::Error::from_raw_os_error(number)));
        }
        if len > SIGNATURE {
            return Err(Error::argument(
                "the function that signs says that its signature is longer than its room",
            ));
        }
        signature.truncate(len);
        Ok(signature)
    }
}

/// Encrypts a directory, with its contents, with a raw master key of 16 to 64 bytes.
///
/// @param build the specification
/// @param directory the directory in the file system
/// @param key the key; it is copied, and wiped by casemate_build_free()
/// @param key_len its length in bytes
/// @param policy the policy, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_encrypt(
    build: *mut CBuild,
    directory: *const c_char,
    key: *const c_void,
    key_len: usize,
    policy: *const CPolicyOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (directory, key) = unsafe { (c_path(directory, "directory")?, bytes(key, key_len, "key")?) };
        let key = SecretSource::memory(SecretVec::from(key));
        let folder = EncryptedFolder::new(directory.as_os_str().as_bytes(), key);
        // SAFETY: the header says what this pointer is.
        spec.encryption.push(folder.policy(unsafe { new_policy(policy)? }));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Encrypts a directory, with its contents, with a random key that google/fscrypt opens with a secret. The files of that tool
/// are put into the file system.
///
/// @param build the specification
/// @param directory the directory in the file system
/// @param source "custom_passphrase", or "raw_key" for a key of 32 bytes; NULL is a passphrase
/// @param secret the passphrase or key; it is copied, and wiped by casemate_build_free()
/// @param secret_len its length in bytes
/// @param policy the policy, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_protect(
    build: *mut CBuild,
    directory: *const c_char,
    source: *const c_char,
    secret: *const c_void,
    secret_len: usize,
    policy: *const CPolicyOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (directory, source) = unsafe { (c_path(directory, "directory")?, text(source, "source")?) };
        // SAFETY: the header says what this pointer is.
        let secret = SecretVec::from(unsafe { bytes(secret, secret_len, "secret")? });
        let source = source.map_or(Ok(Default::default()), str::parse)?;
        let secret = SecretSource::memory(secret);
        let folder = EncryptedFolder::protected(directory.as_os_str().as_bytes(), source, secret);
        // SAFETY: the header says what this pointer is.
        spec.encryption.push(folder.policy(unsafe { new_policy(policy)? }));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// The policy that options say.
///
/// # Safety
/// `options` is NULL, or options whose strings are NULL or end with a zero byte.
unsafe fn new_policy(options: *const CPolicyOptions) -> Result<NewPolicy, Error> {
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { c_options(options)? };
    let mut policy = NewPolicy::default();
    // SAFETY: the caller says what these pointers are.
    let (contents, names) =
        unsafe { (text(how.contents_mode, "contents_mode")?, text(how.names_mode, "names_mode")?) };
    policy.contents = contents.map_or(Ok(policy.contents), str::parse)?;
    policy.names = names.map_or(Ok(policy.names), str::parse)?;
    // SAFETY: the caller says what this pointer is.
    policy.ivs = unsafe { text(how.ivs, "ivs")? }.map_or(Ok(policy.ivs), str::parse)?;
    if how.version != 0 {
        policy.set_version(how.version)?;
    }
    if how.padding != 0 {
        // OK to cast: a `usize` has 32 bits at least.
        policy.padding = how.padding as usize;
    }
    policy.data_unit_size = Some(how.data_unit_size).filter(|size| *size != 0);
    Ok(policy)
}

/// Changes owners, modes and other attributes of files as a description in a file says; each call adds one.
///
/// @param build the specification
/// @param format "fs_config", "device_table", "mtree" or "composefs_dump"
/// @param description the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_describe(
    build: *mut CBuild,
    format: *const c_char,
    description: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (format, path) = unsafe { (text(format, "format")?, c_path(description, "description")?) };
        let format = format.ok_or_else(|| Error::argument("format is NULL"))?.parse()?;
        spec.amendments.descriptions.push(Description::new(format, path));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Labels everything for SELinux as a file in the format of file_contexts says.
///
/// @param build the specification
/// @param file_contexts the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_label(
    build: *mut CBuild,
    file_contexts: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        spec.amendments.file_contexts = Some(unsafe { c_path(file_contexts, "file_contexts")? }.to_owned());
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Tells where the file system will be mounted: paths of descriptions in the format fs_config, and of labels, begin there.
///
/// @param build the specification
/// @param mount_point the path; without this call it is "/"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_mount_point(
    build: *mut CBuild,
    mount_point: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { c_path(mount_point, "mount_point")? };
        spec.amendments.mount_point = path.as_os_str().as_bytes().to_vec();
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes dm-verity over the file system, with a hash area in a file or on a device, or behind the file system for NULL.
///
/// @param build the specification
/// @param hash the file or block device, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_dm_verity(
    build: *mut CBuild,
    hash: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        let hash = match hash.is_null() {
            true => None,
            // SAFETY: the header says what this pointer is.
            false => Some(unsafe { c_path(hash, "hash")? }.to_owned()),
        };
        spec.dm_verity.get_or_insert_default().hash = hash;
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes parity for error correction of dm-verity, which was asked for before, in a file or on a device.
///
/// @param build the specification
/// @param parity the file or block device
/// @param offset first byte of the parity there
/// @param roots parity bytes for each codeword of 255: 2 to 24; 0 is 2
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_parity(
    build: *mut CBuild,
    parity: *const c_char,
    offset: u64,
    roots: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        let Some(dm_verity) = &mut spec.dm_verity else {
            return Err(Error::argument("parity is of dm-verity, which was not asked for"));
        };
        // SAFETY: the header says what this pointer is.
        let mut place = ParitySpec::new(unsafe { c_path(parity, "parity")? });
        (place.offset, place.roots) = (offset, Some(roots).filter(|roots| *roots != 0));
        dm_verity.parity = Some(place);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes a LUKS2 volume around everything, which a passphrase opens.
///
/// @param build the specification
/// @param passphrase the passphrase; it is copied, and wiped by casemate_build_free()
/// @param passphrase_len its length in bytes
/// @param options options, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_luks(
    build: *mut CBuild,
    passphrase: *const c_void,
    passphrase_len: usize,
    options: *const CLuksOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (passphrase, how) =
            unsafe { (bytes(passphrase, passphrase_len, "passphrase")?, c_options(options)?) };
        if how.reserved != 0 {
            return Err(Error::unsupported(
                "the options have a field that only newer versions of the library know",
            ));
        }
        let mut format = LuksFormatOptions::default();
        if how.sector_size != 0 {
            format.sector_size = how.sector_size;
        }
        if !how.volume_key.is_null() {
            // SAFETY: the header says what these pointers are.
            let key = unsafe { bytes(how.volume_key, how.volume_key_len, "volume_key")? };
            format.volume_key = Some(SecretVec::from(key));
        }
        // SAFETY: the header says what this pointer is.
        let kdf = unsafe { text(how.kdf, "kdf")? };
        format.pbkdf = Some(pbkdf(kdf.unwrap_or("argon2id"), &how, &format.hash)?);
        spec.luks = Some(LuksSpec::new(SecretVec::from(passphrase)).format(format));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// The KDF, with its usual costs where they are zero.
fn pbkdf(name: &str, how: &CLuksOptions, hash: &str) -> Result<Pbkdf, Error> {
    let given = |cost: u32, usual: u32| if cost == 0 { usual } else { cost };
    let variant = match name {
        "argon2id" => Argon2Variant::Id,
        "argon2i" => Argon2Variant::I,
        "pbkdf2" => {
            let mut pbkdf = Pbkdf::pbkdf2(hash);
            if let Pbkdf::Pbkdf2 { iterations, .. } = &mut pbkdf {
                *iterations = given(how.iterations, *iterations);
            }
            return Ok(pbkdf);
        }
        _ => return Err(Error::argument(format!("no KDF is called {name}: argon2id, argon2i, pbkdf2"))),
    };
    let Pbkdf::Argon2(usual) = Pbkdf::argon2id() else { return Ok(Pbkdf::argon2id()) };
    Ok(Pbkdf::Argon2(Argon2 {
        variant,
        passes: given(how.iterations, usual.passes),
        memory: given(how.memory, usual.memory),
        lanes: given(how.lanes, usual.lanes),
    }))
}

/// Makes the image with all threads. Other contents of the target are refused without `overwrite`. `built` may be NULL.
///
/// @param build the specification
/// @param overwrite whether something else at the target may be lost
/// @param built where numbers, UUID and root hash are stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_run(
    build: *mut CBuild,
    overwrite: c_int,
    built: *mut CBuilt,
    error: *mut *mut CError,
) -> Status {
    let make = || {
        // SAFETY: the header says what this pointer is.
        let build = unsafe { place(build, "build")? };
        let spec = build.0.take().ok_or_else(used)?;
        let made = match overwrite {
            0 => spec.run(&casemate::target::refuse, &Work::default())?,
            _ => spec.run(&casemate::target::overwrite, &Work::default())?,
        };
        build.1.clone_from(&made.root_hash_signature);
        // SAFETY: the header says what this pointer is.
        if let Some(out) = unsafe { built.as_mut() } {
            let report = &made.report;
            (out.size, out.files, out.directories, out.others) =
                (made.size, report.files, report.directories, report.others);
            (out.uuid, out.reserved) = (report.uuid, [0; 4]);
            let root_hash = made.dm_verity.as_ref().map_or(&[][..], |formatted| &formatted.root_hash);
            store(&mut out.root_hash, root_hash);
        }
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, make) }
}

/// Copies the PKCS#7 signature of the root hash in DER, once casemate_build_run() has returned CASEMATE_YES for a build with dm-verity
/// and a signer.
///
/// @param build the specification
/// @param signature where the signature is stored, or NULL to ask for its length alone
/// @param len room at `signature` in bytes; the length of the signature is stored there
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_ARGUMENT without a signature, or without room
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_root_hash_signature(
    build: *const CBuild,
    signature: *mut c_void,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let copy = || {
        // SAFETY: the header says what these pointers are.
        let (build, len) = unsafe { (get(build, "build")?, place(len, "len")?) };
        let Some(made) = &build.1 else {
            return Err(Error::argument("this build has made no signature of a root hash"));
        };
        let has_room = *len;
        *len = made.len();
        if signature.is_null() {
            return Ok(YES);
        }
        if has_room < made.len() {
            return Err(Error::argument(format!(
                "the signature has {} bytes; there is room for {has_room}",
                made.len()
            )));
        }
        // SAFETY: the header says what this pointer is.
        unsafe { room(signature, made.len(), "signature")? }.copy_from_slice(made);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, copy) }
}

/// Frees a specification, and wipes its keys.
///
/// @param build the specification, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_free(build: *mut CBuild) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(build) }
}
