//! Layers made of words, and words of layers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use casemate_blockdev::inputs;
use casemate_blockdev::os::{OsStrExt, OsStringExt};
use casemate_fscrypt::KeyId;
use casemate_verity::dm::{BlockSize, HashType, Salt};

use super::grammar::{Group, Writing, at_word, read_word, split, wrong};
use super::{
    CryptSpec, FileSystemSpec, HashPartition, ImageSpec, IntegritySpec, KeyFile, KeyPlace, LayerSpec,
    LuksSpec, VeritySpec,
};
use crate::crypt::MappingOptions;
use crate::{Error, hex, units};

pub fn parse(text: &OsStr) -> Result<ImageSpec, Error> {
    let (file, groups) = split(text)?;
    let mut spec = ImageSpec::of_file(file);
    for group in groups {
        let layer = match group.kind.name {
            "partition" => LayerSpec::Partition(read_word(&group.head, str::parse)?),
            "offset" => LayerSpec::Window {
                offset: read_word(&group.head, units::bytes)?,
                size: group.read("size", units::bytes)?,
            },
            "crypt" => LayerSpec::Crypt(crypt(&group)?),
            "luks" => LayerSpec::Luks(luks(&group)?),
            "integrity" => LayerSpec::Integrity(integrity(&group)?),
            "verity" => LayerSpec::Verity(verity(&group)?),
            _ => {
                spec.file_system = file_system(&group)?;
                continue;
            }
        };
        spec.layers.push(layer);
    }
    Ok(spec)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "its value is not a number that it takes".to_owned())
}

fn times(text: &str) -> Result<u32, String> {
    number(text).and_then(|times| if times > 0 { Ok(times) } else { Err("it is at least 1".to_owned()) })
}

fn path(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from)
}

fn key(group: &Group) -> Result<KeyPlace, Error> {
    group.one_of(&["key-file", "key-fd"])?;
    group.needs("keyfile-offset", &["key-file", "key-fd"])?;
    let from = group.read("keyfile-offset", units::bytes)?.unwrap_or(0);
    Ok(match (path(group.value("key-file")), group.read("key-fd", number)?) {
        (Some(path), _) => KeyPlace::File(path, from),
        (None, Some(number)) => {
            // The image is opened later, and outputs may be before that.
            inputs::keep_descriptor(number);
            KeyPlace::Descriptor(number, from)
        }
        (None, None) => KeyPlace::Asked,
    })
}

fn crypt(group: &Group) -> Result<CryptSpec, Error> {
    let mut spec = CryptSpec { table: path(group.value("table")), ..CryptSpec::default() };
    let mut options = MappingOptions::default();
    options.allow_equal_halves = group.has("allow-equal-halves");
    for driver in group.values("provider") {
        options.drivers.push(driver.into_string().map_err(|_| wrong("a driver's name is not valid UTF-8"))?);
    }
    match (&spec.table, &group.head.value) {
        (Some(_), Some(_)) => return Err(at_word(&group.head, "with 'table' it takes no value")),
        (None, None) => {
            let text = "a value is missing: crypt=SPEC, such as crypt=aes-xts-plain64, or crypt,table=FILE";
            return Err(at_word(&group.head, text));
        }
        (Some(_), None) => {
            for name in [
                "key-file",
                "key-fd",
                "keyfile-offset",
                "key-size",
                "passphrase-hash",
                "crypt-offset",
                "skip",
                "sector-size",
                "iv-large-sectors",
            ] {
                group.one_of(&["table", name])?;
            }
        }
        (None, Some(_)) => {
            options.cipher = read_word(&group.head, |text| Ok(text.to_owned()))?;
            spec.key = key(group)?;
            for name in ["key-file", "key-fd"] {
                group.one_of(&[name, "passphrase-hash"])?;
            }
            options.key_bits = group.read("key-size", number)?;
            if let Some(hash) = group.text("passphrase-hash")? {
                options.passphrase_hash = hash;
            }
            options.offset = group.read("crypt-offset", units::sectors)?.unwrap_or(0);
            options.iv_offset = group.read("skip", number)?.unwrap_or(0);
            options.sector_size = group.read("sector-size", units::bytes)?.unwrap_or(options.sector_size);
            options.iv_large_sectors = group.has("iv-large-sectors");
        }
    }
    spec.options = options;
    Ok(spec)
}

