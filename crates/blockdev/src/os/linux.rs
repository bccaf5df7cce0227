//! Functions that need Linux.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, CWD, FallocateFlags, OFlags, RenameFlags, XattrFlags, renameat_with};
use rustix::io::Errno;

use super::Below;
use crate::identity::FileId;
use crate::stream::{check_stop, is_stoppable};

/// The bytes of a block device.
pub(crate) fn device_size(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Opens a block device as the kernel's own users of it do: by one at a time.
pub(crate) fn exclusively(options: &mut OpenOptions) {
    options.custom_flags(OFlags::EXCL.bits().cast_signed());
}

/// Opens what has the name itself: no link is followed.
pub(crate) fn itself(options: &mut OpenOptions) {
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
}

/// The major and minor number of a block device.
pub(crate) fn numbers(device: u64) -> Option<(u32, u32)> {
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Gives back the space of a range, which then reads as zeros; `false` where the file system can't.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
}

/// Makes a range zeros that keeps its space; `false` where the file system can't.
pub(crate) fn zero_range(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len)
}

fn fallocate(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match rustix::fs::fallocate(file, flags, offset, len) {
        Ok(()) => Ok(true),
        // Block devices take whole sectors only.
        Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn forget_cached(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed)?)
}

/// The value of an extended attribute of a file, if it has it.
pub(crate) fn attribute(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 4096];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        // It is there, and larger than any that is known.
        Err(Errno::RANGE) => Ok(Some(value)),
        Err(Errno::IO) => Err(Errno::IO.into()),
        // It is not there, there are none here, or none that this user may see.
        Err(_) => Ok(None),
    }
}

/// Gives a file an extended attribute; `false` where there are none.
pub(crate) fn set_attribute(file: &File, name: &str, value: &[u8]) -> io::Result<bool> {
    has_attributes(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()))
}

/// Takes an extended attribute from a file; `false` where it is not there.
pub(crate) fn remove_attribute(file: &File, name: &str) -> io::Result<bool> {
    match rustix::fs::fremovexattr(file, name) {
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        done => done.map(|()| true).map_err(Into::into),
    }
}

/// The names of a file's extended attributes: none where there are none, or where there are very many.
pub(crate) fn attribute_names(file: &File) -> Vec<String> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::flistxattr(file, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0);
    names.filter_map(|name| str::from_utf8(name).ok().map(str::to_owned)).collect()
}

fn has_attributes(done: rustix::io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file a name that no file has; `false` where that is not one step.
pub(crate) fn try_rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // File systems over a network don't have this.
        Err(Errno::INVAL | Errno::NOSYS) => Ok(false),
        renamed => Ok(renamed.map(|()| true)?),
    }
}

/// The loop device that stands on a file, if there is one.
pub(crate) fn loop_device(wanted: FileId) -> Option<String> {
    // Where there is no sysfs there is no loop device that we could see.
    for device in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = device.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") {
            continue;
        }
        if backing_file(&device.path()).and_then(|path| FileId::at(&path)) == Some(wanted) {
            return Some(name);
        }
    }
    None
}

/// The path of the file that a loop device stands on, by the folder of the device in sysfs.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let mut path = fs::read(device.join("loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    Some(OsString::from_vec(path).into())
}

/// The file that the kernel tells by the name that it had, and that it has been deleted.
fn deleted(path: &Path) -> Option<FileId> {
    path.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    Some(FileId::Deleted(hash.finish()))
}

/// The folder of a block device in sysfs.
fn folder_of(id: FileId) -> Option<PathBuf> {
    let FileId::BlockDevice(number) = id else { return None };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

/// The device that has a folder in sysfs.
fn device_of(folder: &Path) -> Option<FileId> {
    let numbers = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = numbers.trim().split_once(':')?;
    Some(FileId::BlockDevice(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?)))
}

