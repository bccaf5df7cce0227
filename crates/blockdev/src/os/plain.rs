//! Replacements for what only Linux has: zeros are written, and only regular files are devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::{Below, Holder};
use crate::identity::FileId;
use crate::stream::check_stop;

pub(crate) fn device_size(_: &File) -> io::Result<u64> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "block devices can be used on Linux only, files everywhere",
    ))
}

pub(crate) fn exclusively(_: &mut OpenOptions) {}

pub(crate) fn itself(_: &mut OpenOptions) {}

pub(crate) fn numbers(_: u64) -> Option<(u32, u32)> {
    None
}

pub(crate) fn punch(_: &File, _: u64, len: u64) -> io::Result<bool> {
    Ok(len == 0)
}

pub(crate) fn zero_range(_: &File, _: u64, len: u64) -> io::Result<bool> {
    Ok(len == 0)
}

pub(crate) fn forget_cached(_: &File, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn attribute(_: &File, _: &str) -> io::Result<Option<Vec<u8>>> {
    Ok(None)
}

pub(crate) fn set_attribute(_: &File, _: &str, _: &[u8]) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn remove_attribute(_: &File, _: &str) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn attribute_names(_: &File) -> Vec<String> {
    Vec::new()
}

pub(crate) fn try_rename_new(_: &Path, _: &Path) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn loop_device(_: FileId) -> Option<String> {
    None
}

pub(crate) fn below(_: FileId) -> Vec<Below> {
    Vec::new()
}

pub(crate) fn partition_at(_: FileId, _: u64) -> Option<FileId> {
    None
}

pub(crate) fn holder(_: FileId) -> Option<Holder> {
    None
}

pub(crate) fn loops_beside(_: FileId) -> Vec<String> {
    Vec::new()
}

pub(crate) fn open_stream(path: &Path) -> io::Result<File> {
    File::open(path)
}

pub(crate) fn open_stream_for_writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

pub(crate) fn wait_to_read<T>(_: T) -> io::Result<()> {
    check_stop()
}

pub(crate) fn wait_to_write<T>(_: T) -> io::Result<()> {
    check_stop()
}
