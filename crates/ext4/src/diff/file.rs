//! Two files of one name: type, attributes, extended attributes, targets, encryption and fs-verity.

use std::collections::BTreeMap;

use super::Diff;
use super::difference::{Difference, Side};
use crate::error::Result;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::inode_fields::{self, FieldClass, InodeDifference};
use crate::format::value::FieldValue;
use crate::read::fs::Ext4;

impl Diff<'_> {
    /// Compares attributes and contents of two files.
    pub fn files(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let kinds = inodes.map(Inode::kind);
        if kinds[0] != kinds[1] {
            let values = kinds.map(|kind| Some(FieldValue::Text(kind.name().to_owned())));
            self.file(path, "type", values)?;
        }
        for InodeDifference { name, class, values } in inode_fields::differences(inodes) {
            if class == FieldClass::File {
                self.file(path, name, values.map(Some))?;
            }
        }
        self.xattrs(path, inodes)?;
        if inodes.iter().any(|inode| inode.has(InodeFlags::ENCRYPT)) {
            self.by_value(path, inodes, "encryption context", |fs, inode| {
                let is_encrypted = inode.has(InodeFlags::ENCRYPT);
                is_encrypted.then(|| fs.encryption_context(inode).map(FieldValue::Bytes)).transpose()
            })?;
        }
        if kinds[0] != kinds[1] {
            return Ok(());
        }
        match kinds[0] {
            FileType::Symlink => self.by_value(path, inodes, "target", |fs, inode| {
                let target = fs.symlink_target(inode)?;
                Ok(Some(match String::from_utf8(target) {
                    Ok(text) => FieldValue::Text(text),
                    Err(error) => FieldValue::Bytes(error.into_bytes()),
                }))
            }),
            FileType::Regular => {
                if inodes.iter().any(|inode| inode.has(InodeFlags::VERITY)) {
                    self.by_value(path, inodes, "fs-verity descriptor", |fs, inode| {
                        Ok(fs.verity(inode)?.map(|found| FieldValue::Bytes(found.descriptor)))
                    })?;
                }
                // Areas tell of what the file system keeps in files of its own.
                let is_own = |(side, inode): (Side, &&Inode)| {
                    let (superblock, number) = (self.sides[side.index()].fs.superblock(), inode.number());
                    superblock.is_reserved(number) || superblock.names(number)
                };
                if Side::BOTH.into_iter().zip(&inodes).any(is_own) {
                    return Ok(());
                }
                self.contents(path, inodes)
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self, path: &[u8], field: &'static str, values: [Option<FieldValue>; 2]) -> Result<()> {
        self.tell(Difference::File { path: path.to_vec(), field, values })
    }

    /// Tells of a value that is read from each file system, if it differs.
    fn by_value(
        &mut self,
        path: &[u8],
        inodes: [&Inode; 2],
        field: &'static str,
        read: impl Fn(&Ext4, &Inode) -> Result<Option<FieldValue>>,
    ) -> Result<()> {
        let mut values = [None, None];
        for side in Side::BOTH {
            match read(&self.sides[side.index()].fs, inodes[side.index()]) {
                Ok(value) => values[side.index()] = value,
                Err(error) => return self.skip(side, path, error),
            }
        }
        if values[0] == values[1] { Ok(()) } else { self.file(path, field, values) }
    }

    fn xattrs(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let mut all: BTreeMap<Vec<u8>, [Option<Vec<u8>>; 2]> = BTreeMap::new();
        for side in Side::BOTH {
            match self.sides[side.index()].fs.xattrs(inodes[side.index()]) {
                Ok(found) => {
                    for xattr in found {
                        all.entry(xattr.name).or_default()[side.index()] = Some(xattr.value);
                    }
                }
                Err(error) => return self.skip(side, path, error),
            }
        }
        for (name, values) in all.into_iter().filter(|(_, [a, b])| a != b) {
            self.tell(Difference::Xattr { path: path.to_vec(), name, values })?;
        }
        Ok(())
    }
}
