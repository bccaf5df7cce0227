//! `casemate serve` with clients that nobody here wrote, and with a model.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use casemate_testkit::nbd::{Client, FUA, TRIM, WRITE_ZEROES};
use casemate_testkit::uml::Uml;
use casemate_testkit::{Rng, TempDir, run, run_any, slow_tests, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const CRYPT: &str = "--crypt aes-xts-plain64 --key-file key --key-size 512";
const SIZE: usize = 4 << 20;

/// A folder with a key, an image, the image encrypted, and its hash tree.
struct Folder {
    folder: TempDir,
    root: String,
}

/// A server that is killed when dropped.
struct Running {
    child: Child,
    folder: std::path::PathBuf,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempdir().unwrap();
        let mut rng = Rng::new(8);
        let at = |name: &str| folder.path().join(name);
        fs::write(at("key"), rng.bytes(64)).unwrap();
        fs::write(at("image"), rng.bytes(SIZE)).unwrap();
        let new = Folder { folder, root: String::new() };
        new.casemate("crypt encrypt image enc --key-file key --key-size 512");
        let made = new.casemate("verity format image tree");
        let root = made.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
        Folder { root, ..new }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(CASEMATE);
        command.args(line.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    fn casemate(&self, line: &str) -> String {
        run(&mut self.command(line))
    }

    /// Serves while a shell command runs; gives what both said.
    fn with(&self, options: &str, script: &str) -> (i32, String, String) {
        let mut command = self.command(&format!("serve {options}"));
        let output = run_any(command.arg("--exec").arg(script));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The same for a script that must succeed.
    fn expect(&self, options: &str, script: &str) -> String {
        let (status, stdout, stderr) = self.with(options, &format!("set -e\n{script}"));
        assert_eq!(status, 0, "{options}: {stdout}{stderr}");
        stdout
    }

    fn start(&self, options: &str) -> Running {
        let mut command = self.command(&format!("serve --socket sock {options}"));
        let errors = fs::File::create(self.path().join("log")).unwrap();
        let child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        Running { child, folder: self.path().to_owned() }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    fn log(&self) -> String {
        String::from_utf8(self.read("log")).unwrap()
    }
}

impl Running {
    fn client(&self) -> Client {
        let client = Client::connect_when_there(self.folder.join("sock"));
        client.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    }

    fn signal(&self, name: &str) {
        run(Command::new("kill").args(["-s", name, &self.child.id().to_string()]));
    }

    /// Ends it as service managers do; gives its exit status.
    fn end(mut self) -> i32 {
        self.signal("TERM");
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_stack_is_read_by_other_peoples_clients() {
    let folder = Folder::new();
    for name in ["nbdinfo", "nbdcopy", "qemu-img"] {
        if tool(name).is_none() {
            return;
        }
    }
    // A tree over ciphertext, and one in the same file behind the data.
    let over = folder.casemate("verity format enc enctree");
    let over = over.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
    fs::copy(folder.path().join("image"), folder.path().join("both")).unwrap();
    folder.casemate(&format!("verity format both both --hash-offset {SIZE} --data-blocks {}", SIZE / 4096));
    let root = &folder.root;
    let salted = format!(
        "--verity both {} --hash-offset {SIZE} --size {} both",
        folder
            .casemate(&format!(
                "verity format both both --hash-offset {SIZE} --data-blocks {} --salt -",
                SIZE / 4096
            ))
            .lines()
            .find_map(|line| line.strip_prefix("Root hash:"))
            .unwrap()
            .trim(),
        fs::metadata(folder.path().join("both")).unwrap().len(),
    );
    for options in [
        "image".to_owned(),
        format!("{CRYPT} enc"),
        format!("--verity tree {root} image"),
        format!("{CRYPT} --verity tree {root} enc"),
        format!("--verity enctree {over} {CRYPT} enc"),
        format!("--verity tree {root} image --overlay new{}", root.len()),
        salted,
    ] {
        let script = "nbdcopy \"$uri\" copy && cmp image copy\n\
                      qemu-img convert -f raw -O raw \"nbd+unix:///?socket=$unixsocket\" copy && cmp image copy\n\
                      qemu-img compare -f raw -F raw \"nbd+unix:///?socket=$unixsocket\" image\n\
                      nbdinfo --json \"$uri\"";
        let said = folder.expect(&options, script);
        let read_only = options.contains("verity") && !options.contains("overlay");
        assert!(said.contains(&format!("\"is_read_only\": {read_only}")), "{options}: {said}");
        assert!(said.contains("\"can_multi_conn\": true") && said.contains("Images are identical"), "{said}");
        let size = format!("\"export-size\": {SIZE}");
        assert!(said.contains(&size), "{options}: {said}");
    }
}

#[test]
fn other_peoples_clients_write() {
    let folder = Folder::new();
    for name in ["nbdcopy", "qemu-img", "qemu-io", "fio"] {
        if tool(name).is_none() {
            return;
        }
    }
    let new = Rng::new(9).bytes(SIZE);
    fs::write(folder.path().join("new"), &new).unwrap();
    for options in
        [format!("{CRYPT} enc"), format!("{CRYPT} --sector-size 4096 --iv-large-sectors enc"), "image".into()]
    {
        folder.expect(&options, "nbdcopy --flush new \"$uri\"; nbdcopy \"$uri\" copy; cmp new copy");
        let script = "u=\"nbd+unix:///?socket=$unixsocket\"\n\
            qemu-img convert -n -f raw -O raw new \"$u\"\n\
            qemu-io -f raw -c 'write -P 7 1000 3000' -c 'write -f -P 8 70000 200' -c 'write -z 1M 64k' -c 'discard 2M 64k' \
                -c flush -c 'read -P 7 1000 3000' -c 'read -P 8 70000 200' -c 'read -P 0 1M 64k' \"$u\" >qemu-io\n\
            ! grep -i -e failed -e error qemu-io\n\
            for bs in 1k 4k 64k; do\n\
                fio --name=x --ioengine=nbd --uri=\"$uri\" --rw=randwrite --bs=$bs --iodepth=16 --size=2m \
                    --verify=crc32c --do_verify=1 --output=fio\n\
            done";
        folder.expect(&options, script);
    }
    // What was written through the mapping is what the crypt command makes of the same plaintext.
    folder.expect(&format!("{CRYPT} enc"), "nbdcopy new \"$uri\"");
    folder.casemate("crypt encrypt new expected --key-file key --key-size 512");
    assert!(folder.read("enc") == folder.read("expected"));
}

#[test]
fn damaged_blocks_fail_alone_and_are_named() {
    let folder = Folder::new();
    let mut image = folder.read("image");
    for block in [3, 700, 701] {
        image[block * 4096 + 17] ^= 1;
    }
    fs::write(folder.path().join("image"), &image).unwrap();
    let running = folder.start(&format!("--verity tree {} image --json", folder.root));
    let mut client = running.client();
    for block in 0..SIZE / 4096 {
        let found = client.read(block as u64 * 4096, 4096);
        match block {
            3 | 700 | 701 => assert_eq!(found, Err(5), "block {block}"),
            _ => assert!(found.unwrap() == image[block * 4096..][..4096], "block {block}"),
        }
    }
    assert_eq!(client.read(600 * 4096, 200 * 4096), Err(5));
    assert_eq!(client.write(0, &[1], 0), Err(1), "read-only");
    assert!(folder.log().contains("data block 3 does not match its hash tree"), "{}", folder.log());
    assert!(folder.log().contains("data blocks 700 to 701 do not match its hash tree"), "{}", folder.log());
    assert_eq!(running.end(), 0);
}

#[test]
fn an_overlay_keeps_changes_and_the_image_stays() {
    let folder = Folder::new();
    let before = folder.read("image");
    let options = format!("--verity tree {} image --overlay changes", folder.root);
    let running = folder.start(&options);
    let mut client = running.client();
    client.write(5000, &[7; 10_000], 0).unwrap();
    client.ask(WRITE_ZEROES, 0, 100_000, 50_000, &[]).unwrap();
    assert_eq!(running.end(), 0);
    let mut model = before.clone();
    model[5000..15_000].fill(7);
    model[100_000..150_000].fill(0);
    let running = folder.start(&options);
    assert!(running.client().read(0, SIZE as u32).unwrap() == model);
    // One server at a time, and only with the image that it was made over.
    let (status, _, stderr) = folder.with(&options, "true");
    assert_eq!((status, stderr.contains("another process is working on it")), (2, true), "{stderr}");
    drop(running);
    fs::remove_file(folder.path().join("sock")).unwrap();
    let (status, _, stderr) = folder.with("enc --overlay changes", "true");
    assert_eq!((status, stderr.contains("belongs to another device")), (1, true), "{stderr}");
    assert!(folder.read("image") == before);
}

/// Writers are at work when the server is killed: what was flushed, or written with FUA, is there afterwards, and
/// everything else is old or new.
#[test]
fn what_was_flushed_survives_kill() {
    let folder = Folder::new();
    let zeros = vec![0; SIZE];
    fs::write(folder.path().join("zeros"), &zeros).unwrap();
    folder.casemate("crypt encrypt zeros start --key-file key --key-size 512");
    let rounds = if slow_tests() { 300 } else { 24 };
    let mut rng = Rng::new(std::process::id().into());
    for round in 0..rounds {
        let options = match round % 3 {
            0 => {
                fs::copy(folder.path().join("zeros"), folder.path().join("work")).unwrap();
                "work".to_owned()
            }
            1 => {
                fs::copy(folder.path().join("start"), folder.path().join("work")).unwrap();
                format!("{CRYPT} work")
            }
            _ => {
                let _ = fs::remove_file(folder.path().join("changes"));
                "zeros --overlay changes".to_owned()
            }
        };
        let mut running = folder.start(&options);
        let clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
        let patience = Duration::from_micros(2000 + rng.below(60_000));
        let seed = rng.next_u64();
        // Each writer has every third sector: what it may hold afterwards is what was safe, or anything written since.
        let possible: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
            let writers: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| scope.spawn(move || writer(client, number, seed + number as u64)))
                .collect();
            std::thread::sleep(patience);
            running.child.kill().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        running.child.wait().unwrap();
        let again = folder.start(&options);
        let found = again.client().read(0, SIZE as u32).unwrap();
        for (number, sectors) in possible.iter().enumerate() {
            for (k, values) in sectors.iter().enumerate() {
                let sector = 3 * k + number;
                let bytes = &found[sector * 512..][..512];
                let whole = bytes.iter().all(|byte| *byte == bytes[0]);
                assert!(
                    whole && values.contains(&bytes[0]),
                    "round {round}, {options}: sector {sector} has {}, not one of {values:?}",
                    bytes[0]
                );
            }
        }
        drop(again);
    }
}

/// Writes until the server is gone; gives the values that each of its sectors may have.
fn writer(mut client: Client, number: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let mut sectors = vec![vec![0u8]; SIZE / 512 / 3];
    let mut value = 0u8;
    loop {
        let k = rng.below(sectors.len() as u64) as usize;
        let offset = (3 * k + number) as u64 * 512;
        value = value.wrapping_add(1).max(1);
        let kind = rng.below(12);
        // Before it is sent: it may be done although no answer comes.
        if kind > 0 {
            sectors[k].push(value);
        }
        let sent = match kind {
            0 => client.send(3, 0, 0, 0, &[]),
            1 => client.send(1, FUA, offset, 512, &[value; 512]),
            _ => client.send(1, 0, offset, 512, &[value; 512]),
        };
        match sent.and_then(|_| client.receive()) {
            Ok(reply) => assert_eq!(reply.error, 0),
            Err(_) => return sectors,
        }
        let keep_last = |values: &mut Vec<u8>| drop(values.drain(..values.len() - 1));
        match kind {
            0 => sectors.iter_mut().for_each(keep_last),
            1 => keep_last(&mut sectors[k]),
            _ => {}
        }
    }
}

#[test]
fn the_command_and_signals_end_it() {
    let folder = Folder::new();
    assert_eq!(folder.with("image", "exit 7").0, 7);
    assert_eq!(folder.with("image", "kill -9 $$").0, 137);
    let (status, stdout, _) = folder.with("image --json", "test -S \"$unixsocket\"");
    assert_eq!((status, stdout.matches("\"connections\":0").count()), (0, 1), "{stdout}");

    let mut running = folder.start(&format!("{CRYPT} enc --json"));
    let mut client = running.client();
    client.write(0, &[1; 64 << 10], 0).unwrap();
    client.read(100, 10).unwrap();
    let mode = fs::metadata(folder.path().join("sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = folder.read("key");
    let arguments = fs::read(format!("/proc/{}/cmdline", running.child.id())).unwrap();
    assert!(!arguments.windows(8).any(|window| window == &key[..8]));
    running.signal("USR1");
    let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["size"], &first["read_only"]), (&SIZE.into(), &false.into()), "{first}");
    let now: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&now["writes"], &now["clients"]), (&1.into(), &1.into()), "{now}");
    let layer = &now["layers"][0];
    assert_eq!((&layer["batched_units"], &layer["single_units"]), (&128.into(), &1.into()), "{now}");
    assert_eq!(layer["calls"], 2, "one call a request");
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
    assert!(client.stream.read(&mut [0]).is_ok_and(|len| len == 0));
    assert!(!folder.path().join("sock").exists());
    assert_eq!(folder.log(), "");
}

#[test]
fn a_file_that_shrinks_and_a_disk_that_fills() {
    let folder = Folder::new();
    let running = folder.start("image");
    let mut client = running.client();
    let image = fs::OpenOptions::new().write(true).open(folder.path().join("image")).unwrap();
    image.set_len(SIZE as u64 / 2).unwrap();
    assert_eq!(client.read(SIZE as u64 - 512, 512), Err(5));
    assert_eq!(client.read(0, 512).map(|data| data.len()), Ok(512));
    assert!(folder.log().contains("passes the end of the device"), "{}", folder.log());
    assert_eq!(running.end(), 0);

    // A file system of one megabyte, in name spaces of its own.
    let mount = folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m none small && truncate -s 4M small/disk && exec {CASEMATE} serve --socket sock small/disk"
    );
    let errors = fs::File::create(folder.path().join("log")).unwrap();
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-rm", "sh", "-c", &script])
        .current_dir(folder.path())
        .stderr(errors)
        .stdout(Stdio::null());
    let mut child = unshare.spawn().unwrap();
    let start = Instant::now();
    while !folder.path().join("sock").exists() {
        if let Some(status) = child.try_wait().unwrap() {
            return casemate_testkit::skip(&format!("no user namespace: {status}: {}", folder.log()));
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    let running = Running { child, folder: folder.path().to_owned() };
    let mut client = running.client();
    let results: Vec<_> = (0..32).map(|k| client.write(k << 17, &[9; 1 << 17], 0)).collect();
    assert_eq!(results[0], Ok(()));
    assert_eq!(results[31], Err(28), "{results:?}");
    assert_eq!(client.read(0, 512), Ok(vec![9; 512]));
    // Room that is given back can be used again.
    client.ask(TRIM, 0, 0, 1 << 17, &[]).unwrap();
    assert_eq!(client.write(31 << 17, &[9; 4096], 0), Ok(()));
}

#[test]
fn tls_with_certificates() {
    let folder = Folder::new();
    for name in ["openssl", "nbdinfo", "nbdcopy"] {
        if tool(name).is_none() {
            return;
        }
    }
    let script = "mkdir pki other && cd pki\n\
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN=ca 2>/dev/null\n\
        for who in server client; do\n\
            openssl req -newkey rsa:2048 -nodes -keyout $who-key.pem -out $who.csr -subj /CN=localhost 2>/dev/null\n\
            printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' >$who.ext\n\
            openssl x509 -req -in $who.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile $who.ext \
                -out $who-cert.pem 2>/dev/null\n\
        done\n\
        cp ca-cert.pem ../other";
    run(Command::new("sh").arg("-ec").arg(script).current_dir(folder.path()));
    let tls = "--tls require --tls-certificates pki --tls-verify-peer";
    let certificates = folder.path().join("pki").display().to_string();
    let anonymous = folder.path().join("other").display().to_string();
    let script = format!(
        "u=\"nbds://localhost:$port/?tls-certificates={certificates}\"\n\
         nbdcopy \"$u\" copy; cmp image copy; nbdcopy image \"$u\"\n\
         nbdinfo \"$u\" | grep 'with TLS'\n\
         ! nbdinfo nbd://localhost:$port/ 2>/dev/null\n\
         ! nbdinfo \"nbds://localhost:$port/?tls-certificates={anonymous}\" 2>/dev/null"
    );
    folder.expect(&format!("--tcp 0 {tls} image"), &script);
    // Who has no certificate is let in where none is asked for, and TLS is a choice.
    let script = format!(
        "nbdinfo --size \"nbds://localhost:$port/?tls-certificates={anonymous}\"; nbdinfo --size nbd://localhost:$port/"
    );
    let said = folder.expect("--tcp 0 --tls on --tls-certificates pki image", &script);
    assert_eq!(said, format!("{SIZE}\n{SIZE}\n"));
    let (status, _, stderr) = folder.with("--tls on --tls-certificates other image", "true");
    assert_eq!((status, stderr.contains("server-key.pem")), (2, true), "{stderr}");
}

#[test]
fn other_machines_are_let_in_only_when_asked() {
    let folder = Folder::new();
    let (status, _, stderr) = folder.with("--tcp 0.0.0.0:0 image", "true");
    assert_eq!((status, stderr.contains("--allow-remote")), (2, true), "{stderr}");
    let (status, _, stderr) = folder.with("--tcp 0.0.0.0:0 --allow-remote image", "true");
    assert_eq!((status, stderr.contains("nothing sent is protected")), (0, true), "{stderr}");
    let (status, _, stderr) = folder.with("--tcp 127.0.0.1:0 image", "test -n \"$port\"");
    assert_eq!((status, &*stderr), (0, ""));
    assert_eq!(run_any(&mut folder.command("serve image")).status.code(), Some(2));
    assert_eq!(run_any(&mut folder.command("serve --tcp x image")).status.code(), Some(2));
    let (status, _, stderr) = folder.with("image --partition 1", "true");
    assert_ne!((status, &*stderr), (0, ""));
    let (status, _, stderr) = folder.with(&format!("image --offset {}", SIZE + 1), "true");
    assert_eq!((status, stderr.contains("pass the end")), (2, true), "{stderr}");
}

/// The kernel's own client: ext4 made, filled, unmounted and checked over our decrypted view; and dm-crypt reads from the
/// image, byte for byte, what the server was given.
#[test]
fn the_kernels_client_and_dm_crypt() {
    let folder = Folder::new();
    for name in ["nbd-client", "mke2fs"] {
        if tool(name).is_none() {
            return;
        }
    }
    fs::File::create(folder.path().join("disk")).unwrap().set_len(64 << 20).unwrap();
    let key: String = folder.read("key").iter().map(|byte| format!("{byte:02x}")).collect();
    let here = folder.path().display();
    let script = format!(
        "ip link set lo up 2>/dev/null || busybox ifconfig lo up\n\
         modprobe -d $(dirname $(cat /proc/sys/kernel/modprobe))/modroot nbd nbds_max=2\n\
         busybox mdev -s\n\
         {CASEMATE} serve {CRYPT_ABSOLUTE} --key-file {here}/key --socket /run/sock {here}/disk >/run/uri 2>/run/log &\n\
         for i in $(seq 100); do [ -s /run/uri ] && break; sleep 0.1; done\n\
         nbd-client -unix /run/sock /dev/nbd0 -C 2\n\
         mke2fs -q -t ext4 /dev/nbd0\n\
         mkdir /run/m && mount /dev/nbd0 /run/m\n\
         for i in $(seq 40); do head -c 300000 /dev/urandom >/run/m/file$i; done\n\
         rm /run/m/file7 && fstrim /run/m 2>/dev/null || true\n\
         (cd /run/m && sha256sum file* >/run/sums)\n\
         umount /run/m && e2fsck -fn /dev/nbd0 >&2\n\
         sha256sum </dev/nbd0\n\
         nbd-client -d /dev/nbd0\n\
         kill -TERM %1 && wait %1\n\
         cat /run/log >&2\n\
         losetup /dev/loop0 {here}/disk\n\
         dmsetup create plain --table '0 131072 crypt aes-xts-plain64 {key} 0 /dev/loop0 0'\n\
         sha256sum </dev/mapper/plain\n\
         mount -o ro /dev/mapper/plain /run/m && cd /run/m && sha256sum -c --quiet /run/sums && echo same"
    );
    let Some(output) = Uml::new(script).run() else { return };
    let output = output.expect_success();
    let lines: Vec<&str> =
        output.stdout.lines().filter(|line| line.ends_with(" -") || *line == "same").collect();
    assert_eq!(lines.len(), 3, "{output:?}");
    assert_eq!((lines[0], lines[2]), (lines[1], "same"), "{output:?}");
}

const CRYPT_ABSOLUTE: &str = "--crypt aes-xts-plain64 --key-size 512";
