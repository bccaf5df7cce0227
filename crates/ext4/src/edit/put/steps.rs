//! Files that the journal has no room for at once.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, NoEvents};

use crate::edit::Writer;
use crate::edit::create::NewNode;
use crate::edit::inode::InodeMut;
use crate::edit::put::host::Source;
use crate::error::Result;

impl Writer {
    /// Copies a file in as many transactions as it takes. Meanwhile it has no name: after a crash it is there as a whole
    /// or not at all, and what had its name before is there until then. (Whoever was told of progress when it was tried
    /// at once is not told again.)
    pub(super) fn put_in_steps(
        &mut self,
        parent: u32,
        name: &[u8],
        node: &NewNode,
        source: &Arc<Source>,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<InodeMut> {
        let number = self.operation(|writer| Ok(writer.create_unnamed(parent, node)?.number()))?;
        let mut at = 0;
        self.in_steps(number, true, |writer| {
            let mut inode = writer.unlinked_inode_mut(number)?;
            at = writer.copy_some(&mut inode, source, &NoEvents, at)?;
            if at < source.size() {
                writer.store_inode(&inode)?;
                return Ok(false);
            }
            writer.set_file_size(&mut inode, source.size())?;
            writer.unlist_orphan(&mut inode)?;
            writer.make_way(parent, name)?;
            writer.give_name(parent, name, &mut inode)?;
            writer.put_xattrs(&mut inode, xattrs)?;
            writer.finish(&mut inode, node)?;
            Ok(true)
        })?;
        self.inode_mut(number)
    }
}
