//! File trees: made for tests, described on the host, described in an image.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{Ext4, FileType, Inode};
use rustix::fs::XattrFlags;
use sha2::{Digest, Sha256};

use super::hex;

/// Facts of a file that two views of it must agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    /// Seconds since 1970.
    pub modified: i64,
    pub size: u64,
    pub links: u64,
    /// The contents' hash, a link's target, or a device's numbers.
    pub contents: String,
    pub xattrs: Vec<(String, String)>,
}

pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Fills a folder with one of everything that a file system of blocks of `block` bytes stores differently.
pub fn make(root: &Path, block: usize) {
    let contents =
        |len: usize| (0..len).map(|i| ((i % 11) + (i % 439) + (i % 1103)) as u8).collect::<Vec<_>>();
    let sizes = root.join("sizes");
    fs::create_dir(&sizes).unwrap();
    for len in [0, 1, 59, 60, 61, 150, 156, 157, 400, block - 1, block, block + 1, 13 * block + 5] {
        fs::write(sizes.join(format!("f{len}")), contents(len)).unwrap();
    }
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"start", 0).unwrap();
    sparse.write_all_at(b"middle", 300 * block as u64 + 7).unwrap();
    // mke2fs 1.47.0 forgets a hole at the end of a file where inline data is allowed.
    sparse.write_all_at(b"end", 500 * block as u64).unwrap();
    let holes = fs::File::create(root.join("many-holes")).unwrap();
    // More pieces than a block of extents holds, where that does not take too much room.
    for i in 0..if block > 4096 { 20 } else { 400 } {
        holes.write_all_at(&contents(block), 2 * i * block as u64).unwrap();
    }
    for len in [1, 59, 60, 61, 155, 600, 1000] {
        symlink("l".repeat(len), root.join(format!("link{len}"))).unwrap();
    }
    fs::hard_link(sizes.join("f400"), root.join("hard")).unwrap();
    let names = root.join("names");
    fs::create_dir(&names).unwrap();
    for name in ["n".repeat(255), "ünïcode Ω".to_owned(), " space\nline".to_owned(), "-dash".to_owned()] {
        fs::write(names.join(name), "x").unwrap();
    }
    fs::write(names.join(OsString::from_vec(vec![0xff, 0xfe, b'x'])), "not UTF-8").unwrap();
    let deep = (0..20).fold(root.join("deep"), |path, level| path.join(level.to_string()));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("leaf"), "leaf").unwrap();
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..700 {
        fs::write(many.join(format!("file-{i:05}-{}", "x".repeat(i % 40))), []).unwrap();
    }
    let _fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    );
    // Only root may make these; without, there is one thing less to compare.
    let _ = rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("device"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::RUSR,
        rustix::fs::makedev(259, 70000),
    );
    let attributed = root.join("attributed");
    fs::write(&attributed, "a").unwrap();
    for (name, len) in [("user.small", 5), ("user.empty", 0), ("user.large", 700)] {
        // Where the host's file system has no attributes, neither has the image.
        let _ = rustix::fs::setxattr(&attributed, name, &contents(len), XattrFlags::empty());
    }
    fs::set_permissions(&attributed, fs::Permissions::from_mode(0o4751)).unwrap();
}

/// The tree below a folder of the host.
pub fn describe_host(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            let mut node = Node {
                mode: metadata.mode() & 0o7777,
                owner: (metadata.uid(), metadata.gid()),
                modified: metadata.mtime(),
                ..Node::default()
            };
            if kind.is_dir() {
                node.kind = FileType::Directory.name();
                folders.push(path.clone());
            } else {
                node.links = metadata.nlink();
            }
            if kind.is_file() {
                node.kind = FileType::Regular.name();
                node.size = metadata.len();
                node.contents = hex(&Sha256::digest(fs::read(&path).unwrap()));
            } else if kind.is_symlink() {
                node.kind = FileType::Symlink.name();
                node.contents = hex(fs::read_link(&path).unwrap().as_os_str().as_bytes());
            } else if kind.is_char_device() {
                node.kind = FileType::CharacterDevice.name();
                let device = metadata.rdev();
                node.contents = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
            } else if kind.is_fifo() {
                node.kind = FileType::Fifo.name();
            }
            if kind.is_file() {
                node.xattrs = host_xattrs(&path);
            }
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            tree.insert(name, node);
        }
    }
    tree
}

fn host_xattrs(path: &Path) -> Vec<(String, String)> {
    let mut names = vec![0u8; 4096];
    let Ok(len) = rustix::fs::listxattr(path, &mut names[..]) else { return Vec::new() };
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut list: Vec<_> = names
        .map(|name| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let mut value = vec![0u8; 1 << 16];
            let len = rustix::fs::getxattr(path, &*name, &mut value[..]).unwrap();
            (name, hex(&value[..len]))
        })
        .collect();
    list.sort();
    list
}

/// The tree below a directory of an image, without "lost+found" at its top.
pub fn describe_image(fs: &Ext4) -> Tree {
    let mut tree = Tree::new();
    walk(fs, &fs.root().unwrap(), &[], &mut tree);
    tree.remove(&b"lost+found"[..]);
    tree
}

fn walk(fs: &Ext4, dir: &Inode, prefix: &[u8], tree: &mut Tree) {
    for entry in fs.read_dir(dir).unwrap() {
        let path = [prefix, &entry.name].concat();
        let shown = String::from_utf8_lossy(&path).into_owned();
        let inode = fs.inode(entry.inode).unwrap_or_else(|error| panic!("/{shown}: {error}"));
        assert!(entry.kind.is_none_or(|kind| kind == inode.kind()), "/{shown}");
        if inode.is_dir() {
            walk(fs, &inode, &[&path[..], b"/"].concat(), tree);
        }
        let node = describe_inode(fs, &inode).unwrap_or_else(|error| panic!("/{shown}: {error}"));
        assert!(tree.insert(path, node).is_none(), "/{shown} is there twice");
    }
}

fn describe_inode(fs: &Ext4, inode: &Inode) -> casemate_ext4::Result<Node> {
    let mut node = Node {
        kind: inode.kind().name(),
        mode: u32::from(inode.mode()) & 0o7777,
        owner: (inode.uid(), inode.gid()),
        modified: inode.modified().seconds,
        ..Node::default()
    };
    if !inode.is_dir() {
        node.links = inode.links().into();
    }
    match inode.kind() {
        FileType::Regular => {
            let file = fs.open_file(inode)?;
            node.size = file.size();
            let mut contents = vec![0; file.size() as usize];
            file.read_at(&mut contents, 0)?;
            node.contents = hex(&Sha256::digest(&contents));
            let list = fs.xattrs(inode)?.into_iter();
            let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
            node.xattrs = list.map(|xattr| (text(xattr.name), hex(&xattr.value))).collect();
            node.xattrs.sort();
        }
        FileType::Symlink => node.contents = hex(&fs.symlink_target(inode)?),
        _ => {}
    }
    if let Some((major, minor)) = inode.device() {
        node.contents = format!("{major}:{minor}");
    }
    Ok(node)
}

/// Panics with the first difference.
pub fn compare(found: &Tree, expected: &Tree, what: &str) {
    for (path, node) in expected {
        let shown = String::from_utf8_lossy(path);
        assert_eq!(found.get(path), Some(node), "{what}: /{shown}");
    }
    let extra: Vec<_> = found.keys().filter(|path| !expected.contains_key(*path)).collect();
    assert!(extra.is_empty(), "{what}: {} more names, such as {:?}", extra.len(), extra[0]);
}
