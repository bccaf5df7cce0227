//! Policies: what a header that comes from strangers must be, before anything is done with it.
//!
//! Nothing in a LUKS header is authenticated. Who can write to it can take a cipher that encrypts nothing, a volume key of
//! their own, or costs that no machine has, and what opens the volume does as it says (CVE-2025-59054 and its relatives). A
//! [`Policy`] names what is expected. It is held against the copy of the header that a [`Volume`] has read, and that copy is
//! the one that is used.
//!
//! ```
//! use casemate_luks::Policy;
//!
//! let policy: Policy = "# for our virtual machines
//! version 2
//! cipher aes-xts-plain64
//! key-size 512
//! pbkdf argon2id time=4..10 memory=65536..1048576 parallel=1..4
//! key-slots 1..2
//! token systemd-tpm2".parse()?;
//! assert_eq!(policy.key_sizes, [512]);
//! # Ok::<(), casemate_luks::Error>(())
//! ```

use std::fmt::{self, Display, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;

use casemate_blockdev::{u32_of, u64_of};

use crate::Header;
use crate::luks1::SlotState;
use crate::luks2::{Digest, SegmentSize, decode};
use crate::pbkdf::Pbkdf;
use casemate_primitives::cpu::Cpu;
use casemate_primitives::hex;
use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::{Hmac, Providers, SecretSource};

use super::Volume;
use super::slot::{DIGEST_LEN, is_null};
use crate::Error;

/// Rules that a header must keep. An empty list allows any value that the format has, unless its field documents
/// otherwise. Null ciphers, requirements, and anything but one segment over the whole device are always refused.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Policy {
    /// The versions of LUKS.
    pub versions: Vec<u32>,
    /// The specifications of the data's cipher; there must be one.
    pub ciphers: Vec<String>,
    /// The sizes of the volume key in bits; there must be one.
    pub key_sizes: Vec<u32>,
    /// The specifications of key slots' ciphers; those of the data if empty.
    pub keyslot_ciphers: Vec<String>,
    /// The sizes of encryption sectors in bytes.
    pub sector_sizes: Vec<u32>,
    /// The hashes of key derivation, stripes and digests.
    pub hashes: Vec<String>,
    /// KDFs of key slots with bounds of their costs; there must be one.
    pub pbkdfs: Vec<PbkdfRule>,
    /// How many key slots there are.
    pub keyslots: Option<RangeInclusive<u32>>,
    /// The types of tokens; none if empty.
    pub tokens: Vec<String>,
    /// The persistent flags; none if empty.
    pub flags: Vec<String>,
    /// The kinds of integrity protection, one of which there must be; `none` allows its absence, too. No protection at all if
    /// empty.
    pub integrity: Vec<String>,
    /// The digest of the volume key as it is in the header, so that there is no other key.
    pub digest: Option<String>,
    /// HMAC-SHA256 of the header.
    pub mac: Option<[u8; 32]>,
    /// The key of the HMAC.
    pub mac_key: Option<SecretVec>,
}

/// Bounds of a KDF's costs, by the names that cryptsetup has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PbkdfRule {
    /// `pbkdf2`, `argon2i` or `argon2id`.
    pub kind: String,
    /// Bounds of what the KDF costs: `iterations`; `time`, `memory` in KiB and `parallel`.
    pub costs: Vec<(String, RangeInclusive<u32>)>,
}

/// A rule that a header breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule's name, as in a policy.
    pub rule: &'static str,
    /// Text that says how the header breaks the rule.
    pub text: String,
}

impl Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// Costs of a KDF, by their names.
const COSTS: [(&str, &[&str]); 3] = [
    ("pbkdf2", &["iterations"]),
    ("argon2i", &["time", "memory", "parallel"]),
    ("argon2id", &["time", "memory", "parallel"]),
];

/// Bytes of an HMAC's key at most.
const LONGEST_MAC_KEY: usize = 4096;

/// Prefix of the HMAC's message.
const MAC_CONTEXT: &[u8] = b"casemate luks header 1\0";

impl FromStr for Policy {
    type Err = Error;

