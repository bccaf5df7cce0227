//! ext4 file systems that get another size.

use std::ffi::c_void;

use casemate::ext4::{Resize, ResizeReport, Tail};
use casemate::{Error, Work};

use crate::boundary::{Options, Status, YES, c_options, get, place};
use crate::device::CDevice;
use crate::error::{CError, run};
use crate::keys::{CKeys, to_read, to_write};
use crate::progress::{Progress, ProgressFn};

/// Options of another size. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CResizeOptions {
    size: u32,
    /// 1 to cut the file behind a file system that shrinks; refused if something was behind it before.
    truncate: u32,
    /// 1 to grow into bytes that hold something, which is lost.
    overwrite: u32,
    /// 0
    reserved: u32,
    /// Told of bytes of inode tables, which are checked before a file system shrinks.
    progress: ProgressFn,
    /// Passed to `progress`.
    context: *mut c_void,
}

/// Sizes of a file system before and now.
#[repr(C)]
pub struct CResized {
    /// Size in bytes.
    bytes: u64,
    /// Size in blocks before.
    blocks_before: u64,
    /// Size in blocks.
    blocks: u64,
    /// Blocks of files and of their maps that were moved.
    blocks_moved: u64,
    /// Inodes that have another number now.
    inodes_moved: u64,
    /// Bytes of a block.
    block_size: u32,
    /// Reserved; 0.
    reserved: [u32; 7],
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CResizeOptions {}

/// Makes the file system on a device larger or smaller. A file that is too small is extended by a hole. A file system that shrinks is
/// checked first, and files behind its new end are moved. What is interrupted is completed by the next writer of this library; until
/// then neither e2fsck nor the kernel should have the file system.
///
/// @param device a writable device
/// @param keys keys for encrypted folders, or NULL
/// @param bytes the new size in bytes; 0 is the size of the device
/// @param options options, or NULL for the usual values
/// @param resized where the sizes are stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`: its kind is CASEMATE_KIND_ARGUMENT, or its system error ENOSPC, for a size
///   that is too small for the files; CASEMATE_KIND_CORRUPT for damage that the check found; CASEMATE_KIND_BUSY while a
///   writer or a server may change the device
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_resize(
    device: *const CDevice,
    keys: *const CKeys,
    bytes: u64,
    options: *const CResizeOptions,
    resized: *mut CResized,
    error: *mut *mut CError,
) -> Status {
    let set = |how: &CResizeOptions| {
        let mut resize = Resize::default();
        resize.size = (bytes != 0).then_some(bytes);
        resize.overwrite = how.overwrite != 0;
        resize.tail = if how.truncate == 0 { Tail::Keep } else { Tail::Cut };
        resize
    };
    // SAFETY: the header says what these pointers are.
    unsafe { resize(device, keys, options, set, resized, error) }
}

/// Makes the file system on a device as small as it can be, and cuts its file. The file keeps its size if something other
/// than the file system is behind it, such as a hash tree.
///
/// @param device a writable device
/// @param keys keys for encrypted folders, or NULL
/// @param options options, or NULL for the usual values; only `progress` counts
/// @param resized where the sizes are stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`, as of casemate_ext4_resize()
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_minimize(
    device: *const CDevice,
    keys: *const CKeys,
    options: *const CResizeOptions,
    resized: *mut CResized,
    error: *mut *mut CError,
) -> Status {
    let set = |_: &CResizeOptions| {
        let mut resize = Resize::default();
        (resize.least, resize.tail) = (true, Tail::CutIfEmpty);
        resize
    };
    // SAFETY: the header says what these pointers are.
    unsafe { resize(device, keys, options, set, resized, error) }
}

/// Estimates the fewest bytes that the file system on a device can have. Nothing is written.
///
/// @param device the device
/// @param keys keys for encrypted folders, or NULL
/// @param bytes where the size in bytes is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_UNSUPPORTED for features with which the size
///   can't change
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_minimum_size(
    device: *const CDevice,
    keys: *const CKeys,
    bytes: *mut u64,
    error: *mut *mut CError,
) -> Status {
    let estimate = || {
        // SAFETY: the header says what these pointers are.
        let (device, bytes) = unsafe { (get(device, "device")?, place(bytes, "bytes")?) };
        // SAFETY: the header says what this pointer is.
        let options = unsafe { to_read(keys) };
        *bytes = device.0.ext4_least_size(&options, &Work::default())?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, estimate) }
}

/// # Safety
/// The pointers are as the header says.
unsafe fn resize(
    device: *const CDevice,
    keys: *const CKeys,
    options: *const CResizeOptions,
    set: impl FnOnce(&CResizeOptions) -> Resize,
    resized: *mut CResized,
    error: *mut *mut CError,
) -> Status {
    let resize = || {
        // SAFETY: the caller says what these pointers are.
        let (device, how) = unsafe { (get(device, "device")?, c_options(options)?) };
        // SAFETY: the caller says what this pointer is.
        let writing = unsafe { to_write(keys) };
        let progress = Progress::new(how.progress, how.context);
        let report = device.0.ext4_resize(&writing, set(&how), &progress.work())?;
        // SAFETY: the caller says that a value can be written there.
        if let Some(out) = unsafe { resized.as_mut() } {
            *out = sizes_of(&report);
        }
        Ok::<_, Error>(YES)
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, resize) }
}

fn sizes_of(report: &ResizeReport) -> CResized {
    CResized {
        bytes: report.bytes(),
        blocks_before: report.blocks_before,
        blocks: report.blocks,
        blocks_moved: report.blocks_moved,
        inodes_moved: report.inodes_moved,
        block_size: report.block_size,
        reserved: [0; 7],
    }
}
