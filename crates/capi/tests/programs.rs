//! The library as C programs see it: the header, the symbols, and programs that are compiled and run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemate_testkit::{Rng, TempDir, run, tempdir, tool};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library under the name that programs ask for, in a folder of its own.
fn library() -> TempDir {
    let folder = tempdir().unwrap();
    // Beside the tests, in target/debug/deps.
    let built = std::env::current_exe().unwrap().with_file_name("libcasemate_capi.so");
    std::fs::copy(built, folder.path().join("libcasemate.so.0")).unwrap();
    std::os::unix::fs::symlink("libcasemate.so.0", folder.path().join("libcasemate.so")).unwrap();
    folder
}

/// Compiles a program as a careful C programmer would.
fn compile(compiler: &Path, standard: &[&str], source: &str, folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new(compiler);
    command
        .args(standard)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"])
        .arg(here().join("include"));
    // An absolute path stays what it is.
    command
        .arg(here().join(source))
        .args(["-x", "none", "-L"])
        .arg(folder)
        .args(["-lcasemate", "-o"])
        .arg(&program);
    run(&mut command);
    program
}

fn output(program: &Path, folder: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).env("LD_LIBRARY_PATH", folder).current_dir(folder).output().unwrap()
}

#[test]
fn the_header_says_what_the_library_has() {
    let Some(nm) = tool("nm") else { return };
    let library = library();
    let listed =
        run(Command::new(nm).args(["-D", "--defined-only"]).arg(library.path().join("libcasemate.so.0")));
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let header = std::fs::read_to_string(here().join("include/casemate.h")).unwrap();
    let is_code = |line: &&str| !line.starts_with("/*") && !line.starts_with(" *");
    let code: String = header.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    let declared = code.match_indices('(').filter_map(|(at, _)| {
        let name = code[..at].rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
        name.strip_prefix("casemate_").map(|_| name)
    });
    let declared: BTreeSet<&str> = declared.collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}

/// With CASEMATE_WRITE_HEADER set the file is written anew.
#[test]
fn the_header_is_made_of_the_functions() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here(), config).unwrap().write(&mut made);
    let path = here().join("include/casemate.h");
    if std::env::var_os("CASEMATE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), String::from_utf8(made).unwrap());
}