    /// Reads a policy: a line for each rule, its name and a value. "#" begins a comment.
    fn from_str(text: &str) -> Result<Policy, Error> {
        let mut policy = Policy::default();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let Some((name, values)) = words.split_first() else { continue };
            policy
                .add(name, values)
                .map_err(|text| Error::argument(format!("line {number}: {name}: {text}")))?;
        }
        for (name, is_there) in [
            ("cipher", !policy.ciphers.is_empty()),
            ("key-size", !policy.key_sizes.is_empty()),
            ("pbkdf", !policy.pbkdfs.is_empty()),
        ] {
            if !is_there {
                return Err(Error::argument(format!("a policy without {name} protects from nothing")));
            }
        }
        Ok(policy)
    }
}

impl Policy {
    /// The key of an HMAC: all that is there.
    ///
    /// # Errors
    /// `Io`; `Argument` for an empty one, and for more than 4096 bytes.
    pub fn mac_key(source: &SecretSource) -> Result<SecretVec, Error> {
        match source.read_all(LONGEST_MAC_KEY)? {
            Some(key) if !key.is_empty() => Ok(key),
            _ => Err(Error::argument(format!("{}: a key has 1 to {LONGEST_MAC_KEY} bytes", source.name()))),
        }
    }

    /// The policy as it is read: a line for each rule.
    ///
    /// # Errors
    /// `Corrupt` if a name, which is a header's text, would be read as something else: one that is empty, or has a space, a
    /// line end, "#" or a control character.
    pub fn to_text(&self) -> Result<String, Error> {
        let lists: [(&str, &[String]); 6] = [
            ("cipher", &self.ciphers),
            ("key-slot-cipher", &self.keyslot_ciphers),
            ("hash", &self.hashes),
            ("token", &self.tokens),
            ("flag", &self.flags),
            ("integrity", &self.integrity),
        ];
        let digest = self.digest.iter().map(|digest| ("digest", digest));
        let pbkdfs = self.pbkdfs.iter().map(|rule| ("pbkdf", &rule.kind));
        let lists = lists.iter().flat_map(|(name, values)| values.iter().map(|value| (*name, value)));
        for (name, value) in lists.chain(digest).chain(pbkdfs) {
            let is_wrong = |c: char| c.is_whitespace() || c.is_control() || c == '#';
            if value.is_empty() || value.contains(is_wrong) {
                let text = format!("LUKS header: {name} '{value}' can't be a word of a policy");
                return Err(Error::corrupt(text));
            }
        }
        Ok(self.to_string())
    }

    fn add(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        if name == "pbkdf" {
            self.pbkdfs.push(PbkdfRule::parse(values)?);
            return Ok(());
        }
        let [value] = values else { return Err(format!("{} values; it has one", values.len())) };
        let number = || value.parse().map_err(|_| format!("'{value}' is not a number"));
        match name {
            "version" => self.versions.push(number()?),
            "cipher" => self.ciphers.push((*value).to_owned()),
            "key-size" => self.key_sizes.push(number()?),
            "key-slot-cipher" => self.keyslot_ciphers.push((*value).to_owned()),
            "sector-size" => self.sector_sizes.push(number()?),
            "hash" => self.hashes.push((*value).to_owned()),
            "token" => self.tokens.push((*value).to_owned()),
            "flag" => self.flags.push((*value).to_owned()),
            "integrity" => self.integrity.push((*value).to_owned()),
            "key-slots" if self.keyslots.is_none() => self.keyslots = Some(bounds(value)?),
            "digest" if self.digest.is_none() => self.digest = Some((*value).to_owned()),
            "mac" if self.mac.is_none() => {
                let mac = value.strip_prefix("hmac-sha256:").and_then(hex::decode_array);
                self.mac = Some(mac.ok_or("not hmac-sha256: and 64 hexadecimal digits")?);
            }
            "key-slots" | "digest" | "mac" => return Err("it is there twice".to_owned()),
            _ => return Err("there is no such rule".to_owned()),
        }
        Ok(())
    }
}

