//! Changes that the kernel requests.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, SystemTime};

use fuser::{FileAttr, Generation, INodeNo, Request, TimeOrNow};

use casemate::ext4::{
    Body, FileType, Inode, InodeFlags, InodeNo, NewAttributes, NewNode, Presence, SetId, Time, Writer,
};
use casemate::{Code, Error};

use crate::caller::Caller;
use crate::changes::Changes;
use crate::node::inode_number;
use crate::tree::Tree;

/// Modes of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// The bit of a directory that gives its group to what is made in it.
const SET_GID: u16 = 0o2000;

/// The attribute that holds who may do what with a file.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Longest wait on a full file system for the room of files that were removed and closed.
const PATIENCE: Duration = Duration::from_millis(100);

/// The bits of a mode that say what a file is.
const KINDS: &[(u32, FileType)] = &[
    (0o010_000, FileType::Fifo),
    (0o020_000, FileType::CharacterDevice),
    (0o060_000, FileType::BlockDevice),
    (0o140_000, FileType::Socket),
];

/// A directory and a name in it.
pub type Named<'a> = (INodeNo, &'a OsStr);

/// Mode, owner and group of a new file, as the kernel requests them.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub mode: u32,
    pub umask: u32,
}

/// Attributes that change, as the kernel says them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

impl Tree {
    /// Makes something in a directory, for the program that asks.
    pub fn create(
        &self,
        request: &Request,
        (parent, name): Named<'_>,
        wanted: Wanted,
        body: Body<'_>,
    ) -> Result<(FileAttr, Generation), Error> {
        let parent = number(parent)?;
        let mut node = self.new_node(request);
        node.umask = bits(wanted.umask, 0o777);
        let mode = bits(wanted.mode, 0o7777);
        self.change(|_, writer| {
            writer.keep_reserve(request.uid() != 0);
            node.mode = match body {
                Body::Directory => mode,
                _ => {
                    let dir = writer.inode(parent)?;
                    let gid = if dir.mode() & SET_GID != 0 { dir.gid() } else { node.gid };
                    let is_in_group = |gid| Caller::of(request).is_in(gid);
                    self.owner().new_mode(mode, (node.uid, gid), request.uid(), is_in_group)
                }
            };
            let made = writer.create_under(parent, name.as_bytes(), &node, body)?;
            self.told(&writer.inode(made)?)
        })
    }

    /// The owner and group of what a program makes: those that it is going to be shown with.
    fn new_node(&self, request: &Request) -> NewNode {
        let mut node = NewNode::default();
        node.uid = self.owner().uid.unwrap_or(request.uid());
        node.gid = self.owner().gid.unwrap_or(request.gid());
        node
    }

