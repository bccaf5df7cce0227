//! Two trees walked side by side, names in the order of their bytes.

use std::iter::Peekable;

use super::Diff;
use super::difference::{Difference, Side};
use crate::error::Result;
use crate::format::inode::Inode;
use crate::format::value::FieldValue;
use crate::read::names::IntoNames;
use crate::read::seen::SeenDirectories;
use crate::units::InodeNo;

/// Parts of files that a walk looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Names, attributes and contents.
    Files,
    /// Places, and how files are stored.
    Storage,
}

/// A directory that both have, whose names are being walked.
struct Level {
    path: Vec<u8>,
    names: [Peekable<IntoNames>; 2],
}

/// A walk that goes on.
struct Walk {
    pass: Pass,
    seen: [SeenDirectories; 2],
    levels: Vec<Level>,
}

impl Diff<'_> {
    /// Walks both trees.
    pub fn walk(&mut self, pass: Pass) -> Result<()> {
        self.paired.clear();
        let seen = [SeenDirectories::new(), SeenDirectories::new()];
        let mut walk = Walk { pass, seen, levels: Vec::new() };
        self.both(&mut walk, b"/", [InodeNo::ROOT; 2])?;
        while let Some(level) = walk.levels.last_mut() {
            let [a, b] = &mut level.names;
            let (take_a, take_b) = match (a.peek(), b.peek()) {
                (None, None) => {
                    walk.levels.pop();
                    continue;
                }
                (Some(_), None) => (true, false),
                (None, Some(_)) => (false, true),
                (Some(a), Some(b)) => (a.name <= b.name, b.name <= a.name),
            };
            let found = [a.next_if(|_| take_a), b.next_if(|_| take_b)];
            let Some(name) = found.iter().flatten().next().map(|entry| entry.name.clone()) else { continue };
            let path = join(&level.path, &name);
            match found {
                [Some(a), Some(b)] => self.both(&mut walk, &path, [a.inode, b.inode])?,
                [Some(entry), None] => self.only(&mut walk, Side::A, &path, entry.inode)?,
                [None, Some(entry)] => self.only(&mut walk, Side::B, &path, entry.inode)?,
                [None, None] => {}
            }
        }
        Ok(())
    }

    /// A path that both have.
    fn both(&mut self, walk: &mut Walk, path: &[u8], numbers: [InodeNo; 2]) -> Result<()> {
        let mut inodes = Vec::new();
        for side in Side::BOTH {
            match self.sides[side.index()].fs.inode(numbers[side.index()]) {
                Ok(inode) => inodes.push(inode),
                Err(error) => self.damage(walk.pass, side, path, error)?,
            }
        }
        let Ok([a, b]) = <[Inode; 2]>::try_from(inodes) else { return Ok(()) };
        let inodes = [&a, &b];
        let is_dir = inodes.map(Inode::is_dir);
        if !is_dir[0] && !is_dir[1] && self.is_known(walk.pass, path, inodes)? {
            return Ok(());
        }
        self.pair(walk.pass, path, inodes)?;
        for side in Side::BOTH {
            if is_dir[side.index()] && !is_dir[1 - side.index()] && walk.pass == Pass::Files {
                let kind = inodes[side.index()].kind();
                let below = self.below(walk, side, path, inodes[side.index()])?;
                self.tell(Difference::Only { side, path: path.to_vec(), kind, below })?;
            }
        }
        if is_dir == [true; 2] {
            self.enter(walk, path, inodes)?;
        }
        Ok(())
    }

    /// Compares two inodes of one name.
    pub fn pair(&mut self, pass: Pass, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        match pass {
            Pass::Files => {
                for side in Side::BOTH {
                    self.reached[side.index()].insert(inodes[side.index()].number().get().into());
                }
                self.files(path, inodes)
            }
            Pass::Storage => self.storage(path, inodes),
        }
    }

    /// Whether two files with several names were compared under another one.
    fn is_known(&mut self, pass: Pass, path: &[u8], inodes: [&Inode; 2]) -> Result<bool> {
        let [a, b] = inodes.map(Inode::number);
        let is_again = self.reached[0].has(a.get().into()) && pass == Pass::Files;
        if !is_again && inodes.iter().all(|inode| inode.links() <= 1) {
            return Ok(false);
        }
        match self.paired.insert(a, b) {
            None => Ok(false),
            Some(before) if before == b => Ok(true),
            Some(before) => {
                // Its name is that of one file in the first tree, and of another one in the second.
                if pass == Pass::Files {
                    let values = [before, b].map(|number| Some(FieldValue::Number(number.get().into())));
                    self.tell(Difference::File { path: path.to_vec(), field: "hard link", values })?;
                }
                Ok(false)
            }
        }
    }

    /// Goes into a directory that both have.
    fn enter(&mut self, walk: &mut Walk, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        self.work.events.advance(0)?;
        let mut names = Vec::new();
        for side in Side::BOTH {
            let (fs, dir) = (&self.sides[side.index()].fs, inodes[side.index()]);
            let read = walk.seen[side.index()].enter(fs, path, dir).and_then(|()| fs.names(dir));
            match read {
                Ok(found) => names.push(found.into_iter().peekable()),
                Err(error) => self.damage(walk.pass, side, path, error)?,
            }
        }
        // With the names of one alone, all would seem to be missing in the other.
        if let Ok(names) = <[Peekable<IntoNames>; 2]>::try_from(names) {
            walk.levels.push(Level { path: path.to_vec(), names });
        }
        Ok(())
    }

    /// A path that one of them has.
    fn only(&mut self, walk: &mut Walk, side: Side, path: &[u8], number: InodeNo) -> Result<()> {
        if walk.pass == Pass::Storage {
            return Ok(());
        }
        let inode = match self.sides[side.index()].fs.inode(number) {
            Ok(inode) => inode,
            Err(error) => return self.skip(side, path, error),
        };
        self.reached[side.index()].insert(number.get().into());
        let below = if inode.is_dir() { self.below(walk, side, path, &inode)? } else { 0 };
        self.tell(Difference::Only { side, path: path.to_vec(), kind: inode.kind(), below })
    }

    /// Counts the names below a directory that one of them has.
    fn below(&mut self, walk: &mut Walk, side: Side, path: &[u8], dir: &Inode) -> Result<u64> {
        let fs = &self.sides[side.index()].fs;
        let mut count = 0;
        let mut levels: Vec<(Vec<u8>, IntoNames)> = Vec::new();
        let mut now = Some((path.to_vec(), dir.clone()));
        loop {
            if let Some((path, dir)) = now.take() {
                self.work.events.advance(0)?;
                let names = walk.seen[side.index()].enter(fs, &path, &dir).and_then(|()| fs.names(&dir));
                match names {
                    Ok(names) => levels.push((path, names.into_iter())),
                    Err(error) => self.skip(side, &path, error)?,
                }
            }
            let Some((path, names)) = levels.last_mut() else { return Ok(count) };
            let Some(entry) = names.next() else {
                levels.pop();
                continue;
            };
            count += 1;
            let path = join(path, &entry.name);
            match fs.inode(entry.inode) {
                Ok(inode) => {
                    self.reached[side.index()].insert(entry.inode.get().into());
                    now = inode.is_dir().then_some((path, inode));
                }
                Err(error) => self.skip(side, &path, error)?,
            }
        }
    }

    /// Tells of damage once, in the first pass.
    fn damage(&mut self, pass: Pass, side: Side, path: &[u8], error: crate::error::Error) -> Result<()> {
        match pass {
            Pass::Files => self.skip(side, path, error),
            Pass::Storage if error.is_interrupt() => Err(error),
            Pass::Storage => Ok(()),
        }
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        [.., b'/'] => [folder, name].concat(),
        _ => [folder, b"/", name].concat(),
    }
}