impl PbkdfRule {
    fn parse(values: &[&str]) -> Result<PbkdfRule, String> {
        let known = COSTS.iter().find(|(kind, _)| values.first() == Some(kind));
        let Some((kind, names)) = known else { return Err("pbkdf2, argon2i or argon2id".to_owned()) };
        let mut costs = Vec::new();
        for name in *names {
            let given = values[1..].iter().find_map(|value| value.strip_prefix(name)?.strip_prefix('='));
            let given = given.ok_or_else(|| format!("{kind} needs bounds: {name}=LEAST..MOST"))?;
            costs.push(((*name).to_owned(), bounds(given)?));
        }
        if values.len() != 1 + names.len() {
            return Err(format!("{kind} has these bounds: {}", names.join(", ")));
        }
        Ok(PbkdfRule { kind: (*kind).to_owned(), costs })
    }
}

/// A number, or the least and the most.
fn bounds(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if least <= most => Ok(least..=most),
        _ => Err(format!("'{text}' is not a range; write LEAST..MOST")),
    }
}

/// The policy as it is read.
impl Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>();
        let lists: [(&str, &[String]); 9] = [
            ("version", &numbers(&self.versions)),
            ("cipher", &self.ciphers),
            ("key-size", &numbers(&self.key_sizes)),
            ("key-slot-cipher", &self.keyslot_ciphers),
            ("sector-size", &numbers(&self.sector_sizes)),
            ("hash", &self.hashes),
            ("token", &self.tokens),
            ("flag", &self.flags),
            ("integrity", &self.integrity),
        ];
        for (name, values) in lists {
            values.iter().try_for_each(|value| writeln!(f, "{name} {value}"))?;
        }
        for PbkdfRule { kind, costs } in &self.pbkdfs {
            write!(f, "pbkdf {kind}")?;
            costs
                .iter()
                .try_for_each(|(name, bounds)| write!(f, " {name}={}..{}", bounds.start(), bounds.end()))?;
            f.write_char('\n')?;
        }
        if let Some(keyslots) = &self.keyslots {
            writeln!(f, "key-slots {}..{}", keyslots.start(), keyslots.end())?;
        }
        if let Some(digest) = &self.digest {
            writeln!(f, "digest {digest}")?;
        }
        self.mac.iter().try_for_each(|mac| writeln!(f, "mac hmac-sha256:{}", hex::encode(mac)))
    }
}

/// Facts of a header, of either version, that policies have rules for.
struct Facts {
    cipher: String,
    key_bits: Vec<u32>,
    sector_size: u32,
    hashes: Vec<String>,
    slots: Vec<SlotFacts>,
    digest: String,
    /// Faults that no policy allows.
    broken: Vec<Broken>,
}

