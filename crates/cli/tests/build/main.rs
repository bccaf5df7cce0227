//! `casemate ext4 build`, and the command as mke2fs.

mod order;
mod permissions;
mod protected;
mod records;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use casemate_testkit::{Place, run, run_any, stderr, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder `tree`, and the same as a tar stream.
fn place() -> Place {
    let place = Place::under(CASEMATE, "ext4");
    place.sh("mkdir -p tree/a/b; echo 1 >tree/one; echo 2 >tree/a/two; ln -s ../one tree/a/link; ln tree/one tree/a/hard
              seq 30000 >tree/a/b/large; chmod 640 tree/one; chmod 755 tree tree/a; touch -d @1000000000.5 tree/a/two
              tar -C tree --format=pax -cf tree.tar .");
    place
}

fn check(place: &Place, image: &str) {
    place.yes(&format!("check {image}"));
    if let Some(e2fsck) = tool("e2fsck") {
        run(Command::new(e2fsck).arg("-fn").arg(place.path(image)));
    }
}

#[test]
fn every_source_and_every_target_gives_the_same_tree() {
    let place = place();
    let list = |image: &str| place.yes(&format!("tree {image} /"));
    place.yes("build folder.img --from tree");
    check(&place, "folder.img");
    assert_eq!(place.yes("cat folder.img /a/hard"), "1\n");
    place.yes("build tar.img --tar tree.tar");
    assert!(place.read("tar.img") == place.read("folder.img"));
    assert!(place.yes("stat tar.img /a/two").contains("2001-09-09"));
    // From a pipe and to one.
    let mut command = Command::new(CASEMATE);
    command.args(["ext4", "build", "-", "--tar", "-"]).stdin(fs::File::open(place.path("tree.tar")).unwrap());
    let output = run_any(command.stdout(Stdio::piped()));
    assert!(output.status.success());
    assert!(output.stdout == place.read("tar.img"));
    // Within a file that keeps the rest.
    place.file("disk", vec![7; 40 << 20]);
    place.yes("build disk --offset 4M --size 20M --from tree --overwrite");
    let disk = place.read("disk");
    assert!(disk[..4 << 20].iter().chain(&disk[24 << 20..]).all(|byte| *byte == 7));
    place.file("part", &disk[4 << 20..24 << 20]);
    check(&place, "part");
    assert_eq!(list("part"), list("folder.img"));
}

/// The configuration of an image says what its layers hold, which the manifest's digests of compressed blobs do not.
#[test]
fn layers_hold_what_the_configuration_of_the_image_says() {
    if ["gzip", "sha256sum"].into_iter().any(|name| tool(name).is_none()) {
        return;
    }
    let place = place();
    place.sh(r#"set -e; gzip -nk tree.tar; mkdir next; touch next/new; tar -C next --format=pax -cf next.tar .
        sum() { sha256sum <"$1" | cut -d' ' -f1; }
        blob() { cp "$2" oci/blobs/sha256/$(sum "$2")
            printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d}' "$1" $(sum "$2") $(stat -c %s "$2"); }
        first='"sha256:'$(sum tree.tar)'"'; second='"sha256:'$(sum next.tar)'"'
        image() { rm -rf oci; mkdir -p oci/blobs/sha256; printf '{"rootfs":{"type":"layers","diff_ids":[%s]}}' "$2" >config
            printf '{"schemaVersion":2,"config":%s,"layers":[%s]}' "$(blob config.v1+json config)" "$3" >manifest
            printf '{"manifests":[%s]}' "$(blob manifest.v1+json manifest)" >oci/index.json; blob layer tree.tar.gz; blob layer next.tar
            mv oci $1; }
        mkdir -p oci/blobs/sha256; layers=$(blob layer.v1.tar+gzip tree.tar.gz),$(blob layer.v1.tar next.tar)
        image right $first,$second "$layers"; image swapped $second,$first "$layers"; image none '' "$layers"
        image fewer $first "$layers"; image empty '' ''"#);
    place.yes("build right.img --oci right");
    place.is("build other.img --oci swapped", 2, "its contents are not what the image's configuration says");
    place.is("build other.img --oci none", 2, "the manifest lists 2 layers, and its configuration 0");
    place.is("build other.img --oci fewer", 2, "the manifest lists 2 layers, and its configuration 1");
    place.is("build other.img --oci empty", 2, "the manifest lists no layers");
    assert!(!place.path("other.img").exists());
}

#[test]
fn compressed_streams_and_oci_layouts_are_what_is_in_them() {
    if ["gzip", "zstd", "sha256sum"].into_iter().any(|name| tool(name).is_none()) {
        return;
    }
    let place = place();
    place.sh("gzip -nk tree.tar; zstd -q tree.tar; mkdir next; touch next/.wh.one next/new; touch -d @9 next next/*
              tar -C next --format=pax -cf next.tar .; head -c 3000 tree.tar.gz >cut.gz");
    place.yes("build plain.img --tar tree.tar");
    for name in ["tree.tar.gz", "tree.tar.zst"] {
        place.yes(&format!("build packed.img --tar {name}"));
        assert!(place.read("packed.img") == place.read("plain.img"), "{name}");
        let mut command = Command::new(CASEMATE);
        command.args(["ext4", "build", "-", "--tar", "-"]).stdin(fs::File::open(place.path(name)).unwrap());
        assert!(run_any(command.stdout(Stdio::piped())).stdout == place.read("plain.img"), "{name}");
        place.yes("build empty.img --size 8M");
        place.yes(&format!("put --tar {name} empty.img /"));
        assert_eq!(
            place.yes("tree empty.img /").lines().count(),
            place.yes("tree plain.img /").lines().count()
        );
    }
    place.is("build other.img --tar cut.gz", 2, "gzip stream");
    // A layout with an index in its index, and two layers.
    place.sh(r#"set -e; mkdir -p oci/blobs/sha256; printf '{"imageLayoutVersion":"1.0.0"}' >oci/oci-layout
        blob() { sum=$(sha256sum <"$2" | cut -d' ' -f1); cp "$2" oci/blobs/sha256/$sum
            printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d%s}' "$1" $sum $(stat -c %s "$2") "${3-}"; }
        zstd -q next.tar; layers=$(blob layer.v1.tar+gzip tree.tar.gz),$(blob layer.v1.tar+zstd next.tar.zst)
        printf '{"schemaVersion":2,"layers":[%s]}' "$layers" >manifest
        printf '{"schemaVersion":2,"layers":[]}' >other
        printf '{"manifests":[%s,%s]}' "$(blob manifest.v1+json manifest ',"platform":{"os":"linux","architecture":"arm64"}')" \
            "$(blob manifest.v1+json other ',"platform":{"os":"linux","architecture":"amd64"}')" >index
        printf '{"manifests":[%s]}' "$(blob index.v1+json index ',"annotations":{"org.opencontainers.image.ref.name":"a:1"}')" >oci/index.json"#);
    place.is("build other.img --oci oci", 2, "linux/amd64");
    place.is("build other.img --oci oci:none", 2, "the layout does not hold this image");
    place.yes("build layers.img --layer tree.tar --layer next.tar");
    place.yes("build oci.img --oci oci:linux/arm64");
    assert!(place.read("oci.img") == place.read("layers.img"));
    let list = place.yes("ls oci.img /");
    assert!(list.contains("new") && !list.contains("one"), "{list}");
    // A blob that another one took the place of.
    place.sh("cp tree.tar.zst oci/blobs/sha256/$(sha256sum <next.tar.zst | cut -d' ' -f1)");
    place.is("build other.img --oci oci:linux/arm64", 2, "its descriptor says");
    // One that waits for a writer.
    place.sh("cd oci/blobs/sha256; name=$(sha256sum <../../../next.tar.zst | cut -d' ' -f1); rm $name; mkfifo $name");
    place.is("build other.img --oci oci:linux/arm64", 2, "not a regular file");
    place.sh("cd oci; mv index.json kept; mkfifo index.json");
    place.is("build other.img --oci oci:linux/arm64", 2, "not a regular file");
    place.sh("cd oci; mv kept index.json");
    // An index that names another one so often that reading all of it would take hours.
    place.sh(r#"cd oci; inner=$(sed 's/.*sha256:\([0-9a-f]*\).*/\1/' index.json)
        many() { yes "{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"digest\":\"sha256:$1\",\"size\":1}" |
            head -n 5000 | paste -sd, | sed 's/.*/{"manifests":[&]}/'; }
        many $inner >outer; sum=$(sha256sum <outer | cut -d' ' -f1); mv outer blobs/sha256/$sum; many $sum >index.json"#);
    place.is("build other.img --oci oci", 2, "more than 4096 images and indexes");
    assert!(!place.path("other.img").exists());
}

#[test]
fn images_are_there_whole_or_not_at_all() {
    let place = place();
    place.file("old.img", "old");
    for (arguments, text) in [
        ("old.img --from tree --size 1M -N 5", "5 inodes, and 18 are needed"),
        ("old.img --from tree --size 100K", "bytes more are needed"),
        ("old.img --from none", "none"),
        ("other.img --from old.img", "no folder; --tar takes a tar stream"),
        ("old.img --from -", "no folder; --tar takes a tar stream"),
        ("old.img --tar old.img", "would replace"),
        ("old.img --from tree -O nonsense", "is not a feature"),
        ("old.img --from tree -O ^extent", "64bit"),
        ("old.img --from tree -O ea_inode", "ea_inode"),
        ("old.img --from tree -b 3000", "block size"),
        ("old.img --from tree --uid-map 5:77777:1", "none of the ranges"),
    ] {
        place.is(&format!("build {arguments}"), 2, text);
        assert_eq!(place.read("old.img"), b"old", "{arguments}");
    }
    let names = place.names();
    assert!(names.iter().all(|name| !name.contains(".part")), "{names:?}");
}

/// An empty file system that nobody asked for is not another run of the build that made what is there.
#[test]
fn an_empty_file_system_replaces_no_full_one() {
    let place = place();
    place.yes("build image --from tree");
    let before = place.read("image");
    place.is("build image", 2, "use --overwrite to destroy it");
    place.is("build image -n", 2, "use --overwrite");
    assert!(place.read("image") == before);
    place.yes("build image --from tree");
    place.yes("build image --overwrite");
    assert!(place.read("image") != before);
}

#[test]
fn what_is_killed_leaves_what_was_there() {
    let place = place();
    place.sh("head -c 40000000 /dev/urandom >tree/large");
    place.yes("build whole.img --from tree");
    let whole = place.read("whole.img");
    let mut killed = 0;
    for delay in [0, 10, 20, 40, 80, 160] {
        place.file("old.img", "old");
        let mut command = Command::new(CASEMATE);
        command.args(["ext4", "build", "old.img", "--from", "tree"]).current_dir(place.folder());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay));
        child.kill().unwrap();
        if !child.wait().unwrap().success() {
            killed += 1;
        }
        let found = place.read("old.img");
        assert!(found == b"old" || found == whole, "{delay} ms: {} bytes", found.len());
    }
    assert!(killed > 0);
}

#[test]
fn the_same_tree_gives_the_same_image() {
    let place = place();
    place.yes("build one.img --from tree --threads 1");
    place.yes("build two.img --from tree --threads 3");
    assert!(place.read("one.img") == place.read("two.img"));
    place.yes("build three.img --from tree --seed other");
    assert!(place.read("one.img") != place.read("three.img"));
    let mut command = Command::new(CASEMATE);
    command.args(["ext4", "build", "four.img", "--from", "tree"]).current_dir(place.folder());
    run(command.env("SOURCE_DATE_EPOCH", "1000000"));
    let time = place.yes("stat four.img /one --json");
    assert!(time.contains("1000000"), "{time}");
    check(&place, "four.img");
}

/// A folder's time of change tells nothing about the files in it.
#[test]
fn times_later_than_source_date_epoch_do_not_count() {
    let place = place();
    place.sh("cp -r tree other; touch -d @999999.25 tree/a/b/large other/a/b/large
              find tree -exec touch -hd @1500000000 {} +; find other -exec touch -hd @1600000000.5 {} +
              touch -d @999999.25 tree/a/b/large other/a/b/large; rm other/a/hard; ln other/one other/a/hard
              touch -d @1700000000 other/a");
    for options in ["", "--dm-verity append", "-t ext2", "--verity", "-O ^metadata_csum_seed"] {
        let build = |image: &str, tree: &str| {
            let mut command = Command::new(CASEMATE);
            command.args(["ext4", "build", image, "--from", tree]).args(options.split_whitespace());
            let told = run(command.current_dir(place.folder()).env("SOURCE_DATE_EPOCH", "1000000"));
            (told, place.read(image))
        };
        let (told, bytes) = build("one.img", "tree");
        let (told_other, other) = build("two.img", "other");
        assert!(bytes == other, "{options}");
        assert_eq!(told.replace("one.img", ""), told_other.replace("two.img", ""));
        // What is older keeps its time.
        let time = place.yes("stat one.img /a/b/large --json");
        assert!(time.contains("999999"), "{time}");
    }
}

/// Slots of one device are told apart by their UUIDs.
#[test]
fn other_contents_give_another_uuid() {
    let place = place();
    place.sh("cp -a tree other; sed s/9/8/g tree/a/b/large >other/a/b/large; touch -r tree/a/b/large other/a/b/large
              cp -a tree small; echo 3 >small/a/two; touch -r tree/a/two small/a/two; touch -r tree/a small/a other/a
              touch -r tree/a/b small/a/b other/a/b; touch -r tree small other");
    let uuid = |image: &str| -> String {
        let told: serde_json::Value =
            serde_json::from_str(&place.yes(&format!("info {image} --json"))).unwrap();
        told["uuid"].as_str().unwrap().to_owned()
    };
    for options in [
        "",
        "-t ext2",
        "-t ext3",
        "-O ^metadata_csum_seed",
        "-O uninit_bg,^metadata_csum",
        "-O inline_data",
        "--verity",
    ] {
        let build = |image: &str, tree: &str| {
            let told = place.yes(&format!("build {image} --from {tree} --json {options}"));
            check(&place, image);
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["uuid"], uuid(image), "{options}");
            uuid(image)
        };
        let uuids = ["tree", "other", "small"].map(|tree| build("made.img", tree));
        assert!(uuids[0] != uuids[1] && uuids[0] != uuids[2] && uuids[1] != uuids[2], "{options}: {uuids:?}");
        // Neither how many threads there are nor how large the image is changes it, and what is only planned tells it.
        assert_eq!(build("made.img", "tree --threads 1 --size 20M"), uuids[0], "{options}");
        let planned = place.yes(&format!("build none.img --from tree -n --print-config {options}"));
        let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
        assert_eq!(planned["uuid"], uuids[0], "{options}");
    }
    // dm-verity's UUID and salt follow from the file system's UUID.
    let told = ["tree", "other"].map(|tree| {
        let told = place.yes(&format!("build made.img --from {tree} --dm-verity append --json"));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        ["uuid", "salt"].map(|name| told["dm_verity"][name].as_str().unwrap().to_owned())
    });
    assert!(told[0][0] != told[1][0] && told[0][1] != told[1][1], "{told:?}");
}

#[test]
fn owners_are_mapped_and_the_root_is_as_it_is_said() {
    let place = place();
    let own = run(Command::new("id").arg("-u")).trim().to_owned();
    let group = run(Command::new("id").arg("-g")).trim().to_owned();
    place.yes(&format!(
        "build image --from tree --uid-map 5000:{own}:1 --gid-map 6000:{group}:1 --root-owner 7:8 --root-mode 700 -L name"
    ));
    check(&place, "image");
    let stat = |path: &str| -> serde_json::Value {
        serde_json::from_str(&place.yes(&format!("stat image {path} --json"))).unwrap()
    };
    let (one, root) = (stat("/one"), stat("/"));
    assert_eq!((one["uid"].as_u64(), one["gid"].as_u64()), (Some(5000), Some(6000)));
    assert_eq!((root["uid"].as_u64(), root["gid"].as_u64()), (Some(7), Some(8)));
    assert!(place.yes("info image").contains("name"));
}

#[test]
fn descriptions_beside_the_tree_count() {
    let place = place();
    let stat = |path: &str| -> serde_json::Value {
        serde_json::from_str(&place.yes(&format!("stat image {path} --json"))).unwrap()
    };
    let owners = |path: &str| ["uid", "gid"].map(|name| stat(path)[name].as_u64().unwrap());
    let attribute = |path: &str, name: &str| place.yes(&format!("getfattr image -n {name} -e hex {path}"));
    // What Android has, of an image that is mounted at /system.
    place.file(
        "fs_config",
        " 9 9 700\nsystem 0 0 751\nsystem/a/two 0 2000 750 capabilities=0x80\nvendor/x 1 1 600\n",
    );
    place.file(
        "contexts",
        "/system(/.*)? u:r:system:s0\n/system/a -d u:r:a:s0\n/system/lost\\+found u:r:lost:s0\n",
    );
    place.yes("build image --from tree --fs-config fs_config --file-contexts contexts --mount-point /system");
    check(&place, "image");
    assert_eq!((owners("/"), owners("/a/two")), ([0, 0], [0, 2000]));
    assert!(attribute("/a/two", "security.capability").contains("0x0100000280000000"));
    for (path, label) in [("/", "system"), ("/a", "a"), ("/a/two", "system"), ("/lost+found", "lost")] {
        let text = place.yes(&format!("getfattr image -n security.selinux {path}"));
        assert!(text.contains(&format!("u:r:{label}:s0")), "{path}: {text}");
    }
    // Devices, and rules.
    place.file(
        "table",
        "/dev d 755 0 0 - - - - -\n/dev/tty c 620 0 5 4 0 0 1 3\n/a r -1 7 8\n/one f 4755 0 0 - - - - -\n",
    );
    place.yes("build image --from tree --device-table table --mode a/**:go= --mode one:u-s --xattr two:user.x=0x6162");
    check(&place, "image");
    assert_eq!((owners("/a/b/large"), owners("/dev/tty2")), ([7, 8], [0, 5]));
    assert_eq!(place.yes("ls image /dev").lines().count(), 3);
    let mode = |path: &str| place.yes(&format!("ls -ld image {path}"));
    // Its other name is in a.
    assert!(mode("/one").starts_with("-rwx------") && mode("/a/two").starts_with("-rw-------"));
    assert!(
        mode("/dev/tty2").contains("4, 2") || mode("/dev/tty2").contains("4,   2"),
        "{}",
        mode("/dev/tty2")
    );
    assert!(attribute("/a/two", "user.x").contains("0x6162"));
    place.file("wrong", "/none f 644 0 0 - - - - -\n");
    place.is("build other --from tree --device-table wrong", 2, "/none");
    place.file("wrong", "/one d 755 0 0 - - - - -\n");
    place.is("build other --from tree --device-table wrong", 2, "described as a directory");
    // What mtree tells of a tree brings it back.
    if tool("bsdtar").is_some() {
        place.sh(
            "bsdtar -C tree --format=mtree --options='!all,type,mode,uid,gid,time,size,link' -cf described .",
        );
        place.yes("build plain --from tree");
        place.sh("mkdir changed; cp -r tree/. changed; cd changed; ln -f one a/hard; chmod 700 one a; rm a/link; touch a/b");
        place.yes("build image --from changed --mtree described");
        assert!(place.read("image") == place.read("plain"));
        place.sh("echo longer >>changed/a/two");
        place.is("build image --from changed --mtree described", 2, "a/two");
    }
}

/// An option that had nothing to do has not done what was asked for.
#[test]
fn what_is_asked_for_in_vain_is_refused() {
    let place = place();
    place
        .sh(": >empty; mkdir nothing; echo '# nobody' >comment; mkfifo nothing/pipe; ln -s pipe nothing/link
              echo 'vendor/x 1 1 600' >fs_config; echo '/vendor(/.*)? u:r:vendor:s0' >contexts");
    for (arguments, text) in [
        ("--from tree --verity=none", "'none': the pattern matches no regular file"),
        ("--from tree --verity=large --verity=no*", "'no*'"),
        ("--from tree --verity=a/", "'a/'"),
        ("--from nothing --verity", "no regular file"),
        ("--from tree --verity-from-manifest empty", "empty: the manifest names no file"),
        ("--from tree --verity-from-manifest comment", "the manifest names no file"),
        ("--from tree --mode none:644", "'none': the pattern matches no file"),
        ("--from nothing --mode link:644", "'link'"),
        ("--from tree --xattr one:user.x=1 --xattr none:user.x=1", "'none'"),
        ("--from tree --fs-config fs_config", "fs_config: it tells of no file of the tree"),
        ("--from tree --fs-config empty", "empty: it tells of no file"),
        ("--from tree --device-table comment", "comment: it tells of no file"),
        ("--from tree --mtree empty", "empty: it tells of no file"),
        ("--from tree --composefs-dump empty", "empty: it tells of no file"),
        ("--from tree --file-contexts empty", "empty: it has a label for no file"),
        ("--from tree --file-contexts contexts", "contexts: it has a label for no file"),
        (
            "--from tree --size 8M -b 4096 --journal-size 2M",
            "a journal of 2097152 bytes has 512 blocks of 4096: it needs 1024 to 10240000 blocks, so 4194304 bytes or more",
        ),
    ] {
        place.is(&format!("build new.img {arguments}"), 2, text);
        assert!(!place.path("new.img").exists(), "{arguments}");
    }
    // A manifest that names what is not there.
    place.yes("build new.img --from tree --verity --manifest digests");
    place.sh("rm tree/a/two");
    place.is(
        "build other.img --from tree --verity-from-manifest digests",
        2,
        "/a/two: no regular file of the tree",
    );
    // What has something to do.
    place.yes("build new.img --from tree --verity=hard --verity=l*e --mode a/:700 --mode one:600 --xattr one:user.x=1");
}

#[test]
fn files_have_the_digests_that_are_expected() {
    let place = place();
    place.yes("build image --from tree --verity=two --verity=hard --manifest digests");
    place.yes("build again --from tree --verity-from-manifest digests");
    assert!(place.read("image") == place.read("again"));
    // By any of a file's names.
    place.sh("sed 's,a/hard,one,' digests >names; sed 's/:./:x/' digests >malformed");
    place.yes("build again --from tree --verity-from-manifest names");
    assert!(place.read("image") == place.read("again"));
    place.is("build other --from tree --verity-from-manifest malformed", 2, "line 1");
    let digest = |path: &str| {
        let mut command = Command::new(CASEMATE);
        run(command.args(["fsverity", "digest", "--compact"]).arg(place.path(path))).trim().to_owned()
    };
    let two = digest("tree/a/two").trim_start_matches("sha256:").to_owned();
    let dump = |contents: &str| {
        format!(
            "/ 0 40755 1 0 0 0 1.0 - - -\n/a/two 2 100600 1 3 4 0 9.0 - - {two}\n/new 2 100644 1 0 0 0 0.0 - {contents} {two}\n"
        )
    };
    place.file("dump", dump("2\\n"));
    place.yes("build image --from tree --composefs-dump dump --verity");
    check(&place, "image");
    assert_eq!(place.yes("cat --fsverity require image /new"), "2\n");
    place.file("dump", dump("3\\n"));
    place.yes("build other --from tree --composefs-dump dump");
    place.sh("rm other; echo 4 >tree/a/two");
    place.is("build other --from tree --verity-from-manifest digests", 2, "was expected");
    place.is("build other --from tree --composefs-dump dump --verity", 2, "/new");
    assert!(!place.path("other").exists());
}

/// Lines of dumpe2fs that do not differ from one making to the next.
fn header(place: &Place, image: &str) -> Vec<String> {
    let text = run(Command::new("dumpe2fs").arg("-h").arg(place.path(image)).env("LC_ALL", "C"));
    let same = [
        "count:",
        "size:",
        "per group:",
        "Filesystem features",
        "blocks:",
        "volume name",
        "inodes:",
        "errors",
    ];
    text.lines().filter(|line| same.iter().any(|word| line.contains(word))).map(str::to_owned).collect()
}

#[test]
fn the_command_line_of_mke2fs_is_taken() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    if tool("dumpe2fs").is_none() {
        return;
    }
    let place = place();
    for name in ["mke2fs", "mkfs.ext4"] {
        place.link(name);
    }
    let features = "orphan_file,metadata_csum_seed";
    for (name, arguments) in [
        ("mke2fs", "-q -t ext4 -L label -d tree IMAGE 64M".to_owned()),
        ("mke2fs", "-q -F -t ext3 -b 4096 IMAGE 16384".to_owned()),
        ("mke2fs", "-q IMAGE 2000".to_owned()),
        ("mkfs.ext4", format!("-q -O {features} -m 1 -e panic -E stride=4,stripe_width=8 IMAGE 100M")),
        ("mkfs.ext4", format!("-q -O {features} -T largefile -J size=8 IMAGE 600M")),
        ("mke2fs", format!("-q -O {features} -T ext4 IMAGE 20M")),
        ("mke2fs", "-q -T ext3 IMAGE 20M".to_owned()),
        ("mkfs.ext4", format!("-q -O {features} -E desc_size=64,stride=4 IMAGE 20M")),
    ] {
        let argv0 = mke2fs.parent().unwrap().join(name);
        let theirs = arguments.replace("IMAGE", "theirs");
        for image in ["theirs", "ours"] {
            let _ = fs::remove_file(place.path(image));
        }
        run(Command::new(argv0).args(theirs.split(' ')).current_dir(place.folder()));
        let words = arguments.replace("IMAGE", "ours");
        run(Command::new(place.path(name)).args(words.split(' ')).current_dir(place.folder()));
        check(&place, "ours");
        let (mut found, mut expected) = (header(&place, "ours"), header(&place, "theirs"));
        // What is in directories lies in indexes here.
        let is_free = |line: &String| line.starts_with("Free blocks");
        if arguments.contains("-d") {
            found.retain(|line| !is_free(line));
            expected.retain(|line| !is_free(line));
        }
        assert_eq!(found, expected, "{name} {arguments}");
    }
    // What is told, and a dry run.
    let output =
        run(Command::new(place.path("mkfs.ext4")).args(["-n", "new", "1G"]).current_dir(place.folder()));
    assert!(output.contains("with 262144 4k blocks and 65536 inodes"), "{output}");
    assert!(output.contains("\t32768, 98304, 163840, 229376"), "{output}");
    assert!(!place.path("new").exists());
    let output = run_any(
        Command::new(place.path("mke2fs")).args(["-z", "undo", "new", "8M"]).current_dir(place.folder()),
    );
    assert_eq!(output.status.code(), Some(1));
    let output = run_any(Command::new(place.path("mke2fs")).arg("none").current_dir(place.folder()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no size"), "{output:?}");
}

/// Defaults are those of the configuration file that mke2fs reads: of this system, another one, or none that is there.
#[test]
fn the_configuration_of_mke2fs_is_heeded() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    if tool("dumpe2fs").is_none() {
        return;
    }
    let place = place();
    place.link("mke2fs");
    place.file(
        "conf",
        "[defaults]\n\tbase_features = \"sparse_super,filetype,ext_attr\" # and no more\n\tinode_size = 128 ; small\n\
         \tblocksize = 2048\n\treserved_ratio = 2.5\n\tdefault_mntopts = debug,acl\n\thash_alg = tea\n\terrors = panic\n\
         \tflex_bg_size = 8\n\tfs_type = ext4\n[fs_types]\n\text4 = {\n\t\tfeatures = extent,flex_bg\n\
         \t\tdefault_features = large_file\n\t}\n\tsmall =\n\t{\n\t\tinode_ratio = 8192\n\t}\n\
         \todd = {\n\t\tblocksize = 4096\n\t\tfeatures = has_journal\n\t\toptions = stride=4,stripe_width=8\n\t}\n\
         \tpage = {\n\t\tblocksize = -1\n\t\tbase_features = filetype\n\t}\n",
    );
    place.file("empty", "\n");
    place.file("broken", "[defaults]\n\nblocksize\n");
    let run_as = |program: &std::path::Path, configuration: &str, line: &str| {
        let mut command = Command::new(program);
        command.args(line.split(' ')).env("MKE2FS_CONFIG", configuration).current_dir(place.folder());
        run_any(&mut command)
    };
    let all = |image: &str| {
        let text = run(Command::new("dumpe2fs").arg("-h").arg(place.path(image)).env("LC_ALL", "C"));
        let other = [
            "UUID",
            "created",
            "Lifetime writes",
            "write time",
            "checked",
            "Hash Seed",
            "hecksum",
            "volume name",
        ];
        let lines = text.lines().filter(|line| !other.iter().any(|word| line.contains(word)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for (configuration, options) in [
        ("conf", ""),
        ("conf", "-t ext2 "),
        ("conf", "-t ext4 -O dir_index "),
        ("conf", "-T odd "),
        ("conf", "-T odd,page -m 7 -e continue -I 256 "),
        ("conf", "-T nosuch "),
        ("conf", "-t ext3 "),
        ("conf", "-t nosuch "),
        ("empty", ""),
        ("empty", "-t ext4 "),
        ("broken", ""),
        ("/etc/mke2fs.conf", "-t ext4 "),
        ("/etc/mke2fs.conf", "-T ext4,largefile4 "),
        ("/etc/mke2fs.conf", "-j "),
        ("none", "-t ext3 "),
        ("none", ""),
    ] {
        let outputs = [(&*mke2fs, "theirs"), (&place.path("mke2fs"), "ours")].map(|(program, image)| {
            let _ = fs::remove_file(place.path(image));
            run_as(program, configuration, &format!("-q {options}{image} 16M"))
        });
        let [theirs, ours] = &outputs;
        let said = stderr(ours);
        assert_eq!(ours.status.code(), theirs.status.code(), "{configuration} {options}: {said}");
        if ours.status.success() {
            check(&place, "ours");
            assert_eq!(all("ours"), all("theirs"), "{configuration} {options}");
            let told = run(Command::new("dumpe2fs").arg("-h").arg(place.path("ours")).env("LC_ALL", "C"));
            assert!(told.contains("Filesystem created:") && !told.contains(" 1970"), "{told}");
        }
        assert_eq!(said.contains("nosuch"), options.contains("nosuch"), "{configuration} {options}: {said}");
    }
}

/// An option that can't be done is no option that is done.
#[test]
fn mke2fs_refuses_what_it_does_not_do() {
    let place = place();
    place.link("mke2fs");
    for options in ["-r 0", "-E revision=0", "-E test_fs", "-E resize=10000"] {
        let words = format!("-q -t ext4 -b 1024 {options} new 12M");
        let output =
            run_any(Command::new(place.path("mke2fs")).args(words.split(' ')).current_dir(place.folder()));
        assert_eq!(output.status.code(), Some(1), "{options}: {output:?}");
        assert!(!place.path("new").exists(), "{options}");
    }
    let words = "-q -t ext4 -b 1024 -r 1 -E revision=1,resize=20000 new 12M";
    run(Command::new(place.path("mke2fs")).args(words.split(' ')).current_dir(place.folder()));
    check(&place, "new");
}

/// Attributes that no file of ext4 has are told, once for all members.
#[test]
fn attributes_of_members_that_ext4_does_not_store_are_told() {
    let place = place();
    place.sh(
        "tar -C tree --format=pax --pax-option='SCHILY.xattr.foo:=bar,SCHILY.xattr.user.x:=y' -cf odd.tar .",
    );
    place.yes("build empty.img --size 8M");
    for line in ["build new.img --tar odd.tar", "put --tar odd.tar empty.img /"] {
        let output = place.is(line, 0, "the attribute 'foo' is left out");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
    assert!(place.yes("getfattr new.img /one").contains("user.x"));
}

#[test]
fn mke2fs_writes_into_the_file_that_is_there() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = place();
    place.link("mke2fs");
    let noise: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    // The size of the file beforehand, blocks of the file system, and its offset.
    for (before, blocks, offset) in [
        (3_000_000, 1024, 0),
        (300_000, 1024, 0),
        (0, 2048, 0),
        (3_000_000, 1024, 65536),
        (40_000, 1024, 65536),
    ] {
        for (program, name) in [(&mke2fs, "theirs"), (&place.path("mke2fs"), "ours")] {
            let (image, other) = (place.path(name), place.path(format!("{name}-other")));
            let _ = (fs::remove_file(&image), fs::remove_file(&other));
            fs::write(&image, &noise[..before]).unwrap();
            fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
            fs::hard_link(&image, &other).unwrap();
            let inode = fs::metadata(&image).unwrap().ino();
            let words = format!("-q -F -b 1024 -E offset={offset} {name} {blocks}");
            run(Command::new(program).args(words.split(' ')).current_dir(place.folder()));
            let after = fs::metadata(&image).unwrap();
            let what = format!("{name}: {before} {blocks} {offset}");
            assert_eq!((after.ino(), after.mode() & 0o777, after.nlink()), (inode, 0o640, 2), "{what}");
            let end = offset + blocks * 1024;
            assert_eq!(after.len(), before.max(end) as u64, "{what}");
            let bytes = fs::read(&other).unwrap();
            assert!(bytes[..before.min(offset)] == noise[..before.min(offset)], "{what}");
            assert!(bytes[end.min(before)..before] == noise[end.min(before)..before], "{what}");
            fs::write(place.path("part"), &bytes[offset..end]).unwrap();
            check(&place, "part");
            // Space that nothing in the file system uses is given back.
            let used = after.blocks() * 512;
            assert!(used < (before.saturating_sub(end).max(offset) + 700_000) as u64, "{what}: {used}");
        }
    }
}

#[test]
fn sparse_images_are_what_they_are_unpacked_to() {
    let Some(simg2img) = tool("simg2img") else { return };
    let place = place();
    for options in ["", "-b 1024 --size 40M"] {
        place.yes(&format!("build image.simg --from tree --android-sparse {options}"));
        let unpack = |to: &str| {
            let mut command = Command::new(&simg2img);
            run(command.args(["image.simg", to]).current_dir(place.folder()));
        };
        let _ = fs::remove_file(place.path("image"));
        unpack("image");
        place.yes(&format!("build plain --from tree {options}"));
        assert!(place.read("image") == place.read("plain"), "{options}");
        assert!(place.read("image.simg").len() < place.read("image").len(), "{options}");
        // On what a device held before.
        let len = place.read("plain").len();
        place.file("dirty", vec![0xa5; len]);
        if casemate_testkit::kernel::loop_mounts_work()
            && options.contains("40M")
            && tool("debugfs").is_some()
        {
            place.sh("dev=$(losetup -f --show dirty); simg2img image.simg $dev; losetup -d $dev
                      debugfs -R 'dump <8> journal' dirty 2>debugfs.log");
            check(&place, "dirty");
            assert!(place.read("dirty") != place.read("plain"));
            assert!(place.read("journal")[1024..].iter().all(|byte| *byte == 0));
        }
    }
    place.is("build image.simg --from tree --android-sparse --size 1000001", 2, "whole blocks");
}

#[test]
fn what_was_chosen_is_told_and_chooses_it_again() {
    let place = place();
    for options in [
        "",
        "-T small,largefile -J size=4 -O fast_commit -E stride=4,stripe_width=8,resize=100000",
        "-t ext3 -b 1024 -m 3 -L name -M /mnt -e panic --size 40M",
        "-O bigalloc,^resize_inode -C 16K -g 8192 -G 4 --root-owner 1:2 --root-mode 711 --size +2M",
        "-O sparse_super2,meta_bg,^resize_inode -E num_backup_sb=1,packed_meta_blocks=1,orphan_file_size=65536",
        "--verity=one --verity=l*e --hash-alg sha512 --salt 00ff",
        "--verity --size 8M",
    ] {
        let told = place.yes(&format!("build one.img --from tree --print-config {options}"));
        let config: serde_json::Value = serde_json::from_str(&told).unwrap();
        let dry = place.yes(&format!("build none.img --from tree -n --json {options}"));
        assert_eq!(told, dry);
        assert!(!place.path("none.img").exists());
        let again: Vec<&str> =
            config["options"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        place.yes(&format!("build two.img --from tree {}", again.join(" ")));
        assert!(place.read("one.img") == place.read("two.img"), "{options}: {told}");
        check(&place, "one.img");
    }
    place.is("build one.img --from tree -n --size 100K", 2, "bytes more are needed");
    place.is("build - --from tree --print-config", 2, "standard output");
}
