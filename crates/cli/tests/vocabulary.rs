//! Words of all commands: one name for a concept and one concept for a name; sizes, files for what is secret or long,
//! dry runs, and what people try first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use casemate_testkit::{Place, mke2fs, run, stderr, stdout, tool};
use clap::{Arg, Command as Description};

#[path = "vocabulary/voice.rs"]
mod voice;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Every long option: its value's name, empty for a flag, and the concept. A concept has one line.
const WORDS: &[(&str, &str, &str)] = &[
    ("algorithm", "TEXT", "a part of the names of algorithms"),
    ("align", "BYTES", "what a size is a multiple of"),
    ("align-payload", "SECTORS", "what the place of encrypted data is a multiple of"),
    ("all", "", "also names that begin with a dot"),
    ("allow-discards", "", "whether discards pass down"),
    ("allow-empty-key", "", "whether a new passphrase may be empty"),
    ("allow-equal-halves", "", "whether an XTS key may be two equal ones"),
    ("allow-other", "", "whether other users may look into a folder"),
    ("allow-remote", "", "whether other machines may connect"),
    ("alphabet", "CHARACTERS", "the 64 characters of base64"),
    ("android-sparse", "", "a sparse image of Android"),
    ("bare-signature", "SIGFILE", "a signature without a structure around it"),
    ("batch-mode", "", "nothing is asked"),
    ("block-size", "BYTES", "the size of blocks"),
    ("blocks-per-group", "N", "how many blocks a group has"),
    ("cert", "CERTFILE", "the signer's certificate"),
    ("changed", "RANGE", "bytes that have changed"),
    ("check-interval", "TIME", "how long a check of a file system is enough"),
    ("check-at-most-once", "", "kernel: each block once"),
    ("cluster-size", "BYTES", "the size of clusters"),
    ("compact", "", "digests without names"),
    ("composefs-dump", "FILE", "a description of files in composefs-dump"),
    ("contents", "MODE", "how fscrypt encrypts contents"),
    ("context", "HEX", "an inode's encryption context"),
    ("cpu", "FEATURES", "what instructions may be used"),
    ("crypt", "SPEC", "what dm-crypt does"),
    ("crypt-offset", "BYTES", "where encrypted data begin"),
    ("crypt-provider", "DRIVER", "the driver of a cipher"),
    ("control", "SOCKET", "where keys of a mounted folder come and go"),
    ("crypt-table", "FILE", "a dm-crypt table line"),
    ("data-block-size", "BYTES", "the size of data blocks"),
    ("data-blocks", "BLOCKS", "how many data blocks"),
    ("data-device", "PATH", "where data are that lie apart"),
    ("data-name", "NAME", "kernel: the data device"),
    ("data-unit-size", "BYTES", "the size of fscrypt's data units"),
    ("date", "DATE", "a time"),
    ("decrypt", "", "a volume becomes plain data"),
    ("decode", "", "names that are shown without the key, the other way"),
    ("deleted", "", "names that were removed"),
    ("dereference", "", "links are followed"),
    ("descriptor", "FILE", "an fs-verity descriptor"),
    ("device-name", "NAME", "kernel: the verity device"),
    ("device-size", "BYTES", "how much of the data is reencrypted"),
    ("device-table", "FILE", "a description of files as a device table"),
    ("digest", "DIGEST", "an fs-verity digest"),
    ("dir", "", "empty directories"),
    ("directories", "", "directories alone"),
    ("doubtful", "", "deleted files are copied whose blocks are in use again"),
    ("dump", "", "also the values of attributes"),
    ("directory", "", "directories themselves"),
    ("dm-integrity", "NAME", "layer: integrity"),
    ("image-map", "FILE", "a ddrescue map of the image"),
    ("integrity-data-device", "PATH", "layer: data-device"),
    ("dm-verity", "HASH ROOT", "what dm-verity checks against"),
    ("dry-run", "", "nothing is written"),
    ("dump-json-metadata", "", "LUKS2 metadata as they are"),
    ("encoding", "ENCODING", "how values are shown"),
    ("encrypt", "", "plain data become a volume"),
    ("errors", "ACTION", "what the kernel does on errors"),
    ("exclude", "PATTERN", "what is not copied"),
    ("exec", "COMMAND", "a command that runs meanwhile"),
    ("exit-with-last", "", "the server ends with its last client"),
    ("export", "NAME=IMAGE", "an NBD export more"),
    ("export-name", "NAME", "the name of an NBD export"),
    ("features", "LIST", "the features of a file system"),
    ("extended", "LIST", "mke2fs's extended options"),
    ("fec-device", "PATH", "where parity is"),
    ("fec-name", "NAME", "kernel: the device with parity"),
    ("fec-offset", "BYTES", "where parity begins"),
    ("fec-roots", "COUNT", "how much parity there is"),
    ("files", "", "files alone are compared"),
    ("file-contexts", "FILE", "SELinux's labels of files"),
    ("filenames", "MODE", "how fscrypt encrypts names"),
    ("fill-to", "BYTES", "the size of a verity-sig partition's object"),
    ("first", "UNIT", "the first data unit"),
    ("fix-checksums", "", "checksums are rewritten"),
    ("flag", "FLAG", "how fscrypt makes keys and IVs"),
    ("for-builtin-sig", "", "the bytes that a built-in signature signs"),
    ("force", "", "what is missing is not an error"),
    ("foreground", "", "a mounted folder's process stays"),
    ("fork", "", "the server goes into the background"),
    ("format", "NUMBER", "dm-verity's hash type"),
    ("from", "FILE", "what a new volume or file system holds"),
    ("fs-config", "FILE", "a description of files as Android's fs_config"),
    ("fscrypt-key", "FILE", "a raw master key"),
    ("fscrypt-metadata", "FOLDER", "where policies and protectors are"),
    ("fscrypt-passphrase-file", "FILE", "what opens a protector"),
    ("fsverity", "DEMAND", "what is demanded of fs-verity"),
    ("gid", "GID", "the group that all files are shown with"),
    ("gid-map", "TO:FROM:COUNT", "what groups become"),
    ("groups-per-flex", "N", "how many groups keep their metadata together"),
    ("handshake-timeout", "SECONDS", "how long a client may negotiate"),
    ("hash", "NAME", "the hash algorithm of a tree or a header"),
    ("hash-alg", "NAME", "fs-verity's hash algorithm, as its tool calls it"),
    ("hash-block-size", "BYTES", "the size of hash blocks"),
    ("hash-name", "NAME", "kernel: the hash device"),
    ("hash-offset", "BYTES", "where the hash area begins"),
    ("hash-seed", "UUID", "what names are hashed with"),
    ("hash-partition", "WHICH", "the partition with the hash area"),
    ("help", "", "help"),
    ("hotzone-size", "BYTES", "how much is rewritten at once"),
    ("html", "FILE", "where a page is drawn to"),
    ("human-readable", "", "sizes with units"),
    ("ignore-checksums", "", "damaged metadata is read"),
    ("ignore-corruption", "", "kernel: corruption is logged"),
    ("ignore-missing", "", "missing files are passed over"),
    ("ignore-zero-blocks", "", "kernel: zeros are not read"),
    ("include", "PATTERN", "what alone is copied"),
    ("in-place", "", "the image is changed where it lies"),
    ("init-only", "", "work is noted, and not begun"),
    ("inode", "", "inode numbers are shown"),
    ("integrity", "NAME", "what dm-integrity's tags are made with"),
    ("integrity-bitmap-mode", "", "a bitmap instead of a journal"),
    ("integrity-key-file", "FILE", "the key of tags"),
    ("interleave-sectors", "SECTORS", "the data between two runs of tags"),
    ("inode-ratio", "BYTES", "how much there is for each inode"),
    ("inode-size", "BYTES", "the size of inodes"),
    ("inodes", "N", "how many inodes"),
    ("inode-number", "NUMBER", "an inode's number"),
    ("iter-time", "MILLISECONDS", "how long making a LUKS key takes"),
    ("iv-large-sectors", "", "IVs count encryption sectors"),
    ("journal", "FILE", "the journal of work in place"),
    ("journal-crypt", "NAME", "what dm-integrity's journal is encrypted with"),
    ("journal-crypt-key-file", "FILE", "the key that it is encrypted with"),
    ("journal-integrity", "NAME", "what the codes of dm-integrity's journal are made with"),
    ("journal-integrity-key-file", "FILE", "the key of these codes"),
    ("journal-size", "BYTES", "the size of a journal"),
    ("json", "", "results for programs"),
    ("kdf-limit", "TIMES", "how much a header may cost"),
    ("fscrypt-kdf-limit", "TIMES", "how much protectors may cost"),
    ("add-journal", "", "a file system gets a journal"),
    ("journal-options", "LIST", "options of ext4's journal"),
    ("keep-going", "", "reading goes on behind what can't be read"),
    ("key-fd", "NUMBER", "a key or LUKS passphrase from a descriptor"),
    ("key-file", "FILE", "a dm-crypt key, or a LUKS passphrase"),
    ("key-description", "DESCRIPTION", "a name in the kernel's keyring"),
    ("key-size", "BITS", "the size of dm-crypt's key"),
    ("key-slot", "N", "a LUKS key slot"),
    ("keyfile-offset", "BYTES", "where the key begins in its file"),
    ("keyfile-size", "BYTES", "how much of a key file is the key"),
    ("keyslot-cipher", "SPEC", "what encrypts a LUKS key slot"),
    ("keyslot-key-size", "BITS", "the size of its key"),
    ("lazy", "", "what is in use is unmounted"),
    ("label", "LABEL", "the label of a LUKS header or file system"),
    ("last-mounted", "PATH", "where a file system was mounted last"),
    ("last-check", "DATE", "when a file system was checked last"),
    ("layer", "FILE", "a layer of an OCI image"),
    ("length", "BYTES", "how much metadata, as fsverity calls it"),
    ("level", "N", "how deep"),
    ("limit", "N", "how many results are printed"),
    ("log", "FILE", "where messages go"),
    ("long", "", "details"),
    ("luks", "", "what LUKS does"),
    ("mac-key-file", "FILE", "the key of a header's HMAC"),
    ("map", "FILE", "a ddrescue map of the copy"),
    ("print-policy", "", "the policy that a header keeps"),
    ("print-size", "", "the least size of a file system"),
    ("luks-policy", "FILE", "what a LUKS header must be"),
    ("luks-header", "FILE", "where a LUKS header lies"),
    ("luks-overwrite", "", "data that a LUKS header is not of are lost"),
    ("luks2-keyslots-size", "BYTES", "the area for key slots"),
    ("luks2-metadata-size", "BYTES", "a copy of a LUKS2 header"),
    ("manifest", "FILE", "where digests of files go"),
    ("max-clients", "N", "how many clients"),
    ("max-mounts", "N", "how often a file system may be mounted without a check"),
    ("merge", "", "a folder is added to"),
    ("merkle-tree", "FILE", "an fs-verity tree"),
    ("min-free", "BYTES", "how much is left for users"),
    ("minor", "NUMBER", "kernel: the device's minor number"),
    ("minor-hash", "NUMBER", "a name's second hash"),
    ("mode", "MODE", "permission bits"),
    ("mount-point", "PATH", "where an image will be mounted"),
    ("mount-options", "LIST", "what options a file system is mounted with"),
    ("mounts", "N", "how often a file system was mounted since a check"),
    ("mtree", "FILE", "a description of files in mtree"),
    ("name", "NAME", "an extended attribute"),
    ("name-hash", "NUMBER", "a name's first hash"),
    ("new-key-file", "FILE", "a new LUKS passphrase"),
    ("new-key-slot", "N", "where a new LUKS passphrase goes"),
    ("new-keyfile-offset", "BYTES", "where a new LUKS passphrase begins in its file"),
    ("new-keyfile-size", "BYTES", "how much of that file is the passphrase"),
    ("no-create", "", "missing files are not made"),
    ("no-dereference", "", "links themselves"),
    ("no-owners", "", "owners are left out"),
    ("no-padding", "", "base64 without ="),
    ("no-progress", "", "no bar"),
    ("no-replay", "", "the image as it lies there"),
    ("no-superblock", "", "dm-verity without a superblock"),
    ("no-xattrs", "", "extended attributes are left out"),
    ("nonce", "HEX", "an inode's nonce"),
    ("oci", "FOLDER[:IMAGE]", "an OCI layout folder"),
    ("offset", "BYTES", "the first byte of what is read"),
    ("old-root-hash", "ROOT_HASH", "the root hash as it was"),
    ("options", "LIST", "what the kernel does with files"),
    ("out-descriptor", "FILE", "where the descriptor goes"),
    ("out-merkle-tree", "FILE", "where the tree goes"),
    ("only-values", "", "values as they are"),
    ("output", "FILE", "where the result goes"),
    ("overlay", "FILE", "where writes go"),
    ("overwrite", "", "what is there is lost"),
    ("owner", "UID:GID", "owner and group"),
    ("padding", "BYTES", "what names are padded to"),
    ("panic-on-corruption", "", "kernel: panic on corruption"),
    ("panic-on-error", "", "kernel: panic on errors"),
    ("parents", "", "directories above"),
    ("partition", "WHICH", "a partition"),
    ("passphrase-hash", "HASH", "what makes a key of a passphrase"),
    ("path", "PATH", "a directory of the image"),
    ("pbkdf", "KDF", "what makes a LUKS key of a passphrase"),
    ("pbkdf-force-iterations", "COUNT", "how often that is repeated"),
    ("pbkdf-memory", "BYTES", "how much memory that takes"),
    ("pbkdf-parallel", "COUNT", "how many lanes that has"),
    ("patience", "SECONDS", "how long clients may take answers"),
    ("persistent", "FLAGS", "what the kernel opens a volume with"),
    ("pid-file", "FILE", "where the process number goes"),
    ("plot", "FILE", "where a drawing goes"),
    ("policy-version", "1|2", "the version of fscrypt's policy"),
    ("print", "WHAT", "the only thing that is printed"),
    ("print-config", "", "all that was chosen"),
    ("print-tbs", "", "the bytes to sign"),
    ("priority", "PRIORITY", "when a LUKS key slot is tried"),
    ("progress-json", "", "progress for programs"),
    ("protect", "DIR=PASSFILE", "a directory that a passphrase opens"),
    ("protector", "FILE", "a protector from elsewhere"),
    ("protector-source", "SOURCE", "what opens a new protector"),
    ("provider", "DRIVER", "the driver of a hash, where there is one only"),
    ("quiet", "", "results and errors only"),
    ("read-only", "", "no writes"),
    ("recovery-file", "FILE", "where a change is kept without a journal"),
    ("recursive", "", "with all that is in directories"),
    ("reencrypt", "", "a reencryption that was begun goes on"),
    ("reduce-device-size", "BYTES", "what data give up for a header"),
    ("remove", "NAME", "an extended attribute that is removed"),
    ("repair", "DEPTH", "damage is mended"),
    ("reserved-blocks", "BLOCKS", "how many blocks only root may use"),
    ("reserved-group", "GID", "the group that may use reserved blocks"),
    ("reserved-percent", "PERCENT", "how much only root may use"),
    ("reserved-user", "UID", "the user that may use reserved blocks"),
    ("resilience", "PROTECTION", "what protects data that are reencrypted"),
    ("resilience-hash", "NAME", "the hash of that protection"),
    ("restart-on-corruption", "", "kernel: restart on corruption"),
    ("restart-on-error", "", "kernel: restart on errors"),
    ("resume", "", "work in place goes on"),
    ("resume-only", "", "reencryption goes on, and none begins"),
    ("root-mode", "MODE", "permission bits of the root directory"),
    ("root-owner", "UID:GID", "the root directory's owner and group"),
    ("root-hash-file", "FILE", "the file of the root hash"),
    ("root-hash-signature", "SIGFILE", "where the root hash's signature goes"),
    ("root-hash-sig-key-desc", "DESCRIPTION", "kernel: the key of the root hash's signature"),
    ("salt", "HEX", "a salt"),
    ("scan", "", "all of an image is searched"),
    ("sector-size", "BYTES", "the size of what is encrypted, or has a tag"),
    ("seed", "SEED", "what makes random numbers the same"),
    ("sha256", "", "a digest of the whole image is computed"),
    ("show-key", "", "the key is printed"),
    ("signature", "SIGFILE", "a PKCS#7 signature"),
    ("signing-key", "KEYFILE", "a private key"),
    ("size", "BYTES", "how many bytes"),
    ("skip", "SECTORS", "what is added to sector numbers before IVs are made"),
    ("socket", "PATH", "a Unix socket"),
    ("software-secret", "", "the key is a hardware-wrapped one's software secret"),
    ("sparse", "", "holes stay holes"),
    ("status", "", "the exit status only"),
    ("strict", "", "what else is passed over is refused"),
    ("subsystem", "LABEL", "the second label of a LUKS header"),
    ("superblock", "BLOCK", "the copy of the superblock that is read by"),
    ("symbolic", "", "a symbolic link is made"),
    ("symlink", "", "names are links' targets"),
    ("systemd", "", "the object of a verity-sig partition"),
    ("tag-size", "BYTES", "the length of a tag"),
    ("tar", "FILE", "a tar stream"),
    ("tcp", "[ADDRESS:]PORT", "a TCP address"),
    ("threads", "N", "how many threads"),
    ("time", "MILLISECONDS", "how long is measured"),
    ("token-id", "N", "a LUKS token"),
    ("tls", "TLS", "whether connections are encrypted"),
    ("tls-certificates", "FOLDER", "TLS: the server's certificates"),
    ("tls-verify-peer", "", "TLS: clients need certificates"),
    ("tree", "", "digests of fs-verity"),
    ("truncate", "", "a file ends where its file system ends"),
    ("trust-image", "", "the image is as it was"),
    ("uid", "UID", "the user that all files are shown with"),
    ("type", "TYPE", "which version of LUKS or ext"),
    ("uid-map", "TO:FROM:COUNT", "what users become"),
    ("unbound", "", "what belongs to no data, or to no key slot"),
    ("undo", "UNDOFILE", "the file that keeps what a repair changes"),
    ("unreachable", "", "files are copied that no directory names"),
    ("usage", "LIST", "what a file system is for, by mke2fs.conf"),
    ("use-tasklets", "", "kernel: hashing where interrupts are served"),
    ("uuid", "UUID", "a superblock's or header's UUID"),
    ("value", "VALUE", "an extended attribute's value"),
    ("variant", "VARIANT", "a known alphabet"),
    ("verbose", "", "success is said"),
    ("verity", "PATTERN", "which files get fs-verity"),
    ("verity-data-block-size", "BYTES", "layer: data-block-size"),
    ("verity-data-blocks", "BLOCKS", "layer: data-blocks"),
    ("verity-format", "NUMBER", "layer: format"),
    ("verity-from-manifest", "FILE", "digests that files in an image have"),
    ("verity-hash", "NAME", "layer: hash"),
    ("verity-hash-block-size", "BYTES", "layer: hash-block-size"),
    ("verity-hash-offset", "BYTES", "layer: hash-offset"),
    ("verity-hash-partition", "WHICH", "layer: hash-partition"),
    ("verity-no-superblock", "", "layer: no-superblock"),
    ("verity-provider", "DRIVER", "layer: provider"),
    ("verity-salt", "HEX", "layer: salt"),
    ("volume-key-file", "FILE", "a LUKS volume key"),
    ("warn", "", "malformed lines are named"),
    ("write", "", "clients may write"),
    ("wrap", "COLUMNS", "characters in a line"),
    ("xattr", "PATTERN:NAME=VALUE", "attributes that files get"),
];

