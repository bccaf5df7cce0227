//! The examples of all help pages, run as they are printed, and the pages themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casemate_testkit::{TempDir, kernel, run, run_any, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Commands that need a kernel with devices of one's own, or a whole machine.
const NOT_HERE: [&str; 4] = ["dmsetup ", "/dev/vd", "qemu-system", "nbd-client "];

/// Programs that examples use besides the command.
const TOOLS: [&str; 7] = ["mke2fs", "sfdisk", "openssl", "jq", "zstd", "nbdcopy", "qemu-io"];

/// Script that makes the files that the examples find in their folder.
const FOLDER: &str = r#"
truncate -s 64M root.img && mke2fs -q -t ext4 -O encrypt root.img
seq 100 >motd; cp motd f; cp motd photo.jpg; cp motd file.so; printf 'a?b>' >token.txt
head -c 64 /dev/urandom >disk.key; head -c 64 /dev/urandom >master.key
mkdir -p rootfs/etc rootfs/bin rootfs/usr/lib rootfs/var/log rootfs/var/cache/apt private
cp motd private; echo ID=example >rootfs/etc/os-release; cp motd rootfs/etc/motd; cp motd rootfs/etc/rc.local
cp motd rootfs/etc/shadow; cp motd rootfs/bin/su; cp motd rootfs/bin/sh; cp motd rootfs/var/log/wtmp
casemate ext4 put -r root.img rootfs/. / && mv rootfs built && cp -r built rootfs
casemate ext4 mkdir root.img /home && casemate fscrypt set-policy --fscrypt-key master.key root.img /home
tar -C rootfs -cf - . | zstd -q >rootfs.tar.zst; tar -C rootfs -cf base.tar .; tar -C rootfs -cf app.tar bin
printf 'a?b>' | casemate base64 encode --variant url-safe --no-padding >token; casemate base64 encode motd >photo.txt
casemate verity format root.img root.verity --root-hash-file root.hash.txt --fec-device root.fec >format.txt
casemate crypt encrypt root.img disk.enc --key-file disk.key --key-size 512
printf 'label: gpt\nstart=2048, size=131072\n' >parts
truncate -s 70M disk.img && sfdisk -q disk.img <parts
dd if=root.img of=disk.img bs=1M seek=1 conv=notrunc status=none
casemate fscrypt backup root.img /home home.tar
printf secret >pass.key; printf another >new.key
tar -cf - private | casemate luks format --from - vault.img --key-file pass.key --pbkdf-memory 1M --pbkdf-force-iterations 4
casemate luks format --from root.img disk.luks --key-file pass.key --pbkdf-memory 1M --pbkdf-force-iterations 4
casemate luks format empty.luks --size 24M --key-file pass.key --pbkdf-memory 1M --pbkdf-force-iterations 4
cp vault.img shared.img; casemate luks add-key shared.img --new-key-file new.key --key-file pass.key --pbkdf-memory 1M --pbkdf-force-iterations 4
casemate ext4 build boot.img --from rootfs --dm-verity append --root-hash-file boot.txt >build.txt
casemate integrity format volume.img --size 8M
head -c 1M /dev/zero >keyed.img; head -c 32 /dev/urandom >integrity.key
casemate integrity format keyed.img --sector-size 4096 -I hmac-sha256 --integrity-key-file integrity.key
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=example -keyout key.pem -out cert.pem 2>openssl.log
casemate fsverity digest motd f >digests
casemate fsverity digest --out-merkle-tree=f.tree --out-descriptor=f.descriptor f >f.digest
casemate fsverity sign f f.sig --signing-key key.pem --cert cert.pem >signed
casemate verity sign @root.hash.txt root.sig --signing-key key.pem --cert cert.pem
mkdir -p image/blobs/sha256
blob() { sum=$(sha256sum <$2 | cut -d' ' -f1); cp $2 image/blobs/sha256/$sum
printf '{"mediaType":"%s","digest":"sha256:%s","size":%d,"annotations":{"org.opencontainers.image.ref.name":"latest"}}' $1 $sum $(stat -c %s $2); }
printf '{"layers":[%s]}' "$(blob layer.tar base.tar)" >layers; printf '{"manifests":[%s]}' "$(blob manifest layers)" >image/index.json
printf '/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 - - -\n' >devices; echo '/.* system_u:object_r:etc_t:s0' >file_contexts
printf '%s\n' '0 + 1' "0 $(stat -c %s disk.luks) +" > ddrescue.map
rm -r built rootfs/var/cache/apt
"#;