fn luks(group: &Group) -> Result<LuksSpec, Error> {
    group.one_of(&["volume-key-file", "key-file"])?;
    group.one_of(&["volume-key-file", "key-fd"])?;
    group.needs("mac-key-file", &["policy"])?;
    group.needs("overwrite", &["header"])?;
    Ok(LuksSpec {
        key: key(group)?,
        volume_key_file: path(group.value("volume-key-file")),
        header: path(group.value("header")),
        key_slot: group.read("key-slot", number)?,
        kdf_limit: group.read("kdf-limit", times)?.unwrap_or(1),
        policy: path(group.value("policy")),
        mac_key_file: path(group.value("mac-key-file")),
        overwrite: group.has("overwrite"),
    })
}

fn integrity(group: &Group) -> Result<IntegritySpec, Error> {
    let sealed = |name: &str| {
        let file = format!("{name}-key-file");
        group.needs(name, &[&file])?;
        group.needs(&file, &[name])?;
        Ok::<_, Error>(group.text(name)?.zip(path(group.value(&file))))
    };
    let mut spec = IntegritySpec::new(read_word(&group.head, |text| Ok(text.to_owned()))?);
    spec.key_file = path(group.value("key-file"));
    spec.data_device = path(group.value("data-device"));
    spec.bitmap = group.has("bitmap-mode");
    spec.journal_code = sealed("journal-integrity")?;
    spec.journal_cipher = sealed("journal-crypt")?;
    Ok(spec)
}

fn verity(group: &Group) -> Result<VeritySpec, Error> {
    let Some(root_hash) = group.text("root-hash")? else {
        return Err(at_word(&group.head, "it needs root-hash=HEX, or root-hash=@FILE"));
    };
    let said = |error: Error| error.text().into_owned();
    let block_size = |text: &str| BlockSize::new(units::bytes(text)?).map_err(said);
    let mut spec = VeritySpec::new(root_hash);
    spec.hash_device = path(group.value("hash-device"));
    spec.hash_offset = group.read("hash-offset", units::bytes)?.unwrap_or(0);
    spec.hash_partition = group.read("hash-partition", str::parse)?;
    spec.superblock = !group.has("no-superblock");
    spec.algorithm = group.text("hash")?;
    spec.hash_type = group.read("format", |text| HashType::numbered(number(text)?).map_err(said))?;
    spec.data_block_size = group.read("data-block-size", block_size)?;
    spec.hash_block_size = group.read("hash-block-size", block_size)?;
    spec.data_blocks = group.read("data-blocks", number)?;
    spec.salt = group.read("salt", |text| Salt::from_text(text).map_err(said))?;
    spec.driver = group.text("provider")?;
    Ok(spec)
}

fn file_system(group: &Group) -> Result<FileSystemSpec, Error> {
    for name in ["protector", "fscrypt-metadata", "fscrypt-kdf-limit"] {
        group.needs(name, &["fscrypt-passphrase-file"])?;
    }
    let paths = |name| group.values(name).into_iter().map(PathBuf::from).collect();
    Ok(FileSystemSpec {
        superblock: group.read("superblock", number)?,
        raw_keys: group.values("fscrypt-key").iter().map(|text| key_file(text)).collect(),
        passphrase_files: paths("fscrypt-passphrase-file"),
        protectors: paths("protector"),
        metadata: path(group.value("fscrypt-metadata")),
        kdf_limit: group.read("fscrypt-kdf-limit", times)?.unwrap_or(1),
    })
}

/// Digits of a descriptor.
const DESCRIPTOR: usize = 16;

