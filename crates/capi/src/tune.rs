//! Parameters of ext4 file systems, changed.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

use casemate::Error;
use casemate::ext4::{self, Tuning, new_uuid};

use crate::boundary::{Options, Status, c_options, path_if_any, text};
use crate::error::CError;
use crate::writer::{CWriter, change};

/// The number `reserved_blocks` is set.
pub const TUNE_RESERVED_BLOCKS: u32 = 1;
/// The number `reserved_user` is set.
pub const TUNE_RESERVED_USER: u32 = 2;
/// The number `reserved_group` is set.
pub const TUNE_RESERVED_GROUP: u32 = 4;
/// The number `max_mounts` is set.
pub const TUNE_MAX_MOUNTS: u32 = 8;
/// The number `mounts` is set.
pub const TUNE_MOUNTS: u32 = 16;
/// The number `check_interval` is set.
pub const TUNE_CHECK_INTERVAL: u32 = 32;
/// The number `last_check` is set.
pub const TUNE_LAST_CHECK: u32 = 64;

/// All numbers that can be set.
const TUNE_ALL: u32 = 127;

/// Parameters of a file system that change. A string that is NULL, and a number that `set` does not name, stay as they are.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CTuneOptions {
    size: u32,
    /// Numbers below that change: CASEMATE_TUNE values, joined with |.
    set: u32,
    /// Label of at most 16 bytes; "" removes it.
    label: *const c_char,
    /// A UUID, or "random", "time" or "clear".
    uuid: *const c_char,
    /// Features to add, or with a ^ to remove, with commas.
    features: *const c_char,
    /// Default mount options to set, or with a ^ to clear, with commas: acl, user_xattr, discard and others.
    mount_options: *const c_char,
    /// Extended options with commas: stride, stripe_width, hash_alg, mount_opts, test_fs, force_fsck.
    extended: *const c_char,
    /// Behaviour of the kernel on errors: "continue", "remount-ro" or "panic".
    on_errors: *const c_char,
    /// Path where the file system was mounted last, of at most 64 bytes.
    last_mounted: *const c_char,
    /// Bytes of a new journal, which is added; 0: none, or one of the usual size with the feature has_journal.
    journal_size: u64,
    /// Blocks that only root may use: at most half of all.
    reserved_blocks: u64,
    /// When the file system was checked last, in seconds since 1970: from 0 to 2^40 - 1.
    last_check: i64,
    /// Seconds after which the file system is checked; 0 for never.
    check_interval: u32,
    /// Mounts after which the file system is checked, at most 16000; 0 or -1 for never.
    max_mounts: i32,
    /// Mounts since the last check.
    mounts: u16,
    /// User that may use reserved blocks, too.
    reserved_user: u16,
    /// Group that may use reserved blocks, too.
    reserved_group: u16,
    /// 0
    reserved: u16,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CTuneOptions {}

/// Changes parameters of the file system, such as its label and UUID: all of them with the next commit, or none. Another UUID makes all
/// checksums other ones, which are computed anew, unless the file system has the feature metadata_csum_seed.
///
/// @param writer a writer, used by one thread at a time
/// @param options parameters that change
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`: its kind is CASEMATE_KIND_ARGUMENT for values that no file system can
///   have, CASEMATE_KIND_UNSUPPORTED for features that can't be added or removed. Nothing is changed then
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_tune(
    writer: *mut CWriter,
    options: *const CTuneOptions,
    error: *mut *mut CError,
) -> Status {
    let tune = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        writer.tune(&unsafe { tuning(options)? })
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, tune) }
}

/// # Safety
/// `options` is as the header says.
unsafe fn tuning(options: *const CTuneOptions) -> Result<Tuning, Error> {
    if options.is_null() {
        return Err(Error::argument("options is NULL"));
    }
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { c_options(options)? };
    if how.set & !TUNE_ALL != 0 {
        return Err(Error::unsupported("`set` names a number that only newer versions of the library know"));
    }
    let mut tuning = Tuning::default();
    // SAFETY: the header says what these pointers are.
    let (label, uuid) = unsafe { (text(how.label, "label")?, text(how.uuid, "uuid")?) };
    tuning.label = label.map(|label| label.as_bytes().to_vec());
    tuning.uuid = uuid.map(new_uuid).transpose()?;
    // SAFETY: the header says what these pointers are.
    let (features, on_errors) =
        unsafe { (text(how.features, "features")?, text(how.on_errors, "on_errors")?) };
    tuning.features.change(features.unwrap_or_default())?;
    if how.journal_size != 0 {
        tuning.features.change("has_journal")?;
        tuning.journal_size = Some(how.journal_size);
    }
    // SAFETY: the header says what these pointers are.
    let (mount_options, extended) =
        unsafe { (text(how.mount_options, "mount_options")?, text(how.extended, "extended")?) };
    tuning.change_mount_options(mount_options.unwrap_or_default())?;
    tuning.set_extended(extended.unwrap_or_default())?;
    on_errors.map_or(Ok(()), |action| tuning.set_on_errors(action))?;
    // SAFETY: the header says what this pointer is.
    let last_mounted = unsafe { path_if_any(how.last_mounted) };
    tuning.last_mounted = last_mounted.map(|path| path.as_os_str().as_bytes().to_vec());
    let is_set = |number: u32| how.set & number != 0;
    tuning.reserved_blocks = is_set(TUNE_RESERVED_BLOCKS).then_some(how.reserved_blocks);
    tuning.reserved_user = is_set(TUNE_RESERVED_USER).then_some(how.reserved_user);
    tuning.reserved_group = is_set(TUNE_RESERVED_GROUP).then_some(how.reserved_group);
    tuning.mounts = is_set(TUNE_MOUNTS).then_some(how.mounts);
    tuning.check_interval = is_set(TUNE_CHECK_INTERVAL).then_some(how.check_interval);
    tuning.checked = is_set(TUNE_LAST_CHECK).then_some(how.last_check);
    if is_set(TUNE_MAX_MOUNTS) {
        tuning.set_most_mounts(how.max_mounts)?;
    }
    Ok(tuning)
}