/// The command as examples find it: where keys of volumes are made without a word about their costs, deriving takes a
/// fiftieth of a second instead of two.
const CHEAP: &str = r#"#!/bin/sh
case "$* " in
*--pbkdf-* | *--iter-time* | *--decrypt*) ;;
"luks format "* | "luks reencrypt "* | "luks add-key "* | "luks change-key "* | "luks convert-key "*)
    set -- "$@" --iter-time 20 ;;
esac
exec "$REAL" "$@"
"#;

struct Place(TempDir);

impl Place {
    fn new() -> Option<Place> {
        if TOOLS.into_iter().any(|name| tool(name).is_none()) {
            return None;
        }
        let place = Place(tempdir().unwrap());
        fs::create_dir(place.path("prepared")).unwrap();
        fs::create_dir(place.path("bin")).unwrap();
        fs::write(place.path("bin/casemate"), CHEAP).unwrap();
        fs::set_permissions(place.path("bin/casemate"), fs::Permissions::from_mode(0o755)).unwrap();
        run(place.bash(FOLDER, "prepared").stdin(Stdio::null()));
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn bash(&self, script: &str, folder: &str) -> Command {
        let own = self.path("bin");
        let path = format!("{}:{}:/usr/sbin:/sbin", own.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("set -euo pipefail\n{script}\n")]);
        command.env("PATH", path).env("REAL", CASEMATE).current_dir(self.path(folder));
        command
    }
}

/// The examples of a help text, one script.
fn examples(text: &str) -> Option<String> {
    let part = text.split("\n\n").find(|part| part.starts_with("Example"))?;
    let lines = part.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line));
    let script: Vec<&str> = lines.collect();
    let long = script.iter().find(|line| line.len() > 96);
    assert_eq!(long, None, "it is wrapped, and no shell takes it");
    let script = script.join("\n").replace("\\\n", "\u{1}");
    let mounts = !script.contains("casemate mount ") || kernel::fuse_works();
    let runs = |line: &&str| {
        NOT_HERE.iter().all(|word| !line.contains(word)) && (mounts || !line.contains("mount "))
    };
    let lines = script.lines().filter(runs);
    let lines = lines.map(|line| match line.starts_with("casemate serve") && !line.contains("--exec") {
        // It serves until somebody ends it.
        true => format!("timeout 1 {line} || test $? = 124"),
        false => line.to_owned(),
    });
    Some(lines.collect::<Vec<_>>().join("\n").replace('\u{1}', "\\\n"))
}

/// All commands, by their words, with the text behind their options.
fn texts(path: &str, command: &clap::Command, found: &mut Vec<(String, String)>) {
    let help = command.get_after_long_help().or(command.get_after_help());
    found.push((path.to_owned(), help.map(ToString::to_string).unwrap_or_default()));
    for inner in command.get_subcommands() {
        texts(&format!("{path} {}", inner.get_name()), inner, found);
    }
}

