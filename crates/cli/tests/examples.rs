//! The examples of all help pages, run as they are printed, and the pages themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casemate_testkit::{TempDir, run, run_any, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// What needs a kernel with devices of one's own, or a whole machine.
const NOT_HERE: [&str; 3] = ["dmsetup ", "/dev/vd", "qemu-system"];

/// Programs that examples use besides the command.
const TOOLS: [&str; 7] = ["mke2fs", "sfdisk", "openssl", "jq", "zstd", "nbdcopy", "qemu-io"];

/// What the examples find in their folder.
const FOLDER: &str = r#"
truncate -s 64M root.img && mke2fs -q -t ext4 -O encrypt root.img
seq 100 >motd; cp motd f; cp motd photo.jpg; cp motd file.so; printf 'a?b>' >token.txt
head -c 64 /dev/urandom >disk.key; head -c 64 /dev/urandom >master.key
mkdir -p rootfs/etc rootfs/bin rootfs/usr/lib rootfs/var/log rootfs/var/cache/apt private
cp motd private; echo ID=example >rootfs/etc/os-release; cp motd rootfs/etc/motd; cp motd rootfs/etc/rc.local
cp motd rootfs/etc/shadow; cp motd rootfs/bin/su; cp motd rootfs/bin/sh; cp motd rootfs/var/log/wtmp
casemate ext4 put -r root.img rootfs/. / && mv rootfs built && cp -r built rootfs
casemate ext4 mkdir root.img /home && casemate fscrypt set-policy --fscrypt-key master.key root.img /home
tar -C rootfs -cf - . | zstd -q >rootfs.tar.zst
printf 'a?b>' | casemate base64 encode --variant url-safe --no-padding >token; casemate base64 encode motd >photo.txt
casemate verity format root.img root.verity --root-hash-file root.hash.txt --fec-device root.fec >format.txt
casemate crypt encrypt root.img disk.enc --key-file disk.key --key-size 512
printf 'label: gpt\nstart=2048, size=131072\n' >parts
truncate -s 70M disk.img && sfdisk -q disk.img <parts
dd if=root.img of=disk.img bs=1M seek=1 conv=notrunc status=none
casemate fscrypt backup root.img /home home.tar
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=example -keyout key.pem -out cert.pem 2>openssl.log
casemate fsverity digest motd f >digests
casemate fsverity digest --out-merkle-tree=f.tree --out-descriptor=f.descriptor f >f.digest
casemate fsverity sign f f.sig --signing-key key.pem --cert cert.pem >signed
casemate verity sign @root.hash.txt root.sig --signing-key key.pem --cert cert.pem
rm -r built rootfs/var/cache/apt
"#;

struct Place(TempDir);

impl Place {
    fn new() -> Option<Place> {
        if TOOLS.into_iter().any(|name| tool(name).is_none()) {
            return None;
        }
        let place = Place(tempdir().unwrap());
        fs::create_dir(place.path("prepared")).unwrap();
        run(place.bash(FOLDER, "prepared").stdin(Stdio::null()));
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn bash(&self, script: &str, folder: &str) -> Command {
        let own = Path::new(CASEMATE).parent().unwrap();
        let path = format!("{}:{}:/usr/sbin:/sbin", own.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("set -euo pipefail\n{script}\n")]);
        command.env("PATH", path).current_dir(self.path(folder));
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
    let lines = script.lines().filter(|line| NOT_HERE.iter().all(|word| !line.contains(word)));
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

/// Short help begins with what the command is for, and names the layers in one line.
#[test]
fn own_options_come_first_and_layers_last() {
    let help = |line: &str| run(Command::new(CASEMATE).args(line.split(' ')));
    for command in ["cat", "tree", "stat", "put", "mkdir", "extract", "check"] {
        let short = help(&format!("ext4 {command} -h"));
        assert!(short.lines().count() < 55, "{command}: {} lines", short.lines().count());
        assert!(short.contains("Layers: --crypt, ") && short.contains("see casemate help layers"), "{short}");
        assert!(!short.contains("--iv-large-sectors") && !short.contains("--verity-salt"), "{short}");
        let long = help(&format!("ext4 {command} --help"));
        let place = |text: &str| long.find(text).unwrap_or_else(|| panic!("{command}: no {text}"));
        assert!(place("\nOptions:") < place("\nImage:"), "{long}");
        assert!(
            place("\nImage:") < place("\ndm-crypt:") && place("--iv-large-sectors") > place("\ndm-crypt:")
        );
    }
    let long = help("ext4 tree --help");
    assert!(long.find("--level").unwrap() < long.find("\nImage:").unwrap(), "{long}");
    // In casemate crypt the mapping is what it is about.
    assert!(help("crypt encrypt -h").contains("--iv-large-sectors"));
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
        if path.ends_with("casemate-layers.1") {
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
    let page = fs::read_to_string(folder.path().join("casemate-ext4-ls.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\n  casemate ext4 ls root.img\n"), "{page}");
    assert!(page.contains("casemate ext4 ls [OPTIONS] <IMAGE> [PATH]..."), "{page}");
}
