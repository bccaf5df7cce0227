//! Descriptions beside a tree: who owns its files, their modes, times and attributes, and what is to be there besides, in the
//! formats that image builders have.

mod capability;
mod composefs;
mod device_table;
mod fs_config;
mod mtree;

use std::str::FromStr;

use casemate_blockdev::u32_of;

use crate::host::Xattrs;
use crate::{Error, FileType, Link, NO_ID, Result, Time, below};

/// The format of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Android's `fs_config`: a path, owner, group and mode on each line, and capabilities.
    FsConfig,
    /// The device table of genext2fs, mkfs.jffs2 and buildroot's makedevs.
    DeviceTable,
    /// mtree(5), as BSD's mtree and bsdtar write it.
    Mtree,
    /// composefs-dump(5).
    Composefs,
}

impl FromStr for Format {
    type Err = Error;

    /// A format's name: `fs_config`, `device_table`, `mtree` or `composefs_dump`.
    fn from_str(text: &str) -> Result<Format, Error> {
        match text {
            "fs_config" => Ok(Format::FsConfig),
            "device_table" => Ok(Format::DeviceTable),
            "mtree" => Ok(Format::Mtree),
            "composefs_dump" => Ok(Format::Composefs),
            _ => Err(Error::argument(format!(
                "unknown format of descriptions '{text}'; known are fs_config, device_table, mtree and composefs_dump"
            ))),
        }
    }
}

/// The fields that a manifest gives for a file. A field that is missing stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The file's path below the tree's top.
    pub path: Vec<u8>,
    /// The file's kind, which one that is there must have.
    pub kind: Option<FileType>,
    /// Permission bits.
    pub mode: Option<u16>,
    /// The owner's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
    /// The time of the contents' last change.
    pub modified: Option<Time>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// The target of a link.
    pub link: Option<Link>,
    /// The length of a regular file's contents in bytes, which one that is there must have.
    pub size: Option<u64>,
    /// The contents of a file that is not there.
    pub contents: Option<Vec<u8>>,
    /// Extended attributes, each in place of one of the same name.
    pub xattrs: Xattrs,
    /// Whether other attributes than these are removed.
    pub has_all_xattrs: bool,
    /// fs-verity's digest of the contents, by SHA-256 and blocks of 4096 bytes without salt.
    pub digest: Option<[u8; 32]>,
    /// Whether mode and owners are those of everything below the path, too.
    pub is_recursive: bool,
    /// Whether nothing is wrong if there is no such file.
    pub is_optional: bool,
}

/// Reads a description, which errors call `name`.
///
/// # Errors
/// `Corrupt`, with the line.
pub fn parse(format: Format, text: &[u8], name: &str) -> Result<Vec<Entry>> {
    let parsed = match format {
        Format::FsConfig => each_line(text, fs_config::line),
        Format::DeviceTable => device_table::parse(text),
        Format::Mtree => mtree::parse(text),
        Format::Composefs => each_line(text, composefs::line),
    };
    parsed.map_err(|(line, what)| {
        let format = match format {
            Format::FsConfig => "fs_config",
            Format::DeviceTable => "device table",
            Format::Mtree => "mtree",
            Format::Composefs => "composefs-dump",
        };
        Error::corrupt(format!("{format}, line {line}: {what}")).at(name)
    })
}

/// The fault of a line.
type Wrong = String;

/// Descriptions, or the line that is none.
type Parsed = std::result::Result<Vec<Entry>, (usize, Wrong)>;

/// Lines by their numbers, from 1 on.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.enumerate().map(|(at, line)| (at + 1, line))
}

