//! A real kernel's dm-crypt on the other side: what it writes is read here, and the reverse.

use std::fmt::Write;

use casemate_crypt::{SectorCipher, Table};
use casemate_primitives::Cpu;
use casemate_providers::Providers;
use casemate_testkit::uml::Uml;
use casemate_testkit::{Rng, slow_tests, tempdir};

/// Sectors of 512 bytes in each mapping.
const SECTORS: usize = 64;

/// Every IV mode that the kernel of the test knows, with a key's length and the sector sizes that it takes.
const CASES: &[(&str, usize, &[&str])] = &[
    ("aes-xts-plain64", 64, ALL),
    ("aes-xts-plain64", 32, ALL),
    ("aes-xts-plain64be", 64, ALL),
    ("aes-xts-plain", 64, ALL),
    ("aes-cbc-essiv:sha256", 32, ALL),
    ("capi:essiv(cbc(aes),sha256)-plain64", 16, ALL),
    ("aes-xts-essiv:sha256", 64, ALL),
    ("capi:essiv(xts(aes),sha256)-plain64", 32, ALL),
    ("aes-cbc-plain64", 24, ALL),
    ("aes-cbc-benbi", 16, ALL),
    ("aes-lrw-benbi", 32, ALL),
    ("aes-cbc-null", 32, ALL),
    ("aes-cbc-eboiv", 32, ALL),
    ("aes-cbc-elephant", 64, ALL),
    ("aes-cbc-elephant", 32, ALL),
    ("aes:4-cbc-plain64", 64, ALL),
    ("aes:64-cbc-lmk", 64 * 16, SMALL),
    ("aes:64-cbc-lmk", 65 * 16, SMALL),
    ("aes-cbc-tcw", 64, SMALL),
    ("aes-ecb", 32, ALL),
    ("aes-ctr-plain64", 32, ALL),
    ("cipher_null-ecb", 0, SMALL),
    ("serpent-xts-plain64", 64, ALL),
    ("twofish-xts-plain64", 64, ALL),
    ("camellia-xts-plain64", 64, ALL),
    ("twofish-cbc-essiv:sha256", 32, ALL),
    ("cast6-xts-plain64", 64, ALL),
    ("cast6-cbc-essiv:sha256", 32, ALL),
    ("cast5-cbc-plain64", 16, ALL),
    ("des3_ede-cbc-plain64", 24, ALL),
    ("blowfish-cbc-plain64", 32, ALL),
    ("xchacha12,aes-adiantum-plain64", 32, ALL),
    ("xchacha20,aes-adiantum-plain64", 32, ALL),
];
const ALL: &[&str] = &[
    "",
    "1 sector_size:1024",
    "1 sector_size:2048",
    "1 sector_size:4096",
    "2 sector_size:2048 iv_large_sectors",
    "2 sector_size:4096 iv_large_sectors",
];
const SMALL: &[&str] = &[""];

#[test]
fn the_kernel_reads_what_we_write_and_the_reverse() {
    let mut rng = Rng::new(42);
    let plaintext = rng.bytes(SECTORS * 512);
    let providers = Providers::default();
    let mut tables = Vec::new();
    for (number, (spec, key_len, options)) in CASES.iter().enumerate() {
        for (choice, options) in options.iter().enumerate() {
            // The first form always; of the others the whole table only where time does not matter.
            if choice > 0 && number > 0 && choice != 1 + number % (ALL.len() - 1) && !slow_tests() {
                continue;
            }
            let key: String = rng.bytes(*key_len).iter().map(|byte| format!("{byte:02x}")).collect();
            let key = if key.is_empty() { "-".to_owned() } else { key };
            // Around 2^32, where plain IVs wrap.
            let iv_offset = if rng.below(2) == 0 { (1u64 << 32) - 24 } else { rng.below(1 << 40) / 8 * 8 };
            // Two areas for each case: the first for the kernel to write, the second for it to read.
            let offset = tables.len() * 2 * SECTORS;
            let line = format!("0 {SECTORS} crypt {spec} {key} {iv_offset} /dev/ubda {offset} {options}");
            tables.push(line.trim_end().parse::<Table>().unwrap());
        }
    }
    let folder = tempdir().unwrap();
    let (disk, plain) = (folder.path().join("disk"), folder.path().join("plain"));
    let mut image = vec![0; tables.len() * 2 * SECTORS * 512];
    for (table, areas) in tables.iter().zip(image.chunks_mut(2 * SECTORS * 512)) {
        let area = &mut areas[SECTORS * 512..];
        area.copy_from_slice(&plaintext);
        cipher(table, &providers).encrypt(0, area).unwrap();
    }
    std::fs::write(&disk, &image).unwrap();
    std::fs::write(&plain, &plaintext).unwrap();
    let mut script = format!("plain={}\n", plain.display());
    let line = |table: &Table| String::from_utf8(table.with_key().expose().to_vec()).unwrap();
    for table in &tables {
        let mut reading: Table = line(table).parse().unwrap();
        reading.offset += SECTORS as u64;
        let spec = &table.params.spec;
        write!(
            script,
            "dmsetup create c --table '{}'\ncat $plain >/dev/mapper/c\nsync\ndmsetup remove c\n\
             dmsetup create c --table '{}'\ncmp $plain /dev/mapper/c || echo 'differs: {spec}'\ndmsetup remove c\n",
            line(table),
            line(&reading),
        )
        .unwrap();
    }
    let Some(output) = Uml::new(script).disk(&disk, false).run() else { return };
    let output = output.expect_success();
    assert_eq!(output.stdout, "", "what casemate wrote, read by the kernel: {}", output.stderr);
    let image = std::fs::read(&disk).unwrap();
    for (table, areas) in tables.iter().zip(image.chunks(2 * SECTORS * 512)) {
        let mut area = areas[..SECTORS * 512].to_vec();
        assert!(area != plaintext || table.key.is_empty(), "{table}: the kernel wrote ciphertext");
        cipher(table, &providers).decrypt(0, &mut area).unwrap();
        assert!(area == plaintext, "what the kernel wrote, read by casemate: {table}");
    }
}

fn cipher(table: &Table, providers: &Providers) -> SectorCipher {
    SectorCipher::new(&table.params, table.key.expose(), providers)
        .unwrap_or_else(|error| panic!("{table}: {error}"))
}

#[test]
fn a_quarter_gigabyte_is_the_same_batched_and_sector_by_sector() {
    let params = casemate_crypt::Params::new("aes-xts-plain64".parse().unwrap());
    let cipher =
        SectorCipher::new(&params, &std::array::from_fn::<u8, 64, _>(|i| i as u8), &Providers::default())
            .unwrap();
    assert!(cipher.batches_sectors() || Cpu::detect() == Cpu::portable());
    let hash = Providers::default().hash("sha256").unwrap();
    let mut batched = vec![0x17; 256 << 20];
    let mut digest_of = |work: &dyn Fn(&mut [u8])| {
        batched.fill(0x17);
        work(&mut batched);
        hash.digest(&batched)
    };
    // A first sector such that the counter carries across 32 bits on the way.
    let first = (1 << 32) - 1000;
    let together = digest_of(&|data| cipher.encrypt(first, data).unwrap());
    let one_by_one = digest_of(&|data| {
        for (k, sector) in data.chunks_mut(512).enumerate() {
            cipher.encrypt(first + k as u64, sector).unwrap();
        }
    });
    assert_eq!(together, one_by_one);
}
