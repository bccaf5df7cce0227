//! New LUKS volumes: a header with one key slot, and what is encrypted behind it.

use crate::json::{Json, Object};
use crate::luks2::{LARGEST_HEADER, Metadata, SMALLEST_HEADER};
use crate::{Header, luks1, luks2};
use casemate_blockdev::{Medium, Uuid, u32_of, u64_of, usize_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hmac, Providers, Seed, Work};

use super::authenticated::{Sealed, integrity_kind, mac_key_len};
use super::digest::{DIGEST_ITERATIONS, new_digest};
use super::new_volume::{NewData, NewVolume, Stored};
use super::random::Source;
use super::refuse_empty;
use super::slot::is_null;
use super::slot::{AreaCipher, Slot, check_hash, digest};
use crate::pbkdf::Pbkdf;
use crate::{Advice, Error};
use casemate_crypt::{Mapping, Params};

/// The version of a LUKS header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LuksVersion {
    /// LUKS1: PBKDF2 alone, sectors of 512 bytes.
    One,
    /// LUKS2.
    #[default]
    Two,
}

/// How a volume is made. The defaults are those of cryptsetup.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LuksFormatOptions {
    /// The version.
    pub version: LuksVersion,
    /// dm-crypt's specification; aes-xts-plain64 by default.
    pub cipher: String,
    /// Bits of the cipher's key: 512 for XTS and 256 for other modes if `None`.
    pub key_bits: Option<usize>,
    /// Integrity protection, as cryptsetup names it: `hmac-sha256`, `aead` with aes-gcm-random, aes-ccm-random or
    /// aegis128-random, `poly1305` with chacha20-random; of LUKS2.
    pub integrity: Option<String>,
    /// The hash of stripes and digest, and of all of LUKS1.
    pub hash: String,
    /// KDF that makes a key of the passphrase, with its costs; if `None`, Argon2id, or PBKDF2 for LUKS1.
    pub pbkdf: Option<Pbkdf>,
    /// Bytes of an encryption sector: 512 by default, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// The first byte of the data; 16 MiB, or as near as there can be with LUKS1, if `None`; 0 with a header that lies apart.
    pub offset: Option<u64>,
    /// Bytes that the data begin at a multiple of, where `offset` does not say it: 1 MiB by default.
    pub align: u64,
    /// Bytes of each of the two copies of a header of LUKS2: 16 KiB by default, or a larger power of two up to 4 MiB.
    pub metadata_size: u64,
    /// Bytes for the key slots of LUKS2, a multiple of 4096; if `None`, or if that is less, all that is before the data.
    pub keyslots_size: Option<u64>,
    /// Whether the header lies apart from the data.
    pub detached: bool,
    /// The label, of LUKS2.
    pub label: String,
    /// The subsystem, of LUKS2.
    pub subsystem: String,
    /// The UUID; a random one, or one of the seed, if `None`.
    pub uuid: Option<Uuid>,
    /// The number of the key slot.
    pub keyslot: u32,
    /// The cipher of the slot's area, of LUKS2; that of the data, or AES-XTS, if `None`.
    pub area: Option<AreaCipher>,
    /// Whether the passphrase may be empty, which anybody knows.
    pub allow_empty_passphrase: bool,
    /// The volume key; a random one if `None`.
    pub volume_key: Option<SecretVec>,
    /// The seed that UUID, salts and stripes follow from, with the volume key, so that a volume can be made again. It needs a
    /// volume key: a key that follows from a seed is not a secret.
    pub seed: Option<Seed>,
}

impl Default for LuksFormatOptions {
    fn default() -> LuksFormatOptions {
        LuksFormatOptions {
            version: LuksVersion::Two,
            cipher: "aes-xts-plain64".to_owned(),
            key_bits: None,
            integrity: None,
            hash: "sha256".to_owned(),
            pbkdf: None,
            sector_size: 512,
            offset: None,
            align: 1 << 20,
            metadata_size: HDR_SIZE,
            keyslots_size: None,
            detached: false,
            label: String::new(),
            subsystem: String::new(),
            uuid: None,
            keyslot: 0,
            area: None,
            allow_empty_passphrase: false,
            volume_key: None,
            seed: None,
        }
    }
}

