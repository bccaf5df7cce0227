//! Folders of the host as the source of a tree.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{Pool, u64_of, usize_of};
use casemate_trees::Node;
use casemate_trees::host::{Folder, Outline, Outlined, Part, Reading, Walk, Xattrs};

use crate::build::contents::{Contents, FirstReading, Source};
use crate::build::tree::{Body, TOP, Tree, TreeOptions};
use crate::edit::is_storable;
use crate::error::{Error, Result};

/// Parts of folders that are read at once.
const PARTS: usize = 256;

impl Tree {
    /// Adds all that is in a folder of the host, and says of the tree's top what the folder is. Contents stay there until
    /// the plan is written.
    ///
    /// # Errors
    /// Errors of the host about the first file that can't be read.
    pub fn add_folder(&mut self, folder: &Path, options: &TreeOptions, pool: Pool) -> Result<()> {
        let reading =
            Reading { block: 4096, xattrs: options.xattrs.then_some(is_storable), image: options.image };
        let owned = |node: Node, xattrs: &mut Xattrs| {
            let (uid, gid) = options.owners.map(node.uid, node.gid)?;
            options.owners.map_xattrs(xattrs)?;
            Ok::<_, Error>(Node { uid, gid, ..node })
        };
        let (node, mut xattrs) = reading.top(folder)?;
        let described = owned(node, &mut xattrs).and_then(|node| self.describe_directory(TOP, node, xattrs));
        described.map_err(|error| error.at(folder.display()))?;
        // The directories of folders by their numbers, and files with more names.
        let mut folders = HashMap::from([(0, TOP)]);
        let mut links: HashMap<(u64, u64), u32> = HashMap::new();
        let mut walk = Walk::within(folder.to_owned());
        loop {
            let parts: Vec<Part> = walk.by_ref().take(PARTS).collect::<Result<_>>()?;
            if parts.is_empty() {
                return Ok(());
            }
            for (above, entries) in outlines(&reading, parts, pool)? {
                let parent = folders[&above.number];
                for entry in entries {
                    let Outlined { name, node, inode, has_more_names, mut xattrs, body } = entry;
                    let shared = (has_more_names && !matches!(body, Outline::Folder(_))).then_some(inode);
                    if let Some(first) = shared.and_then(|key| links.get(&key)) {
                        self.link(parent, name.to_bytes(), *first)?;
                        continue;
                    }
                    let mut folder = None;
                    let body = match body {
                        Outline::Folder(number) => {
                            folder = Some(number);
                            Body::Directory(Default::default())
                        }
                        Outline::File(file, size, ranges) => Body::File(Contents {
                            size,
                            ranges,
                            from: Source::Host(file),
                            reading: FirstReading::default(),
                        }),
                        Outline::Symlink(target) => Body::Symlink(target),
                        Outline::Node => Body::Node,
                    };
                    let made = owned(node, &mut xattrs)
                        .and_then(|node| self.put(parent, name.to_bytes(), node, xattrs, body))
                        .map_err(|error| error.at(above.join(&name).display()))?;
                    folder.map(|number| folders.insert(number, made));
                    shared.map(|key| links.insert(key, made));
                }
            }
        }
    }
}

/// Outlines of the entries in some parts of folders, with the folders.
fn outlines(reading: &Reading, parts: Vec<Part>, pool: Pool) -> Result<Vec<(Arc<Folder>, Vec<Outlined>)>> {
    let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new((Some(part), None))).collect();
    pool.run(
        u64_of(parts.len()),
        || (),
        |(), piece| {
            // OK to unwrap: nobody panics with the lock, and each piece is taken once.
            let mut slot = parts[usize_of(piece)].lock().unwrap();
            let part = slot.0.take().unwrap();
            slot.1 = Some(reading.outline(part)?);
            Ok::<_, Error>(())
        },
    )?;
    // OK to unwrap: all pieces were done.
    Ok(parts.into_iter().map(|slot| slot.into_inner().unwrap().1.unwrap()).collect())
}
