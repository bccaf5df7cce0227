//! New file systems, made of tar streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, NoEvents};
use casemate_ext4::{
    BuildOptions, BuildSize, CheckOptions, Ext4, OpenOptions, Owners, Plan, PutOptions, Tree, TreeOptions,
    WriteOptions, Writer, check,
};
use casemate_providers::Work;
use casemate_trees::tar::{Member, TarWriter};
use casemate_trees::{FileType, Link, Node};

/// A tar stream of members with contents.
fn tar(members: &[(&str, FileType, Option<Link>, &[u8])]) -> Arc<dyn BlockDevice> {
    let mut stream = Vec::new();
    let mut writer = TarWriter::new(&mut stream);
    for (path, kind, link, bytes) in members {
        let node = Node { mode: 0o644, ..Node::new(*kind) };
        let mut member = Member::new(*path, node, link.clone());
        member.size = bytes.len() as u64;
        if bytes.is_empty() {
            writer.add(&member).unwrap();
        } else {
            let whole = 0..bytes.len() as u64;
            writer.add_file(&member, std::slice::from_ref(&whole)).unwrap();
            writer.write(bytes).unwrap();
        }
    }
    writer.finish().unwrap();
    Arc::new(MemoryDevice::new(stream))
}

/// Name and value of an attribute.
type Attribute<'a> = (&'a str, Vec<u8>);