/// Refuses to encrypt data in a way that tells of them what a cipher is to hide: by IVs that say nothing of where a sector lies,
/// or a key stream that two writes of a sector share. Volumes that have it are opened all the same.
pub(super) fn refuse_weak(cipher: &str, integrity: Option<&str>) -> Result<(), Error> {
    let (rest, iv) = cipher.rsplit_once('-').unwrap_or((cipher, ""));
    let is_mode = |name: &str| {
        rest.contains(&format!("-{name}"))
            || cipher.contains(&format!("{name}("))
            || iv == name && !rest.contains('-')
    };
    // Any other cipher is refused with such integrity protection later.
    let is_aead = matches!(integrity, Some("aead" | "poly1305"))
        && ["gcm", "ccm", "aegis", "chacha20"].iter().any(|name| rest.contains(name));
    let (why, instead) = if is_mode("ecb") || iv == "null" {
        ("equal blocks of data are seen to be equal", "aes-xts-plain64".to_owned())
    } else if iv != "random" && (is_aead || is_mode("ctr")) {
        let why = "each write of a sector has the same nonce, and two of them tell what was written";
        (why, if is_aead { format!("{rest}-random") } else { "aes-xts-plain64".to_owned() })
    } else {
        return Ok(());
    };
    Err(Error::argument(format!("{cipher}: {why}; {instead} hides that")))
}

/// Bytes of a copy of the header of LUKS2.
pub(super) const HDR_SIZE: u64 = 16 << 10;

/// The first byte of data behind a header of LUKS2, and at the most what lies between for key slots.
const DATA_OFFSET: u64 = 16 << 20;
pub(super) const LARGEST_KEYSLOTS: u64 = 128 << 20;

impl LuksFormatOptions {
    /// Makes header, key slot and mapping of a volume that a passphrase opens. Nothing is written yet.
    ///
    /// # Errors
    /// `Argument` for what can't be; `Unsupported` where no implementation may be used; `Io` if there are no random bytes.
    pub fn prepare(&self, passphrase: &SecretVec, work: &Work<'_>) -> Result<NewVolume, Error> {
        let providers = &work.providers;
        refuse_empty(passphrase, self.allow_empty_passphrase)?;
        if is_null(&self.cipher) {
            return Err(Error::argument(format!("{} encrypts nothing", self.cipher)));
        }
        refuse_weak(&self.cipher, self.integrity.as_deref())?;
        let key_len = self.key_len(providers)?;
        let mut volume_key = SecretVec::zeroed(key_len);
        match &self.volume_key {
            Some(key) if key.len() == key_len => volume_key = key.clone(),
            Some(key) => {
                let text = format!("the volume key has {} bytes, and {key_len} are needed", key.len());
                return Err(Error::argument(text));
            }
            None if self.seed.is_some() => {
                let text = "a volume key that follows from a seed would be no secret";
                return Err(Error::argument(text).advise(Advice::VolumeKey));
            }
            None => Source::System.fill(volume_key.expose_mut())?,
        }
        let mut random = match &self.seed {
            None => Source::System,
            Some(seed) => {
                let key = Hmac::new(providers.hash("sha256")?, volume_key.expose());
                let key = key.tag(seed.tag(b"luks-random", providers)?.expose());
                Source::Seeded(Box::new(Hmac::new(providers.hash("sha256")?, key.expose())), 0)
            }
        };
        let uuid = match (self.uuid, &self.seed) {
            (Some(uuid), _) => uuid,
            (None, Some(seed)) => seed.uuid(providers)?,
            (None, None) => Uuid::random()?,
        };
        // What can't be mapped costs no key derivation.
        let mut data = self.data(&volume_key, providers)?;
        let (header, stored, offset) = match self.version {
            LuksVersion::One => self.luks1(passphrase, &volume_key, uuid, &mut random, providers)?,
            LuksVersion::Two => self.luks2(passphrase, &volume_key, uuid, &mut random, providers)?,
        };
        if let NewData::Mapping(mapping) = &mut data {
            mapping.offset = offset / 512;
        }
        Ok(NewVolume { header, stored, offset, volume_key, data, detached: self.detached })
    }

