//! Writes of clients of `serve`: into the image, through dm-crypt, or into an overlay.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use casemate::blockdev::BlockDevice;
use casemate::crypt::{Mapping, Params};
use casemate::integrity::{FormatOptions, IntegrityOptions};
use casemate::target::Made;
use casemate::{Access, Image, Providers, SecretVec, Target, Work};
use casemate_testkit::power::{Files, State, write_folder};
use casemate_testkit::{Rng, nbd};

use crate::{Judge, Outcome, Session, retry, scratch};

/// Sectors of the image.
const SECTORS: u64 = 512;
/// Number of writes of a client, with a flush now and then.
const WRITES: u32 = 60;
const CLIENT: &str = "CASEMATE_POWER_CLIENT";

/// A write of the client's: which sectors get its number.
fn writes() -> Vec<(u64, u64, bool)> {
    let mut rng = Rng::new(12);
    let one = |_| {
        let len = 1 + rng.below(20);
        // Few places, so that they are written again and again; the image's end among them.
        let start = [0, 5, 17, 100, SECTORS - 24][rng.below(5) as usize] + rng.below(4);
        (start, len, rng.below(5) == 0)
    };
    (1..=WRITES).map(one).collect()
}

/// The client, in a process of its own: it notes in a file, which it flushes, what the server has said is stable.
#[test]
fn client() {
    let Ok(socket) = std::env::var(CLIENT) else { return };
    let mut client = nbd::Client::connect_when_there(socket);
    let notes = File::options().write(true).open("notes").unwrap();
    for (number, (start, len, flush)) in (1u32..).zip(writes()) {
        let bytes = number.to_le_bytes().repeat(128 * len as usize);
        client.write(start * 512, &bytes, 0).unwrap();
        if flush {
            client.flush().unwrap();
            notes.write_all_at(&number.to_le_bytes(), 0).unwrap();
            notes.sync_data().unwrap();
        }
    }
}

/// The numbers that a sector may have: 0 for none, and those of the writes to it, with what was stable at least.
fn judge<'a>(open: impl Fn(&Path) -> Result<Image, String> + 'a) -> Judge<'a> {
    let place = scratch();
    let mut history: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (number, (start, len, _)) in (1u32..).zip(writes()) {
        for sector in start..start + len {
            history.entry(sector).or_default().push(number);
        }
    }
    Box::new(move |_, state: &State| {
        let stable = match state.ended {
            true => WRITES,
            false => u32::from_le_bytes(state.files["notes"][..4].try_into().unwrap()),
        };
        write_folder(place.path(), &state.files);
        let image = open(place.path())?;
        let mut bytes = vec![0; (SECTORS * 512) as usize];
        image.device().read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        let mut newest = 0;
        for (number, sector) in (0..).zip(bytes.chunks(512)) {
            let found = u32::from_le_bytes(sector[..4].try_into().unwrap());
            if sector.chunks(4).any(|word| word != found.to_le_bytes()) {
                return Err(format!("sector {number} is not what any write made it"));
            }
            let empty = Vec::new();
            let history = history.get(&number).unwrap_or(&empty);
            let least = history.iter().copied().filter(|write| *write <= stable).max().unwrap_or(0);
            if found < least || found != 0 && !history.contains(&found) {
                return Err(format!("sector {number} has write {found}, and write {least} was stable"));
            }
            newest = newest.max(found);
        }
        let last: BTreeMap<u64, u32> =
            history.iter().map(|(sector, writes)| (*sector, writes[writes.len() - 1])).collect();
        let all = last
            .iter()
            .all(|(sector, write)| bytes[(*sector * 512) as usize..].starts_with(&write.to_le_bytes()));
        Ok(match newest {
            0 => Outcome::Before,
            _ if all => Outcome::After,
            _ => Outcome::Between,
        })
    })
}

fn mapping(key: &[u8]) -> Mapping {
    let mut secret = SecretVec::zeroed(key.len());
    secret.expose_mut().copy_from_slice(key);
    let params = Params::new("aes-xts-plain64".parse().unwrap());
    Mapping::new(params, secret, 0, &Providers::default()).unwrap()
}

/// A dm-integrity volume with a journal that is gone round many times.
fn volume() -> Vec<u8> {
    let disk =
        Arc::new(casemate::blockdev::MemoryDevice::new(vec![0; (SECTORS * 512) as usize + (256 << 10)]));
    let mut options = FormatOptions::new(4, [1; 16]);
    options.journal_size = Some(64 << 10);
    let image = Image::over("volume", Arc::clone(&disk) as _);
    let image = Target::on(image, Made::Data, &casemate::target::refuse).unwrap();
    IntegrityOptions::default().format(&image, &options, None, &Work::default()).unwrap();
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_was_flushed_to_a_served_image_stays() {
    let keys = scratch();
    let key = Rng::new(2).bytes(64);
    let key_file = keys.path().join("key");
    fs::write(&key_file, &key).unwrap();
    let client = keys.path().join("client");
    let myself = std::env::current_exe().unwrap();
    let script =
        format!("#!/bin/sh\n{CLIENT}=$unixsocket exec {} blocks::client --exact >&2\n", myself.display());
    fs::write(&client, script).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let crypt = format!("--crypt aes-xts-plain64 --key-size 512 --key-file {}", key_file.display());
    for (name, options) in [
        ("serve", ""),
        ("serve --crypt", &crypt),
        ("serve --overlay", "--overlay overlay"),
        ("serve --dm-integrity", "--dm-integrity crc32c"),
    ] {
        let mut session = Session::new(name);
        let mut zeros = vec![0; (SECTORS * 512) as usize];
        if name.ends_with("crypt") {
            let device = casemate::blockdev::MemoryDevice::new(zeros);
            mapping(&key).over(&device).unwrap().write_zeroes(0, SECTORS * 512, false).unwrap();
            zeros = device.into_bytes();
        }
        if name.ends_with("integrity") {
            zeros = volume();
        }
        fs::write(session.path().join("image"), zeros).unwrap();
        fs::write(session.path().join("notes"), [0; 4]).unwrap();
        let open = |folder: &Path| {
            let access = if name.ends_with("overlay") { Access::Read } else { Access::Change };
            let image = retry(|| Image::open(folder.join("image"), access))?;
            match name {
                "serve --crypt" => image.crypt(mapping(&key)),
                "serve --dm-integrity" => {
                    image.integrity(None, &IntegrityOptions::default(), &Providers::default())
                }
                // Who has no overlay yet has nothing in it.
                "serve --overlay" if folder.join("overlay").exists() => {
                    return retry(|| {
                        image
                            .clone()
                            .overlay_on_trust(&folder.join("overlay"), &casemate::Providers::default())
                    });
                }
                _ => Ok(image),
            }
            .map_err(|error| error.to_string())
        };
        let write = if options.contains("--overlay") { "" } else { "--write" };
        let line = format!("serve image {write} {options} --exec {}", client.display());
        let again = line.replace(&client.display().to_string(), "true");
        if !session.cut(100, &line, &again, |_: &Files, _: &Files| judge(open)) {
            return;
        }
        session.end(60);
    }
}