    /// The kind of node that mknod(2) creates for a mode.
    pub fn body(mode: u32, device: u32) -> Result<Body<'static>, Error> {
        let bits = mode & 0o170_000;
        if matches!(bits, 0 | 0o100_000) {
            return Ok(Body::File);
        }
        let kind = KINDS.iter().find(|(known, _)| *known == bits).map(|(_, kind)| *kind);
        let kind =
            kind.ok_or_else(|| Error::path(ErrorKind::InvalidInput, "the mode names no type of file"))?;
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
        Ok(Body::Node(kind, major, minor))
    }

    /// Gives a file a further name.
    pub fn link(&self, node: INodeNo, (parent, name): Named<'_>) -> Result<(FileAttr, Generation), Error> {
        let (linked, parent) = (number(node)?, number(parent)?);
        self.change(|_, writer| {
            writer.link_inode(linked, parent, name.as_bytes())?;
            self.told(&writer.inode(linked)?)
        })
    }

    /// Removes a name.
    pub fn remove(&self, (parent, name): Named<'_>) -> Result<(), Error> {
        let parent = number(parent)?;
        self.change(|changes, writer| {
            let gone = writer.remove_name(parent, name.as_bytes())?;
            changes.gone(writer, gone)
        })
    }

    /// Renames, or moves.
    pub fn rename(&self, from: Named<'_>, to: Named<'_>, no_replace: bool) -> Result<(), Error> {
        let (from, to) = ((number(from.0)?, from.1.as_bytes()), (number(to.0)?, to.1.as_bytes()));
        self.change(|changes, writer| {
            let gone = writer.rename_name(from, to, no_replace)?;
            changes.gone(writer, gone)
        })
    }

    /// Renames a file, and leaves a whiteout where the name was.
    pub fn rename_to_whiteout(
        &self,
        request: &Request,
        from: Named<'_>,
        to: Named<'_>,
        no_replace: bool,
    ) -> Result<(), Error> {
        let (from, to) = ((number(from.0)?, from.1.as_bytes()), (number(to.0)?, to.1.as_bytes()));
        let owner = self.new_node(request);
        self.change(|changes, writer| {
            let gone = writer.rename_to_whiteout(from, to, no_replace, &owner)?;
            changes.gone(writer, gone)
        })
    }

    /// Exchanges two names.
    pub fn exchange(&self, one: Named<'_>, other: Named<'_>) -> Result<(), Error> {
        let (one, other) = ((number(one.0)?, one.1.as_bytes()), (number(other.0)?, other.1.as_bytes()));
        self.change(|_, writer| writer.exchange_names(one, other))
    }

    /// Refuses to open a file for writing that can't be written.
    pub fn require_writable(&self, node: INodeNo, appends: bool) -> Result<(), Error> {
        require_unlocked(&self.inode(node)?, appends)
    }

    /// Writes to a file: how many bytes, and whether rights of its owner went with that.
    pub fn write(
        &self,
        request: &Request,
        node: INodeNo,
        offset: u64,
        bytes: &[u8],
        drop_privileges: bool,
    ) -> Result<(usize, bool), Error> {
        let number = number(node)?;
        self.change(|_, writer| {
            writer.keep_reserve(request.uid() != 0);
            let inode = writer.inode(number)?;
            // Who has opened it to append goes on doing so.
            require_unlocked(&inode, true)?;
            // Whoever writes, and however: what a program writes to mapped memory comes from nobody.
            let hides_rights = self.owner().hides_rights(&inode);
            let drops = hides_rights || drop_privileges && has_privileges(&inode);
            let set_id = match drops {
                true => SetId::Goes { is_in_group: !hides_rights && Caller::of(request).is_in(inode.gid()) },
                false => SetId::Stays,
            };
            let mut len = bytes.len();
            let written = loop {
                match writer.write_at(number, offset, &bytes[..len], set_id) {
                    // As much as there is room for.
                    Err(error) if is_full(&error) && !writer.has_pinned_room() && len > 1 => len /= 2,
                    result => break result,
                }
            };
            self.changed(number);
            Ok((written?, drops))
        })
    }

    /// Allocates, frees or zeroes a range of a file, as fallocate(2) says it; whether rights of its owner went with that.
    pub fn allocate(
        &self,
        request: &Request,
        node: INodeNo,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<bool, Error> {
        let number = number(node)?;
        let end = offset.checked_add(len);
        let end = end
            .ok_or_else(|| Error::path(ErrorKind::FileTooLarge, "the range ends beyond the largest file"))?;
        let keep_size = mode & KEEP_SIZE != 0;
        self.change(|_, writer| {
            writer.keep_reserve(request.uid() != 0);
            require_unlocked(&writer.inode(number)?, mode & !KEEP_SIZE == 0)?;
            let dropped = self.drop_privileges(request, writer, number)?;
            let done = match mode & !KEEP_SIZE {
                0 => {
                    writer.require_extents(number)?;
                    writer.allocate_range(number, offset, end, keep_size)
                }
                PUNCH_HOLE if keep_size => writer.punch_hole(number, offset, end),
                ZERO_RANGE => writer.zero_range(number, offset, end, keep_size),
                _ => Err(Error::unsupported("ext4 does not support this mode of fallocate")),
            };
            self.changed(number);
            done.map(|()| dropped)
        })
    }

    /// Changes attributes; what they are then.
    pub fn set_attributes(
        &self,
        request: &Request,
        node: INodeNo,
        wanted: &Attributes,
    ) -> Result<FileAttr, Error> {
        let number = number(node)?;
        let mut new = NewAttributes::default();
        (new.uid, new.gid) = (wanted.uid, wanted.gid);
        // Without anything it is a chown to nobody else: that changes the time of change.
        let changes_more = wanted.mode.or(wanted.uid).or(wanted.gid).is_some()
            || wanted.accessed.or(wanted.modified).is_some()
            || wanted.size.is_none();
        self.change(|_, writer| {
            if let Some(mode) = wanted.mode {
                let inode = writer.inode(number)?;
                let owner = (wanted.uid.unwrap_or(inode.uid()), wanted.gid.unwrap_or(inode.gid()));
                let mode = self.owner().mode(bits(mode, 0o7777), &inode, owner);
                let text = "the file's owner or group is another one than it is shown with";
                new.mode = Some(mode.ok_or_else(|| Error::path(ErrorKind::PermissionDenied, text))?);
            }
            if let Some(size) = wanted.size {
                require_unlocked(&writer.inode(number)?, false)?;
                let done = writer.truncate_to(number, size);
                self.changed(number);
                done?;
                self.drop_privileges(request, writer, number)?;
            }
            if changes_more {
                let now = writer.time();
                new.accessed = wanted.accessed.map(|time| stored(time, now));
                new.modified = wanted.modified.map(|time| stored(time, now));
                let is_given = |time| matches!(time, Some(TimeOrNow::SpecificTime(_)));
                let inode = writer.inode(number)?;
                new.is_outsider = has_privileges(&inode) && !Caller::of(request).is_in(inode.gid());
                new.is_now = !is_given(wanted.accessed) && !is_given(wanted.modified);
                writer.set_attributes(number, &new)?;
            }
            self.attributes(&writer.inode(number)?).map(|(attributes, _)| attributes)
        })
    }

    /// Changes flags, and the project.
    pub fn set_flags(&self, node: INodeNo, flags: u32, project: Option<u32>) -> Result<(), Error> {
        let number = number(node)?;
        self.change(|_, writer| writer.set_flags_of(number, flags, project))
    }

    /// Sets an extended attribute, or removes it if there is no value.
    pub fn set_xattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: Option<&[u8]>,
        presence: Presence,
    ) -> Result<(), Error> {
        let number = number(node)?;
        self.change(|_, writer| {
            let inode = writer.inode(number)?;
            // Who gives a file to a group with an ACL must be in it.
            let set_id = match has_privileges(&inode) {
                true => SetId::Goes { is_in_group: Caller::of(request).is_in(inode.gid()) },
                false => SetId::Stays,
            };
            writer.set_xattr_of(number, name.as_bytes(), value, presence, set_id)?;
            // An ACL says who may run it.
            if self.owner().hides_rights(&inode) && name.as_bytes() == ACCESS_ACL {
                writer.drop_privileges(number, false)?;
            }
            Ok(())
        })
    }

    /// Takes away what a file runs with of its owner's and group's rights, unless the program that changes it may set that;
    /// whether there was anything.
    fn drop_privileges(
        &self,
        request: &Request,
        writer: &mut Writer,
        number: InodeNo,
    ) -> Result<bool, Error> {
        let inode = writer.inode(number)?;
        if !has_privileges(&inode) {
            return Ok(false);
        }
        if self.owner().hides_rights(&inode) {
            return writer.drop_privileges(number, false);
        }
        let caller = Caller::of(request);
        match caller.may_set_id() {
            true => Ok(false),
            false => writer.drop_privileges(number, caller.is_in(inode.gid())),
        }
    }

    /// Makes all changes permanent.
    pub fn commit(&self) -> Result<(), Error> {
        // Where nothing changes all is permanent.
        self.changes().map_or(Ok(()), |changes| changes.commit().map_err(|error| self.error(error)))
    }

    /// Notes that contents of a file are lost, and says so.
    pub fn note_lost(&self, node: INodeNo, error: Option<&Error>) {
        let (Some(changes), Ok(number)) = (self.changes(), number(node)) else { return };
        changes.note_lost(number);
        let why = error.map_or_else(|| "no room".to_owned(), ToString::to_string);
        let text = format!(
            "contents that a program had written to the memory-mapped file of inode {number} are lost: {why}"
        );
        self.tell(&Error::io("the file system", std::io::Error::other(text)));
    }

    /// Notes what the kernel has forgotten.
    pub fn forget(&self, node: INodeNo, times: u64) {
        let (Some(known), Ok(number)) = (self.known(), number(node)) else { return };
        if known.forget(number, times)
            && let Some(Err(error)) = self.changes().map(|changes| changes.forgotten(number))
        {
            // It waits on the disk for who opens the file system next.
            self.tell(&error);
        }
    }

    fn change<T>(&self, mut f: impl FnMut(&Changes, &mut Writer) -> Result<T, Error>) -> Result<T, Error> {
        let changes = self.changes().ok_or_else(read_only)?;
        let since = Instant::now();
        loop {
            match changes.change(|writer| f(changes, writer)) {
                // The kernel says later that a file is closed than the program has closed it: a removed one may be there still.
                Err(error) if is_full(&error) && since.elapsed() < PATIENCE && changes.held() > 0 => {
                    std::thread::sleep(PATIENCE / 50);
                }
                result => return result.map_err(|error| self.error(error)),
            }
        }
    }

    /// The reply to the kernel about an inode.
    fn told(&self, inode: &Inode) -> Result<(FileAttr, Generation), Error> {
        let told = self.attributes(inode)?;
        self.tells_of(inode.number());
        Ok(told)
    }
}

