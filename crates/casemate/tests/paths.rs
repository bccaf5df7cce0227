//! File systems read by path: what the standard library says of the same tree on the host.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind as Kind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Events, FileDevice};
use casemate::crypt::{Direction, Mapping, Params};
use casemate::ext4::{
    BuildSpec, BuildTarget, FileSystem, Handful, InodeNo, NewNode, ReadOptions, WriteOptions,
};
use casemate::fsverity::Parameters;
use casemate::integrity::IntegrityOptions;
use casemate::nbd::Listener;
use casemate::serve::ServeOptions;
use casemate::target::{self, Made};
use casemate::verity::FormatOptions;
use casemate::{Access, Error, ErrorKind, Image, Medium, Providers, SecretVec, Target, Work};
use casemate_testkit::{Rng, TempDir, run, tempdir, tool};

/// A tree on the host, and an image that mke2fs has copied it into.
fn world(features: &str) -> Option<(TempDir, PathBuf, PathBuf)> {
    let mke2fs = tool("mke2fs")?;
    let folder = tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir_all(tree.join("etc/empty")).unwrap();
    fs::write(tree.join("etc/os-release"), "ID=casemate\n").unwrap();
    fs::write(tree.join("large"), Rng::new(1).bytes(300_000)).unwrap();
    symlink("/etc", tree.join("absolute")).unwrap();
    symlink("../../../etc/os-release", tree.join("etc/up")).unwrap();
    symlink("circle", tree.join("circle")).unwrap();
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-O", features, "-d"]).arg(&tree);
    run(command.arg(&image).arg("8M"));
    Some((folder, tree, image))
}

fn open(image: &Path) -> FileSystem {
    let image = Image::open(image, Access::Read).unwrap();
    image.ext4(&ReadOptions::default(), &Work::default()).unwrap()
}

#[test]
fn a_tree_is_read_as_the_standard_library_reads_it() {
    let Some((_folder, tree, image)) = world("64bit") else { return };
    let fs = open(&image);
    for path in
        ["etc/os-release", "/etc/os-release", "/large", "/etc/up", "/absolute/os-release", "/./etc/../large"]
    {
        // Links to the root are ones of the host there.
        let host = path.replace("etc/up", "etc/os-release").replace("absolute", "etc");
        let host = tree.join(host.trim_start_matches('/'));
        let expected = std::fs::read(&host).unwrap();
        assert!(fs.read(path).unwrap() == expected, "{path}");
        assert_eq!(fs.metadata(path).unwrap().size(), expected.len() as u64, "{path}");
        assert_eq!(u32::from(fs.metadata(path).unwrap().mode()), std::fs::metadata(&host).unwrap().mode());
        assert!(fs.exists(path).unwrap(), "{path}");
        let file = fs.open(path).unwrap();
        let mut end = [0; 3];
        file.read_at(&mut end, file.size() - 3).unwrap();
        assert_eq!(end, expected[expected.len() - 3..], "{path}");
    }
    let names = |path: &str| {
        let mut names: Vec<_> = fs.read_dir(path).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    };
    assert_eq!(names("/etc"), [&b"empty"[..], b"os-release", b"up"]);
    assert_eq!(names("absolute/empty"), [&b""[..]; 0]);
    assert_eq!(fs.read_link("/etc/up").unwrap(), Path::new("../../../etc/os-release"));
    assert!(fs.symlink_metadata("/circle").unwrap().kind() == casemate::ext4::FileType::Symlink);
    assert!(!fs.exists("/etc/none").unwrap() && !fs.exists("/large/below").unwrap());
    assert!(fs.exists("/circle").is_err());
}

/// A device whose reads are counted.
struct Counted(FileDevice, AtomicU64);

impl BlockDevice for Counted {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> casemate::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_file_of_a_folder_that_was_read_costs_one_read_of_the_device() {
    let Some((_folder, tree, image)) = world("64bit") else { return };
    let device = Arc::new(Counted(FileDevice::open(&image).unwrap(), AtomicU64::new(0)));
    let fs = Image::over("image", device.clone()).ext4(&ReadOptions::default(), &Work::default()).unwrap();
    let reads = |work: &dyn Fn()| {
        let before = device.1.load(Ordering::Relaxed);
        work();
        device.1.load(Ordering::Relaxed) - before
    };
    fs.read("/etc/os-release").unwrap();
    assert_eq!(reads(&|| assert_eq!(fs.read("/etc/os-release").unwrap(), b"ID=casemate\n")), 1);
    let entries = fs.read_dir("/").unwrap();
    let find = |name: &[u8]| entries.iter().find(|entry| entry.name == name).unwrap().inode;
    let large = std::fs::read(tree.join("large")).unwrap();
    let by_entry = || assert!(fs.read_inode(&fs.inode(find(b"large")).unwrap()).unwrap() == large);
    by_entry();
    assert_eq!(reads(&by_entry), 1);