/// Commands that are called as a tool, whose options have that tool's names; of a check "--verity", as there is "--repair", a
/// switch; and of a build "--encrypt" and "--dm-verity", which make what others take, and
/// "--mode", which says whose.
const NAMESAKES: &[(&str, &[&str])] = &[
    ("casemate ext4 du", &["all", "apparent-size", "max-depth", "summarize"]),
    ("casemate ext4 df", &["inodes"]),
    ("casemate ext4 check", &["verity"]),
    ("casemate ext4 build", &["encrypt", "dm-verity", "mode", "partition"]),
    ("casemate crypt encrypt", &["partition"]),
    ("casemate crypt decrypt", &["partition"]),
    (
        "casemate ext4 find",
        &["name", "iname", "type", "size", "uid", "gid", "perm", "newermt", "inum", "maxdepth", "print0"],
    ),
];

/// Names of earlier days and of other tools, a command that takes them, and what they are called now. They are understood,
/// and no help shows them.
const OLD: &[(&str, &str, &str)] = &[
    ("crypt encrypt", "cipher", "crypt"),
    ("crypt encrypt", "table-file", "crypt-table"),
    ("crypt encrypt", "hash", "passphrase-hash"),
    ("crypt encrypt", "provider", "crypt-provider"),
    ("ext4 cat", "verity", "fsverity"),
    ("ext4 check", "yes", "batch-mode"),
    ("ext4 extract", "verity", "fsverity"),
    ("ext4 ls", "hash", "verity-hash"),
    ("ext4 ls", "salt", "verity-salt"),
    ("ext4 ls", "hash-offset", "verity-hash-offset"),
    ("luks reencrypt", "header", "luks-header"),
    ("serve", "verity", "dm-verity"),
    ("serve", "run", "exec"),
    ("serve", "port", "tcp"),
    ("serve", "exportname", "export-name"),
    ("fscrypt derive", "key", "fscrypt-key"),
    ("fscrypt set-policy", "key", "fscrypt-key"),
    ("fscrypt nokey-name", "hash", "name-hash"),
    ("verity sign", "key", "signing-key"),
    ("verity sign", "padding", "fill-to"),
    ("verity table", "name", "device-name"),
];

