//! How files of an image are shown: in a line as ls does, as a JSON object, and their times.

use serde_json::{Value, json};

use casemate::Error;
use casemate::blockdev::u64_of;
use casemate::ext4::{Ext4, FileType, Inode, Time};
use casemate::hex;

use crate::calendar::calendar;
use crate::size::shown as shown_size;
use crate::streams::{StandardOutput, visible};

/// A name or path for people: as it is, but without what would steer a terminal.
pub fn shown(name: &[u8]) -> Vec<u8> {
    match StandardOutput::default().is_terminal() {
        true => visible(&String::from_utf8_lossy(name)).into_bytes(),
        false => name.to_vec(),
    }
}

/// The path of a name in a folder; a name that stands alone if there is no folder.
pub fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        [] => name.to_vec(),
        [.., b'/'] => [folder, name].concat(),
        _ => [folder, b"/", name].concat(),
    }
}

/// The mode as `ls -l` shows it.
pub fn mode(inode: &Inode) -> String {
    let bits = inode.mode();
    let mut text = String::from(inode.kind().letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let part = bits >> shift;
        text.push(if part & 4 != 0 { 'r' } else { '-' });
        text.push(if part & 2 != 0 { 'w' } else { '-' });
        text.push(match (part & 1 != 0, bits & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time as `ls -l --time-style=long-iso` shows it, in UTC.
pub fn short_time(time: Time) -> String {
    let (year, month, day, hour, minute, _) = calendar(time.seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// A time as stat shows it, in UTC.
pub fn long_time(time: Time) -> String {
    let (year, month, day, hour, minute, second) = calendar(time.seconds);
    let nanoseconds = time.nanoseconds;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{nanoseconds:09} +0000")
}

/// A path as a JSON object, to which what is said of it comes.
pub fn path_value(path: &[u8]) -> Value {
    let mut value = json!({"path": String::from_utf8_lossy(path)});
    if std::str::from_utf8(path).is_err() {
        value["path_hex"] = hex::encode(path).into();
    }
    value
}

/// A file as a JSON object.
pub fn value(fs: &Ext4, path: &[u8], inode: &Inode) -> Result<Value, Error> {
    let mut value = path_value(path);
    value["inode"] = inode.number().get().into();
    value["type"] = inode.kind().name().into();
    value["mode"] = format!("{:04o}", inode.mode() & 0o7777).into();
    value["links"] = inode.links().into();
    value["uid"] = inode.uid().into();
    value["gid"] = inode.gid().into();
    value["size"] = inode.size().into();
    value["mtime"] = time_value(inode.modified());
    value["flags"] = json!(inode.flags().names());
    if inode.kind() == FileType::Symlink {
        let target = fs.symlink_target(inode)?;
        // An encrypted one takes more room than it has bytes.
        value["size"] = target.len().into();
        value["target"] = String::from_utf8_lossy(&target).into();
    }
    if let Some((major, minor)) = inode.device() {
        value["device"] = json!([major, minor]);
    }
    Ok(value)
}

/// A time for programs: seconds since 1970 with their fraction, exact.
pub fn time_value(time: Time) -> Value {
    json!({"seconds": time.seconds, "nanoseconds": time.nanoseconds})
}

/// A line as `ls -l` prints it, for a name that may be a path.
pub fn long_line(fs: &Ext4, name: &[u8], inode: &Inode, widths: &Widths) -> Result<Vec<u8>, Error> {
    let target = match inode.kind() {
        FileType::Symlink => Some(fs.symlink_target(inode).map_err(|error| error.at("symbolic link"))?),
        _ => None,
    };
    let human = widths.human;
    let size = target
        .as_ref()
        .map_or_else(|| size_column(inode, human), |target| bytes(u64_of(target.len()), human));
    let mut line = format!(
        "{} {:>links$} {:>owner$} {:>group$} {size:>room$} {} ",
        mode(inode),
        inode.links(),
        inode.uid(),
        inode.gid(),
        short_time(inode.modified()),
        links = widths.links,
        owner = widths.owner,
        group = widths.group,
        room = widths.size,
    )
    .into_bytes();
    line.extend(shown(name));
    if let Some(target) = target {
        line.extend(b" -> ");
        line.extend(shown(&target));
    }
    line.push(b'\n');
    Ok(line)
}

/// How wide the columns of a list are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    links: usize,
    owner: usize,
    group: usize,
    size: usize,
    /// Sizes have units.
    human: bool,
}

impl Widths {
    pub fn of(inodes: impl IntoIterator<Item = Inode>, human: bool) -> Widths {
        let mut widths = Widths { human, ..Widths::default() };
        for inode in inodes {
            widths.links = widths.links.max(inode.links().to_string().len());
            widths.owner = widths.owner.max(inode.uid().to_string().len());
            widths.group = widths.group.max(inode.gid().to_string().len());
            widths.size = widths.size.max(size_column(&inode, human).len());
        }
        widths
    }
}

/// The size, or a device's numbers.
fn size_column(inode: &Inode, human: bool) -> String {
    match inode.device() {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => bytes(inode.size(), human),
    }
}

/// A size as it is, or for people.
fn bytes(size: u64, human: bool) -> String {
    if human { shown_size(size) } else { size.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_has_all_of_it() {
        let time = Time { seconds: 3_387_330_305, nanoseconds: 123_456_789 };
        assert_eq!(long_time(time), "2077-05-04 05:05:05.123456789 +0000");
    }
}
