//! ext4 file systems, repaired.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use casemate::Error;
use casemate::blockdev::u64_of;
use casemate::ext4::{Finding, FindingKind, RepairDepth, RepairHow};

use crate::boundary::{NO, Options, Status, YES, c_options, get, path_if_any, text};
use crate::device::CDevice;
use crate::error::{CError, run};
use crate::ext4::{FindingFn, LEVEL_FAULT, LEVEL_FIXED, LEVEL_NOTE, tell};
use crate::keys::{CKeys, to_write};
use crate::progress::{Progress, ProgressFn};

/// Decides about `count` findings of a kind, such as "block-count"; docs/checks.md has all kinds. Each kind is asked for
/// once. The string lives as long as the call. Returns 1 to fix them, 0 to leave them; another value ends the repair with an
/// error.
pub type ApproveFn =
    Option<unsafe extern "C" fn(context: *mut c_void, kind: *const c_char, count: usize) -> c_int>;

/// Receives a file whose contents or attributes a repair changed, or that may be others': its inode and the change, "cut", "shared",
/// "map", "size", "cleared" or "attributes", which docs/checks.md explains. The string lives as long as the call.
pub type AlteredFn = Option<unsafe extern "C" fn(context: *mut c_void, inode: u64, change: *const c_char)>;

/// Options of a repair. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CRepairOptions {
    size: u32,
    /// 0
    reserved: u32,
    /// Damage that is fixed: "safe", what needs no guess; or "all", by the rules of docs/checks.md where something must be
    /// decided.
    depth: *const c_char,
    /// Path of a new file that keeps the blocks that change, as they were before: `e2undo FILE IMAGE` of e2fsprogs puts them
    /// back. NULL: none.
    undo: *const c_char,
    /// Block of the copy of the superblock that becomes the primary one. 0: a sound copy is found if the primary one is
    /// damaged.
    superblock: u64,
    /// Asked before findings of each kind are fixed. NULL: all are.
    approve: ApproveFn,
    /// Told of bytes of inode tables; each round of the repair reads them once.
    progress: ProgressFn,
    /// Passed to `approve`, `progress` and `altered`.
    context: *mut c_void,
    /// Called after the repair for each file whose contents were changed, or may be others', one call at a time; or NULL.
    altered: AlteredFn,
}

/// Numbers of findings after a repair.
#[repr(C)]
pub struct CRepaired {
    /// Faults that were fixed.
    fixed: u64,
    /// Faults that are left; 0 if the file system is sound.
    faults: u64,
    /// Faults of these that can't be fixed because other damage makes unsure what is right.
    withheld: u64,
    /// Oddities that do no harm.
    notes: u64,
    /// Files whose contents were changed, or may be others'; each is counted once for each kind of change.
    altered: u64,
    /// Reserved; 0.
    reserved: [u64; 3],
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CRepairOptions {}

/// Repairs the file system on a device, after its journal was replayed: all at once if the journal has room for that. Without a journal a
/// file beside the image keeps the changes until they are complete.
///
/// @param device a writable device
/// @param keys keys for encrypted folders, or NULL
/// @param options options, or NULL for the usual values
/// @param each called for each fault that was fixed, then for each finding that is left, one call at a time; or NULL
/// @param context passed to `each`
/// @param repaired where numbers of findings are stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES if the file system is sound now, CASEMATE_NO if faults are left (no error is stored then), or the
///   status of `error`; its kind is CASEMATE_KIND_BUSY while a writer or a server may change the device
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_repair(
    device: *const CDevice,
    keys: *const CKeys,
    options: *const CRepairOptions,
    each: FindingFn,
    context: *mut c_void,
    repaired: *mut CRepaired,
    error: *mut *mut CError,
) -> Status {
    let repair = || {
        // SAFETY: the header says what these pointers are.
        let (device, how) = unsafe { (get(device, "device")?, c_options(options)?) };
        // SAFETY: the header says what this pointer is.
        let mut writing = unsafe { to_write(keys) };
        writing.superblock = (how.superblock != 0).then_some(how.superblock);
        let mut wanted = RepairHow::default();
        // SAFETY: the header says what this pointer is.
        wanted.depth = match unsafe { text(how.depth, "depth")? } {
            None | Some("safe") => RepairDepth::Safe,
            Some("all") => RepairDepth::All,
            Some(other) => {
                return Err(Error::argument(format!("depth '{other}' of a repair: 'safe' or 'all'")));
            }
        };
        // SAFETY: the header says what this pointer is.
        wanted.undo = unsafe { path_if_any(how.undo) }.map(Path::to_owned);
        let mut approve = |kind: FindingKind, findings: &[Finding]| {
            let Some(approve) = how.approve else { return Ok(true) };
            let name = CString::new(kind.name()).unwrap_or_default();
            // SAFETY: the caller gave this function and its context for such calls.
            match unsafe { approve(how.context, name.as_ptr(), findings.len()) } {
                0 => Ok(false),
                1 => Ok(true),
                other => Err(Error::argument(format!(
                    "approve returned {other}: 1 fixes the findings, 0 leaves them"
                ))),
            }
        };
        let progress = Progress::new(how.progress, how.context);
        let done = device.0.ext4_repair(&writing, &wanted, &mut approve, &progress.work())?;
        let report = done.report;
        let levels: [(i32, &[Finding]); 3] =
            [(LEVEL_FIXED, &done.mended), (LEVEL_FAULT, &report.faults), (LEVEL_NOTE, &report.notes)];
        // SAFETY: the caller gave this function and its context for such calls.
        unsafe { tell(each, context, &levels) };
        if let Some(altered) = how.altered {
            for file in &done.altered {
                let change = CString::new(file.how.name()).unwrap_or_default();
                // SAFETY: the caller gave this function and its context for such calls.
                unsafe { altered(how.context, file.inode.get().into(), change.as_ptr()) };
            }
        }
        // SAFETY: the header says that a value can be written there.
        if let Some(out) = unsafe { repaired.as_mut() } {
            *out = CRepaired {
                fixed: u64_of(done.mended.len()),
                faults: u64_of(report.faults.len()).saturating_add(report.faults_left_out),
                withheld: u64_of(done.withheld.len()),
                notes: u64_of(report.notes.len()),
                altered: u64_of(done.altered.len()),
                reserved: [0; 3],
            };
        }
        Ok(if report.is_clean() { YES } else { NO })
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, repair) }
}