/// A tar stream of empty files with attributes.
fn attributed(members: &[(&str, Node, &[Attribute<'_>])]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = TarWriter::new(&mut stream);
    for (path, node, xattrs) in members {
        let mut member = Member::new(*path, *node, None);
        let record =
            |(name, value): &Attribute<'_>| (format!("SCHILY.xattr.{name}").into_bytes(), value.clone());
        member.records = xattrs.iter().map(record).collect();
        writer.add(&member).unwrap();
    }
    writer.finish().unwrap();
    stream
}

/// An ACL as programs see it, of tags, permissions and ids.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, bits, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// An empty file system that a stream is put into.
fn put(stream: &[u8]) -> casemate_ext4::Result<Ext4> {
    let mut options = BuildOptions::new([1; 16], [2; 16]);
    // Room for a journal.
    options.size = BuildSize::Bytes(16 << 20);
    let plan = Plan::new(Tree::new(), &options)?;
    let device = Arc::new(MemoryDevice::new(vec![0; plan.size() as usize]));
    plan.write(&*device, true, &Work::default())?;
    let mut writer = Writer::open(device.clone(), WriteOptions::default())?;
    writer.put_tar(&mut &stream[..], "stream", b"/", &PutOptions::new(), &Work::default())?;
    writer.commit()?;
    Ext4::open(device, &OpenOptions::default())
}

/// A file system of one stream.
fn built_from(stream: &[u8], options: &TreeOptions) -> casemate_ext4::Result<Ext4> {
    let mut tree = Tree::new();
    tree.add_tar(Arc::new(MemoryDevice::new(stream.to_vec())), "stream", options, &NoEvents)?;
    let plan = Plan::new(tree, &BuildOptions::new([1; 16], [2; 16]))?;
    let device = Arc::new(MemoryDevice::new(vec![0; plan.size() as usize]));
    plan.write(&*device, true, &Work::default())?;
    Ext4::open(device, &OpenOptions::default())
}

fn from_tars(tars: &[Arc<dyn BlockDevice>], whiteouts: bool) -> casemate_ext4::Result<Ext4> {
    built(tars, whiteouts, &BuildOptions::new([1; 16], [2; 16]))
}

fn built(tars: &[Arc<dyn BlockDevice>], whiteouts: bool, how: &BuildOptions) -> casemate_ext4::Result<Ext4> {
    let mut options = TreeOptions::default();
    options.whiteouts = whiteouts;
    let mut tree = Tree::new();
    for tar in tars {
        tree.add_tar(Arc::clone(tar), "stream", &options, &NoEvents)?;
    }
    let plan = Plan::new(tree, how)?;
    let device = Arc::new(MemoryDevice::new(vec![0; plan.size() as usize]));
    plan.write(&*device, true, &Work::default())?;
    let report = check(device.clone(), &CheckOptions::default(), &Work::default())?;
    assert!(report.is_clean(), "{:?}", report.faults);
    Ext4::open(device, &OpenOptions::default())
}

fn read(fs: &Ext4, path: &str) -> Option<Vec<u8>> {
    let file = fs.open_file(&fs.resolve(path.as_bytes(), false).ok()?).ok()?;
    let mut bytes = vec![0; file.size() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn hostile_streams_are_refused_or_made_right() {
    use FileType::{Directory, Regular, Symlink};
    let one = |members: &[(&str, FileType, Option<Link>, &[u8])]| from_tars(&[tar(members)], false);
    let link = |target: &str| Some(Link::Symbolic(target.into()));
    let hard = |first: &str| Some(Link::Hard(first.into()));
    // What leads out of the tree, or through a link, and what is there twice as something else.
    for members in [
        &[("../out", Regular, None, &b"x"[..])][..],
        &[("a/../../out", Regular, None, b"x")],
        &[("link", Symlink, link("/etc"), b""), ("link/passwd", Regular, None, b"x")],
        &[("file", Regular, None, b"x"), ("file/below", Regular, None, b"x")],
        &[("hard", Regular, hard("../out"), b"")],
        &[("hard", Regular, hard("nowhere"), b"")],
        &[("dir/", Directory, None, b""), ("hard", Regular, hard("dir"), b"")],
        &[("dir/", Directory, None, b""), ("dir", Regular, None, b"x")],
        &[("lost+found", Regular, None, b"x")],
    ] {
        assert!(one(members).is_err(), "{members:?}");
    }
    let long = "n".repeat(256);
    assert!(one(&[(&long, Regular, None, b"x")]).is_err());
    let fs = one(&[
        ("/etc/one", Regular, None, b"first"),
        ("./etc//one", Regular, None, b"second"),
        ("etc/two", Regular, hard("etc/one"), b""),
        ("etc/one", Regular, None, b"third"),
    ])
    .unwrap();
    assert_eq!(
        (read(&fs, "/etc/one"), read(&fs, "/etc/two")),
        (Some(b"third".to_vec()), Some(b"second".to_vec()))
    );
    // A size that lies, and a stream that ends.
    let whole = tar(&[("file", Regular, None, &[7; 5000])]);
    let mut bytes = vec![0; whole.size() as usize];
    whole.read_at(&mut bytes, 0).unwrap();
    for len in [0, 100, 512, 600, 4000] {
        let cut = Arc::new(MemoryDevice::new(bytes[..len].to_vec()));
        assert!(from_tars(&[cut], false).is_err(), "{len}");
    }
}

/// A device that counts the bytes that are read of it.
struct Counted(Arc<dyn BlockDevice>, AtomicUsize);

impl BlockDevice for Counted {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_ext4::Result<()> {
        self.1.fetch_add(buf.len(), Ordering::Relaxed);
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_ext4::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> casemate_ext4::Result<()> {
        self.0.flush()
    }
}

#[test]
fn contents_in_a_tar_file_are_read_once_and_leave_nothing_behind_other_files() {
    let (large, small, target) = (vec![0xff; 3 << 20], [0xa5; 100], "t".repeat(100));
    let link = Some(Link::Symbolic(target.as_bytes().into()));
    let bytes = tar(&[
        ("a", FileType::Regular, None, &large),
        ("b", FileType::Regular, None, &small),
        ("c", FileType::Symlink, link, b""),
    ]);
    let bytes = Arc::new(Counted(bytes, AtomicUsize::new(0)));
    let mut tree = Tree::new();
    tree.add_tar(bytes.clone(), "stream", &TreeOptions::default(), &NoEvents).unwrap();
    let known = bytes.1.load(Ordering::Relaxed);
    assert!(known < large.len() / 2, "{known}");
    let plan = Plan::new(tree, &BuildOptions::new([1; 16], [2; 16])).unwrap();
    let device = MemoryDevice::new(vec![0; plan.size() as usize]);
    plan.write(&device, true, &Work::default()).unwrap();
    assert_eq!(bytes.1.load(Ordering::Relaxed) - known, large.len() + small.len());
    let mut image = vec![0; plan.size() as usize];
    device.read_at(&mut image, 0).unwrap();
    for own in [&small[..], target.as_bytes()] {
        let block = image.chunks(4096).find(|block| block.starts_with(own)).unwrap();
        assert!(block[own.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn no_more_of_a_stream_is_read_than_its_members_say() {
    let bytes =
        tar(&[("zeros", FileType::Regular, None, &[0; 3 << 20]), ("one", FileType::Regular, None, b"1\n")]);
    let mut stream = vec![0; bytes.size() as usize];
    bytes.read_at(&mut stream, 0).unwrap();
    let file = casemate_testkit::tempdir().unwrap();
    let path = file.path().join("kept");
    std::fs::write(&path, b"").unwrap();
    let kept: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&path).unwrap());
    let mut tree = Tree::new();
    let mut endless = std::io::Read::chain(&stream[..], std::io::repeat(0));
    tree.add_tar_stream(&mut endless, kept.clone(), "stream", &TreeOptions::default(), &NoEvents).unwrap();
    assert!(kept.size() < stream.len() as u64 + (2 << 20), "{}", kept.size());
    assert!(std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) < 2048);
    let plan = Plan::new(tree, &BuildOptions::new([1; 16], [2; 16])).unwrap();
    let device = Arc::new(MemoryDevice::new(vec![0; plan.size() as usize]));
    plan.write(&*device, true, &Work::default()).unwrap();
    let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
    assert_eq!(read(&fs, "/one").unwrap(), b"1\n");
    assert!(read(&fs, "/zeros").unwrap() == [0; 3 << 20]);
}

#[test]
fn layers_remove_what_is_below_them() {
    use FileType::{Directory, Regular};
    let base = tar(&[
        ("keep", Regular, None, b"k"),
        ("gone", Regular, None, b"g"),
        ("dir/", Directory, None, b""),
        ("dir/old", Regular, None, b"o"),
        ("dir/sub/old", Regular, None, b"o"),
        ("kept/old", Regular, None, b"o"),
        ("whole/", Directory, None, b""),
        ("whole/below", Regular, None, b"b"),
    ]);
    let over = tar(&[
        (".wh.gone", Regular, None, b""),
        ("dir/new", Regular, None, b"n"),
        ("dir/sub/new", Regular, None, b"n"),
        ("kept/new", Regular, None, b"n"),
        (".wh.kept", Regular, None, b""),
        ("dir/.wh..wh..opq", Regular, None, b""),
        (".wh.whole", Regular, None, b""),
        ("again", Regular, None, b"a"),
        (".wh.again", Regular, None, b""),
    ]);
    let fs = from_tars(&[base, over], true).unwrap();
    for (path, bytes) in [
        ("/keep", Some(&b"k"[..])),
        ("/gone", None),
        ("/dir/old", None),
        ("/dir/new", Some(b"n")),
        ("/dir/sub/old", None),
        ("/dir/sub/new", Some(b"n")),
        ("/kept/old", None),
        ("/kept/new", Some(b"n")),
        ("/whole/below", None),
        ("/again", Some(b"a")),
        ("/.wh.gone", None),
    ] {
        assert_eq!(read(&fs, path).as_deref(), bytes, "{path}");
    }
}

/// Wherever it stands in its layer, a whiteout is about the layers below, and about nothing that is not there.
#[test]
fn whiteouts_are_about_lower_layers_alone() {
    use FileType::{Directory, Regular, Symlink};
    let to = |target: &str| Some(Link::Symbolic(target.as_bytes().to_vec()));
    let base = tar(&[
        ("etc/x", Regular, None, b"x"),
        ("to_file/x", Regular, None, b"x"),
        ("to_link/x", Regular, None, b"x"),
        ("link", Symlink, to("etc"), b""),
        ("dir/sub/c", Regular, None, b"c"),
        ("dir/a", Regular, None, b"a"),
        ("plain", Regular, None, b"p"),
    ]);
    let over = tar(&[
        ("dir/", Directory, None, b""),
        ("dir/new", Regular, None, b"n"),
        (".wh.dir", Regular, None, b""),
        ("to_file", Regular, None, b"f"),
        ("to_file/.wh.x", Regular, None, b""),
        ("to_link", Symlink, to("etc"), b""),
        ("to_link/.wh.x", Regular, None, b""),
        ("nowhere/.wh.x", Regular, None, b""),
        ("nowhere/.wh..wh..opq", Regular, None, b""),
        ("plain/.wh.x", Regular, None, b""),
        (".wh..wh.plnk/12.34", Regular, None, b"n"),
        (".wh..wh.aufs", Regular, None, b"n"),
        ("link/y", Regular, None, b"y"),
    ]);
    let fs = from_tars(&[base.clone(), over], true).unwrap();
    for (path, bytes) in [
        ("/dir/new", Some(&b"n"[..])),
        ("/dir/a", None),
        ("/dir/sub/c", None),
        ("/to_file", Some(b"f")),
        ("/etc/x", Some(b"x")),
        ("/etc/y", Some(b"y")),
        ("/plain", Some(b"p")),
    ] {
        assert_eq!(read(&fs, path).as_deref(), bytes, "{path}");
    }
    for path in ["/nowhere", "/.wh..wh.plnk", "/.wh..wh.aufs", "/dir/sub"] {
        assert!(fs.resolve(path.as_bytes(), false).is_err(), "{path}");
    }
    let fs = from_tars(&[base, tar(&[("link/.wh.x", Regular, None, b"")])], true).unwrap();
    assert_eq!((read(&fs, "/etc/x"), fs.resolve(b"/link", false).is_ok()), (None, true));
}

/// Paths of layers lead through the links of layers below, as in the root that they are for, and never out of it.
#[test]
fn layers_are_put_through_links_within_the_tree() {
    use FileType::{Directory, Regular, Symlink};
    let to = |target: &str| Some(Link::Symbolic(target.as_bytes().to_vec()));
    let first = || Some(Link::Hard(b"lib/q".to_vec()));
    let base = tar(&[
        ("usr/lib/", Directory, None, b""),
        ("lib", Symlink, to("usr/lib"), b""),
        ("absolute", Symlink, to("/usr/lib"), b""),
        ("out", Symlink, to("../../../usr"), b""),
        ("dangling", Symlink, to("made/here"), b""),
        ("a", Symlink, to("b"), b""),
        ("b", Symlink, to("a"), b""),
        ("file", Regular, None, b"f"),
    ]);
    let over = tar(&[
        ("lib/q", Regular, None, b"q"),
        ("absolute/r", Regular, None, b"r"),
        ("out/lib/s", Regular, None, b"s"),
        ("dangling/t", Regular, None, b"t"),
        ("usr/../u", Regular, None, b"u"),
        ("./usr/lib/.././v", Regular, None, b"v"),
        ("hard", Regular, first(), b""),
    ]);
    let fs = from_tars(&[base.clone(), over], true).unwrap();
    for (path, bytes) in [
        ("/usr/lib/q", b"q"),
        ("/usr/lib/r", b"r"),
        ("/usr/lib/s", b"s"),
        ("/made/here/t", b"t"),
        ("/u", b"u"),
        ("/usr/v", b"v"),
        ("/hard", b"q"),
    ] {
        assert_eq!(read(&fs, path).as_deref(), Some(&bytes[..]), "{path}");
    }
    for (path, text) in [
        ("a/x", "a: too many links on the way"),
        ("file/x", "file: is not a directory"),
        ("../x", "leads out of the tree"),
        ("usr/../../x", "leads out of the tree"),
    ] {
        let error = from_tars(&[base.clone(), tar(&[(path, Regular, None, b"")])], true).unwrap_err();
        assert!(error.to_string().contains(text), "{path}: {error}");
    }
    // Not so in a tar stream that is no layer.
    let plain =
        tar(&[("usr/", Directory, None, b""), ("l", Symlink, to("usr"), b""), ("l/x", Regular, None, b"")]);
    assert!(from_tars(&[plain], false).unwrap_err().to_string().contains("a link to one is not followed"));
}

#[test]
fn layers_of_many_whiteouts_take_no_longer_than_others() {
    let count = 20_000;
    let mut names: Vec<String> = (0..count).map(|number| format!("d/{number}")).collect();
    names.extend((0..count).map(|number| format!("d/.wh.{number}")));
    names.extend((0..count).map(|_| "d/.wh..wh..opq".to_owned()));
    let members: Vec<_> = names.iter().map(|name| (&name[..], FileType::Regular, None, &b""[..])).collect();
    let began = std::time::Instant::now();
    let mut tree = Tree::new();
    let mut options = TreeOptions::default();
    options.whiteouts = true;
    tree.add_tar(tar(&members), "stream", &options, &NoEvents).unwrap();
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    assert_eq!(tree.first_paths([&b"d/7"[..], b"d/.wh.7"]), [Some(b"d/7".to_vec()), None]);
}

/// In a tree of many files an error is of no use without the path of the one that it is about.
#[test]
fn errors_name_the_file() {
    let link = Some(Link::Symbolic(vec![b't'; 1024]));
    let members =
        [("dir/file", FileType::Regular, None, &b"x"[..]), ("dir/link", FileType::Symlink, link, b"")];
    let mut options = BuildOptions::new([1; 16], [2; 16]);
    options.block_size = 1024;
    let error = built(&[tar(&members)], false, &options).unwrap_err().to_string();
    assert_eq!(error, "/dir/link: a symbolic link to a target of 1024 bytes");
}

#[test]
fn many_empty_files_have_room() {
    let names: Vec<String> = (0..20_000).map(|number| format!("{}/{number}", number % 7)).collect();
    let members: Vec<_> = names.iter().map(|name| (&name[..], FileType::Regular, None, &b""[..])).collect();
    let mut options = BuildOptions::new([1; 16], [2; 16]);
    options.block_size = 1024;
    let fs = built(&[tar(&members)], false, &options).unwrap();
    assert!(fs.superblock().blocks < 8 << 10, "{} blocks", fs.superblock().blocks);
}

const NO_ID: u32 = !0;

/// Permission bits and access ACL of a file.
fn permissions(fs: &Ext4, path: &str) -> (u16, Option<Vec<u8>>) {
    let inode = fs.resolve(path.as_bytes(), false).unwrap();
    let xattrs = fs.xattrs(&inode).unwrap();
    let access = xattrs.into_iter().find(|xattr| xattr.name == b"system.posix_acl_access");
    (inode.mode() & 0o7777, access.map(|xattr| xattr.value))
}

/// As after setxattr(2) and chmod(2) behind it.
#[test]
fn acls_follow_the_modes_of_members() {
    let named =
        |mask: u16| acl(&[(1, 6, NO_ID), (2, 6, 1001), (4, 0, NO_ID), (0x10, mask, NO_ID), (0x20, 0, NO_ID)]);
    let short = |bits: u16| acl(&[(1, 6, NO_ID), (4, bits, NO_ID), (0x20, 0, NO_ID)]);
    let node = |kind, mode| Node { mode, ..Node::new(kind) };
    let (file, pipe) = (node(FileType::Regular, 0o640), node(FileType::Fifo, 0o640));
    let access = "system.posix_acl_access";
    let stream = attributed(&[
        ("folder/", node(FileType::Directory, 0o640), &[(access, named(7))]),
        ("folder/file", file, &[(access, named(6))]),
        ("short", file, &[(access, short(7))]),
        ("pipe", pipe, &[(access, named(2))]),
        ("empty", file, &[(access, acl(&[]))]),
    ]);
    let images = [("build", built_from(&stream, &TreeOptions::default())), ("put", put(&stream))];
    for (what, fs) in images {
        let fs = fs.unwrap();
        for path in ["/folder", "/folder/file", "/pipe"] {
            assert_eq!(permissions(&fs, path), (0o640, Some(named(4))), "{what} {path}");
        }
        assert_eq!(permissions(&fs, "/short"), (0o640, Some(short(4))), "{what}");
        assert_eq!(permissions(&fs, "/empty").0, 0o640, "{what}");
    }
    // The kernel takes no named users without a mask.
    let wrong = acl(&[(1, 6, NO_ID), (2, 6, 9), (4, 0, NO_ID), (0x20, 0, NO_ID)]);
    let stream = attributed(&[("file", file, &[(access, wrong)])]);
    for error in [built_from(&stream, &TreeOptions::default()).err(), put(&stream).err()] {
        let error = error.unwrap().to_string();
        assert!(error.contains("file: an ACL that makes no sense"), "{error}");
    }
    // The root's mode, too.
    let stream = attributed(&[("./", node(FileType::Directory, 0o770), &[(access, named(7))])]);
    let mut options = BuildOptions::new([1; 16], [2; 16]);
    options.root_mode = Some(0o1640);
    let fs = built(&[Arc::new(MemoryDevice::new(stream))], false, &options).unwrap();
    assert_eq!(permissions(&fs, "/"), (0o1640, Some(named(4))));
}

#[test]
fn ids_in_attributes_are_mapped_with_the_owners() {
    let named = |[user, group]: [u32; 2]| {
        acl(&[(1, 6, NO_ID), (2, 6, user), (4, 0, NO_ID), (8, 4, group), (0x10, 6, NO_ID), (0x20, 0, NO_ID)])
    };
    // VFS_CAP_REVISION_3 with its effective bit, sets, and the user who is root where it counts.
    let capability =
        |root: u32| [&[1, 0, 0, 3][..], &[0, 0x20, 0, 0], &[0; 12], &root.to_le_bytes()].concat();
    let second = [&[1, 0, 0, 2][..], &[0, 0x20, 0, 0], &[0; 12]].concat();
    let owned = |kind| Node { mode: 0o660, uid: 1000, gid: 1000, ..Node::new(kind) };
    let (access, default, set) =
        ("system.posix_acl_access", "system.posix_acl_default", "security.capability");
    let (file, folder) = (owned(FileType::Regular), owned(FileType::Directory));
    let stream = |ids: [u32; 2], root: u32| {
        attributed(&[
            ("folder/", folder, &[(access, named(ids)), (default, named(ids))]),
            ("file", file, &[(set, capability(root))]),
            ("second", file, &[(set, second.clone())]),
        ])
    };
    let mut owners = Owners::new();
    owners.users = vec![[5000, 1000, 10], [0, 9000, 1]];
    owners.groups = vec![[6000, 1000, 10]];
    // One without a number is that of the user 0.
    let options = TreeOptions::new().owners(owners.clone());
    let error = built_from(&stream([1001, 1002], 9000), &options).err().unwrap().to_string();
    assert!(error.contains("second: the user 0 of its capabilities is in none"), "{error}");
    owners.users.push([7, 0, 1]);
    let options = TreeOptions::new().owners(owners.clone());
    let fs = built_from(&stream([1001, 1002], 9000), &options).unwrap();
    let value = |path: &str, name: &str| {
        let inode = fs.resolve(path.as_bytes(), false).unwrap();
        let xattrs = fs.xattrs(&inode).unwrap();
        xattrs.into_iter().find(|xattr| xattr.name == name.as_bytes()).unwrap().value
    };
    assert_eq!(value("/folder", access), named([5001, 6002]));
    assert_eq!(value("/folder", default), named([5001, 6002]));
    assert_eq!((value("/file", set), value("/second", set)), (capability(0), capability(7)));
    let refused = |ids, root, what: &str| {
        let error = built_from(&stream(ids, root), &options).err().unwrap().to_string();
        assert!(error.contains(&format!("{what} is in none of the ranges that are mapped")), "{error}");
    };
    refused([1010, 1002], 1000, "folder/: the user 1010 of its ACL");
    refused([1001, 1010], 1000, "folder/: the group 1010 of its ACL");
    refused([1001, 1002], 5, "file: the user 5 of its capabilities");
    // An owner of everything says nothing of other ids.
    let fs = built_from(&stream([1, 2], 3), &TreeOptions::new().owners(Owners::new().all(7, 8))).unwrap();
    assert_eq!(permissions(&fs, "/folder").1, Some(named([1, 2])));
    let options = TreeOptions::new().owners(owners.all(7, 8));
    let fs = built_from(&stream([1001, 1002], 9000), &options).unwrap();
    assert_eq!(permissions(&fs, "/folder").1, Some(named([5001, 6002])));
}

#[test]
fn device_numbers_without_room_are_refused() {
    let node = |kind, major, minor| Node { device: (major, minor), ..Node::new(kind) };
    let (block, character) = (FileType::BlockDevice, FileType::CharacterDevice);
    for (kind, major, minor) in [(block, 4096, 5), (block, 4104, 1_048_577), (character, 5, 1_048_576)] {
        let stream = attributed(&[("dev/x", node(kind, major, minor), &[])]);
        for error in [built_from(&stream, &TreeOptions::default()).err(), put(&stream).err()] {
            let error = error.unwrap().to_string();
            assert!(error.contains(&format!("dev/x: device {major},{minor}: ")), "{error}");
        }
    }
    let fifo = node(FileType::Fifo, 5000, 5);
    let stream = attributed(&[("x", node(block, 4095, 1_048_575), &[]), ("y", fifo, &[])]);
    for fs in [built_from(&stream, &TreeOptions::default()), put(&stream)] {
        let fs = fs.unwrap();
        assert_eq!(fs.resolve(b"/x", false).unwrap().device(), Some((4095, 1_048_575)));
    }
}