    let numbers = [
        find(b"large"),
        find(b"etc"),
        InodeNo::new(u32::MAX).unwrap(),
        fs.metadata("etc/os-release").unwrap().number(),
    ];
    let mut found = BTreeMap::new();
    let keep = |handful: Handful<'_>| {
        for (index, contents) in handful {
            assert!(found.insert(index, contents.map(Cow::into_owned)).is_none());
        }
        Ok(())
    };
    fs.read_many(&numbers, &Work::default(), keep).unwrap();
    let contents = |at: usize| found[&at].as_ref();
    assert!(*contents(0).unwrap() == large && contents(3).unwrap() == b"ID=casemate\n");
    assert_eq!(contents(1).unwrap_err().io_kind(), Some(Kind::IsADirectory));
    assert_eq!(contents(2).unwrap_err().kind(), ErrorKind::Corrupt);
    let errors = [1, 2].map(|at| contents(at).unwrap_err().to_string());
    assert_eq!(errors[0], format!("image: inode {}: is a directory", numbers[1]));
    assert!(errors[1].starts_with("image: inode 4294967295"), "{errors:?}");
}

#[test]
fn an_image_in_a_file_of_an_image_is_read() {
    let Some((folder, tree, image)) = world("64bit") else { return };
    let mke2fs = tool("mke2fs").unwrap();
    let outer = folder.path().join("outer");
    std::fs::rename(&image, tree.join("inner")).unwrap();
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).arg(&outer).arg("20M"));
    let inner = open(&outer).image("/inner").unwrap();
    assert!(inner.is_read_only() && inner.device().write_at(&[1], 0).is_err());
    let fs = inner.ext4(&ReadOptions::default(), &Work::default()).unwrap();
    assert_eq!(fs.read("/etc/os-release").unwrap(), b"ID=casemate\n");
    let error = fs.read("/none").unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: /inner: /none", outer.display())), "{error}");
}

#[test]
fn errors_name_image_and_path() {
    let Some((_folder, _, image)) = world("64bit") else { return };
    let fs = open(&image);
    let name = image.display();
    let check = |error: Error, kind: Kind, path: &str| {
        assert_eq!(error.io_kind(), Some(kind), "{error}");
        assert!(error.to_string().starts_with(&format!("{name}: {path}: ")), "{error}");
    };
    check(fs.read("/etc/none").unwrap_err(), Kind::NotFound, "/etc/none");
    check(fs.read("/large/below").unwrap_err(), Kind::NotADirectory, "/large/below");
    check(fs.read("/etc").unwrap_err(), Kind::IsADirectory, "/etc");
    check(fs.read_dir("/large").unwrap_err(), Kind::NotADirectory, "/large");
    check(fs.read_link("/large").unwrap_err(), Kind::InvalidInput, "/large");
    let circle = fs.metadata("/circle").unwrap_err();
    assert!(circle.is_link_loop() && casemate::errno(&circle) == Some(40), "ELOOP: {circle}");
    check(circle, Kind::InvalidInput, "/circle");
    // A size that is a lie takes no memory.
    let Some(debugfs) = tool("debugfs") else { return };
    let set = "set_inode_field /large size 0x10000000000";
    run(Command::new(debugfs).args(["-w", "-R", set]).arg(&image));
    let fs = open(&image);
    check(fs.read("/large").unwrap_err(), Kind::FileTooLarge, "/large");
    assert_eq!(fs.open("/large").unwrap().size(), 1 << 40);
}

/// Notes that a listener got.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Events for Notes {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn a_wrong_key_and_a_state_that_is_half_a_change_are_told() {
    let Some((folder, _, image)) = world("^has_journal") else { return };
    let mapping = |byte| {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        let key: Vec<u8> = (byte..byte + 64).collect();
        Mapping::new(params, SecretVec::new(key), 0, &Providers::default()).unwrap()
    };
    let encrypted = folder.path().join("encrypted");
    std::fs::copy(&image, &encrypted).unwrap();
    let through = |byte, access| Image::open(&encrypted, access).unwrap().crypt(mapping(byte)).unwrap();
    let plain = std::fs::read(&image).unwrap();
    through(1, Access::Change).device().write_at(&plain, 0).unwrap();
    let work = Work::default();
    let read = |byte| through(byte, Access::Read).ext4(&ReadOptions::default(), &work);
    assert_eq!(read(1).unwrap().read("/etc/os-release").unwrap(), b"ID=casemate\n");
    let error = read(2).unwrap_err();
    assert!(error.kind() == ErrorKind::Mismatch && error.text().contains("key may be wrong"), "{error}");
    let change = |byte| through(byte, Access::Change).ext4_writer(&WriteOptions::default(), &work).map(drop);
    assert_eq!(change(2).unwrap_err().kind(), ErrorKind::Mismatch);
    let error = change(1).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unsupported && error.text().contains("build it again with a journal"),
        "{error}"
    );
    let error = through(1, Access::Read).ext4_writer(&WriteOptions::default(), &work).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);

    let Some(debugfs) = tool("debugfs") else { return };
    run(Command::new(debugfs).args(["-w", "-R", "set_super_value state 0"]).arg(&image));
    let notes = Notes::default();
    let work = Work { events: &notes, ..Work::default() };
    let opened = Image::open(&image, Access::Read).unwrap().ext4(&ReadOptions::default(), &work).unwrap();
    assert!(opened.exists("/large").unwrap());
    let notes = notes.0.into_inner().unwrap();
    assert!(notes.len() == 1 && notes[0].contains("was not left clean"), "{notes:?}");
}