/// Reads a format that has a file on each line.
fn each_line(text: &[u8], line: fn(&[u8]) -> std::result::Result<Entry, Wrong>) -> Parsed {
    let told = lines(text).filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
    told.map(|(number, text)| line(text).map_err(|what| (number, what))).collect()
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

fn path(bytes: &[u8]) -> std::result::Result<Vec<u8>, Wrong> {
    below(bytes).map_err(|error| error.to_string())
}

/// A number in this radix, below so much.
fn number(word: &[u8], radix: u32, what: &str) -> std::result::Result<u64, Wrong> {
    let number = str::from_utf8(word).ok().and_then(|text| u64::from_str_radix(text, radix).ok());
    number.ok_or_else(|| format!("'{}' can't be the {what}", word.escape_ascii()))
}

fn id(word: &[u8], what: &str) -> std::result::Result<u32, Wrong> {
    match number(word, 10, what)?.try_into() {
        Ok(NO_ID) => Err(format!("{NO_ID} can't be the {what}")),
        Ok(id) => Ok(id),
        Err(_) => Err(format!("{what} passes 2^32")),
    }
}

/// Permission bits without a type.
fn permissions(word: &[u8]) -> std::result::Result<u16, Wrong> {
    let bits = number(word, 8, "octal mode")?;
    let fitting = u16::try_from(bits).ok().filter(|bits| *bits <= 0o7777);
    fitting.ok_or_else(|| format!("mode {bits:o}: permission bits are 7777 at most"))
}

/// Permission bits with a type.
fn mode(word: &[u8]) -> std::result::Result<u16, Wrong> {
    let bits = number(word, 8, "octal mode")?;
    bits.try_into().map_err(|_| format!("mode {bits:o} passes 177777"))
}

/// Major and minor number of a device as glibc packs them.
fn unpacked_device(number: u64) -> (u32, u32) {
    let major = number >> 8 & 0xfff | number >> 32 & 0xffff_f000;
    (u32_of(major), u32_of(number & 0xff | number >> 12 & 0xffff_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: Format, text: &str) -> Vec<Entry> {
        parse(format, text.as_bytes(), "test").unwrap()
    }

    #[test]
    fn fs_config_tells_owners_modes_and_capabilities() {
        let text = "# comment\n 0 0 755\nsystem/bin/run-as 0 2000 0750 capabilities=0xc0 selabel=u:object_r:runas:s0\n";
        let [top, file] = &all(Format::FsConfig, text)[..] else { panic!() };
        assert_eq!((&top.path[..], top.mode, top.uid), (&b""[..], Some(0o755), Some(0)));
        assert_eq!(
            (&file.path[..], file.mode, file.gid),
            (&b"system/bin/run-as"[..], Some(0o750), Some(2000))
        );
        // VFS_CAP_REVISION_2 with its effective bit, then permitted and inheritable, twice.
        let capability = [1, 0, 0, 2, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(file.xattrs[0], (b"security.capability".to_vec(), capability.to_vec()));
        assert_eq!(file.xattrs[1], (b"security.selinux".to_vec(), b"u:object_r:runas:s0\0".to_vec()));
        assert!(file.is_optional);
        for text in [
            "a 0 0",
            "a x 0 755",
            "a 0 0 999",
            "a 0 0 10755",
            "a 0 0 100644",
            "a 0 0 755 colour=red",
            "../a 0 0 755",
        ] {
            let error = parse(Format::FsConfig, text.as_bytes(), "test").unwrap_err().to_string();
            assert!(error.contains("line 1"), "{text}: {error}");
        }
    }

    #[test]
    fn device_tables_tell_ranges_of_devices() {
        let text = "/dev d 755 0 0 - - - - -\n/dev/hda b 640 0 6 3 1 1 2 3\n/bin/su f 4755 0 0 - - - - -
/home r -1 1000 1000\n/bin/ping f 755 0 0 - - - - -\n|xattr cap_net_raw+ep\n/log F 600 1 1\n";
        let entries = all(Format::DeviceTable, text);
        let shown: Vec<_> = entries.iter().map(|e| (String::from_utf8_lossy(&e.path), e.device)).collect();
        assert_eq!(
            shown[..4],
            [
                ("dev".into(), None),
                ("dev/hda1".into(), Some((3, 1))),
                ("dev/hda2".into(), Some((3, 3))),
                ("dev/hda3".into(), Some((3, 5)))
            ]
        );
        assert_eq!((entries[4].mode, entries[4].kind), (Some(0o4755), Some(FileType::Regular)));
        assert_eq!((entries[5].mode, entries[5].uid, entries[5].is_recursive), (None, Some(1000), true));
        assert_eq!(entries[6].xattrs[0].1[..8], [1, 0, 0, 2, 0, 0x20, 0, 0]);
        assert!(entries[7].is_optional && !entries[6].is_optional);
        for text in [
            "/a q 1 0 0",
            "/a f 77777 0 0",
            "/a f 100644 0 0",
            "/a c 600 0 0",
            "/a c 600 root 0 1 1",
            "/a c 600 0 0 1 1 0 1 999999999",
            "|xattr cap_x+ep",
        ] {
            assert!(parse(Format::DeviceTable, text.as_bytes(), "test").is_err(), "{text}");
        }
    }

    #[test]
    fn mtree_tells_what_it_sets_and_where_it_goes_up() {
        let text = "#mtree\n/set type=file uid=5 gid=6 mode=644\n. type=dir mode=0755\n    a\\040b size=3 \\\n  time=7.5\n\
            dir type=dir\n    in link=x type=link\n..\n/unset uid\n./dir/null type=char device=linux,1,3 optional uname=u uid=1\n";
        let entries = all(Format::Mtree, text);
        let paths: Vec<_> = entries.iter().map(|e| String::from_utf8_lossy(&e.path)).collect();
        assert_eq!(paths, ["", "a b", "dir", "dir/in", "dir/null"]);
        assert_eq!(entries[1].modified, Some(Time { seconds: 7, nanoseconds: 5 }));
        assert_eq!((entries[1].size, entries[1].mode, entries[1].uid), (Some(3), Some(0o644), Some(5)));
        assert_eq!(entries[3].link, Some(Link::Symbolic(b"x".to_vec())));
        assert_eq!((entries[4].device, entries[4].is_optional), (Some((1, 3)), true));
        for text in ["..", "a type=door", "a type=file uname=root", "a/b mode=9", "a mode=100644", "/else"] {
            assert!(parse(Format::Mtree, text.as_bytes(), "test").is_err(), "{text}");
        }
    }

    #[test]
    fn composefs_tells_everything() {
        let digest = "0123456789abcdef".repeat(4);
        let text = format!(
            "/ 0 40755 2 0 0 0 1.5 - - - user.a=b\\x3dc\n/f\\x20g 3 100644 2 1 2 0 9.0 01/23 abc {digest}\n\
            /h 0 @120777 2 0 0 0 0.0 /f\\x20g - -\n/null 0 20666 1 0 0 259 0.0 - - -\n"
        );
        let [top, file, hard, null] = &all(Format::Composefs, &text)[..] else { panic!() };
        assert_eq!(top.xattrs, [(b"user.a".to_vec(), b"b=c".to_vec())]);
        assert_eq!((&file.path[..], file.contents.as_deref()), (&b"f g"[..], Some(&b"abc"[..])));
        assert_eq!(file.digest.unwrap()[..2], [1, 0x23]);
        assert_eq!(hard.link, Some(Link::Hard(b"f g".to_vec())));
        assert_eq!(null.device, Some((1, 3)));
        for text in [
            "/a 0 100644 1 0 0 0 0.0 - -",
            "/a x 100644 1 0 0 0 0.0 - - -",
            "/a\\x4 0 100644 1 0 0 0 0 - - -",
        ] {
            assert!(parse(Format::Composefs, text.as_bytes(), "test").is_err(), "{text}");
        }
    }
}
