//! Clients that nobody here wrote.

use std::fs;
use std::process::Command;

use casemate_testkit::uml::Uml;
use casemate_testkit::{Rng, run, tool};

use crate::{CASEMATE, CRYPT, Folder, SIZE};

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
        // The last job's writes have any length and place. Without serialize_overlap some that are in flight together
        // overlap, their order is nobody's promise, and fio's expectation fails now and then, with qemu-nbd and with
        // nbdkit's memory plugin as well.
        let script = "u=\"nbd+unix:///?socket=$unixsocket\"\n\
            qemu-img convert -n -f raw -O raw new \"$u\"\n\
            qemu-io -f raw -c 'write -P 7 1000 3000' -c 'write -f -P 8 70000 200' -c 'write -z 1M 64k' -c 'discard 2M 64k' \
                -c flush -c 'read -P 7 1000 3000' -c 'read -P 8 70000 200' -c 'read -P 0 1M 64k' \"$u\" >qemu-io\n\
            ! grep -i -e failed -e error qemu-io\n\
            for bs in 1k 4k 64k; do\n\
                fio --name=x --ioengine=nbd --uri=\"$uri\" --rw=randwrite --bs=$bs --iodepth=16 --size=2m \
                    --verify=crc32c --do_verify=1 --output=fio\n\
            done\n\
            fio --name=x --ioengine=nbd --uri=\"$uri\" --rw=randwrite --bsrange=1k-64k --bs_unaligned=1 --norandommap \
                --serialize_overlap=1 --iodepth=16 --size=2m --io_size=16m --verify=crc32c --do_verify=1 --output=fio";
        folder.expect(&options, script);
    }
    // What was written through the mapping is what the crypt command makes of the same plaintext.
    folder.expect(&format!("{CRYPT} enc"), "nbdcopy new \"$uri\"");
    folder.casemate("crypt encrypt new expected --key-file key --key-size 512");
    assert!(folder.read("enc") == folder.read("expected"));
}

/// qemu-nbd stands between: a client of ours, and a server for others.
#[test]
fn qemu_nbd_as_a_peer() {
    for name in ["nbdcopy", "qemu-nbd", "qemu-img"] {
        if tool(name).is_none() {
            return;
        }
    }
    let script = "peer() { qemu-nbd --fork --pid-file=$PWD/pid --socket=$PWD/peer -f raw \"$@\"; }\n\
        leave() { p=$(cat pid); kill $p; while kill -0 $p 2>/dev/null; do sleep 0.05; done; }\n\
        ours=\"nbd+unix:///?socket=$unixsocket\"; theirs=\"nbd+unix:///?socket=$PWD/peer\"\n\
        peer --read-only \"$ours\"; nbdcopy \"$theirs\" copy; cmp image copy; leave\n\
        peer \"$ours\"; qemu-img compare -f raw -F raw \"$theirs\" image; leave\n\
        peer --cache=none --discard=unmap \"$ours\"; nbdcopy --flush new \"$theirs\"; leave\n\
        nbdcopy \"$uri\" copy; cmp new copy";
    for options in ["image".to_owned(), format!("{CRYPT} enc")] {
        let folder = Folder::new();
        fs::write(folder.path().join("new"), Rng::new(10).bytes(SIZE)).unwrap();
        fs::copy(folder.path().join("image"), folder.path().join("plain")).unwrap();
        folder.expect(&options, &script.replace("image", "plain"));
    }
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
    // qemu has TLS of its own.
    if tool("qemu-img").is_none() {
        return;
    }
    let script = format!(
        "set -- --object tls-creds-x509,id=t,endpoint=client,dir={certificates}\n\
         qemu-img convert \"$@\" --image-opts driver=nbd,host=127.0.0.1,port=$port,tls-creds=t -O raw copy\n\
         cmp image copy"
    );
    folder.expect(&format!("--tcp 0 {tls} image"), &script);
    let (status, _, stderr) = folder.with("--tls on --tls-certificates other image", "true");
    assert_eq!((status, stderr.contains("server-key.pem")), (2, true), "{stderr}");
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
    let (root, mut image) = (&folder.root, folder.read("image"));
    let right = [&image[2 * 4096..3 * 4096], &image[5 * 4096..6 * 4096]].concat();
    fs::write(folder.path().join("right"), right).unwrap();
    let right = run(Command::new("sha256sum").arg(folder.path().join("right")));
    for block in [3, 4] {
        image[block * 4096] ^= 1;
    }
    fs::write(folder.path().join("image"), image).unwrap();
    let key: String = folder.read("key").iter().map(|byte| format!("{byte:02x}")).collect();
    let here = folder.path().display();
    let script = format!(
        "ip link set lo up 2>/dev/null || busybox ifconfig lo up\n\
         modprobe -d $(dirname $(cat /proc/sys/kernel/modprobe))/modroot nbd nbds_max=2\n\
         busybox mdev -s\n\
         {CASEMATE} serve --write {CRYPT_ABSOLUTE} --key-file {here}/key --socket /run/sock {here}/disk >/run/uri 2>/run/log & s=$!\n\
         until [ -s /run/uri ]; do sleep 0.1; done\n\
         nbd-client -unix /run/sock /dev/nbd0 -C 2\n\
         mke2fs -q -t ext4 /dev/nbd0\n\
         mkdir /run/m && mount /dev/nbd0 /run/m\n\
         for i in $(seq 40); do head -c 300000 /dev/urandom >/run/m/file$i; done\n\
         rm /run/m/file7 && fstrim /run/m 2>/dev/null || true\n\
         (cd /run/m && sha256sum file* >/run/sums)\n\
         umount /run/m && e2fsck -fn /dev/nbd0 >&2\n\
         sha256sum </dev/nbd0\n\
         nbd-client -d /dev/nbd0\n\
         kill -TERM $s; wait $s\n\
         cat /run/log >&2\n\
         {CASEMATE} serve --verity {here}/tree {root} --socket /run/sock2 {here}/image >/run/uri2 2>/run/log2 &\n\
         until [ -s /run/uri2 ]; do sleep 0.1; done\n\
         nbd-client -unix /run/sock2 /dev/nbd1 -C 1\n\
         for i in 2 3 4 5; do dd if=/dev/nbd1 bs=4096 skip=$i count=1 iflag=direct >/run/block$i 2>/dev/null || echo bad $i; done\n\
         dd if=/dev/nbd1 bs=4096 conv=noerror of=/dev/null 2>&1 | grep -c 'error reading'\n\
         cat /run/log2 >&2; for i in 2 5; do cat /run/block$i; done | sha256sum | cut -d ' ' -f 1\n\
         nbd-client -d /dev/nbd1\n\
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
    // Damaged blocks cost the kernel those alone, and are named.
    let (right, _) = right.split_once(' ').unwrap();
    let expected = format!("bad 3\nbad 4\n2\n{right}\n");
    assert!(output.stdout.contains(&expected), "{expected}{output:?}");
    for text in ["data block 3 does not match", "data block 4 does not match"] {
        assert!(output.stderr.contains(text), "{output:?}");
    }
}

const CRYPT_ABSOLUTE: &str = "--crypt aes-xts-plain64 --key-size 512";
