//! Images of ext2, ext3 and ext4 that mke2fs makes: one table of what it is told, for every test that goes through the
//! features of these file systems.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::run;

/// One kind of image: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Options of mke2fs, separated by spaces.
    pub options: &'static str,
    /// Size of an image that a tree is copied into, as mke2fs takes it, if that is done with this kind.
    pub put: Option<&'static str>,
    /// Size of an image that is changed at random, small enough to become full, if that is done with this kind.
    pub change: Option<&'static str>,
    /// Whether the random changes belong to every run, not to the slow ones alone.
    pub often: bool,
    /// Whether a kernel writes to such an image, and what it wrote is read.
    pub kernel: bool,
}

/// All kinds of images.
pub fn all() -> impl Iterator<Item = Features> {
    let rows = include_str!("mke2fs.table").lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [options, put, change, often, kernel, _why] = cells[..] else { panic!("six columns: {line}") };
        let cell = |cell: &'static str| Some(cell).filter(|cell| *cell != "-");
        Features {
            options,
            put: cell(put),
            change: cell(change),
            often: often == "often",
            kernel: kernel == "kernel",
        }
    })
}

impl Features {
    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        let size = self.options.split_once("-b ").map_or("4096", |(_, rest)| rest.split(' ').next().unwrap());
        size.parse().unwrap()
    }
}

/// Makes an image: `options` are words. One that is there already is made anew.
pub fn make(mke2fs: &Path, options: &str, image: &Path, size: impl AsRef<OsStr>) {
    let _ = std::fs::remove_file(image);
    let mut command = Command::new(mke2fs);
    run(command.args(["-q", "-F"]).args(options.split_whitespace()).arg(image).arg(size.as_ref()));
}
