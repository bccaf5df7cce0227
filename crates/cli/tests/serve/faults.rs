//! Images, clients and servers that break.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use casemate_testkit::nbd::{Client, FUA, READ, TRIM};
use casemate_testkit::uml::Uml;
use casemate_testkit::{PATIENCE, Rng, comes_true, skip, slow_tests, tool};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{CASEMATE, CRYPT, Folder, Running, SIZE, writable};

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
    // A large request gets what is right, and hears where the rest would be.
    client.send(READ, 0, 4096, SIZE as u32 - 4096, &[]).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!((reply.error, &reply.bad[..]), (5, &[3 * 4096, 700 * 4096][..]));
    assert_eq!(reply.data.len(), SIZE - 4 * 4096);
    let mut reply_data = &reply.data[..];
    for (start, len) in reply.parts {
        let (data, rest) = reply_data.split_at(len);
        assert!(data == &image[start as usize..][..len]);
        reply_data = rest;
    }
    assert_eq!(client.write(0, &[1], 0), Err(1), "read-only");
    assert!(folder.log().contains("data block 3 does not match its hash tree"), "{}", folder.log());
    // In several runs of blocks that are hashed together, and all of them in one line.
    assert!(
        folder.log().contains("data blocks 3, 700 to 701 do not match its hash tree"),
        "{}",
        folder.log()
    );
    assert_eq!(running.end(), 0);
}

/// An image that was removed would lose what clients have written: a flush says so, and so does the end.
#[test]
fn an_image_that_was_removed_or_replaced_is_told() {
    let folder = Folder::new();
    let old = folder.read("image");
    let at = |name: &str| folder.path().join(name);
    for (options, file) in
        [("work", "work"), (&*format!("{CRYPT} work"), "work"), ("image --overlay ovl", "ovl")]
    {
        for asks in [true, false] {
            fs::write(at("work"), &old).unwrap();
            let _ = fs::remove_file(at("ovl"));
            let running = folder.start(options);
            let mut client = running.client();
            client.write(0, &[1; 4096], 0).unwrap();
            client.flush().unwrap();
            match asks {
                true => fs::remove_file(at(file)).unwrap(),
                false => fs::rename(at("enc"), at(file)).unwrap(),
            }
            if asks {
                assert_eq!(client.flush(), Err(5), "{options}");
            }
            fs::write(at("enc"), "").unwrap();
            assert_eq!((running.end(), options), (2, options));
            assert!(folder.log().contains("removed, or replaced by another file"), "{}", folder.log());
        }
    }
}