/// Nothing is made on an image while a layer that would write to it is open.
#[test]
fn what_is_made_anew_wants_no_open_layer() {
    let work = Work::default();
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, vec![0; 16 << 20]).unwrap();
    let image = Image::open(&path, Access::Change).unwrap();
    let mapping = || {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        Mapping::new(params, SecretVec::new((0..64).collect()), 0, &Providers::default()).unwrap()
    };
    let [part, other] = [(1 << 20, 8 << 20), (9 << 20, 4 << 20)]
        .map(|(at, len)| image.clone().window(at, Some(len)).unwrap());
    let on = |image: &Image| Target::on(image.clone(), Made::Data, &target::overwrite).unwrap();
    let made = |image: &Image| {
        let integrity = IntegrityOptions::default();
        let build = BuildSpec::new(BuildTarget::Image(Box::new(Medium::clone(image))));
        [
            integrity
                .format(&on(image), &casemate::integrity::FormatOptions::new(4, [0; 16]), None, &work)
                .err(),
            mapping()
                .transform_from_stream(
                    Direction::Encrypt,
                    ("zeros", &mut [0; 4096].as_slice()),
                    &on(image),
                    &work,
                )
                .err(),
            build.run(&target::overwrite, &work).err(),
        ]
    };
    let layer = part.clone().crypt(mapping()).unwrap();
    for error in made(&image).into_iter().chain(made(&part)) {
        let error = error.expect("it was made below an open layer");
        assert!(error.is_busy() && error.to_string().contains("close that first"), "{error}");
    }
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    // Beside the layer is room.
    assert!(made(&other).iter().all(Option::is_none));
    drop(layer);
    assert!(made(&part).iter().all(Option::is_none));
}

/// A writer of an image keeps others from it, whatever either of them is and lies on.
#[test]
fn an_image_has_one_writer_at_a_time() {
    let Some((_folder, _, path)) = world("64bit") else { return };
    let work = Work::default();
    let image = Image::open(&path, Access::Change).unwrap();
    let sealed = |image: &Image| {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        let mapping =
            Mapping::new(params, SecretVec::new((0..64).collect()), 0, &Providers::default()).unwrap();
        image.clone().crypt(mapping).unwrap()
    };
    let writer = |image: &Image| image.ext4_writer(&WriteOptions::default(), &work);
    let all_are_refused = || {
        let area = || FormatOptions::default();
        let part = image.clone().window(4096, Some(8192)).unwrap();
        let refused = [
            writer(&image).err(),
            image.lease().err(),
            part.write_at(b"x", 0).err(),
            sealed(&part).write_at(&[0; 512], 512).err(),
            image
                .serve(Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap(), &ServeOptions::default())
                .err(),
            Image::of_bytes("data", vec![0; 4096]).verity_format(&part, &area(), &work).err(),
            part.fsverity_tree(&image, &Parameters::default(), &work).err(),
        ];
        for (number, error) in refused.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("writer {number} was let in"));
            assert!(error.is_busy() && error.to_string().contains("another writer"), "{number}: {error}");
        }
    };
    let mut first = writer(&image).unwrap();
    all_are_refused();
    first.make_directory(b"/one", &NewNode::new(0o755), false).unwrap();
    first.commit().unwrap();
    all_are_refused();
    drop(first);
    let mut second = writer(&image).unwrap();
    second.make_directory(b"/two", &NewNode::new(0o755), false).unwrap();
    second.commit().unwrap();
    drop(second);
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let service = image.serve(listener, &ServeOptions::default()).unwrap();
    all_are_refused();
    service.stop(std::time::Duration::from_secs(60)).unwrap();
    let fs = image.ext4(&ReadOptions::default(), &work).unwrap();
    assert!(fs.exists("/one").unwrap() && fs.exists("/two").unwrap());
    // Parts that do not touch are changed at the same time.
    let parts = [(0, 4096), (4096, 4096)].map(|(at, len)| image.clone().window(at, Some(len)).unwrap());
    let leases = parts.each_ref().map(|part| part.lease().unwrap());
    assert!(image.lease().is_err());
    drop(leases);
    image.lease().unwrap();
}
