//! The one handle: whatever holds bytes, opened and nested.

use std::ffi::{c_char, c_int, c_void};
use std::io;

use casemate::luks::{LuksKey, LuksOptions};
use casemate::verity::VerityOptions;
use casemate::{Access, Error, Image, Providers, SecretVec, Work};

use crate::boundary::{Status, YES, bytes, c_path, free, get, give, place, room, run};
use crate::cipher::{CryptOptions, mapping};
use crate::error::CError;

/// Whatever holds bytes.
pub struct CDevice(pub Image);

/// Fills `buf` with the `len` bytes at `offset`; returns 0 or a number of errno.h.
pub type ReadFn =
    Option<unsafe extern "C" fn(context: *mut c_void, buf: *mut c_void, len: usize, offset: u64) -> c_int>;

/// Frees what a function was called with.
pub type ReleaseFn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// The caller's function that reads, with what it is called with.
struct Reader {
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64) -> c_int,
    context: *mut c_void,
    release: ReleaseFn,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave this function for the context, which nobody uses any more.
            unsafe { release(self.context) }
        }
    }
}

// SAFETY: the header says that the function is called by any thread, and at the same time.
unsafe impl Send for Reader {}
// SAFETY: as above.
unsafe impl Sync for Reader {}

impl Reader {
    fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        // SAFETY: the caller gave this function and its context for such calls; the buffer has so many bytes.
        match unsafe { (self.read)(self.context, buf.as_mut_ptr().cast(), buf.len(), offset) } {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number).into()),
        }
    }
}

/// An image file or a block device. One that is writable is locked: nobody else uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_open(
    path: *const c_char,
    writable: c_int,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        let access = if writable == 0 { Access::Read } else { Access::Change };
        // SAFETY: the header says what these pointers are.
        let (path, device) = unsafe { (c_path(path, "path")?, place(device, "device")?) };
        Ok(give(device, CDevice(Image::open(path, access)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// The same of what is there, for changes. A file that is not there is begun: it grows by writing, gets its name with
/// casemate_device_commit(), and leaves nothing behind without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_create(
    path: *const c_char,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let create = || {
        // SAFETY: the header says what these pointers are.
        let (path, device) = unsafe { (c_path(path, "path")?, place(device, "device")?) };
        Ok(give(device, CDevice(Image::create(path)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, create) }
}

/// Waits for stable storage and gives a new file its name. What has its name already stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_commit(device: *const CDevice, error: *mut *mut CError) -> Status {
    let commit = || {
        // SAFETY: the header says what this pointer is.
        unsafe { get(device, "device")? }.0.commit()?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, commit) }
}

/// `size` bytes that a function reads. It is called by any thread, by several at once, and never behind the end. `release`, unless it
/// is NULL, is called with the context once, by any thread, when the device and all that is laid on it are gone; not if this fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_from_callback(
    size: u64,
    read: ReadFn,
    context: *mut c_void,
    release: ReleaseFn,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what this pointer is.
        let device = unsafe { place(device, "device")? };
        let read = read.ok_or_else(|| Error::argument("read is NULL"))?;
        let reader = Reader { read, context, release };
        let fetch = move |buf: &mut [u8], offset: u64| reader.read(buf, offset);
        Ok(give(device, CDevice(Image::of_ranges("callback", size, fetch))))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Part of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_window(
    below: *const CDevice,
    offset: u64,
    len: u64,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { lay(below, device, error, |image| image.window(offset, Some(len))) }
}

/// A partition of GPT or MBR, counted from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_partition(
    below: *const CDevice,
    number: u32,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { lay(below, device, error, |image| image.partition(number)) }
}

/// A dm-crypt mapping. The key is copied, and wiped when it is not needed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_crypt(
    below: *const CDevice,
    key: *const c_void,
    key_len: usize,
    options: *const CryptOptions,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    let crypt = |image: Image| image.crypt(unsafe { mapping(key, key_len, options)? });
    // SAFETY: the header says what these pointers are.
    unsafe { lay(below, device, error, crypt) }
}

/// The data of a LUKS volume; the bytes of a key file are a passphrase.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_luks(
    below: *const CDevice,
    passphrase: *const c_void,
    passphrase_len: usize,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = |image: Image| {
        // SAFETY: the header says what this pointer is.
        let passphrase = SecretVec::from(unsafe { bytes(passphrase, passphrase_len, "passphrase")? });
        image.luks(None, &LuksKey::Passphrase(passphrase), &LuksOptions::default(), &Work::default())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { lay(below, device, error, open) }
}

/// A dm-verity device: every block is checked when it is read. `hash` may be `below`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_verity(
    below: *const CDevice,
    hash: *const CDevice,
    root_hash: *const c_void,
    root_hash_len: usize,
    hash_offset: u64,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = |image: Image| {
        // SAFETY: the header says what these pointers are.
        let (hash, root_hash) =
            unsafe { (get(hash, "hash")?, bytes(root_hash, root_hash_len, "root_hash")?) };
        let mut options = VerityOptions::default();
        options.hash_offset = hash_offset;
        image.verity(&hash.0, root_hash, &options, &Providers::default())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { lay(below, device, error, open) }
}

/// Lays something on a device.
///
/// # Safety
/// `below` is NULL or a device, and the others are NULL or places for pointers.
unsafe fn lay(
    below: *const CDevice,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
    layer: impl FnOnce(Image) -> Result<Image, Error>,
) -> Status {
    let open = || {
        // SAFETY: the caller says what these pointers are.
        let (below, device) = unsafe { (get(below, "below")?, place(device, "device")?) };
        Ok(give(device, CDevice(layer(below.0.clone())?)))
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, open) }
}

/// Bytes of a device; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_size(device: *const CDevice) -> u64 {
    // SAFETY: the header says what this pointer is.
    unsafe { device.as_ref() }.map_or(0, |device| device.0.device().size())
}

/// All of `len` bytes, or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_read(
    device: *const CDevice,
    buf: *mut c_void,
    len: usize,
    offset: u64,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (device, buf) = unsafe { (get(device, "device")?, room(buf, len, "buf")?) };
        let (top, len) = (device.0.device(), buf.len());
        if offset.checked_add(len as u64).is_none_or(|end| end > top.size()) {
            let text =
                format!("read of {len} bytes at {offset} passes the end of the device at {}", top.size());
            return Err(Error::path(io::ErrorKind::UnexpectedEof, text).at(device.0.name()));
        }
        top.read_at(buf, offset).map_err(|error| error.at(device.0.name()))?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// Writes; CASEMATE_KIND_BUSY while a writer or a server has the device for changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_write(
    device: *const CDevice,
    buf: *const c_void,
    len: usize,
    offset: u64,
    error: *mut *mut CError,
) -> Status {
    let write = || {
        // SAFETY: the header says what these pointers are.
        let (device, buf) = unsafe { (get(device, "device")?, bytes(buf, len, "buf")?) };
        device.0.write_at(buf, offset)?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, write) }
}

/// Waits for stable storage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_flush(device: *const CDevice, error: *mut *mut CError) -> Status {
    let flush = || {
        // SAFETY: the header says what this pointer is.
        let device = unsafe { get(device, "device")? };
        device.0.device().flush().map_err(|error| error.at(device.0.name()))?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, flush) }
}

/// Frees a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_free(device: *mut CDevice) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(device) }
}
