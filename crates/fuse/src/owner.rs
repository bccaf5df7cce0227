//! Owners that files are shown with instead of their own.
//!
//! A user who is shown as a file's owner may write to it and change its mode, but does not get the rights of the owner that is stored:
//! where the two differ, a file is given no set-user-ID and set-group-ID bits, and keeps none when it changes.

use casemate::ext4::Inode;

/// Set-user-ID and set-group-ID.
const RIGHTS: u16 = 0o6000;
const SET_GID: u16 = 0o2000;

/// The owner and the group that all files are shown with; their own if `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Owner {
    /// Whether another owner or group is shown than the stored one.
    pub fn hides(self, uid: u32, gid: u32) -> bool {
        let differs = |shown: Option<u32>, stored| shown.is_some_and(|shown| shown != stored);
        differs(self.uid, uid) || differs(self.gid, gid)
    }

    /// Whether a file runs with rights of an owner or group that is not shown.
    pub fn hides_rights(self, inode: &Inode) -> bool {
        !inode.is_dir() && inode.mode() & RIGHTS != 0 && self.hides(inode.uid(), inode.gid())
    }

    /// The mode that a file gets which is given this one and this owner and group, and had these permissions before: `None` if it
    /// can't be given. It may lose permissions and stay what it is.
    pub fn mode(self, wanted: u16, before: &Inode, (uid, gid): (u32, u32)) -> Option<u16> {
        if before.is_dir() || wanted & RIGHTS == 0 || !self.hides(uid, gid) {
            return Some(wanted);
        }
        if (uid, gid) != (before.uid(), before.gid()) {
            // A change of the owner, after which nothing runs as before.
            return Some(wanted & !RIGHTS);
        }
        (wanted & !before.mode() & 0o7777 == 0).then_some(wanted)
    }

    /// The mode of a new file of an owner and a group that the program which makes it did not ask for: without the rights that this
    /// program could not give it.
    pub fn new_mode(
        self,
        wanted: u16,
        (uid, gid): (u32, u32),
        caller: u32,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> u16 {
        if wanted & RIGHTS == 0 || self.uid.is_none() && self.gid.is_none() {
            return wanted;
        }
        if self.hides(uid, gid) || caller != 0 && self.uid.is_some() && caller != uid {
            return wanted & !RIGHTS;
        }
        match wanted & SET_GID != 0 && self.gid.is_some() && caller != 0 && !is_in_group(gid) {
            true => wanted & !SET_GID,
            false => wanted,
        }
    }
}