/// Writers are at work when the server is killed: what was flushed, or written with FUA, is there afterwards, and
/// everything else is old or new.
#[test]
fn what_was_flushed_survives_kill() {
    let folder = Folder::new();
    let zeros = vec![0; SIZE];
    fs::write(folder.path().join("zeros"), &zeros).unwrap();
    folder.casemate("crypt encrypt zeros start --key-file key --key-size 512");
    let rounds = if slow_tests() { 500 } else { 60 };
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
fn a_file_that_shrinks() {
    let folder = Folder::new();
    let verity = format!("--verity tree {}", folder.root);
    for (image, options) in [("image", ""), ("enc", CRYPT), ("image", &verity)] {
        fs::copy(folder.path().join(image), folder.path().join("work")).unwrap();
        let running = folder.start(&format!("{options} work"));
        let mut client = running.client();
        let whole = client.read(0, SIZE as u32).unwrap();
        let file = fs::OpenOptions::new().write(true).open(folder.path().join("work")).unwrap();
        file.set_len(SIZE as u64 / 2).unwrap();
        assert_eq!(client.read(SIZE as u64 - 512, 512), Err(5));
        assert_eq!(client.read(SIZE as u64 / 4, 4096).unwrap(), whole[SIZE / 4..][..4096]);
        // The half that is there comes with the error for the other.
        client.send(READ, 0, 0, SIZE as u32, &[]).unwrap();
        let reply = client.receive().unwrap();
        assert_eq!((reply.error, &reply.bad[..]), (5, &[SIZE as u64 / 2][..]));
        assert!(reply.data == whole[..SIZE / 2], "{options}");
        assert!(folder.log().contains("passes the end of the device"), "{}", folder.log());
        assert_eq!(running.end(), 0);
    }
}

/// A file system of one megabyte, in name spaces of its own, that holds an image or an image's changes.
#[test]
fn a_disk_that_fills() {
    for options in ["small/disk", "image --overlay small/changes"] {
        let folder = Folder::new();
        fs::create_dir(folder.path().join("small")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=1m none small && truncate -s 4M small/disk && exec {CASEMATE} serve --socket sock {options}{}",
            writable(options)
        );
        let errors = fs::File::create(folder.path().join("log")).unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(["-rm", "--propagation", "slave", "sh", "-c", &script]).current_dir(folder.path());
        let mut child = unshare.stderr(errors).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !folder.path().join("sock").exists() {
            if let Some(status) = child.try_wait().unwrap() {
                return skip(&format!("no user namespace: {status}: {}", folder.log()));
            }
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(10));
        }
        let running = Running { child, folder: folder.path().to_owned() };
        let mut client = running.client();
        let results: Vec<_> = (0..32).map(|k| client.write(k << 17, &[9; 1 << 17], 0)).collect();
        assert_eq!((&results[0], &results[31]), (&Ok(()), &Err(28)), "{options}: {results:?}");
        for (k, result) in results.iter().enumerate() {
            let found = client.read((k as u64) << 17, 1 << 17).unwrap();
            assert!(result.is_err() || found == [9; 1 << 17], "{options}: {k}");
        }
        // What was written can be made safe.
        assert_eq!(client.flush(), Ok(()));
        if options == "small/disk" {
            // Room that is given back can be used again.
            client.ask(TRIM, 0, 0, 1 << 17, &[]).unwrap();
            assert_eq!(client.write(31 << 17, &[9; 4096], 0), Ok(()));
        }
        assert_eq!(running.end(), 0);
    }
}

/// A device that fails in its middle, under a real kernel: only what lies there fails; and a flush that lost something is
/// never followed by one that succeeds, although the kernel's own second fsync does.
#[test]
fn a_real_device_that_fails() {
    let folder = Folder::new();
    for name in ["dmsetup", "qemu-io"] {
        if tool(name).is_none() {
            return;
        }
    }
    fs::File::create(folder.path().join("disk")).unwrap().set_len(32 << 20).unwrap();
    let here = folder.path().display();
    let script = format!(
        "dmsetup create bad <<END\n\
         0 8192 linear /dev/ubda 0\n\
         8192 64 error\n\
         8256 57280 linear /dev/ubda 8256\n\
         END\n\
         io() {{ qemu-io -f raw -c \"$1\" 'nbd+unix:///?socket=/run/sock' >/run/said 2>&1 && echo \"$1: done\" || echo \"$1: failed\"; }}\n\
         for crypt in '' '{CRYPT_WITHOUT_KEY} --key-file {here}/key'; do\n\
             {CASEMATE} serve --write $crypt --socket /run/sock /dev/mapper/bad >/run/uri 2>/run/log & s=$!\n\
             until [ -s /run/uri ]; do sleep 0.1; done\n\
             io 'read 0 4M'; io 'read 4M 32k'; io 'read 4100k 4k'; io 'read 3M 2M'; io 'read 4224k 8M'\n\
             io 'write -P 5 0 4M'; io 'write -f -P 6 5M 64k'; io 'flush'; io 'read -P 5 4032k 64k'\n\
             io 'write -f -P 7 4100k 4k'; io 'flush'; io 'flush'; io 'read -P 6 5M 64k'; io 'write -f -P 8 8M 4k'\n\
             kill -TERM $s; wait $s || echo \"ended with $?\"\n\
             cat /run/log >&2; rm -f /run/uri\n\
             {CASEMATE} serve --write $crypt --socket /run/sock /dev/mapper/bad >/run/uri & s=$!\n\
             until [ -s /run/uri ]; do sleep 0.1; done\n\
             io 'read -P 5 0 4M'; io 'read -P 6 5M 64k'; io 'flush'\n\
             kill -TERM $s; wait $s; rm -f /run/uri\n\
         done"
    );
    let Some(output) = Uml::new(script).disk(folder.path().join("disk"), false).run() else { return };
    let output = output.expect_success();
    let expected = "read 0 4M: done\nread 4M 32k: failed\nread 4100k 4k: failed\nread 3M 2M: failed\n\
        read 4224k 8M: done\nwrite -P 5 0 4M: done\nwrite -f -P 6 5M 64k: done\nflush: done\n\
        read -P 5 4032k 64k: done\nwrite -f -P 7 4100k 4k: failed\nflush: failed\nflush: failed\n\
        read -P 6 5M 64k: done\nwrite -f -P 8 8M 4k: failed\nended with 2\n\
        read -P 5 0 4M: done\nread -P 6 5M 64k: done\nflush: done\n";
    assert_eq!(output.stdout, expected.repeat(2), "{output:?}");
    assert!(
        output.stderr.contains("Read of 32768 bytes at 4194304: /dev/mapper/bad: Input/output error"),
        "{output:?}"
    );
    assert!(output.stderr.contains("an earlier flush failed"), "{output:?}");
}