fn number(node: INodeNo) -> Result<InodeNo, Error> {
    inode_number(node).ok_or_else(|| Error::corrupt(format!("node {node} is not an inode number")))
}

fn read_only() -> Error {
    std::io::Error::from(ErrorKind::ReadOnlyFilesystem).into()
}

pub fn is_full(error: &Error) -> bool {
    error.code() == Code::NoRoom
}

/// Refuses to change contents that must not change, for all users.
fn require_unlocked(inode: &Inode, appends: bool) -> Result<(), Error> {
    let is_locked = inode.has(InodeFlags::VERITY)
        || inode.has(InodeFlags::IMMUTABLE)
        || inode.has(InodeFlags::APPEND) && !appends;
    match is_locked {
        true => Err(Error::path(ErrorKind::PermissionDenied, "the file can't be written")),
        false => Ok(()),
    }
}

/// Whether others run a file with the rights of its owner or group.
fn has_privileges(inode: &Inode) -> bool {
    inode.mode() & 0o6000 != 0
}

/// A time as the kernel said it. Before 1970 fuser 0.18.0 takes the nanoseconds away, instead of adding them
/// (`system_time_from_time` in its src/time.rs): what it was given are whole seconds, and the fraction as it stands.
fn stored(time: TimeOrNow, now: Time) -> Time {
    let TimeOrNow::SpecificTime(time) = time else { return now };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time {
                seconds: before.as_secs().cast_signed().wrapping_neg(),
                nanoseconds: before.subsec_nanos(),
            }
        }
    }
}

/// Bits of a mode, as far as `mask` has them.
fn bits(mode: u32, mask: u16) -> u16 {
    u16::try_from(mode & u32::from(mask)).unwrap_or(mask)
}