#[test]
fn every_example_runs_as_printed() {
    let Some(place) = Place::new() else { return };
    let mut found = Vec::new();
    texts("casemate", &casemate_cli::command(), &mut found);
    found.push(("casemate help layers".to_owned(), run(Command::new(CASEMATE).args(["help", "layers"]))));
    let (mut count, mut failed) = (0, Vec::new());
    for (number, (command, text)) in found.iter().enumerate() {
        let Some(script) = examples(text) else { continue };
        let folder = format!("{number}");
        run(&mut place.bash(&format!("cp -r --sparse=always prepared {folder}"), "."));
        let output = run_any(place.bash(&script, &folder).stdin(Stdio::null()));
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || stderr.contains("note: nothing known") {
            failed.push(format!("{command}: {stderr}{script}\n"));
        }
        fs::remove_dir_all(place.path(&folder)).unwrap();
        count += script.lines().filter(|line| line.contains("casemate ")).count();
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(count > 70, "{count} examples");
}

/// Help begins with what the command is for, and names the layers in one line.
#[test]
fn own_options_come_first_and_layers_last() {
    let help = |line: &str| run(Command::new(CASEMATE).args(line.split(' ')));
    for command in ["cat", "tree", "stat", "put", "mkdir", "extract", "check"] {
        let short = help(&format!("ext4 {command} -h"));
        assert!(short.lines().count() < 62, "{command}: {} lines", short.lines().count());
        let line = short.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            line.contains("Layers: IMAGE,partition=2,") && line.contains("see casemate help layers"),
            "{short}"
        );
        for hidden in ["--iv-large-sectors", "--verity-salt", "--offset", "--luks", "--fscrypt-key"] {
            assert!(!short.contains(&format!("\n      {hidden} ")), "{command}: {short}");
        }
        let long = help(&format!("ext4 {command} --help"));
        assert_eq!(long, short, "{command}");
        let place = |text: &str| long.find(text).unwrap_or_else(|| panic!("{command}: no {text}"));
        assert!(place("\nOptions:") < place("\nImage:"), "{long}");
    }
    let long = help("ext4 tree --help");
    assert!(long.find("--level").unwrap() < long.find("\nImage:").unwrap(), "{long}");
    // With verity verify they are options.
    let long = help("verity verify --help");
    assert!(long.contains("\ndm-crypt:") && long.contains("--iv-large-sectors"), "{long}");
    // Every option is in the manual page.
    let folder = tempdir().unwrap();
    run(Command::new(CASEMATE).arg("man").arg(folder.path()));
    let page = fs::read_to_string(folder.path().join("casemate-ext4-ls.1")).unwrap();
    for option in ["iv\\-large\\-sectors", "verity\\-salt", "offset", "luks\\-header", "fscrypt\\-key"] {
        assert!(page.contains(option), "{option}: {page}");
    }
    // In casemate crypt the mapping is what it is about.
    assert!(help("crypt encrypt -h").contains("--iv-large-sectors"));
}

