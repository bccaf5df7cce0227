//! Files that the journal has no room for at once.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, NoEvents};
use casemate_trees::host::HostFile;

use crate::edit::node::NewNode;
use crate::edit::put::{Put, copy_some};
use crate::error::Result;
use crate::format::inode::Inode;
use crate::units::InodeNo;

impl Put<'_> {
    /// Copies a file in as many transactions as it takes. Meanwhile it has no name: after a crash it is there as a
    /// whole or not at all, and what had its name before is there until then. (Whoever was told of progress when it
    /// was tried at once is not told again.)
    pub(super) fn put_in_steps(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        node: &NewNode,
        source: &Arc<HostFile>,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Inode> {
        let number = self.operation(|files, _| Ok(files.create_unnamed(parent, node)?.number()))?;
        let mut at = 0;
        self.writer.in_steps(&mut self.placed, number, true, |files, placed| {
            let mut inode = files.inodes().get_unlinked(number)?;
            at = copy_some(files, placed, &mut inode, source, &NoEvents, at)?;
            if at < source.size() {
                files.inodes().store(&inode)?;
                return Ok(false);
            }
            files.inodes().map(&mut inode).set_size(source.size())?;
            files.inodes().unlist_orphan(&mut inode)?;
            files.make_way(parent, name)?;
            files.give_name(parent, name, &mut inode)?;
            files.put_xattrs(&mut inode, xattrs)?;
            files.finish(&mut inode, node)?;
            Ok(true)
        })?;
        self.writer.files().get(number)
    }
}
