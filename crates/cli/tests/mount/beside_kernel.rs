//! One image as a folder, and mounted by a kernel.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;

use casemate_testkit::{Rng, kernel, listing, mke2fs, skip, slow_tests, tool};

use super::{Folders, assert_same_lines, images, list, listed};

/// A tree of everything that an image can have: long and odd names, all kinds of files, modes, times, holes, attributes.
const TREE: &str = r#"
mkdir -p tree/sub/deep/deeper tree/many tree/empty
for i in $(seq 150); do echo $i > "tree/many/a name of some length, so that blocks become full, $i"; done
ln -s sub/deep tree/short; ln -s "$(printf 'x%.0s' $(seq 200))" tree/long
head -c 1500000 /dev/urandom > tree/big; echo tiny > tree/tiny; : > tree/nothing
ln tree/tiny tree/sub/again; chmod 4751 tree/big; chmod 1777 tree/sub; chown 1234:56789 tree/tiny
truncate -s 3M tree/sparse; printf x | dd of=tree/sparse bs=1 seek=1234567 conv=notrunc status=none
mkfifo tree/fifo; mknod tree/null c 1 3; mknod tree/disk b 259 70000
touch -d '1950-01-02 03:04:05' tree/sub/old; touch -d '2400-01-01' tree/sub/new
printf 'odd' > "tree/$(printf 'a\nb\\c\xff')"; printf 'n%.0s' $(seq 255) | xargs -I{} touch tree/{}
setfattr -n user.small -v value tree/tiny; setfattr -n trusted.t -v 1 tree/sub
setfattr -n user.large -v "$(printf 'v%.0s' $(seq 700))" tree/big
setfacl -m u:1000:r,g:7:rwx tree/tiny; setfacl -d -m u:1000:rx tree/sub; setcap cap_net_raw+ep tree/big
"#;

#[test]
fn trees_are_as_the_kernel_shows_them() {
    let (Some(mke2fs), Some(_), Some(_)) = (tool("mke2fs"), tool("python3"), tool("setfacl")) else { return };
    if !kernel::loop_mounts_work() {
        return skip("no loop mounts");
    }
    let Some(folders) = Folders::new() else { return };
    folders.sh(TREE);
    let mut names: Vec<String> = Vec::new();
    let fixtures = images("ext4/tests/fixtures").into_iter().chain(images("casemate/tests/fscrypt/fixtures"));
    for (name, bytes) in fixtures {
        folders.file(&name, bytes);
        names.push(name);
    }
    // Larger blocks no kernel of x86-64 mounts.
    let kinds = mke2fs::all().filter(|features| features.block_size() <= 4096);
    let kinds = kinds.filter(|features| features.kernel || slow_tests());
    for (number, features) in kinds.enumerate() {
        let name = format!("made{number}");
        let options = format!("{} -d {}", features.options, folders.path("tree").display());
        mke2fs::make(&mke2fs, &options, &folders.path(&name), "24M");
        names.push(name);
    }
    // A copy: the kernel replays journals on the disk. What it can't mount it leaves out.
    let script = format!(
        "cd {}; mkdir kernel; for name in {}; do cp $name copy; loop=$(losetup -f --show copy)
         if mount -o ro $loop kernel 2> why; then python3 {} kernel > $name.kernel; umount kernel; fi
         losetup -d $loop; done",
        folders.folder().display(),
        names.join(" "),
        list()
    );
    kernel::with_mounts(&script).unwrap();
    let mut compared = 0;
    for name in &names {
        folders.mount(name, "own");
        let own = listed(&folders.path("own"));
        if let Ok(expected) = fs::read_to_string(folders.path(format!("{name}.kernel"))) {
            assert_same_lines(&own, &expected, name);
            compared += 1;
        }
        folders.unmount("own");
    }
    assert!(compared > 20, "{compared} of {names:?}");
}

/// Of images that this kernel does not mount, too.
#[test]
fn trees_are_as_they_are_extracted() {
    let Some(folders) = Folders::new() else { return };
    for (name, bytes) in images("ext4/tests/fixtures") {
        folders.file("image", bytes);
        folders.yes("ext4 extract --no-progress image copy");
        folders.mount("image", "own");
        let (own, copy) = (listing(&folders.path("own"), false), listing(&folders.path("copy"), false));
        assert_eq!(own.keys().collect::<Vec<_>>(), copy.keys().collect::<Vec<_>>(), "{name}");
        own.iter().for_each(|(path, found)| assert_eq!(found, &copy[path], "{name}: {}", path.display()));
        folders.unmount("own");
        fs::remove_dir_all(folders.path("copy")).unwrap();
    }
}

/// Contents that are decrypted and checked on the way, at many places at a time, while names are looked up.
#[test]
fn many_threads_read_through_layers() {
    let (Some(mke2fs), Some(folders)) = (tool("mke2fs"), Folders::new()) else { return };
    let mut rng = Rng::new(11);
    let contents: BTreeMap<String, Vec<u8>> =
        (0..4).map(|number| (format!("file{number}"), rng.bytes(1_000_000 + number * 4321))).collect();
    fs::create_dir(folders.path("tree")).unwrap();
    contents.iter().for_each(|(name, bytes)| drop(folders.file(format!("tree/{name}"), bytes)));
    let options = format!("-t ext4 -d {}", folders.path("tree").display());
    mke2fs::make(&mke2fs, &options, &folders.path("root.img"), "16M");
    folders.file("key", rng.bytes(64));
    folders.yes("crypt encrypt --no-progress root.img enc --key-file key --key-size 512");
    folders.yes("verity format --no-progress enc tree.verity --root-hash-file root.txt");
    let layers = "--dm-verity tree.verity @root.txt --crypt aes-xts-plain64 --key-file key --key-size 512";
    folders.mount(&format!("enc {layers} --threads 2"), "own");
    thread::scope(|scope| {
        for seed in 0..8 {
            let (folders, contents) = (&folders, &contents);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..60 {
                    let name = format!("file{}", rng.below(4));
                    let (file, expected) =
                        (fs::File::open(folders.path("own").join(&name)).unwrap(), &contents[&name]);
                    let at = rng.below(expected.len() as u64) as usize;
                    let mut buffer = vec![0; (1 + rng.below(200_000) as usize).min(expected.len() - at)];
                    file.read_exact_at(&mut buffer, at as u64).unwrap();
                    assert!(buffer == expected[at..at + buffer.len()], "{name} at {at}");
                    assert!(fs::symlink_metadata(folders.path("own").join("none")).is_err());
                }
            });
        }
    });
    folders.unmount("own");
    // What does not match the root hash is an error of its readers.
    folders.flip("enc", 9 << 20, 1);
    folders.mount(&format!("enc {layers}"), "own");
    let broken = contents.iter().filter(|(name, bytes)| {
        fs::read(folders.path("own").join(name)).map_or(true, |found| found != **bytes)
    });
    assert!(broken.count() <= 1);
}
