//! Many data units in one cipher call beside a call for each unit: AES-XTS, units of 512 bytes.
//!
//! Three contestants do the same but for the cipher calls: "batched" has one for a request, "one by one" has the same
//! cipher for each unit, "openssl" is OpenSSL's EVP for each unit, as most programs do it. The device is driven first in
//! this process, on images in memory of it and in a file, then over NBD in processes of their own. Contestants take
//! turns in many short rounds, every second time in the opposite order. What is shown are medians of the rounds'
//! ratios.
//!
//! Arguments: the folder [/dev/shm], MiB [128], rounds [41], milliseconds for each measurement over NBD [20], and words
//! that select rows, such as "device" or "random" [all].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate_benches::nbd::{Contestant, Load, own_time, write_image};
use casemate_benches::{Probe, median};
use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_crypt::{Params, SectorCipher};
use casemate_nbd::tls::Tls;
use casemate_nbd::{Export, Limits, Listener, Server};
use casemate_primitives::testing::Rng;
use casemate_providers::Providers;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

const NAMES: [&str; 3] = ["batched", "one by one", "openssl"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, how, image, socket] = &args[..]
        && serve == "serve"
    {
        let image = FileDevice::open_writable(image).expect("the image");
        let how = NAMES.iter().position(|name| name.replace(' ', "-") == *how).expect("a contestant");
        run_server(Units::new(image, how), Path::new(socket));
    }
    let folder = PathBuf::from(args.first().map_or("/dev/shm", String::as_str)).join("casemate-bench-units");
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (mib, rounds, time) = (number(1, 128), number(2, 41), Duration::from_millis(number(3, 20)));
    let words: Vec<&str> = args.iter().skip(4).map(String::as_str).collect();
    let selected = |name: &str| words.iter().all(|word| name.split(' ').any(|part| part == *word));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    let image = folder.join("image");
    let chunk = write_image(&image, mib);
    encrypt(&image, mib);
    let reference = fs::read(&image).expect("the image");

    println!("{mib} MiB in {}, {rounds} rounds; before: {}", folder.display(), Probe::measure());
    println!(
        "MB/s, and in brackets the CPU time in ns for each KiB; batched beside the others: throughput, CPU time"
    );
    println!("| request | {} | beside one by one | beside openssl |", NAMES.join(" | "));
    println!("|---|{}", "---:|".repeat(NAMES.len() + 2));
    for kind in ["memory", "file"] {
        let open = || -> Box<dyn BlockDevice> {
            match kind {
                "memory" => Box::new(MemoryDevice::new(reference.clone())),
                _ => Box::new(FileDevice::open_writable(&image).expect("the image")),
            }
        };
        let contestants: Vec<_> = (0..NAMES.len()).map(|how| Units::new(open(), how)).collect();
        for device in &contestants {
            let mut all = vec![0; 1 << 20];
            for at in 0..mib {
                device.read_at(&mut all, at << 20).expect("a read");
                assert!(all == chunk, "MiB {at} is wrong");
            }
        }
        for load in Load::all(&[4 << 10, 128 << 10]).into_iter().filter(|load| load.random && load.depth == 1)
        {
            let (what, kib) = (if load.write { "write" } else { "read" }, load.size >> 10);
            let name = format!("device in {kind}: random {what} {kib} KiB");
            if selected(&name) {
                let mut rng = Rng::new(3);
                race(&name, rounds, |how| drive(&contestants[how], load, &mut rng, &chunk));
            }
        }
    }
    let own = std::env::current_exe().expect("this program").display().to_string();
    let mut servers = NAMES.map(|name| {
        let (how, socket) = (name.replace(' ', "-"), folder.join(name.replace(' ', "-")));
        let line = format!("{own} serve {how} {} {}", image.display(), socket.display());
        Contestant::start(name, &line, &socket, &chunk)
    });
    servers.iter_mut().for_each(|server| server.check(mib));
    for load in Load::all(&[4 << 10, 128 << 10]) {
        let name = format!("NBD {}", load.name());
        if selected(&name) {
            race(&name, rounds, |how| {
                let speed = servers[how].measure(load, time);
                (speed.throughput, speed.server)
            });
        }
    }
    servers.iter_mut().for_each(|server| server.check(mib));
    assert!(fs::read(&image).expect("the image") == reference, "what was written is what was there");
    drop(servers);
    let _ = fs::remove_dir_all(&folder);
}

/// Prints a row of what `measure` says of the contestants: MB/s, and ns of CPU time for each KiB.
fn race(name: &str, rounds: u64, mut measure: impl FnMut(usize) -> (f64, f64)) {
    let mut results = [const { Vec::new() }; NAMES.len()];
    for round in 0..rounds {
        for k in 0..NAMES.len() {
            let k = if round % 2 == 0 { k } else { NAMES.len() - 1 - k };
            results[k].push(measure(k));
        }
    }
    let middle = |k: usize, part: fn(&(f64, f64)) -> f64| median(results[k].iter().map(part).collect());
    let cell =
        |k: usize| format!("{:.0} ({:.0})", middle(k, |result| result.0), middle(k, |result| result.1));
    let change = |k: usize, part: fn(&(f64, f64)) -> f64| {
        let each = results[0].iter().zip(&results[k]).map(|(own, other)| part(own) / part(other));
        100.0 * (median(each.collect()) - 1.0)
    };
    let beside =
        |k: usize| format!("{:+.0} %, {:+.0} %", change(k, |result| result.0), change(k, |result| result.1));
    println!("| {name} | {} | {} | {} | {} | {} |", cell(0), cell(1), cell(2), beside(1), beside(2));
}