    /// Refuses what [`LuksFormatOptions::prepare`] would refuse, at next to no cost: keys are derived, but cheap ones.
    ///
    /// # Errors
    /// Errors of [`LuksFormatOptions::prepare`].
    pub fn check(&self, work: &Work<'_>) -> Result<(), Error> {
        self.rehearsed(work).map(drop)
    }

    /// Refuses what [`NewVolume::format`] would refuse of an image, too.
    ///
    /// # Errors
    /// Errors of [`LuksFormatOptions::prepare`] and [`NewVolume::format`].
    pub fn check_image<M: AsRef<Medium>>(
        &self,
        image: &M,
        header: Option<&M>,
        overwrite: bool,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (image, header) = (image.as_ref(), header.map(AsRef::as_ref));
        self.rehearsed(work)?.check_image(image, header, overwrite).map(drop)
    }

    /// A volume whose key slot protects nothing.
    fn rehearsed(&self, work: &Work<'_>) -> Result<NewVolume, Error> {
        let pbkdf = self.pbkdf();
        pbkdf.check()?;
        if self.version == LuksVersion::One {
            pbkdf.check_luks1(&self.hash)?;
        }
        let cheap = Pbkdf::Pbkdf2 { hash: self.hash.clone(), iterations: DIGEST_ITERATIONS };
        let allow_empty_passphrase = true;
        LuksFormatOptions { pbkdf: Some(cheap), allow_empty_passphrase, ..self.clone() }
            .prepare(&SecretVec::zeroed(0), work)
    }

    fn data(&self, volume_key: &SecretVec, providers: &Providers) -> Result<NewData, Error> {
        if let Some(name) = &self.integrity {
            if self.version == LuksVersion::One {
                return Err(Error::argument("LUKS1 has no integrity protection; LUKS2 has"));
            }
            let (kind, key) = (integrity_kind(name), volume_key.expose());
            let sealed = Sealed::new(&self.cipher, &kind, key, self.sector_size, providers)?;
            return Ok(NewData::Protected(Box::new(sealed)));
        }
        let mut params = Params::new(self.cipher.parse()?);
        params.sector_size = usize_of(self.sector_size);
        Ok(NewData::Mapping(Box::new(Mapping::new(params, volume_key.clone(), 0, providers)?)))
    }

    /// Bytes of the volume key.
    ///
    /// # Errors
    /// `Argument` for a size that no key has; `Unsupported` for integrity protection that is not there.
    pub fn key_len(&self, providers: &Providers) -> Result<usize, Error> {
        if let (Some(key), None) = (&self.volume_key, self.key_bits) {
            return Ok(key.len());
        }
        let kind = self.integrity.as_deref().map(integrity_kind);
        let mac = kind.map_or(Ok(0), |kind| mac_key_len(&kind, providers))?;
        let is_xts = self.cipher.contains("-xts-") || self.cipher.contains("xts(");
        match self.key_bits.unwrap_or(if is_xts { 512 } else { 256 }) {
            bits if bits.is_multiple_of(8) && (8..=8192).contains(&bits) => Ok(bits / 8 + mac),
            bits => Err(Error::argument(format!(
                "a key of {bits} bits: it must have a multiple of 8 bits, at most 8192"
            ))),
        }
    }