/// An image `root.img` with /etc/f, and a key.
fn place() -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, "-t ext4", &place.path("root.img"), "8M");
    place.file("disk.key", (0..64).collect::<Vec<u8>>());
    place.file("f", "hello\n");
    place.yes("ext4 mkdir root.img /etc");
    place.yes("ext4 put root.img f /etc/f");
    Some(place)
}

#[test]
fn sizes_have_units_and_offsets_are_bytes() {
    let Some(place) = place() else { return };
    let mut disk = vec![0; 1 << 20];
    disk.extend(place.read("root.img"));
    fs::write(place.path("disk"), disk).unwrap();
    for offset in ["1048576", "1024K", "1M", "2048s"] {
        assert_eq!(place.yes(&format!("ext4 ls --offset {offset} disk /etc")), "f\n", "{offset}");
    }
    let crypt = "--key-file disk.key --key-size 512";
    place.yes(&format!("crypt encrypt root.img enc --crypt-offset 4K {crypt}"));
    place.yes(&format!("crypt encrypt root.img enc2 -o 8 {crypt}"));
    assert!(place.read("enc") == place.read("enc2"));
    let read = format!("ext4 cat --crypt aes-xts-plain64 {crypt} enc /etc/f --crypt-offset");
    for offset in ["4096", "4K", "8s"] {
        assert_eq!(place.yes(&format!("{read} {offset}")), "hello\n");
    }
    place.is(&format!("{read} 8"), 2, "not a multiple of 512 bytes; 8s are so many sectors");
    place.is(&format!("crypt encrypt root.img enc3 --offset 8 {crypt}"), 2, "--crypt-offset");
    place.yes("ext4 truncate root.img /etc/f 3s");
    assert!(place.yes("ext4 ls -l root.img /etc").contains(" 1536 "));
}

