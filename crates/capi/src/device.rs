//! The one handle: whatever holds bytes, opened and nested.

use std::ffi::{c_char, c_int, c_void};
use std::io;

use casemate::blockdev::u64_of;
use casemate::image_spec::{ImageSpec, Opening};
use casemate::luks::{LuksKey, LuksOptions};
use casemate::verity::VerityOptions;
use casemate::{Access, Error, Image, Providers, SecretVec, Work};

use crate::boundary::{Status, YES, bytes, c_path, free, get, give, optional, place, room};
use crate::cipher::{CryptOptions, mapping};
use crate::error::{CError, run};

/// A device: anything that holds bytes and is read and written at positions.
pub struct CDevice(pub Image);

/// Fills `buf` with the `len` bytes at `offset`. Returns 0, or a number of errno.h. Numbers that are answers about a path, such
/// as ENOENT, count as EIO: a device that can't be read says nothing about files on it.
pub type ReadFn =
    Option<unsafe extern "C" fn(context: *mut c_void, buf: *mut c_void, len: usize, offset: u64) -> c_int>;

/// Releases the context of a callback.
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

/// To read, while no other process changes the file: readers share a lock.
pub const ACCESS_READ: i32 = 0;
/// To change, while no other process uses the file.
pub const ACCESS_CHANGE: i32 = 1;
/// To read without a lock, whatever others write meanwhile: to look at a header, say, of what is in use.
pub const ACCESS_READ_UNLOCKED: i32 = 2;

fn access_of(access: c_int) -> Result<Access, Error> {
    match access {
        ACCESS_READ => Ok(Access::Read),
        ACCESS_CHANGE => Ok(Access::Change),
        ACCESS_READ_UNLOCKED => Ok(Access::ReadUnlocked),
        _ => Err(Error::argument(format!("{access} is not a CASEMATE_ACCESS"))),
    }
}

/// Opens an image file or a block device, and locks it until it is freed. CASEMATE_KIND_BUSY: another process has it locked.
///
/// @param path path on the host
/// @param access CASEMATE_ACCESS_READ, _CHANGE or _READ_UNLOCKED
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_open(
    path: *const c_char,
    access: c_int,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        let access = access_of(access)?;
        // SAFETY: the header says what these pointers are.
        let (path, device) = unsafe { (c_path(path, "path")?, place(device, "device")?) };
        Ok(give(device, CDevice(Image::open(path, access)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Opens an image with the layers that an image specification says, such as "disk.img,partition=2,luks,key-file=pw". Two
/// commas are one comma of a name.
///
/// @param spec the specification, ended by a zero
/// @param passphrase the passphrase of layers that name no key file, and an error if there are none such; it is not kept. NULL if
///   there is none
/// @param passphrase_len its length in bytes
/// @param access CASEMATE_ACCESS_READ, _CHANGE or _READ_UNLOCKED
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_ARGUMENT if the specification is wrong
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_open_spec(
    spec: *const c_char,
    passphrase: *const c_void,
    passphrase_len: usize,
    access: c_int,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        let access = access_of(access)?;
        // SAFETY: the header says what these pointers are.
        let (spec, device) = unsafe { (c_path(spec, "spec")?, place(device, "device")?) };
        // SAFETY: the header says what this pointer is.
        let passphrase = unsafe { optional(passphrase, passphrase_len, "passphrase")? }.map(SecretVec::from);
        let spec = ImageSpec::parse(spec)?;
        spec.check_passphrase(passphrase.as_ref())?;
        let opening = Opening { work: &Work::default(), passphrase };
        Ok(give(device, CDevice(spec.open(access, &opening)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Opens an image for changes, or creates it. A new file grows as it is written, and gets its name with
/// casemate_device_commit(). Freed without a commit, a new file leaves nothing behind.
///
/// @param path path on the host
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Flushes a device to stable storage, and gives a new file its name. A file that has its name is flushed only.
///
/// @param device a device from casemate_device_create()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Creates a device of `size` bytes that a function reads. Any thread may call `read`, several at once, never
/// with a range behind the end.
///
/// @param size size in bytes
/// @param read fills a buffer; must be safe to call from several threads
/// @param context passed to `read` and `release`; must live until `release` is called
/// @param release called once with the context, by any thread, when the device and every device on it are
///   freed; not called if this function fails; may be NULL
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Creates a device that is a part of another one.
///
/// @param below the device to read from; the new device keeps what it needs of it, so the caller may free
///   `below`
/// @param offset first byte of the part
/// @param len length of the part in bytes
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Creates a device that is a GPT or MBR partition of another one.
///
/// @param below the device to read from; the new device keeps what it needs of it, so the caller may free
///   `below`
/// @param number number of the partition, counted from 1
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Creates a dm-crypt mapping on a device.
///
/// @param below the device to read from; the new device keeps what it needs of it, so the caller may free
///   `below`
/// @param key the key; it is copied, and wiped when the last device that needs it is freed
/// @param key_len length of the key in bytes
/// @param options options, or NULL for the usual values
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Opens the data of a LUKS1 or LUKS2 volume.
///
/// @param below the device to read from; the new device keeps what it needs of it, so the caller may free
///   `below`
/// @param passphrase the passphrase, or all bytes of a key file; it is not kept
/// @param passphrase_len its length in bytes
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_MISMATCH if the passphrase opens
///   no key slot
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

/// Creates a dm-verity device, which verifies every block that is read.
///
/// @param below the device to read from; the new device keeps what it needs of it, so the caller may free
///   `below`
/// @param hash the device with the hash area; may be `below`
/// @param root_hash the trusted root hash
/// @param root_hash_len its length in bytes
/// @param hash_offset first byte of the superblock on `hash`
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Returns the size of a device.
///
/// @param device a device, or NULL
/// @return the size in bytes; 0 for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_size(device: *const CDevice) -> u64 {
    // SAFETY: the header says what this pointer is.
    unsafe { device.as_ref() }.map_or(0, |device| device.0.device().size())
}

/// Reads exactly `len` bytes.
///
/// @param device a device
/// @param buf where the bytes are stored
/// @param len number of bytes
/// @param offset first byte to read
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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
        if offset.checked_add(u64_of(len)).is_none_or(|end| end > top.size()) {
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

/// Writes exactly `len` bytes. A regular file that nothing is laid on grows if they lie behind its end; anything else refuses that.
///
/// @param device a writable device
/// @param buf the bytes to write
/// @param len number of bytes
/// @param offset first byte to write
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_BUSY while a writer or a server
///   may change the device
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

/// Waits until everything that was written is on stable storage.
///
/// @param device a device
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Frees a device. Devices and file systems on it stay usable.
///
/// @param device a device, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_device_free(device: *mut CDevice) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(device) }
}