/// A caller reads here, of each value, what it is, who owns it and how long it lives.
#[test]
fn the_header_describes_every_parameter() {
    let header = std::fs::read_to_string(here().join("include/casemate.h")).unwrap();
    let mut count = 0;
    for part in header.split("\n/**\n").skip(1) {
        let Some((comment, code)) = part.split_once(" */\n") else { continue };
        let declaration = code.split(';').next().unwrap();
        let Some((head, arguments)) = declaration.split_once('(') else { continue };
        if head.contains("typedef") {
            continue;
        }
        let arguments = arguments.trim_end_matches(')').split(',').filter(|argument| *argument != "void");
        let names = arguments.map(|argument| argument.rsplit([' ', '*']).next().unwrap());
        let described = comment.lines().filter_map(|line| line.strip_prefix(" * @param ")?.split(' ').next());
        assert_eq!(names.collect::<Vec<_>>(), described.collect::<Vec<_>>(), "{declaration}");
        assert!(!head.contains("casemate_status") || comment.contains(" * @return "), "{declaration}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn programs_in_c_and_cpp_survive_null() {
    let compilers =
        [("gcc", &["-std=c99"][..]), ("g++", &["-x", "c++", "-std=c++11"]), ("clang", &["-std=c99"])];
    for (compiler, standard) in compilers {
        let Some(compiler) = casemate_testkit::find_program(compiler) else { continue };
        let library = library();
        let program = compile(&compiler, standard, "tests/null.c", library.path());
        let output = output(&program, library.path(), &[]);
        assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let (Some(gcc), Some(valgrind)) = (tool("gcc"), tool("valgrind")) else { return };
    let library = library();
    let program = compile(&gcc, &["-std=c99"], "tests/null.c", library.path());
    let mut command = Command::new(valgrind);
    command.args(["-q", "--error-exitcode=9", "--leak-check=full"]).arg(program);
    run(command.env("LD_LIBRARY_PATH", library.path()));
}

/// Makes a file that is `plain` under dm-crypt's usual cipher.
fn encrypt(path: &Path, plain: &[u8], key: &[u8]) {
    let mut mapping = casemate::crypt::MappingOptions::default();
    mapping.key_bits = Some(512);
    let mapping = mapping.with_key(&secret(key), &casemate::Work::default()).unwrap();
    std::fs::write(path, vec![0; plain.len()]).unwrap();
    let encrypted = casemate::Image::open(path, casemate::Access::Change).unwrap();
    encrypted.crypt(mapping).unwrap().device().write_at(plain, 0).unwrap();
}

fn secret(bytes: &[u8]) -> casemate::SecretSource {
    casemate::SecretSource::memory(casemate::SecretVec::from(bytes))
}

#[test]
fn a_file_of_an_image_is_read_decrypted_and_hashed() {
    let (Some(gcc), Some(mke2fs), Some(fsverity)) = (tool("gcc"), tool("mke2fs"), tool("fsverity")) else {
        return;
    };
    let library = library();
    let folder = library.path();
    let contents = Rng::new(1).bytes(300_000);
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/file"), &contents).unwrap();
    run(Command::new(mke2fs).args(["-q", "-t", "ext4", "-d", "tree", "image", "8M"]).current_dir(folder));
    let digest = run(Command::new(fsverity).args(["digest", "--compact", "tree/file"]).current_dir(folder));
    let program = compile(&gcc, &["-std=c99"], "examples/cat.c", folder);
    let check = |words: &[&str]| {
        let output = output(&program, folder, words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == contents, "{words:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap().trim(), format!("sha256:{}", digest.trim()));
    };
    check(&["image", "/file"]);

    let key: Vec<u8> = (0..64).collect();
    encrypt(&folder.join("encrypted"), &std::fs::read(folder.join("image")).unwrap(), &key);
    check(&["encrypted", "/file", &casemate::hex::encode(&key)]);

    let refused = output(&program, folder, &["encrypted", "/file", &"07".repeat(64)]);
    // As the command: what a wrong key makes of an image is not a file system.
    assert_eq!(refused.status.code(), Some(2));
    let none = output(&program, folder, &["image", "/none"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/none"));
}

#[test]
fn data_are_checked_against_a_hash_area() {
    let (Some(gcc), Some(veritysetup)) = (tool("gcc"), tool("veritysetup")) else { return };
    let library = library();
    let folder = library.path();
    let mut data = Rng::new(2).bytes(1 << 20);
    std::fs::write(folder.join("data"), &data).unwrap();
    let said = run(Command::new(veritysetup).args(["format", "data", "hash"]).current_dir(folder));
    let root_hash = said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim();
    let program = compile(&gcc, &["-std=c99"], "examples/verify.c", folder);
    assert_eq!(output(&program, folder, &["data", "hash", root_hash]).status.code(), Some(0));
    data[9 * 4096] ^= 1;
    std::fs::write(folder.join("data"), data).unwrap();
    let found = output(&program, folder, &["data", "hash", root_hash]);
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(1), &b"1 blocks are wrong\n"[..]));
    assert_eq!(output(&program, folder, &["none", "hash", root_hash]).status.code(), Some(2));
}

#[test]
fn hash_areas_are_veritysetup_s() {
    let (Some(gcc), Some(veritysetup)) = (tool("gcc"), tool("veritysetup")) else { return };
    let library = library();
    let folder = library.path();
    std::fs::write(folder.join("data"), Rng::new(4).bytes(3 << 20)).unwrap();
    let (salt, uuid) = ("0123456789abcdef", "00010203-0405-0607-0809-0a0b0c0d0e0f");
    let (salt_option, uuid_option) = (format!("--salt={salt}"), format!("--uuid={uuid}"));
    let mut theirs = Command::new(veritysetup);
    theirs.args(["format", "data", "theirs", &salt_option, &uuid_option]).current_dir(folder);
    let said = run(&mut theirs);
    let expected = said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim();
    let program = compile(&gcc, &["-std=c99"], "examples/format.c", folder);
    let made = output(&program, folder, &["data", "ours", salt, uuid]);
    assert_eq!(String::from_utf8(made.stdout).unwrap(), expected);
    assert!(std::fs::read(folder.join("ours")).unwrap() == std::fs::read(folder.join("theirs")).unwrap());
    let random = output(&program, folder, &["data", "random"]);
    assert!(random.status.success() && random.stdout != expected.as_bytes());
    assert_eq!(output(&program, folder, &["none", "left"]).status.code(), Some(2));
    assert!(!folder.join("left").exists());
}

/// A tree, and what the command makes of it with fs-verity, fscrypt, dm-verity and LUKS: the image, and the root hash.
fn built_by_the_command(folder: &Path) -> (Vec<u8>, String) {
    std::fs::create_dir_all(folder.join("tree/home")).unwrap();
    std::fs::write(folder.join("tree/home/secret"), Rng::new(8).bytes(50_000)).unwrap();
    std::fs::write(folder.join("tree/file"), "file").unwrap();
    let key: Vec<u8> = (0..64).collect();
    std::fs::write(folder.join("volume.key"), &key).unwrap();
    std::fs::write(folder.join("master.key"), &key[..32]).unwrap();
    std::fs::write(folder.join("pass"), "secret").unwrap();
    let words = "ext4 build expected.img --from tree --verity --encrypt home=master.key --dm-verity append --owner 0:0 -L root \
                 --root-hash-file root.txt --luks --key-file pass --volume-key-file volume.key --seed one --pbkdf-memory 1M \
                 --pbkdf-force-iterations 4 --pbkdf-parallel 1";
    command(folder, words);
    let root_hash = std::fs::read_to_string(folder.join("root.txt")).unwrap();
    (std::fs::read(folder.join("expected.img")).unwrap(), root_hash.trim().to_owned())
}

#[test]
fn images_are_those_that_the_command_builds() {
    let Some(gcc) = tool("gcc") else { return };
    let library = library();
    let folder = library.path();
    let (expected, root_hash) = built_by_the_command(folder);
    let program = compile(&gcc, &["-std=c99"], "examples/build.c", folder);
    let made = output(&program, folder, &["made.img", "tree", "home"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(String::from_utf8(made.stdout).unwrap(), root_hash);
    assert!(std::fs::read(folder.join("made.img")).unwrap() == expected);
    // Nothing is made of what is not there.
    assert_eq!(output(&program, folder, &["other.img", "tree", "none"]).status.code(), Some(2));
    assert!(!folder.join("other.img").exists());
}

/// The command, which cargo puts beside the folder of tests, called in a folder.
fn command(folder: &Path, words: &str) -> String {
    let command = std::env::current_exe().unwrap().with_file_name("../casemate");
    run(Command::new(command).args(words.split_whitespace()).current_dir(folder))
}

#[test]
fn descriptions_policies_protectors_and_parity_are_those_of_the_command() {
    let Some(gcc) = tool("gcc") else { return };
    let library = library();
    let folder = library.path();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    for name in ["tree/home", "tree/raw", "tree/bin"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    write("tree/home/secret", &Rng::new(8).bytes(50_000));
    write("tree/raw/secret", b"other secret");
    write("tree/bin/tool", b"tool");
    let key: Vec<u8> = (0..64).collect();
    write("master.key", &key[..32]);
    write("pass", b"secret\n");
    write("fs_config", b"system/bin/tool 1 2 0755\n");
    write("mtree", b"#mtree\n./bin type=dir mode=0711\n");
    write("file_contexts", b"/system(/.*)? u:object_r:system_file:s0\n");
    command(
        folder,
        "ext4 build expected.img --from tree --owner 0:0 --seed one --fs-config fs_config --mtree mtree --mount-point /system \
         --file-contexts file_contexts --encrypt home=master.key --padding 16 \
         --data-unit-size 1024 --dm-verity expected.hash --fec-device expected.parity \
         --fec-roots 4",
    );
    command(folder, "ext4 build expected.free --from tree --owner 0:0 --seed one --min-free 1M");
    command(
        folder,
        "ext4 build expected.direct --from tree --owner 0:0 --seed one --encrypt home=master.key --flag direct-key \
         --contents adiantum --filenames adiantum --policy-version 1",
    );
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../verity/tests/fixtures/fs-verity/keys");
    std::fs::copy(keys.join("rsa2048.key.pem"), folder.join("signing.key")).unwrap();
    std::fs::copy(keys.join("rsa2048.cert.pem"), folder.join("signing.cert")).unwrap();
    std::fs::copy(keys.join("rsa4096.cert.pem"), folder.join("other.cert")).unwrap();
    let owner = std::fs::metadata(folder.join("tree/bin/tool")).unwrap();
    let (uid, gid) =
        (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
    command(
        folder,
        &format!(
            "ext4 build expected.signed --from tree --seed one --uid-map 5000:{uid}:1 --gid-map 6000:{gid}:1 --no-xattrs \
             --mode bin/*:u+x,go=r --mode home:700 --xattr bin/tool:user.origin=ci --verity=bin/tool \
             --dm-verity expected.signed.hash --signing-key signing.key --cert signing.cert --root-hash-signature expected.sig"
        ),
    );
    let program = compile(&gcc, &["-std=c99"], "tests/build.c", folder);
    let token = "openssl dgst -sha256 -sign signing.key -out bare message";
    let token = tool("openssl").map(|_| token);
    let made = output(&program, folder, token.as_slice());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for kind in ["img", "hash", "parity", "free", "direct", "signed", "signed.hash", "sig"] {
        let read = |name: &str| std::fs::read(folder.join(format!("{name}.{kind}"))).unwrap();
        assert!(read("made") == read("expected"), "{kind}");
        assert!(
            token.is_none() || !kind.starts_with("signed") || read("token") == read("expected"),
            "{kind}"
        );
    }
    assert!(!folder.join("none.signed").exists());
    // Keys of protectors are random: the secrets open them.
    let secrets =
        [("pass", "home", Rng::new(8).bytes(50_000)), ("master.key", "raw", b"other secret".to_vec())];
    for (secret, directory, contents) in secrets {
        let words = format!(
            "ext4 extract protected.img --fscrypt-passphrase-file {secret} --path /{directory} {directory}"
        );
        command(folder, &words);
        let path = folder.join(directory).join("secret");
        assert!(std::fs::read(path).unwrap() == contents, "{directory}");
    }
    assert!(!folder.join("none.img").exists());
}

#[test]
fn images_are_changed_checked_and_served() {
    let (Some(mke2fs), Some(e2fsck), Some(nbdcopy)) = (tool("mke2fs"), tool("e2fsck"), tool("nbdcopy"))
    else {
        return;
    };
    let (Some(gcc), Some(valgrind)) = (tool("gcc"), tool("valgrind")) else { return };
    let library = library();
    let folder = library.path();
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/file"), "file").unwrap();
    let mut make = Command::new(mke2fs);
    make.args(["-q", "-t", "ext4", "-b", "4096", "-O", "encrypt", "-d", "tree", "image", "16M"]);
    run(make.current_dir(folder));
    let key: Vec<u8> = (0..64).collect();
    let open = || casemate::Image::open(folder.join("image"), casemate::Access::Change).unwrap();
    let work = casemate::Work::default();
    let mut writer = open().ext4_writer(&casemate::ext4::WriteOptions::default(), &work).unwrap();
    writer.make_directory(b"/secret", &casemate::ext4::NewNode::new(0o700), false).unwrap();
    let (policy, providers) = (casemate::ext4::NewPolicy::default(), casemate::Providers::default());
    let master = casemate::SecretVec::from(&key[..]);
    casemate::ext4::set_policy(&mut writer, "image", b"/secret", master, &policy, &providers).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let mut damaged = std::fs::read(folder.join("image")).unwrap();
    // The checksum of the first group's descriptor.
    damaged[4096 + 0x1e] ^= 0xff;
    std::fs::write(folder.join("damaged"), damaged).unwrap();
    let plain = Rng::new(5).bytes(1 << 20);
    std::fs::write(folder.join("plain"), &plain).unwrap();
    encrypt(&folder.join("encrypted"), &plain, &key);
    std::fs::write(folder.join("disk.key"), &key).unwrap();

    let flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
    let sanitized = [&flags[..], &["-fsanitize=address,undefined", "-fno-sanitize-recover"]].concat();
    std::fs::copy(folder.join("image"), folder.join("before")).unwrap();
    let words = [nbdcopy.to_str().unwrap()];
    for flags in [&sanitized, &flags[..]] {
        let program = compile(&gcc, flags, "tests/calls.c", folder);
        let ran = output(&program, folder, &words);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(std::fs::read(folder.join("copy")).unwrap() == plain);
        run(Command::new(&e2fsck).args(["-fn", "image"]).current_dir(folder));
        std::fs::rename(folder.join("copy"), folder.join("old")).unwrap();
        std::fs::copy(folder.join("before"), folder.join("image")).unwrap();
    }
    let program = folder.join("program");
    let mut checked = Command::new(valgrind);
    // The standard library keeps what it knows of a thread that it did not start, where valgrind can't see it.
    checked.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    checked.arg(program).args(words);
    run(checked.env("LD_LIBRARY_PATH", folder).current_dir(folder));

    let program = compile(&gcc, &["-std=c99"], "examples/put.c", folder);
    std::fs::write(folder.join("more"), &plain).unwrap();
    let hex = casemate::hex::encode(&key);
    let put = output(&program, folder, &["image", "more", "/secret/more", &hex]);
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    run(Command::new(&e2fsck).args(["-fn", "image"]).current_dir(folder));
    let mut options = casemate::ext4::ReadOptions::default();
    options.keys = casemate::Keys::default().with_raw(&secret(&key)).unwrap();
    let fs = open().ext4(&options, &work).unwrap();
    assert!(fs.read("/secret/more").unwrap() == plain);
    drop(fs);
    // Without the key nothing goes in.
    assert_eq!(output(&program, folder, &["image", "more", "/secret/third"]).status.code(), Some(2));
}

/// Damage of counts, bitmaps and an inode that has no name.
const DAMAGE: &str = "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc\nsetb 5000 20\nseti <40>\nsif / links_count 9\n\
    unlink /lost+found\n";

#[test]
fn file_systems_are_repaired_tuned_and_resized() {
    let names = ["gcc", "valgrind", "mke2fs", "debugfs", "e2fsck", "e2undo", "dumpe2fs", "resize2fs"];
    let Some(tools) = names.iter().map(|name| tool(name)).collect::<Option<Vec<_>>>() else { return };
    let [gcc, valgrind, mke2fs, debugfs, e2fsck, e2undo, dumpe2fs, resize2fs] = &tools[..] else { panic!() };
    let library = library();
    let folder = library.path();
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/a"), Rng::new(9).bytes(300_000)).unwrap();
    std::fs::write(folder.join("tree/b"), Rng::new(10).bytes(500_000)).unwrap();
    let here = |tool: &Path, words: &str| {
        let mut command = Command::new(tool);
        command.args(words.split_whitespace()).current_dir(folder);
        command
    };
    run(&mut here(mke2fs, "-q -F -t ext4 -b 1024 -N 128 -L first -d tree image 16M"));
    for name in ["damaged", "shared"] {
        std::fs::copy(folder.join("image"), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("script"), DAMAGE).unwrap();
    run(&mut here(debugfs, "-w -f script damaged"));
    // The second file's map leads to the first one's blocks.
    let blocks = run(Command::new(debugfs).args(["-R", "blocks /a", "shared"]).current_dir(folder));
    let first = blocks.split_whitespace().next().unwrap();
    std::fs::write(folder.join("script"), format!("sif /b block[5] {first}\n")).unwrap();
    run(&mut here(debugfs, "-w -f script shared"));
    let originals = ["image", "damaged", "shared"].map(|name| std::fs::read(folder.join(name)).unwrap());

    let flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
    let sanitized = [&flags[..], &["-fsanitize=address,undefined", "-fno-sanitize-recover"]].concat();
    for flags in [&sanitized, &flags[..]] {
        let program = compile(gcc, flags, "tests/maintain.c", folder);
        for (name, bytes) in ["image", "damaged", "shared"].iter().zip(&originals) {
            std::fs::write(folder.join(name), bytes).unwrap();
            _ = std::fs::remove_file(folder.join(format!("{name}.undo")));
        }
        let stage = |word: &str| {
            let ran = output(&program, folder, &[word]);
            assert!(ran.status.success(), "{word}: {}", String::from_utf8_lossy(&ran.stderr));
            String::from_utf8(ran.stdout).unwrap()
        };
        stage("repair");
        for (name, original) in [("damaged", &originals[1]), ("shared", &originals[2])] {
            run(&mut here(e2fsck, &format!("-fn {name}")));
            run(&mut here(e2undo, &format!("{name}.undo {name}")));
            assert!(&std::fs::read(folder.join(name)).unwrap() == original, "{name}: not as before");
        }

        // Two partitions of 4 MiB.
        let mut disk = vec![0; 10 << 20];
        for (entry, start) in disk[446..].chunks_exact_mut(16).zip([2048u32, 10240]).take(2) {
            entry[4] = 0x83;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..16].copy_from_slice(&8192u32.to_le_bytes());
        }
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk[5 << 20..].fill(7);
        std::fs::write(folder.join("disk"), &disk).unwrap();
        stage("build");
        assert!(std::fs::read(folder.join("disk")).unwrap()[5 << 20..] == disk[5 << 20..]);

        stage("tune");
        run(&mut here(e2fsck, "-fn image"));
        let told = run(&mut here(dumpe2fs, "-h image"));
        for (name, value) in [
            ("Filesystem volume name", "second"),
            ("Last mounted on", "/mnt"),
            ("Filesystem UUID", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
            ("Errors behavior", "Panic"),
            ("Reserved block count", "123"),
            ("Reserved blocks uid", "7 "),
            ("Reserved blocks gid", "8 "),
            ("Maximum mount count", "5"),
            ("Mount count", "0"),
            ("Check interval", "86400 "),
            ("Last checked", "Wed Jan  1 00:00:00 2020"),
            ("RAID stride", "4"),
            ("RAID stripe width", "8"),
        ] {
            let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            assert!(line.is_some_and(|line| line.trim_start().starts_with(value)), "{name}: {line:?}");
        }
        let has = |list: &str, word: &str| {
            told.lines().any(|line| line.starts_with(list) && line.split(' ').any(|one| one == word))
        };
        assert!(has("Filesystem features", "verity") && !has("Filesystem features", "metadata_csum_seed"));
        assert!(has("Default mount options", "discard") && !has("Default mount options", "acl"));

        let said = stage("resize");
        let (estimated, blocks) = said.trim().split_once(' ').unwrap();
        let [estimated, blocks] = [estimated, blocks].map(|number| number.parse::<u64>().unwrap());
        run(&mut here(e2fsck, "-fn image"));
        let told = run(&mut here(resize2fs, "-P image"));
        let least: u64 = told.rsplit(' ').next().unwrap().trim().parse().unwrap();
        assert!(estimated / 1024 <= least && blocks <= least + least / 20, "{estimated}, {blocks}; {least}");
        let size = std::fs::metadata(folder.join("image")).unwrap().len();
        assert_eq!(size, blocks * 1024);
        for name in ["a", "b"] {
            run(Command::new(debugfs)
                .args(["-R", &format!("dump /{name} out"), "image"])
                .current_dir(folder));
            let expected = std::fs::read(folder.join("tree").join(name)).unwrap();
            assert!(std::fs::read(folder.join("out")).unwrap() == expected, "{name}");
        }
    }
    for (name, bytes) in ["image", "damaged", "shared"].iter().zip(&originals) {
        std::fs::write(folder.join(name), bytes).unwrap();
        _ = std::fs::remove_file(folder.join(format!("{name}.undo")));
    }
    for word in ["repair", "tune", "resize"] {
        let mut checked = Command::new(valgrind);
        checked.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        checked.arg(folder.join("program")).arg(word);
        run(checked.env("LD_LIBRARY_PATH", folder).current_dir(folder));
    }
}

/// The second program is built with sanitizers: what the library does with the program's memory is seen.
#[test]
fn threads_and_forks_share_handles() {
    let (Some(gcc), Some(mke2fs)) = (tool("gcc"), tool("mke2fs")) else { return };
    let library = library();
    let folder = library.path();
    std::fs::create_dir(folder.join("tree")).unwrap();
    std::fs::write(folder.join("tree/file"), Rng::new(6).bytes(3_000_001)).unwrap();
    run(Command::new(mke2fs).args(["-q", "-t", "ext4", "-d", "tree", "image", "16M"]).current_dir(folder));
    let plain = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-pthread"];
    let sanitized = [&plain[..], &["-fsanitize=address,undefined", "-fno-sanitize-recover"]].concat();
    for flags in [&plain[..], &sanitized] {
        let program = compile(&gcc, flags, "tests/shared.c", folder);
        let ran = output(&program, folder, &["image"]);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn the_document_s_program_prints_what_fsverity_prints() {
    let (Some(gcc), Some(fsverity)) = (tool("gcc"), tool("fsverity")) else { return };
    let document = std::fs::read_to_string(here().join("../../docs/c.md")).unwrap();
    let code = document.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let library = library();
    let folder = library.path();
    std::fs::write(folder.join("digest.c"), code).unwrap();
    std::fs::write(folder.join("data"), Rng::new(3).bytes(100_000)).unwrap();
    let program = compile(&gcc, &["-std=c99"], folder.join("digest.c").to_str().unwrap(), folder);
    let expected = run(Command::new(fsverity).args(["digest", "--compact", "data"]).current_dir(folder));
    let found = output(&program, folder, &["data"]);
    assert_eq!(String::from_utf8(found.stdout).unwrap(), expected.trim());
    assert_eq!(output(&program, folder, &["none"]).status.code(), Some(2));
}