/// Help that is asked for most is seen at once, whatever the width of the terminal.
#[test]
fn help_of_what_reads_files_fits_on_one_screen() {
    for command in ["ls", "stat", "cat", "tree", "readlink", "info", "du"] {
        let help = run(Command::new(CASEMATE).args(["ext4", command, "--help"]));
        assert!(help.lines().count() <= 42, "{command}: {} lines\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        let headings: Vec<&str> =
            help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
        assert_eq!(headings[..3], ["Arguments:", "Options:", "Image:"], "{help}");
        assert_eq!(headings.len(), 4, "{help}");
    }
    let help = run(Command::new(CASEMATE).args(["ext4", "ls", "--help"]));
    assert!(help.contains("With --json, one object a line."), "{help}");
}

#[test]
fn manual_pages_have_the_usual_sections() {
    let folder = tempdir().unwrap();
    run(Command::new(CASEMATE).arg("man").arg(folder.path()));
    let mut count = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        count += 1;
        assert!(page.contains(concat!("\"casemate ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
        if path.ends_with("casemate-layers.1") || path.ends_with("casemate-links.1") {
            continue;
        }
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"] {
            assert!(
                page.contains(&format!(".SH {section}\n")) || page.contains(&format!(".SH \"{section}\"")),
                "{}: {section}",
                path.display()
            );
        }
        assert!(!page.contains(".SH EXTRA"), "{}", path.display());
        if let Some(man) = casemate_testkit::find_program("man") {
            let mut command = Command::new(man);
            command
                .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
                .arg(&path)
                .env("LC_ALL", "C.UTF-8");
            let output = run_any(&mut command);
            assert!(
                output.stderr.is_empty(),
                "{}: {}",
                path.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    assert!(count > 50, "{count}");
    let page = fs::read_to_string(folder.path().join("casemate-links.1")).unwrap();
    for (name, _) in casemate_cli::LINKS {
        assert!(page.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}: {page}");
    }
    if let Some(mandoc) = tool("mandoc") {
        let pages = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let output = run_any(Command::new(mandoc).args(["-T", "lint", "-W", "warning"]).args(pages));
        let complaints = String::from_utf8_lossy(&output.stdout).into_owned();
        // Pages have no date, so that they can be made again.
        let complaints: Vec<&str> =
            complaints.lines().filter(|line| !line.contains("missing date")).collect();
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
    let page = fs::read_to_string(folder.path().join("casemate-ext4-ls.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\n  casemate ext4 ls root.img\n"), "{page}");
    assert!(page.contains("casemate ext4 ls [OPTIONS] <IMAGE> [PATH]..."), "{page}");
}

/// Fields of a command's JSON by `docs/json.md`: those that are always there, and those that may be.
fn documented(document: &str, command: &str) -> (Vec<String>, Vec<String>) {
    let row = |name: &str| {
        let rows = document.lines().filter(|line| line.starts_with("| `"));
        let mut rows = rows.map(|line| line.trim_matches('|').split(" | ").collect::<Vec<_>>());
        let row = rows.find(|cells| cells[0].split(", ").any(|cell| cell.trim() == format!("`{name}`")));
        row.unwrap_or_else(|| panic!("docs/json.md does not have {name}"))[2].to_owned()
    };
    let words = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let fields = row(command);
    let (mut always, mut sometimes) = (Vec::new(), Vec::new());
    let mut add = |text: &str, except: &[String]| {
        for part in text.split(", ").filter(|part| part.contains('`')) {
            let name = words(part).remove(0);
            if !except.contains(&name) {
                if part.contains("(`") { sometimes.push(name) } else { always.push(name) }
            }
        }
    };
    let Some(rest) = fields.trim().strip_prefix("those of `") else {
        add(&fields, &[]);
        return (always, sometimes);
    };
    let (other, rest) = rest.split_once('`').unwrap();
    let family = command.split(' ').next().unwrap();
    let (except, more) = match rest.split_once(" but ") {
        Some((_, rest)) => rest.split_once(", and ").unwrap_or((rest, "")),
        None => ("", rest.split_once(" and ").unwrap().1),
    };
    add(&row(&format!("{family} {other}")), &words(except));
    add(more, &[]);
    (always, sometimes)
}

/// The table of codes is the library's, and an error in JSON has the fields that are documented.
#[test]
fn codes_of_errors_are_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/errors.md")).unwrap();
    let rows: Vec<(i32, &str)> = document
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            Some((cells.first()?.parse().ok()?, cells.get(1)?.trim_matches('`')))
        })
        .collect();
    let codes: Vec<(i32, &str)> =
        casemate::Code::ALL.iter().map(|code| (*code as i32, code.name())).collect();
    assert_eq!(rows, codes);
    let output = std::process::Command::new(CASEMATE).args(["info", "/none", "--json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    let error = told["error"].as_object().unwrap();
    let fields: Vec<&str> = error.keys().map(String::as_str).collect();
    let documented = fs::read_to_string(root.join("docs/json.md")).unwrap();
    let row = documented.lines().find(|line| line.starts_with("| error |")).unwrap();
    assert!(fields.iter().all(|field| row.contains(&format!("`{field}`"))), "{fields:?}: {row}");
    assert_eq!((&error["kind"], &error["code"]), (&"io".into(), &"not-found".into()));
}

#[test]
fn json_is_as_documented() {
    let Some(place) = Place::new() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/json.md")).unwrap();
    let nonce = "00112233445566778899aabbccddeeff";
    for (command, arguments) in [
        ("info", "disk.img"),
        ("verity verify", "root.img root.verity @root.hash.txt"),
        ("verity repair", "root.img root.verity @root.hash.txt --fec-device root.fec -n"),
        ("verity update", "root.img root.verity --changed 0+1K"),
        ("ext4 info", "root.img"),
        ("ext4 ls", "root.img /etc /dev"),
        ("ext4 tree", "root.img /"),
        ("ext4 stat", "root.img / /etc/motd /home"),
        ("ext4 check", "root.img"),
        ("ext4 build", "new.img --from rootfs"),
        ("ext4 mkdir", "root.img /new"),
        ("ext4 put", "root.img motd /new/motd"),
        ("ext4 rm", "root.img /new/motd -n"),
        ("ext4 mv", "root.img /new/motd /new/m"),
        ("ext4 ln", "root.img -s m /new/l"),
        ("ext4 chmod", "root.img 600 /new/m"),
        ("ext4 chown", "root.img 1:1 /new/m"),
        ("ext4 touch", "root.img /new/m"),
        ("ext4 setfattr", "root.img --name user.a --value b /new/m"),
        ("ext4 getfattr", "root.img /new/m"),
        ("ext4 readlink", "root.img /new/l"),
        ("ext4 find", "root.img /etc --type f"),
        ("ext4 digest", "root.img /etc"),
        ("ext4 diff", "root.img new.img"),
        ("ext4 du", "root.img /etc"),
        ("ext4 df", "root.img"),
        ("ext4 truncate", "root.img /new/m 1K"),
        ("ext4 fallocate", "root.img /new/n 1K"),
        ("ext4 label", "root.img"),
        ("ext4 label", "root.img system"),
        ("ext4 tune", "root.img -m 1"),
        ("ext4 resize", "root.img 72M"),
        ("ext4 minimize", "root.img --print-size"),
        ("ext4 recover", "root.img"),
        ("ext4 mkdir", "root.img /locked"),
        ("fscrypt set-policy", "--fscrypt-key master.key root.img /locked"),
        ("ext4 extract", "root.img out --no-owners"),
        ("fscrypt backup", "root.img /home saved.tar"),
        ("fscrypt extract", "saved.tar saved --fscrypt-key master.key --no-owners"),
        ("fscrypt restore", "saved.tar root.img /restored"),
        ("verity format", "disk.enc new.verity --fec-device new.fec"),
        ("verity dump", "root.verity"),
        ("verity table", "disk.enc root.verity @root.hash.txt"),
        ("verity sign", "@root.hash.txt new.sig --signing-key key.pem --cert cert.pem"),
        ("verity verify-signature", "@root.hash.txt new.sig --cert cert.pem"),
        ("fsverity digest", "motd f"),
        ("fsverity check", "digests"),
        ("fsverity check --merkle-tree", "f.tree --descriptor f.descriptor f"),
        ("fsverity sign", "f new.sig --signing-key key.pem --cert cert.pem"),
        ("fsverity verify-signature", "f new.sig --cert cert.pem"),
        ("crypt encrypt", "disk.img out.enc --key-file disk.key --key-size 512"),
        ("crypt decrypt", "out.enc out.img --key-file disk.key --key-size 512"),
        ("crypt table", "out.enc --key-file disk.key --key-size 512"),
        ("fscrypt key-id", "master.key"),
        ("fscrypt derive", &format!("contents --fscrypt-key master.key --nonce {nonce}")),
        ("providers", "--algorithm sha256"),
    ] {
        let (always, sometimes) = documented(&document, command);
        let output = run_any(&mut place.bash(&format!("casemate {command} {arguments} --json"), "prepared"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.is_empty(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let found: Vec<&String> = value.as_object().unwrap().keys().collect();
            for field in &always {
                assert!(found.contains(&field), "{command}: no {field} in {line}");
            }
            for field in found {
                assert!(
                    always.contains(field) || sometimes.contains(field),
                    "{command}: {field} is not documented"
                );
            }
        }
    }
    // Errors too, and their names are the documented ones.
    let output = run_any(&mut place.bash("casemate ext4 ls none --json", "prepared"));
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    for (object, value) in [("error", &error["error"]), ("place", &error["error"]["place"])] {
        let row = document.lines().find(|line| line.starts_with(&format!("| {object} |"))).unwrap();
        for field in value.as_object().unwrap().keys() {
            assert!(row.contains(&format!("`{field}`")), "{object}: {field}");
        }
    }
}