struct SlotFacts {
    id: u32,
    cipher: String,
    kdf: String,
    costs: Vec<(&'static str, u32)>,
}

impl Volume {
    /// The rules of a policy that the header breaks. The header is the one that was read, and that is used.
    ///
    /// # Errors
    /// `Argument` if the policy has an HMAC of the header and no key, or a key and no HMAC; `Unsupported` where there is no
    /// SHA-256.
    pub fn broken_rules(&self, policy: &Policy, providers: &Providers) -> Result<Vec<Broken>, Error> {
        let Facts { cipher, key_bits, sector_size, hashes, slots, digest, mut broken } =
            self.facts(providers.cpu());
        let mut demand = |rule: &'static str, is_kept: bool, text: String| {
            if !is_kept {
                broken.push(Broken { rule, text });
            }
        };
        let any = |allowed: &[u32], found: u32| allowed.is_empty() || allowed.contains(&found);
        let version = self.header.version();
        demand("version", any(&policy.versions, version), format!("the header is one of LUKS{version}"));
        demand("cipher", policy.ciphers.contains(&cipher), format!("the data's cipher is {cipher}"));
        for bits in key_bits {
            let is_kept = policy.key_sizes.contains(&bits);
            demand("key-size", is_kept, format!("a volume key has {bits} bits"));
        }
        let text = format!("sectors have {sector_size} bytes");
        demand("sector-size", any(&policy.sector_sizes, sector_size), text);
        for hash in hashes {
            let is_kept = policy.hashes.is_empty() || policy.hashes.contains(&hash);
            demand("hash", is_kept, format!("a hash is {hash}"));
        }
        let count = u32_of(slots.len());
        let is_kept = policy.keyslots.as_ref().is_none_or(|bounds| bounds.contains(&count));
        demand("key-slots", is_kept, format!("there are {count}"));
        for SlotFacts { id, cipher, kdf, costs } in slots {
            let ciphers =
                if policy.keyslot_ciphers.is_empty() { &policy.ciphers } else { &policy.keyslot_ciphers };
            demand("key-slot-cipher", ciphers.contains(&cipher), format!("key slot {id} has {cipher}"));
            let shown: Vec<String> = costs.iter().map(|(name, cost)| format!("{name}={cost}")).collect();
            let is_kept = policy.pbkdfs.iter().any(|rule| {
                let within = |(name, bounds): &(String, RangeInclusive<u32>)| {
                    costs.iter().any(|(found, cost)| found == name && bounds.contains(cost))
                };
                rule.kind == kdf && rule.costs.iter().all(within)
            });
            demand("pbkdf", is_kept, format!("key slot {id} has {kdf} {}", shown.join(" ")));
        }
        if let Header::Luks2(header) = &self.header {
            let metadata = &header.metadata;
            for token in metadata.tokens() {
                let is_kept = policy.tokens.contains(&token.kind);
                demand("token", is_kept, format!("token {} is of type {}", token.id, token.kind));
            }
            demand("token", !metadata.has_token_out_of_range(), "one has a number above 31".to_owned());
            for flag in metadata.flags() {
                demand("flag", policy.flags.contains(&flag), format!("there is {flag}"));
            }
        }
        let kinds = self.integrity_kinds();
        for kind in &kinds {
            demand("integrity", policy.integrity.contains(kind), format!("the data have {kind}"));
        }
        let may_be_absent = policy.integrity.is_empty() || policy.integrity.iter().any(|kind| kind == "none");
        let text = "the data have no integrity protection".to_owned();
        demand("integrity", may_be_absent || !kinds.is_empty(), text);
        let is_kept = policy.digest.as_ref().is_none_or(|pinned| *pinned == digest);
        demand("digest", is_kept, "the volume key is another one, or has another digest".to_owned());
        match (&policy.mac, &policy.mac_key) {
            (Some(mac), Some(key)) => {
                let found = self.mac(key, providers)?;
                let text = "the header was changed, or the key is another one".to_owned();
                demand("mac", constant_time_eq(&found, mac), text);
            }
            (Some(_), None) => {
                return Err(Error::argument("the policy has a mac, and no key for it was given"));
            }
            (None, Some(_)) => {
                return Err(Error::argument("a key for a mac was given, and the policy has none"));
            }
            (None, None) => {}
        }
        Ok(broken)
    }

    /// The policy that this header keeps, and as few others as can be: what to hold it against from now on. With a key the
    /// policy has an HMAC of the header, which any change breaks; without, it allows what can't harm.
    ///
    /// # Errors
    /// `Unsupported` where there is no SHA-256.
    pub fn policy(&self, mac_key: Option<&SecretVec>, providers: &Providers) -> Result<Policy, Error> {
        let facts = self.facts(providers.cpu());
        let mut policy = Policy {
            versions: vec![self.header.version()],
            ciphers: vec![facts.cipher],
            key_sizes: unique(facts.key_bits),
            sector_sizes: vec![facts.sector_size],
            hashes: unique(facts.hashes),
            keyslot_ciphers: unique(facts.slots.iter().map(|slot| slot.cipher.clone()).collect()),
            digest: Some(facts.digest),
            mac: mac_key.map(|key| self.mac(key, providers)).transpose()?,
            ..Policy::default()
        };
        let count = u32_of(facts.slots.len());
        policy.keyslots = Some(count.min(1)..=count);
        for slot in facts.slots {
            let cost = |(name, cost): &(&str, u32)| ((*name).to_owned(), *cost..=*cost);
            let rule = PbkdfRule { kind: slot.kdf, costs: slot.costs.iter().map(cost).collect() };
            match policy.pbkdfs.iter_mut().find(|known| known.kind == rule.kind) {
                Some(known) => {
                    for ((_, bounds), (_, new)) in known.costs.iter_mut().zip(&rule.costs) {
                        *bounds = *bounds.start().min(new.start())..=*bounds.end().max(new.end());
                    }
                }
                None => policy.pbkdfs.push(rule),
            }
        }
        if let Header::Luks2(header) = &self.header {
            let metadata = &header.metadata;
            policy.tokens = unique(metadata.tokens().into_iter().map(|token| token.kind).collect());
            policy.flags = unique(metadata.flags());
        }
        policy.integrity = self.integrity_kinds();
        Ok(policy)
    }