#[test]
fn a_root_hash_comes_from_a_file_everywhere() {
    let (Some(place), Some(openssl)) = (place(), tool("openssl")) else { return };
    let new_key = "req -x509 -newkey rsa:2048 -nodes -subj /CN=example -keyout key.pem -out cert.pem";
    run(std::process::Command::new(openssl).args(new_key.split(' ')).current_dir(place.folder()));
    place.yes("verity format root.img tree --root-hash-file root --fec-device fec");
    let hex = fs::read_to_string(place.path("root")).unwrap();
    assert_eq!(place.yes("ext4 ls --dm-verity tree @root root.img /etc"), "f\n");
    for command in ["verify", "table"] {
        let expected = place.yes(&format!("verity {command} root.img tree {hex}"));
        assert_eq!(place.yes(&format!("verity {command} root.img tree @root")), expected);
        assert_eq!(place.yes(&format!("verity {command} root.img tree --root-hash-file root")), expected);
    }
    place.yes("verity repair root.img tree @root --fec-device fec -n");
    place.yes("verity update root.img tree --changed 0+1K --old-root-hash @root");
    let mut signatures = Vec::new();
    for given in [&hex[..], "@root", "--root-hash-file root"] {
        place.yes(&format!("verity sign {given} sig --signing-key key.pem --cert cert.pem"));
        place.yes(&format!("verity verify-signature {given} sig --cert cert.pem"));
        signatures.push(place.read("sig"));
        assert_eq!(place.yes(&format!("verity sign {given} --print-tbs")), hex);
    }
    assert!(signatures.iter().all(|signature| *signature == signatures[0]));
    place.is("verity verify root.img tree @f", 2, "f: it has no root hash");
    place.is("verity verify root.img tree", 2, "@FILE");
}