    fn luks1(
        &self,
        passphrase: &SecretVec,
        volume_key: &SecretVec,
        uuid: Uuid,
        random: &mut Source,
        providers: &Providers,
    ) -> Result<(Header, Stored, u64), Error> {
        if self.area.is_some() {
            return Err(Error::argument("key slots of LUKS1 have the cipher of the data; LUKS2 has more"));
        }
        if self.sector_size != 512 || !self.label.is_empty() || !self.subsystem.is_empty() {
            let text = "LUKS1 has sectors of 512 bytes, no label and no subsystem; LUKS2 has all of them";
            return Err(Error::argument(text));
        }
        if self.metadata_size != HDR_SIZE || self.keyslots_size.is_some() {
            return Err(Error::argument("the header of LUKS1 has one size; that of LUKS2 is chosen"));
        }
        self.pbkdf().check_luks1(&self.hash)?;
        // cryptsetup opens no header of LUKS1 with shorter digests.
        check_hash(&self.hash, luks1::DIGEST_LEN, providers)?;
        // As dm-crypt reads a cipher without a mode, and cryptsetup writes it.
        let (name, mode) = self.cipher.split_once('-').unwrap_or((&self.cipher, "cbc-plain"));
        for (what, text) in [("cipher", name), ("cipher mode", mode), ("hash", &*self.hash)] {
            if text.len() >= 32 || text.starts_with("capi:") {
                return Err(Error::argument(format!("LUKS1 has no room for the {what} '{text}'; LUKS2 has")));
            }
        }
        let mut header = luks1::Header::new(name, mode, &self.hash, u32_of(volume_key.len()))?;
        let id = self.keyslot;
        let Some(mut slot) = header.slots.get(usize_of(id)).copied() else {
            return Err(Error::argument(format!("key slot {id}: LUKS1 has slots 0 to 7")));
        };
        let offset = match (self.offset, self.detached) {
            (Some(offset), _) => offset,
            (None, true) => 0,
            (None, false) => self.aligned(header.metadata_end().next_multiple_of(4096))?,
        };
        let is_apart = self.detached && offset == 0;
        if !offset.is_multiple_of(512) || offset < header.metadata_end() && !is_apart {
            let text = format!(
                "data at byte {offset}: they begin at {} or later, at a multiple of 512",
                header.metadata_end()
            );
            return Err(Error::argument(text));
        }
        header.payload_offset = u32::try_from(offset / 512)
            .map_err(|_| Error::argument("LUKS1 has no room for such an offset; LUKS2 has"))?;
        header.uuid = uuid.to_string();
        random.fill(&mut header.digest_salt)?;
        header.digest_iterations = DIGEST_ITERATIONS;
        let digest = digest(
            volume_key,
            &self.hash,
            &header.digest_salt,
            DIGEST_ITERATIONS,
            luks1::DIGEST_LEN,
            providers,
        )?;
        // OK to unwrap: so many bytes were asked for.
        header.digest = digest.expose().try_into().unwrap();
        let mut sealed = Slot { kdf: self.pbkdf(), ..Slot::of_luks1(&header, &slot) };
        let material = sealed.seal(passphrase, volume_key, random, providers)?;
        sealed.put_luks1(&mut slot);
        // OK to index: the slot was found there.
        header.slots[usize_of(id)] = slot;
        let stored = Stored {
            header: header.to_bytes().to_vec(),
            material: material.expose().to_vec(),
            material_at: sealed.area.start,
        };
        Ok((Header::Luks1(header), stored, offset))
    }