    /// The kinds of integrity protection that segments have.
    fn integrity_kinds(&self) -> Vec<String> {
        let Header::Luks2(header) = &self.header else { return Vec::new() };
        header.metadata.segments().into_iter().filter_map(|segment| segment.integrity).collect()
    }

    /// An error that names all rules that are broken, where some are.
    pub(super) fn check_policy(&self, policy: Option<&Policy>, providers: &Providers) -> Result<(), Error> {
        let broken =
            policy.map(|policy| self.broken_rules(policy, providers)).transpose()?.unwrap_or_default();
        if broken.is_empty() {
            return Ok(());
        }
        let texts: Vec<String> = broken.iter().map(Broken::to_string).collect();
        let text = format!("the LUKS header breaks the policy: {}", texts.join("; "));
        Err(Error::mismatch(text).at(self.header_image.name()))
    }

    /// HMAC-SHA256 of what the header says: all of a LUKS1 header, and of LUKS2 the metadata with label, UUID, subsystem and
    /// number. Salts and checksums of the copies are none of it, so either copy has the same.
    fn mac(&self, key: &SecretVec, providers: &Providers) -> Result<[u8; 32], Error> {
        let mut message = MAC_CONTEXT.to_vec();
        match &self.header {
            Header::Luks1(header) => message.extend_from_slice(&header.to_bytes()),
            Header::Luks2(header) => {
                message.extend_from_slice(&header.seqid.to_be_bytes());
                for text in [&header.label, &header.uuid, &header.subsystem] {
                    message.extend_from_slice(&u64_of(text.len()).to_be_bytes());
                    message.extend_from_slice(text.as_bytes());
                }
                message.extend_from_slice(&header.metadata.to_plain());
            }
        }
        let tag = Hmac::new(providers.hash("sha256")?, key.expose()).tag(&message);
        tag.expose().try_into().map_err(|_| Error::unsupported("SHA-256 has 32 bytes"))
    }

    fn facts(&self, cpu: Cpu) -> Facts {
        let mut facts = match &self.header {
            Header::Luks1(header) => Facts {
                cipher: header.encryption(),
                key_bits: vec![header.key_bytes.saturating_mul(8)],
                sector_size: 512,
                hashes: vec![header.hash.clone()],
                slots: (0..)
                    .zip(&header.slots)
                    .filter(|(_, slot)| slot.state == SlotState::Enabled)
                    .map(|(id, slot)| SlotFacts {
                        id,
                        cipher: header.encryption(),
                        kdf: "pbkdf2".to_owned(),
                        costs: vec![("iterations", slot.iterations)],
                    })
                    .collect(),
                digest: pinned(&header.hash, header.digest_iterations, &header.digest_salt, &header.digest),
                broken: self.overlap(u64::from(header.payload_offset) * 512).into_iter().collect(),
            },
            Header::Luks2(header) => self.facts_of_luks2(header, cpu),
        };
        if is_null(&facts.cipher) {
            facts
                .broken
                .push(Broken { rule: "null", text: format!("the data's cipher is {}", facts.cipher) });
        }
        for slot in facts.slots.iter().filter(|slot| is_null(&slot.cipher)) {
            let text = format!("the cipher of key slot {} is {}", slot.id, slot.cipher);
            facts.broken.push(Broken { rule: "null", text });
        }
        facts
    }