#[test]
fn a_dry_run_does_everything_but_write() {
    let Some(place) = place() else { return };
    let crypt = "--crypt aes-xts-plain64 --key-file disk.key --key-size 512";
    place.yes("crypt encrypt root.img enc --key-file disk.key --key-size 512");
    for image in ["root.img".to_owned(), format!("{crypt} enc")] {
        let name = image.rsplit(' ').next().unwrap();
        let before = place.read(name);
        for change in ["mkdir -n IMAGE /new", "rm -rn IMAGE /etc", "chmod --dry-run IMAGE 600 /etc/f"] {
            let output = place.own(&format!("ext4 {} -v", change.replace("IMAGE", &image)));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && stderr.contains("nothing was written"), "{change}: {stderr}");
        }
        place.yes(&format!("ext4 put -n {image} f /etc/g"));
        // What would fail does.
        place.is(&format!("ext4 rm -n {image} /none"), 2, "/none: no such file");
        assert!(place.read(name) == before, "{name}");
        assert!(!place.path("enc.casemate-redo").exists());
    }
}

#[test]
fn what_people_try_first_is_pointed_to() {
    let Some(place) = place() else { return };
    place.is("ext4 get root.img /etc/f", 2, "did you mean: casemate ext4 extract");
    place.is("getfattr root.img /etc/f", 2, "casemate ext4 getfattr");
    place.is("verity open a b c", 2, "dmsetup create");
    place.is("ext4 mount root.img /mnt", 2, "casemate mount");
    place.is("luks open volume", 2, "casemate mount --luks and casemate serve --luks");
    place.is("luks luksFormat volume", 2, "casemate luks format");
    place.is("recover root.img", 2, "casemate ext4 check --repair");
    place.is("scan root.img", 2, "casemate info");
    place.is("dump root.img", 2, "casemate luks dump");
    place.is("verify root.img", 2, "casemate verity verify");
    place.is("luks restore-header volume backup", 2, "casemate luks header-restore");
    place.is("luks list-keys volume", 2, "casemate luks dump for the key slots");
    // A command of another group, or without its group.
    place.is("mkdir root.img /new", 2, "did you mean: casemate ext4 mkdir");
    place.is("luks cat root.img /etc/f", 2, "did you mean: casemate ext4 cat");
    place.is("sign f", 2, "did you mean: casemate fsverity sign, casemate verity sign");
    for (line, tip) in [
        ("mount --read-write root.img folder", "tip: '--write' allows writes"),
        ("mount -o rw root.img folder", "rw: --write allows writes"),
        ("mount --umount folder", "casemate umount FOLDER"),
        ("ext4 truncate -s 5 root.img /etc/f", "casemate ext4 truncate IMAGE PATH SIZE"),
        ("ext4 resize --size 5M root.img", "casemate ext4 resize IMAGE SIZE"),
        ("serve --stop", "SIGTERM ends a server"),
        ("ext4 check --manifest list root.img", "casemate ext4 digest --tree IMAGE"),
    ] {
        let output = place.is(line, 2, tip);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("similar"), "{line}");
    }
    // An image is no list, and its files need not be copied out to be compared with one.
    fs::write(place.path("list"), place.yes("ext4 digest --tree root.img")).unwrap();
    for (line, status) in [("fsverity check list root.img", 1), ("fsverity check root.img", 2)] {
        place.is(line, status, "its files are compared with a list by: casemate ext4 digest --tree root.img");
    }
    // No word is short for verify-signature.
    place.is("fsverity verify", 2, "casemate fsverity check");
    // Names of other servers' options.
    for line in ["serve root.img -U - --run true", "serve root.img -p 0 --run true"] {
        assert_eq!(stdout(&place.is(&format!("{line} --verbose"), 0, "clients can only read")), "");
    }
    // The same seed, a number or a text, gives the same image.
    let first = place.read("root.img");
    for seed in ["7", "a-text"] {
        let mut made = Vec::new();
        for _ in 0..2 {
            fs::write(place.path("root.img"), &first).unwrap();
            let mut command = std::process::Command::new(CASEMATE);
            command.args(["ext4", "mkdir", "root.img", "/new", "--seed", seed]);
            run(command.current_dir(place.folder()).env("SOURCE_DATE_EPOCH", "1700000000"));
            made.push(place.read("root.img"));
        }
        assert!(made[0] == made[1], "{seed}");
    }
}