/// A number that sysfs tells of a device.
fn number_of(folder: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// The partition of a disk that begins at this byte, if the kernel knows one.
pub(crate) fn partition_at(disk: FileId, start: u64) -> Option<FileId> {
    for entry in fs::read_dir(folder_of(disk)?).ok()?.flatten() {
        let folder = entry.path();
        // In sectors of 512 bytes, whatever those of the disk are.
        let begins = || number_of(&folder, "start")?.checked_mul(512);
        if folder.join("partition").exists() && begins() == Some(start) {
            return device_of(&folder);
        }
    }
    None
}

/// Other loop devices on the bytes of the file that one stands on, by their names.
pub(crate) fn loops_beside(id: FileId) -> Vec<String> {
    let find = || -> Option<Vec<String>> {
        let own = below(id).into_iter().find(|below| below.backing.is_some())?;
        let mut all = Vec::new();
        for entry in fs::read_dir("/sys/block").ok()?.flatten() {
            let other = device_of(&entry.path()).filter(|other| *other != id);
            let beside = other.into_iter().flat_map(below).find(|other| {
                let meets = other.range.start < own.range.end && own.range.start < other.range.end;
                other.backing.is_some() && other.id == own.id && meets
            });
            all.extend(beside.map(|_| entry.file_name().to_string_lossy().into_owned()));
        }
        Some(all)
    };
    find().unwrap_or_default()
}

/// The file that a loop device stands on, the disk of a partition, or the devices that a mapping lies on, as the kernel tells
/// them.
pub(crate) fn below(id: FileId) -> Vec<Below> {
    let Some(device) = folder_of(id) else { return Vec::new() };
    // Which bytes of them a mapping has is not known here.
    let beneath = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let devices = beneath.filter_map(|entry| device_of(&entry.path()));
    let mut all: Vec<Below> = devices.map(|id| Below { id, range: 0..u64::MAX, backing: None }).collect();
    all.extend(below_alone(&device));
    all
}

fn below_alone(device: &Path) -> Option<Below> {
    let number = |name: &str| number_of(device, name);
    // What is not known is taken for all that can be.
    let range = |start: Option<u64>, len: Option<u64>| match (start, len) {
        (Some(start), Some(len)) => start..start.saturating_add(len),
        _ => 0..u64::MAX,
    };
    if let Some(path) = backing_file(device) {
        let len = number("loop/sizelimit").map(|limit| if limit == 0 { u64::MAX } else { limit });
        let range = range(number("loop/offset"), len);
        return Some(Below { id: FileId::at(&path).or_else(|| deleted(&path))?, range, backing: Some(path) });
    }
    if !device.join("partition").exists() {
        return None;
    }
    // A partition's folder lies in that of its disk.
    let id = device_of(fs::canonicalize(device).ok()?.parent()?)?;
    // Both are in sectors of 512 bytes, whatever those of the disk are.
    let bytes = |name| number(name)?.checked_mul(512);
    Some(Below { id, range: range(bytes("start"), bytes("size")), backing: None })
}

/// How often those who wait ask whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// Opens a file for reading. A named pipe waits for what is written to it, and not for who writes.
pub(crate) fn open_stream(path: &Path) -> io::Result<File> {
    let Some(file) = open_pipe(path, OpenOptions::new().read(true))? else { return File::open(path) };
    wait_to_read(&file)?;
    Ok(file)
}

/// Opens a file that is there for writing. A named pipe is asked again and again whether somebody reads it.
pub(crate) fn open_stream_for_writing(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    loop {
        match open_pipe(path, &mut options.clone()) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => return options.open(path),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                check_stop()?;
                thread::sleep(PATIENCE / 10);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A named pipe without its other end; `None` for files of other kinds, and where nobody would stop to wait.
fn open_pipe(path: &Path, options: &mut OpenOptions) -> io::Result<Option<File>> {
    if !is_stoppable() || !fs::metadata(path)?.file_type().is_fifo() {
        return Ok(None);
    }
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).map(Some)
}

/// Waits until a file has something to read, or its end.
pub(crate) fn wait_to_read(file: impl AsFd) -> io::Result<()> {
    wait(file, PollFlags::IN)
}

/// Waits until a file has room for what is written.
pub(crate) fn wait_to_write(file: impl AsFd) -> io::Result<()> {
    wait(file, PollFlags::OUT)
}

fn wait(file: impl AsFd, flags: PollFlags) -> io::Result<()> {
    let patience = Timespec::try_from(PATIENCE).ok().filter(|_| is_stoppable());
    loop {
        check_stop()?;
        match poll(&mut [PollFd::new(&file, flags)], patience.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            // Also where a file can't be waited for: then reading tells why.
            _ => return Ok(()),
        }
    }
}
