//! dm-verity: data checked against a hash area.

use casemate::Work;
use casemate::verity::VerityOptions;

use crate::boundary::{NO, Status, YES, bytes, get, run};
use crate::device::CDevice;
use crate::error::CError;

/// Checks everything below a root hash.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_verity_verify(
    data: *const CDevice,
    hash: *const CDevice,
    root_hash: *const u8,
    root_hash_len: usize,
    hash_offset: u64,
    bad_blocks: *mut u64,
    error: *mut *mut CError,
) -> Status {
    let verify = || {
        // SAFETY: the header says what these pointers are.
        let (data, hash) = unsafe { (get(data, "data")?, get(hash, "hash")?) };
        // SAFETY: the header says what these pointers are.
        let (root_hash, bad) =
            unsafe { (bytes(root_hash, root_hash_len, "root_hash")?, bad_blocks.as_mut()) };
        let mut options = VerityOptions::default();
        options.hash_offset = hash_offset;
        let volume = data.0.verity_volume(&hash.0, &options)?;
        let mut found = 0;
        volume.verify(root_hash, &Work::default(), &mut |_| {
            found += 1;
            Ok(())
        })?;
        if let Some(bad) = bad {
            *bad = found;
        }
        Ok(if found == 0 { YES } else { NO })
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, verify) }
}