pub fn key_file(text: &OsStr) -> KeyFile {
    let bytes = text.as_bytes();
    if let Some((digits, [b':', path @ ..])) = bytes.split_at_checked(DESCRIPTOR)
        && let Some(KeyId::Descriptor(descriptor)) = str::from_utf8(digits).ok().and_then(KeyId::from_hex)
    {
        let path = OsString::from_vec(path.to_vec()).into();
        return KeyFile { descriptor: Some(descriptor), path };
    }
    KeyFile { descriptor: None, path: text.into() }
}

pub fn write(spec: &ImageSpec) -> OsString {
    let mut text = Writing::of_file(spec.file.as_os_str());
    for layer in &spec.layers {
        match layer {
            LayerSpec::Partition(id) => text.word("partition", Some(id.to_string())),
            LayerSpec::Window { offset, size } => {
                text.word("offset", Some(offset.to_string()));
                text.word("size", size.map(|size| size.to_string()));
            }
            LayerSpec::Crypt(spec) => write_crypt(spec, &mut text),
            LayerSpec::Luks(spec) => write_luks(spec, &mut text),
            LayerSpec::Integrity(spec) => write_integrity(spec, &mut text),
            LayerSpec::Verity(spec) => write_verity(spec, &mut text),
        }
    }
    if !spec.file_system.is_default() {
        write_file_system(&spec.file_system, &mut text);
    }
    text.finish()
}

fn write_key(key: &KeyPlace, text: &mut Writing) {
    match key {
        KeyPlace::Asked => {}
        KeyPlace::File(path, from) => {
            text.word("key-file", Some(path));
            text.number("keyfile-offset", *from, 0);
        }
        KeyPlace::Descriptor(number, from) => {
            text.word("key-fd", Some(number.to_string()));
            text.number("keyfile-offset", *from, 0);
        }
    }
}

fn write_crypt(spec: &CryptSpec, text: &mut Writing) {
    let (options, usual) = (&spec.options, MappingOptions::default());
    match &spec.table {
        Some(table) => {
            text.flag("crypt", true);
            text.word("table", Some(table));
        }
        None => {
            text.word("crypt", Some(&options.cipher));
            write_key(&spec.key, text);
            text.word("key-size", options.key_bits.map(|bits| bits.to_string()));
            let is_usual = options.passphrase_hash == usual.passphrase_hash;
            text.word("passphrase-hash", (!is_usual).then_some(&options.passphrase_hash));
            text.word("crypt-offset", (options.offset != 0).then(|| format!("{}s", options.offset)));
            text.number("skip", options.iv_offset, 0);
            text.number("sector-size", options.sector_size, usual.sector_size);
            text.flag("iv-large-sectors", options.iv_large_sectors);
        }
    }
    text.flag("allow-equal-halves", options.allow_equal_halves);
    options.drivers.iter().for_each(|driver| text.word("provider", Some(driver)));
}

fn write_luks(spec: &LuksSpec, text: &mut Writing) {
    text.flag("luks", true);
    write_key(&spec.key, text);
    text.word("volume-key-file", spec.volume_key_file.as_ref());
    text.word("header", spec.header.as_ref());
    text.word("key-slot", spec.key_slot.map(|slot| slot.to_string()));
    text.number("kdf-limit", spec.kdf_limit, 1);
    text.word("policy", spec.policy.as_ref());
    text.word("mac-key-file", spec.mac_key_file.as_ref());
    text.flag("overwrite", spec.overwrite);
}

fn write_integrity(spec: &IntegritySpec, text: &mut Writing) {
    text.word("integrity", Some(&spec.algorithm));
    text.word("key-file", spec.key_file.as_ref());
    text.word("data-device", spec.data_device.as_ref());
    text.flag("bitmap-mode", spec.bitmap);
    for (name, file, sealed) in [
        ("journal-integrity", "journal-integrity-key-file", &spec.journal_code),
        ("journal-crypt", "journal-crypt-key-file", &spec.journal_cipher),
    ] {
        text.word(name, sealed.as_ref().map(|(name, _)| name));
        text.word(file, sealed.as_ref().map(|(_, path)| path));
    }
}