/// Requests to a device from one thread, for about 5 ms.
fn drive(device: &dyn BlockDevice, load: Load, rng: &mut Rng, chunk: &[u8]) -> (f64, f64) {
    let mut buf = vec![0; load.size];
    let requests = (8 << 20) / load.size as u64;
    let blocks = device.size() / load.size as u64;
    let (start, cpu) = (Instant::now(), own_time());
    for _ in 0..requests {
        let offset = rng.below(blocks) * load.size as u64;
        if load.write {
            // As a server gets it from its client.
            buf.copy_from_slice(&chunk[offset as usize % chunk.len()..][..load.size]);
            device.write_from(&mut buf, offset).expect("a write");
        } else {
            device.read_at(&mut buf, offset).expect("a read");
        }
    }
    let bytes = (requests * load.size as u64) as f64;
    let cpu = (own_time() - cpu).as_nanos() as f64;
    (bytes / start.elapsed().as_secs_f64() / 1e6, cpu / (bytes / 1024.0))
}

fn key() -> [u8; 64] {
    std::array::from_fn(|i| i as u8)
}

fn own_cipher() -> SectorCipher {
    let params = Params::new("aes-xts-plain64".parse().expect("a specification"));
    SectorCipher::new(&params, &key(), &Providers::default()).expect("a cipher")
}

fn encrypt(image: &Path, mib: u64) {
    let device = FileDevice::open_writable(image).expect("the image");
    let mut buf = vec![0; 1 << 20];
    for at in 0..mib {
        device.read_at(&mut buf, at << 20).expect("a read");
        own_cipher().encrypt(at << 11, &mut buf).expect("whole sectors");
        device.write_at(&buf, at << 20).expect("a write");
    }
}

/// An encrypted device.
struct Units<D> {
    device: D,
    how: How,
}

enum How {
    Batched(SectorCipher),
    OneByOne(SectorCipher),
    /// Contexts of threads that are not at work, for each direction.
    OpenSsl([Mutex<Vec<CipherCtx>>; 2]),
}

impl<D> Units<D> {
    fn new(device: D, how: usize) -> Units<D> {
        let how = match how {
            0 => How::Batched(own_cipher()),
            1 => How::OneByOne(own_cipher()),
            _ => How::OpenSsl(Default::default()),
        };
        Units { device, how }
    }

    fn run(&self, encrypt: bool, offset: u64, data: &mut [u8]) {
        let first = offset / 512;
        let own = |cipher: &SectorCipher, sector, data: &mut [u8]| {
            let done = if encrypt { cipher.encrypt(sector, data) } else { cipher.decrypt(sector, data) };
            done.expect("whole sectors");
        };
        match &self.how {
            How::Batched(cipher) => own(cipher, first, data),
            How::OneByOne(cipher) => {
                (first..).zip(data.chunks_mut(512)).for_each(|(sector, unit)| own(cipher, sector, unit));
            }
            How::OpenSsl(spare) => {
                let spare = &spare[usize::from(encrypt)];
                let context = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let mut context = context.unwrap_or_else(|| {
                    let mut context = CipherCtx::new().expect("a context");
                    let (cipher, key) = (Some(Cipher::aes_256_xts()), key());
                    let done = match encrypt {
                        true => context.encrypt_init(cipher, Some(&key), None),
                        false => context.decrypt_init(cipher, Some(&key), None),
                    };
                    done.expect("a key of the cipher's length");
                    context
                });
                for (sector, unit) in (first..).zip(data.chunks_mut(512)) {
                    let iv = u128::from(sector).to_le_bytes();
                    let done = match encrypt {
                        true => context.encrypt_init(None, None, Some(&iv)),
                        false => context.decrypt_init(None, None, Some(&iv)),
                    };
                    done.expect("an IV of 16 bytes");
                    context.cipher_update_inplace(unit, 512).expect("a unit");
                }
                spare.lock().unwrap_or_else(PoisonError::into_inner).push(context);
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for Units<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.device)
    }
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.device.read_at(buf, offset)?;
        self.run(false, offset, buf);
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> casemate_blockdev::Result<()> {
        unreachable!("the server writes with write_from");
    }
    fn write_from(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.run(true, offset, buf);
        self.device.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        self.device.flush()
    }
}

fn run_server(device: impl BlockDevice + 'static, socket: &Path) -> ! {
    let export = Arc::new(Export::new(Arc::new(device), "", false, 4096));
    let listener = Listener::unix(socket).expect("a socket");
    let _server =
        Server::start(listener, vec![export], Tls::off(), Limits::default(), |text| eprintln!("{text}"));
    loop {
        std::thread::park();
    }
}