    fn facts_of_luks2(&self, header: &crate::luks2::Header, cpu: Cpu) -> Facts {
        let metadata = &header.metadata;
        let (segments, digests, keyslots) = (metadata.segments(), metadata.digests(), metadata.keyslots());
        let mut broken = Vec::new();
        let mut breaks = |rule: &'static str, text: String| broken.push(Broken { rule, text });
        for name in metadata.requirements() {
            breaks("requirement", format!("there is {name}"));
        }
        if segments.len() != 1 {
            breaks("segment", format!("there are {}", segments.len()));
        }
        for segment in &segments {
            let whole = match segment.size {
                SegmentSize::Dynamic => true,
                SegmentSize::Fixed(size) => segment.offset.checked_add(size) == Some(self.data.top().size()),
            };
            if segment.kind != "crypt" || !segment.flags.is_empty() || segment.iv_tweak != 0 || !whole {
                let text = format!(
                    "segment {} is not of type crypt over the whole device without flags and IV offset",
                    segment.id
                );
                breaks("segment", text);
            }
        }
        let of_data: Vec<&Digest> = digests.iter().filter(|digest| digest.segments.contains(&0)).collect();
        if of_data.len() != 1 || of_data[0].kind != "pbkdf2" {
            breaks(
                "digest",
                format!("the data have {} digests; it should be one of type pbkdf2", of_data.len()),
            );
        }
        let mut hashes: Vec<String> = digests.iter().map(|digest| digest.hash.clone()).collect();
        let mut digest = String::new();
        for found in of_data.iter().take(1) {
            match (decode(&found.salt, "salt", cpu), decode(&found.digest, "digest", cpu)) {
                (Ok(salt), Ok(bytes)) if DIGEST_LEN.contains(&bytes.len()) => {
                    digest = pinned(&found.hash, found.iterations, &salt, &bytes);
                }
                _ => breaks("digest", format!("digest {} is invalid", found.id)),
            }
        }
        let mut slots = Vec::new();
        let mut key_bits = Vec::new();
        for slot in &keyslots {
            let Some(kdf) = &slot.kdf else {
                breaks("key-slots", format!("key slot {} is of type {}", slot.id, slot.kind));
                continue;
            };
            let (kdf, costs) = match &kdf.pbkdf {
                Ok(pbkdf) => (pbkdf.name().to_owned(), pbkdf.costs()),
                Err(name) => (name.clone(), Vec::new()),
            };
            if let Ok(Pbkdf::Pbkdf2 { hash, .. }) = slot.pbkdf() {
                hashes.push(hash.clone());
            }
            hashes.push(slot.af_hash.clone());
            key_bits.push(slot.key_size.saturating_mul(8));
            slots.push(SlotFacts { id: slot.id, cipher: slot.area.encryption.clone(), kdf, costs });
        }
        let first = segments.into_iter().next();
        if let Some(segment) = &first {
            broken.extend(self.overlap(segment.offset));
        }
        Facts {
            cipher: first.as_ref().map(|segment| segment.encryption.clone()).unwrap_or_default(),
            key_bits: unique(key_bits),
            sector_size: first.map_or(0, |segment| segment.sector_size),
            hashes: unique(hashes),
            slots,
            digest,
            broken,
        }
    }

    /// Data that begin in the header that lies before them.
    fn overlap(&self, offset: u64) -> Option<Broken> {
        let end = self.header.metadata_end();
        let overlaps = self.data.is_same(&self.header_image) && offset < end;
        let text = format!("the data begin at byte {offset}, in the header, which ends at {end}");
        overlaps.then_some(Broken { rule: "segment", text })
    }
}

/// A digest with all that it is made of: with fewer iterations, or another salt, the same bytes could be those of another
/// key.
fn pinned(hash: &str, iterations: u32, salt: &[u8], digest: &[u8]) -> String {
    format!("pbkdf2-{hash}:{iterations}:{}:{}", hex::encode(salt), hex::encode(digest))
}

fn unique<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values.dedup();
    values
}
