//! Options of a new file system.

use std::ffi::c_char;

use casemate::Error;
use casemate::ext4::{BuildSize, BuildSpec, Features, uuid_of};

use super::{CBuild, change};
use crate::boundary::{Options, Status, c_options, text};
use crate::error::CError;

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
    /// Bytes that are free in the end, at least, as with `casemate ext4 build --min-free`; `bytes` that have no room for them are
    /// refused.
    free_bytes: u64,
    /// Whether `uid` and `gid` own everything; 0: the owners are those of the sources, and `uid` and `gid` have no effect.
    has_owner: u32,
    uid: u32,
    gid: u32,
    /// Whether the image is a sparse one of Android.
    android_sparse: u32,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CBuildOptions {}

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
        spec.size = (how.bytes != 0).then_some(BuildSize::Bytes(how.bytes));
        spec.file_system.min_free = how.free_bytes;
        spec.reading.owners.all = (how.has_owner != 0).then_some((how.uid, how.gid));
        spec.android_sparse = how.android_sparse != 0;
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}
