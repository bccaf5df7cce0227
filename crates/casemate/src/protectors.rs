//! Key files that google/fscrypt leaves in file systems, read from images.

use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_ext4::{Ext4, FileType};
use casemate_fscrypt::metadata::{FOLDER, MAX_LEN, ToolFiles};

use crate::Error;

/// The tool's files in the file system that they are of. Like the tool, this follows no link here, and reads no more than
/// such files have.
#[derive(Debug)]
pub(crate) struct OfFileSystem<'a>(pub(crate) &'a Ext4);

impl ToolFiles for OfFileSystem<'_> {
    fn names(&self, folder: &str) -> Result<Vec<Vec<u8>>, Error> {
        let path = format!("{FOLDER}/{folder}");
        let at = |error: Error| error.at(format!("/{path}"));
        let folder = match self.0.resolve(path.as_bytes(), true) {
            Ok(folder) => folder,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(at(error)),
        };
        let entries = self.0.read_dir(&folder).map_err(at)?;
        Ok(entries.into_iter().map(|entry| entry.name.to_vec()).collect())
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = format!("{FOLDER}/{path}");
        let at = |error: Error| error.at(format!("/{path}"));
        let inode = match self.0.resolve(path.as_bytes(), false) {
            Ok(inode) => inode,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(at(error)),
        };
        if inode.kind() != FileType::Regular || inode.size() > u64_of(MAX_LEN) {
            return Err(Error::corrupt(format!("/{path}: no regular file of at most {MAX_LEN} bytes")));
        }
        let file = self.0.open_file(&inode).map_err(at)?;
        let mut bytes = vec![0; usize_of(inode.size())];
        file.read_at(&mut bytes, 0).map_err(at)?;
        Ok(Some(bytes))
    }
}