fn write_verity(spec: &VeritySpec, text: &mut Writing) {
    text.flag("verity", true);
    text.word("root-hash", Some(&spec.root_hash));
    text.word("hash-device", spec.hash_device.as_ref());
    text.number("hash-offset", spec.hash_offset, 0);
    text.word(
        "hash-partition",
        spec.hash_partition.as_ref().map(|which| match which {
            HashPartition::Named(id) => id.to_string(),
            HashPartition::Auto => "auto".to_owned(),
        }),
    );
    text.flag("no-superblock", !spec.superblock);
    text.word("hash", spec.algorithm.as_ref());
    text.word("format", spec.hash_type.map(|format| format.number().to_string()));
    text.word("data-block-size", spec.data_block_size.map(|size| size.bytes().to_string()));
    text.word("hash-block-size", spec.hash_block_size.map(|size| size.bytes().to_string()));
    text.word("data-blocks", spec.data_blocks.map(|blocks| blocks.to_string()));
    text.word(
        "salt",
        spec.salt.as_ref().map(|salt| match salt.bytes() {
            [] => "-".to_owned(),
            bytes => hex::encode(bytes),
        }),
    );
    text.word("provider", spec.driver.as_ref());
}

fn write_file_system(spec: &FileSystemSpec, text: &mut Writing) {
    text.flag("ext4", true);
    text.word("superblock", spec.superblock.map(|block| block.to_string()));
    for KeyFile { descriptor, path } in &spec.raw_keys {
        let digits = descriptor.map_or_else(String::new, |bytes| format!("{}:", hex::encode(&bytes)));
        let mut value = OsString::from(digits);
        value.push(path);
        text.word("fscrypt-key", Some(value));
    }
    spec.passphrase_files.iter().for_each(|path| text.word("fscrypt-passphrase-file", Some(path)));
    spec.protectors.iter().for_each(|path| text.word("protector", Some(path)));
    text.word("fscrypt-metadata", spec.metadata.as_ref());
    text.number("fscrypt-kdf-limit", spec.kdf_limit, 1);
}

impl KeyPlace {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            KeyPlace::File(path, _) => Some(path),
            _ => None,
        }
    }
}

impl LayerSpec {
    /// The word that begins the layer in a specification.
    pub fn name(&self) -> &'static str {
        match self {
            LayerSpec::Partition(_) => "partition",
            LayerSpec::Window { .. } => "offset",
            LayerSpec::Crypt(_) => "crypt",
            LayerSpec::Luks(_) => "luks",
            LayerSpec::Integrity(_) => "integrity",
            LayerSpec::Verity(_) => "verity",
        }
    }

    /// Whether the layer is decrypted with a key.
    pub fn is_decryption(&self) -> bool {
        matches!(self, LayerSpec::Crypt(_) | LayerSpec::Luks(_))
    }

    /// The files beside the image that the layer is read from.
    pub(super) fn files_beside(&self) -> Vec<&Path> {
        let files = match self {
            LayerSpec::Partition(_) | LayerSpec::Window { .. } => Vec::new(),
            LayerSpec::Crypt(spec) => vec![spec.table.as_deref(), spec.key.file()],
            LayerSpec::Luks(spec) => vec![
                spec.key.file(),
                spec.volume_key_file.as_deref(),
                spec.header.as_deref(),
                spec.policy.as_deref(),
                spec.mac_key_file.as_deref(),
            ],
            LayerSpec::Integrity(spec) => {
                let sealed = [&spec.journal_code, &spec.journal_cipher].into_iter().flatten();
                let keys = sealed.map(|(_, path)| Some(path.as_path()));
                keys.chain([spec.key_file.as_deref(), spec.data_device.as_deref()]).collect()
            }
            LayerSpec::Verity(spec) => {
                vec![spec.hash_device.as_deref(), spec.root_hash.strip_prefix('@').map(Path::new)]
            }
        };
        files.into_iter().flatten().collect()
    }
}
