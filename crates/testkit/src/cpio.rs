//! The archive that a kernel unpacks as its first file system: cpio in the "newc" form.
//!
//! Source: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;

/// An archive that grows.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a folder and those above it, each once. Paths have no slash in front.
    pub(crate) fn folder(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        if self.folders.insert(path.to_owned()) {
            self.entry(path, 0o040_755, &[]);
        }
    }

    /// Adds a file that may be executed, and the folders above it.
    pub(crate) fn file(&mut self, path: &str, contents: &[u8]) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.entry(path, 0o100_755, contents);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(contents.len()).expect("a file below 4 GiB");
        let name_size = name.len() as u32 + 1;
        // Inode, mode, user, group, links, time, size, the device's two numbers, two of a special file, name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