    fn luks2(
        &self,
        passphrase: &SecretVec,
        volume_key: &SecretVec,
        uuid: Uuid,
        random: &mut Source,
        providers: &Providers,
    ) -> Result<(Header, Stored, u64), Error> {
        let (hdr_size, copies) = (self.metadata_size, self.metadata_size.saturating_mul(2));
        if !hdr_size.is_power_of_two() || !(SMALLEST_HEADER..=LARGEST_HEADER).contains(&hdr_size) {
            return Err(Error::argument(format!(
                "a header of {hdr_size} bytes: LUKS2 has 16 KiB to 4 MiB, powers of two"
            )));
        }
        let wanted = self.keyslots_size.unwrap_or(DATA_OFFSET - copies);
        if !wanted.is_multiple_of(4096) || !(4096..=LARGEST_KEYSLOTS).contains(&wanted) {
            return Err(Error::argument(format!(
                "{wanted} bytes for key slots: LUKS2 has multiples of 4096 up to 128 MiB"
            )));
        }
        let offset = match self.offset {
            Some(offset) => offset,
            None if self.detached => 0,
            None => self.aligned(copies + wanted)?,
        };
        let is_apart = self.detached && offset == 0;
        let keyslots_size = match (self.offset, self.keyslots_size) {
            _ if is_apart => wanted,
            (Some(_), None) => offset.saturating_sub(copies).min(LARGEST_KEYSLOTS) / 4096 * 4096,
            _ => wanted.min(offset.saturating_sub(copies) / 4096 * 4096),
        };
        let integrity = self.integrity.as_deref().map(integrity_kind);
        // An authenticating cipher can't encrypt an area.
        let area_cipher = if integrity.is_some() { "" } else { &*self.cipher };
        let slot = Slot::new(copies, volume_key.len(), area_cipher, &self.hash, self.pbkdf())?;
        let mut sealed = slot.with_cipher(self.area.as_ref());
        let least = sealed.area.end;
        if !offset.is_multiple_of(u64::from(self.sector_size.max(512))) || offset < least && !is_apart {
            let text =
                format!("data at byte {offset}: they begin at {least} or later, at a sector's beginning");
            return Err(Error::argument(text));
        }
        if least > copies + keyslots_size {
            let text = format!("{keyslots_size} bytes for key slots: one has {}", least - copies);
            return Err(Error::argument(text));
        }
        if self.keyslot >= luks2::KEYSLOTS {
            return Err(Error::argument(format!("key slot {}: LUKS2 has slots 0 to 31", self.keyslot)));
        }
        let material = sealed.seal(passphrase, volume_key, random, providers)?;
        let mut digest = new_digest(volume_key, &self.hash, &[], random, providers)?;
        let id = self.keyslot.to_string();
        digest.set("keyslots", vec![Json::from(&*id)].into());
        digest.set("segments", vec![Json::from("0")].into());
        let mut segment = segment_json(offset, &self.cipher, self.sector_size);
        if let Some(kind) = &integrity {
            let none = Object::default().with("type", &**kind).with("journal_encryption", "none");
            segment = segment.with("integrity", none.with("journal_integrity", "none"));
        }
        let metadata = metadata_json(
            Object::default().with(&id, sealed.to_json(providers.cpu())),
            segment,
            digest,
            [hdr_size, keyslots_size],
        );
        let metadata = Metadata::new(metadata, hdr_size)?;
        let mut header = luks2::Header::new(uuid.to_string(), metadata);
        (header.label, header.subsystem) = (self.label.clone(), self.subsystem.clone());
        // At most 8 MiB.
        let copies = casemate_blockdev::MemoryDevice::new(vec![0; usize_of(copies)]);
        header.write(&copies, providers, &mut |bytes| random.fill(bytes))?;
        let stored = Stored {
            header: copies.into_bytes(),
            material: material.expose().to_vec(),
            material_at: sealed.area.start,
        };
        Ok((Header::Luks2(header), stored, offset))
    }

    /// Where data begin behind a header.
    fn aligned(&self, end: u64) -> Result<u64, Error> {
        match self.align {
            align if align > 0 && align.is_multiple_of(512) => end.checked_next_multiple_of(align),
            _ => None,
        }
        .ok_or_else(|| Error::argument(format!("data at a multiple of {} bytes", self.align)))
    }

    fn pbkdf(&self) -> Pbkdf {
        match (&self.pbkdf, self.version) {
            (Some(pbkdf), _) => pbkdf.clone(),
            (None, LuksVersion::One) => Pbkdf::pbkdf2(&self.hash),
            (None, LuksVersion::Two) => Pbkdf::argon2id(),
        }
    }
}

/// Metadata of LUKS2 with one segment and one digest, of these sizes: a copy of the header, and the key slots.
pub(super) fn metadata_json(
    keyslots: Object,
    segment: Object,
    digest: Object,
    [hdr_size, keyslots_size]: [u64; 2],
) -> Object {
    let config = Object::default()
        .with("json_size", (hdr_size - u64_of(luks2::BINARY_LEN)).to_string())
        .with("keyslots_size", keyslots_size.to_string());
    Object::default()
        .with("keyslots", keyslots)
        .with("tokens", Object::default())
        .with("segments", Object::default().with("0", segment))
        .with("digests", Object::default().with("0", digest))
        .with("config", config)
}

/// A segment from `offset` to the end.
pub(super) fn segment_json(offset: u64, cipher: &str, sector_size: u32) -> Object {
    Object::default()
        .with("type", "crypt")
        .with("offset", offset.to_string())
        .with("size", "dynamic")
        .with("iv_tweak", "0")
        .with("encryption", cipher)
        .with("sector_size", sector_size)
}
