//! Writing backups: encrypted inodes as they are stored.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{AtFile, BlockDevice, Uuid};
use casemate_ext4::{
    Contents, EncryptedContents, EncryptedInode, EncryptedNames, Encryption, Ext4, ExtractOptions,
    ExtractReport, Inode, Record, Result, StoredName, extract_to_tar,
};
use casemate_fscrypt::backup::{CONTEXT, INODE, codec};
use casemate_primitives::base64::Base64;
use casemate_providers::Work;
use casemate_trees::tar::XATTR;

use crate::Error;
use crate::ext4::FileSystem;

/// Copies the tree below a directory of a file system into a tar stream; what is encrypted stays so. No key is used but for
/// the directory's path.
///
/// # Errors
/// `Io` with `NotADirectory`, and what ends the whole copy; what keeps single files from being copied is in the report.
pub fn write(
    fs: &FileSystem,
    top: impl AsRef<Path>,
    out: &mut dyn Write,
    work: &Work<'_>,
) -> std::result::Result<ExtractReport, Error> {
    let top = top.as_ref();
    let inode = fs.metadata(top)?;
    if !inode.is_dir() {
        let name = format!("{}: {}", fs.name(), top.display());
        return Err(Error::io(name, std::io::ErrorKind::NotADirectory));
    }
    let stored = fs.inodes().with_encryption(Arc::new(AsStored(codec(work.providers.cpu()))));
    let options = ExtractOptions {
        kept: &[],
        owners: true,
        xattrs: true,
        overwrite: false,
        selection: None,
        contents: &WholeBlocks,
    };
    extract_to_tar(&stored, &inode, out, &options, work).at(fs.name())
}

/// Names and targets as base64, contents unchanged.
#[derive(Clone, Copy)]
struct AsStored(Base64<'static>);

impl Encryption for AsStored {
    fn require_key(&self, _: &EncryptedInode) -> Result<()> {
        Ok(())
    }

    fn names(&self, _: &EncryptedInode) -> Result<Arc<dyn EncryptedNames>> {
        Ok(Arc::new(*self))
    }

    fn contents(&self, _: &EncryptedInode) -> Result<Arc<dyn EncryptedContents>> {
        Ok(Arc::new(*self))
    }

    fn symlink(&self, _: &EncryptedInode, stored: &[u8]) -> Result<Vec<u8>> {
        Ok(self.0.encode_to_string(stored).into_bytes())
    }
}

impl EncryptedNames for AsStored {
    fn decode(&self, name: StoredName<'_>) -> Result<Vec<u8>> {
        Ok(self.0.encode_to_string(name.bytes).into_bytes())
    }
}

impl EncryptedContents for AsStored {
    fn decrypt(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// Encrypted files to the end of their last block, whose ciphertext passes the file's end.
struct WholeBlocks;

impl Contents for WholeBlocks {
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        let file = fs.open_file(inode)?;
        if fs.encrypted(inode)?.is_none() {
            return Ok(Box::new(file));
        }
        // Sizes beyond 2^32 blocks were refused when the file was opened.
        let size = inode.size().next_multiple_of(fs.layout().block_size.into());
        Ok(Box::new(file.with_size(size)))
    }

    fn records(&self, fs: &Ext4, inode: &Inode) -> Result<Vec<Record>> {
        let accessed = inode.accessed();
        let mut records = Vec::new();
        if accessed.seconds >= 0 {
            records.push((b"atime".to_vec(), accessed.to_decimal().into_bytes()));
        }
        if let Some(EncryptedInode { number, context, uuid, block_size, casefolded, .. }) =
            fs.encrypted(inode)?
        {
            let text = format!(
                "number={number} size={} block_size={block_size} uuid={}{}",
                inode.size(),
                Uuid::from_bytes(uuid),
                if casefolded { " casefold=1" } else { "" }
            );
            records.push(([XATTR, CONTEXT.as_bytes()].concat(), context));
            records.push(([XATTR, INODE.as_bytes()].concat(), text.into_bytes()));
        }
        Ok(records)
    }
}