/// Calls `see` with the path of every command and each of its own arguments.
fn walk(path: &str, command: &Description, see: &mut impl FnMut(&str, &Arg)) {
    command.get_arguments().for_each(|arg| see(path, arg));
    for inner in command.get_subcommands() {
        walk(&format!("{path} {}", inner.get_name()), inner, see);
    }
}

fn each_option(mut see: impl FnMut(&str, &str, &Arg)) {
    walk("casemate", &casemate_cli::command(), &mut |path, arg| {
        if let Some(long) = arg.get_long().filter(|_| !arg.is_hide_set()) {
            see(path, long, arg);
        }
    });
}

fn value_name(arg: &Arg) -> String {
    match arg.get_action().takes_values() {
        true => arg.get_value_names().unwrap_or_default().join(" "),
        false => String::new(),
    }
}

#[test]
fn only_commands_with_layers_keep_options_for_long_help() {
    let mut through_layers = BTreeSet::new();
    each_option(|path, long, _| {
        if ["crypt-table", "fscrypt-key"].contains(&long) {
            through_layers.insert(path.to_owned());
        }
    });
    each_option(|path, long, arg| {
        assert!(through_layers.contains(path) || !arg.is_hide_short_help_set(), "{path}: --{long}");
    });
}

#[test]
fn a_name_is_one_concept_and_a_concept_has_one_name() {
    let mut used = BTreeMap::new();
    let mut faults = BTreeSet::new();
    each_option(|path, long, arg| {
        if NAMESAKES.iter().any(|(command, names)| *command == path && names.contains(&long)) {
            return;
        }
        let value = value_name(arg);
        match WORDS.iter().find(|(name, ..)| *name == long) {
            Some((_, expected, _)) if *expected == value => {}
            Some((_, expected, _)) => {
                faults.insert(format!("{path} --{long} takes {value:?}, and elsewhere {expected:?}"));
            }
            None => {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                faults.insert(format!("{path} --{long} {value} has no concept here: {help}"));
            }
        }
        used.insert(long.to_owned(), ());
    });
    for (name, ..) in WORDS.iter().filter(|(name, ..)| !used.contains_key(*name)) {
        faults.insert(format!("no command has --{name}"));
    }
    let mut concepts = BTreeMap::new();
    for (name, _, concept) in WORDS {
        if let Some(other) = concepts.insert(concept, name) {
            faults.insert(format!("--{name} and --{other} are both: {concept}"));
        }
    }
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn old_names_are_understood_and_not_shown() {
    let root = casemate_cli::command();
    for (path, old, new) in OLD {
        let command = path.split(' ').try_fold(&root, |command, word| command.find_subcommand(word)).unwrap();
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(new));
        let arg = arg.unwrap_or_else(|| panic!("{path} has no --{new}"));
        assert!(arg.get_all_aliases().unwrap_or_default().contains(old), "{path} --{old}");
        assert!(arg.get_visible_aliases().unwrap_or_default().is_empty(), "{path} --{new}");
    }
}