const CRYPT_WITHOUT_KEY: &str = "--crypt aes-xts-plain64 --key-size 512";

/// A thousand clients that are served, a thousand that never finish the handshake, and one that must not notice.
#[test]
fn two_thousand_connections() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 4096) {
        return skip(&format!("no 4096 open files: {limit:?}"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let folder = Folder::new();
    // All of them are there at once, however long it takes until the last one is.
    let running = folder.start("image --max-clients 2001 --handshake-timeout 3600 --json");
    let image = folder.read("image");
    let mut one = running.client();
    let mut typical = || {
        let mut times: Vec<_> = (0..200)
            .map(|k| {
                let start = Instant::now();
                assert!(one.read(k * 4096, 4096).unwrap() == image[k as usize * 4096..][..4096]);
                start.elapsed()
            })
            .collect();
        times.sort();
        times[100]
    };
    let alone = typical();
    let silent: Vec<_> = (0..1000).map(|_| running.raw()).collect();
    let mut clients: Vec<Client> = (0..1000).map(|_| running.client()).collect();
    assert!(running.status("Threads:") >= 2000, "all are there at once");
    // The next one is let go at once, not kept waiting.
    let mut late = running.raw();
    assert_eq!(late.read(&mut [0; 18]).unwrap(), 0);
    // Other programs may be at work now, and were not before.
    let is_quick = || typical() < 10 * alone + Duration::from_millis(5);
    assert!(comes_true(is_quick), "{alone:?} alone, and more than ten times as much in the crowd");
    // All want a megabyte in pieces at once, and there is memory for a gibibyte of such requests.
    for client in &mut clients {
        for piece in 0..4 {
            client.send(READ, 0, piece << 18, 1 << 18, &[]).unwrap();
        }
    }
    for client in &mut clients {
        for _ in 0..4 {
            assert_eq!(client.receive().unwrap().data.len(), 1 << 18);
        }
    }
    let peak = running.status("VmHWM:") >> 10;
    assert!(peak < 1500, "{peak} MiB");
    drop(silent);
    let log = folder.log();
    assert!(log.contains("clients are refused from now on: 2001 are connected"), "{log}");
    drop(clients);
    assert_eq!(running.end(), 0);
}

/// Silent clients lose their places in time, to others.
#[test]
fn a_handshake_that_takes_too_long() {
    let folder = Folder::new();
    let running = folder.start("image --max-clients 20 --handshake-timeout 1");
    drop(running.client());
    let mut silent: Vec<_> = (0..20).map(|_| running.raw()).collect();
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The first client's place may not be free yet: the server lets one of these go without a word then.
        let said = std::io::copy(stream, &mut std::io::sink()).unwrap();
        assert!([0, 18].contains(&said), "{said}");
    }
    drop(running.client());
    assert_eq!(running.end(), 0);
}