/// Sizes and places have units wherever they are given.
#[test]
fn every_number_of_bytes_takes_units() {
    let mut seen = 0;
    walk("casemate", &casemate_cli::command(), &mut |path, arg| {
        if arg.get_value_names().is_some_and(|names| names.iter().any(|name| *name == "BYTES")) {
            let alone = Arg::new("size").value_parser(arg.get_value_parser().clone());
            let command = Description::new("alone").arg(alone);
            for text in ["4096", "4K", "8s"] {
                let parsed = command.clone().try_get_matches_from(["alone", text]);
                // What cryptsetup takes for KiB or sectors is not guessed.
                let is_writing = ["luks format", "luks reencrypt"].iter().any(|end| path.ends_with(end));
                let is_ambiguous = arg.get_id() == "pbkdf_memory"
                    || is_writing && (arg.get_id() == "offset" || arg.get_id() == "crypt_offset");
                let is_taken = !is_ambiguous || text != "4096";
                assert_eq!(parsed.is_ok(), is_taken, "{path} {:?}: {text}", arg.get_id());
            }
            seen += 1;
        }
    });
    assert!(seen > 100, "{seen}");
}

/// Slips of people who see the program for the first time are answered with what to do next, and change nothing.
#[test]
fn slips_of_new_users_are_answered() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, "-t ext4 -b 1024", &place.path("root.img"), "16M");
    place.sh("mkdir folder elsewhere; head -c 3M /dev/urandom >folder/f; printf pw >pw");
    place.yes("ext4 put root.img folder/f /");
    place.yes("luks format vault.img --size 18M --key-file pw --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    let list = place.yes("fsverity digest -r folder").replace("folder/", "nowhere/");
    place.file("list", list);
    let before = (place.read("root.img"), place.read("vault.img"));
    for (line, status, said) in [
        ("ext4 resize root.img +10M", 2, "not a number of bytes"),
        ("ext4 resize root.img 1M", 2, "1048576 bytes are too few for the files: about "),
        ("ext4 resize root.img --size 20M", 2, "casemate ext4 resize IMAGE SIZE"),
        ("ext4 grow root.img 20M", 2, "casemate ext4 resize"),
        ("ext4 tune root.img", 2, "nothing to change: give --label"),
        ("ext4 tune -u bob root.img", 2, "give a number up to 65535"),
        ("ext4 chown root.img bob /f", 2, "but for root, an image has no names"),
        ("ext4 rm root.img /nope", 2, "root.img: /nope: no such file"),
        ("ext4 mv root.img /nope /x", 2, "root.img: /nope: no such file"),
        ("ext4 mkdir root.img /lost+found", 2, "root.img: /lost+found: exists already"),
        ("ext4 build folder new.img", 2, "the image comes first: 'new.img --from folder'"),
        ("serve root.img", 2, "'--socket PATH' serves on a Unix socket"),
        ("ext4 build new.img --from nope", 2, "casemate: nope: No such file or directory\n"),
        ("ext4 build vault.img,luks,key-file=pw --from folder", 2, "vault.img: no space left"),
        (
            "luks format new.img --from folder",
            2,
            "casemate ext4 build --luks makes one of the files of a folder",
        ),
        ("luks er vault.img --batch-mode", 2, "unrecognized subcommand 'er'"),
        (
            "luks add-key vault.img",
            2,
            "vault.img: no passphrase was given; name the file with the passphrase or key (--key-file FILE)",
        ),
        ("info vault.img,luks", 2, "(key-file=FILE)"),
        ("ext4 ls vault.img /", 2, "open the LUKS volume (--luks)"),
        ("verity info root.img", 2, "casemate info"),
        ("fsverity manifest folder", 2, "casemate fsverity digest --recursive"),
        ("fsverity check list", 1, "list: none of its files is here"),
    ] {
        let output = place.is(line, status, said);
        assert!(!stderr(&output).contains("as a value"), "{line}: {}", stderr(&output));
    }
    assert!((place.read("root.img"), place.read("vault.img")) == before);
    let unknown = place.is("fsverity digest -x root.img", 2, "unexpected argument '-x'");
    assert!(!stderr(&unknown).contains("as a value"), "{}", stderr(&unknown));
    place.yes("ext4 chown root.img root:root /f");
    place.yes("ext4 tune -u root -g root root.img");
    place.is(
        "ext4 resize -v root.img 12M",
        0,
        "the file keeps 4194304 bytes behind it, which --truncate cuts off",
    );
}
