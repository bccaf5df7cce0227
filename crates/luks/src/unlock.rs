//! From a passphrase to the volume key, through the key slots of either version.

use std::sync::{Mutex, PoisonError};

use crate::luks2::{Digest, Keyslot, Priority, decode};
use crate::{Header, luks1, luks2};
use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::{KdfLimits, Providers, Work, pbkdf2};

use super::{LuksKey, LuksOptions, Reason};
use crate::pbkdf::Cost;
use crate::slot::{DIGEST_LEN, Slot, is_null};
use crate::{Advice, Code, Error, ErrorKind};

/// A volume key that was found to be right.
#[derive(Debug)]
pub struct Unlocked {
    /// The number of the key slot that was opened; `None` for a volume key that was given.
    pub keyslot: Option<u32>,
    /// The volume key.
    pub(super) volume_key: SecretVec,
    /// Whether the passphrase had no bytes: that of a volume that is not to be kept secret.
    pub(super) is_empty_passphrase: bool,
    /// True for the key of the data, false for that of an unbound key slot, which somebody named.
    pub(super) is_of_data: bool,
}

impl Unlocked {
    /// The volume key, for data that a cipher is of.
    ///
    /// # Errors
    /// `Unsupported` for a cipher that encrypts nothing, unless the volume is one that is open to all; errors of
    /// [`Unlocked::check_of_data`].
    pub(super) fn key_of(&self, encryption: &str) -> Result<&SecretVec, Error> {
        self.check_of_data()?;
        match is_null(encryption) && !self.is_empty_passphrase {
            true => Err(Error::unsupported(format!(
                "the data's cipher is {encryption}, which encrypts nothing; only an empty passphrase opens it"
            ))),
            false => Ok(&self.volume_key),
        }
    }

    /// Refuses the key of an unbound key slot: with it the data would be read as noise, and written as noise.
    ///
    /// # Errors
    /// `Argument`.
    pub(super) fn check_of_data(&self) -> Result<(), Error> {
        match (self.is_of_data, self.keyslot) {
            (true, _) => Ok(()),
            (false, slot) => {
                let slot = slot.map_or_else(String::new, |slot| format!("key slot {slot}: "));
                let text =
                    format!("{slot}the key is unbound, and does not open the data; name another key slot");
                Err(Reason::NoUsableSlot.of(Error::argument(text)))
            }
        }
    }

    /// The volume key. Who has it reads the data whatever becomes of the key slots.
    pub fn volume_key(&self) -> &SecretVec {
        &self.volume_key
    }
}

/// A digest of a volume key.
pub(super) struct Check {
    pub hash: String,
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub digest: Vec<u8>,
}

/// Finds the volume key of a header that lies on `device`. Slots of about the same cost are tried at the same time, as far as
/// threads and memory go.
pub(super) fn unlock(
    header: &Header,
    device: &dyn BlockDevice,
    key: &LuksKey,
    options: &LuksOptions,
    work: &Work<'_>,
) -> Result<Unlocked, Error> {
    let mut budget = Budget::new(options.limits);
    let passphrase = match key {
        LuksKey::VolumeKey(key) => return check_volume_key(header, key, &mut budget, &work.providers),
        LuksKey::Passphrase(passphrase) => passphrase,
    };
    let found = slots(header, options, work.providers.cpu())?;
    let ignored = if options.keyslot.is_none() { ignored_slots(header) } else { Vec::new() };
    try_slots(found, device, passphrase, options, &mut budget, work).map_err(|error| {
        let numbers: Vec<String> = ignored.iter().map(u32::to_string).collect();
        let not_tried = match &numbers[..] {
            [] => return error,
            [one] => format!("key slot {one} was not tried: its priority is 'ignore'"),
            all => format!("key slots {} were not tried: their priority is 'ignore'", all.join(", ")),
        };
        let error = match error.cause::<Reason>() {
            Some(Reason::NoUsableSlot) => error.map_text(|_| not_tried),
            Some(Reason::WrongPassphrase) => error.map_text(|text| format!("{text}; {not_tried}")),
            _ => return error,
        };
        error.advise(Advice::KeySlot)
    })
}

/// The key slots of the data that are tried only where they are named.
pub(super) fn ignored_slots(header: &Header) -> Vec<u32> {
    let Header::Luks2(header) = header else { return Vec::new() };
    let of_data = header.metadata.digests_of_data();
    let is_ignored = |slot: &&Keyslot| {
        slot.priority == Priority::Ignore
            && slot.kind == "luks2"
            && of_data.iter().any(|digest| digest.keyslots.contains(&slot.id))
    };
    header.metadata.keyslots().iter().filter(is_ignored).map(|slot| slot.id).collect()
}

#[allow(clippy::type_complexity, reason = "as below")]
fn try_slots(
    found: Vec<(u32, Result<Candidate, Error>)>,
    device: &dyn BlockDevice,
    passphrase: &SecretVec,
    options: &LuksOptions,
    budget: &mut Budget,
    work: &Work<'_>,
) -> Result<Unlocked, Error> {
    let is_empty_passphrase = passphrase.is_empty();
    let (mut tried, mut failed, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    let not_tried =
        |id: u32, error: Error| error.map_text(|text| format!("key slot {id} was not tried: {text}"));
    for (id, slot) in found {
        match slot {
            Ok(slot) => slots.push(slot),
            Err(error) => failed.push(not_tried(id, error)),
        }
    }
    while !slots.is_empty() {
        let left = usize_of(options.tries).saturating_sub(tried.len());
        let count = together(&slots, options.limits.memory, work.pool.threads()).min(left.max(1));
        let mut group: Vec<Candidate> = Vec::new();
        for slot in slots.drain(..count) {
            let afforded = if left == 0 {
                let text =
                    format!("it is one more than the {} that are tried; it can be named", options.tries);
                Err(Error::unsupported(text).advise(Advice::KeySlot).advise(Advice::KdfLimit))
            } else {
                slot.cost(&work.providers).and_then(|cost| budget.spend(&cost))
            };
            match afforded {
                Ok(()) => group.push(slot),
                Err(error) => failed.push(not_tried(slot.id, error)),
            }
        }
        let results: Mutex<Vec<_>> = Mutex::default();
        let open = |_: &mut (), number| {
            let slot = &group[usize_of(number)];
            let opened = slot.open(device, passphrase, &options.limits, &work.providers);
            let opened = opened.map(|key| key.map(|key| (key, slot.is_of_data)));
            results.lock().unwrap_or_else(PoisonError::into_inner).push((number, slot.id, opened));
            Ok::<(), Error>(())
        };
        work.pool.run(u64_of(group.len()), || (), open)?;
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(number, ..)| *number);
        for (_, id, opened) in results {
            match opened {
                Ok(Some((volume_key, is_of_data))) => {
                    return Ok(Unlocked { keyslot: Some(id), volume_key, is_empty_passphrase, is_of_data });
                }
                Ok(None) => tried.push(id),
                Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Interrupted) => {
                    return Err(error);
                }
                Err(error) => failed.push(not_tried(id, error)),
            }
        }
    }
    if tried.is_empty() {
        let none = || {
            let text = "no key slot holds a key of the data; only the volume key opens them";
            Reason::NoUsableSlot.of(Error::locked(text))
        };
        return Err(failed.into_iter().next().unwrap_or_else(none));
    }
    let mut text = match &tried[..] {
        [one] => format!("key slot {one} does not open with this passphrase"),
        _ => "no key slot opens with this passphrase".to_owned(),
    };
    if passphrase.expose().ends_with(b"\n") {
        text.push_str("; the passphrase ends in a line feed, which counts");
    }
    failed.iter().for_each(|error| text.push_str(&format!("; {}", error.text())));
    // A slot that was not tried may be the passphrase's: whether that is right was not found out.
    let Some(first) = failed.first() else {
        return Err(Reason::WrongPassphrase.of(Error::coded(Code::WrongKey, text)));
    };
    let mut error = Error::coded(first.code(), text);
    for advice in failed.iter().flat_map(Error::advice) {
        if !error.advice().contains(advice) {
            error = error.advise(advice.clone());
        }
    }
    Err(error)
}

/// How many of these slots are tried at the same time, at least one: those that follow the first and cost no more than twice
/// as much, if together they have no more lanes than there are threads, and no more memory than one may have.
fn together(slots: &[Candidate], most_memory: u32, threads: usize) -> usize {
    let sizes = slots.iter().map(|one| one.slot.kdf.size());
    let (mut lanes, mut memory, mut first) = (0_u64, 0_u64, None);
    let fitting = sizes.take_while(|(more_lanes, more_memory, work)| {
        let first = *first.get_or_insert(*work);
        lanes += u64::from(*more_lanes);
        memory += u64::from(*more_memory);
        lanes <= u64_of(threads) && memory <= most_memory.into() && work / 2 <= first
    });
    fitting.count().max(1)
}

/// Costs that the key derivations of one opening may still have together: those of all key slots that are tried, and of digests.
pub(super) struct Budget {
    limits: KdfLimits,
    iterations: u64,
    work: u64,
}

impl Budget {
    pub fn new(limits: KdfLimits) -> Budget {
        Budget { limits, iterations: limits.iterations, work: limits.work }
    }

    /// Takes what a derivation costs.
    ///
    /// # Errors
    /// `Unsupported` if that is more than is left; nothing is taken then.
    fn spend(&mut self, cost: &Cost) -> Result<(), Error> {
        for (left, cost, all, what) in [
            (self.iterations, cost.iterations, self.limits.iterations, "iterations"),
            (self.work, cost.work, self.limits.work, "KiB of memory in all passes"),
        ] {
            if cost > left {
                let spent = all - left;
                let before = match spent {
                    0 => String::new(),
                    spent => format!(", {spent} of which are spent"),
                };
                let text = format!("it demands {cost} {what}; opening a volume may cost {all}{before}");
                return Err(Error::coded(Code::TooCostly, text)
                    .advise(Advice::KeySlot)
                    .advise(Advice::KdfLimit));
            }
        }
        self.iterations -= cost.iterations;
        self.work -= cost.work;
        Ok(())
    }
}

/// Finds the volume key that a digest is of: in one of its slots, or that it is the one that was given.
///
/// # Errors
/// Errors of [`unlock`].
pub(super) fn key_of_digest(
    header: &luks2::Header,
    device: &dyn BlockDevice,
    digest: u32,
    key: &LuksKey,
    options: &LuksOptions,
    budget: &mut Budget,
    work: &Work<'_>,
) -> Result<Unlocked, Error> {
    let is_it = |one: &Digest| one.id == digest;
    let mut options = options.clone();
    // A slot that is named may be of the other key.
    let has =
        |slot: &u32| header.metadata.digests().iter().any(|one| is_it(one) && one.keyslots.contains(slot));
    let is_slot = |slot: &u32| {
        let keyslots = header.metadata.keyslots();
        let is_bound = |digest: &Digest| digest.keyslots.contains(slot);
        keyslots.iter().any(|known| known.id == *slot && known.kind == "luks2")
            && header.metadata.digests().iter().any(is_bound)
    };
    if let Some(slot) = options.keyslot.filter(|slot| !is_slot(slot)) {
        return Err(no_slot(slot));
    }
    options.keyslot = options.keyslot.filter(has);
    match key {
        LuksKey::VolumeKey(key) => {
            check_key_of_digests(&header.metadata, is_it, key, budget, &work.providers)
        }
        LuksKey::Passphrase(passphrase) => {
            let slots = slots_of_luks2(header, is_it, &options, work.providers.cpu())?;
            try_slots(slots, device, passphrase, &options, budget, work)
        }
    }
}

/// The slots in the order in which they are tried; each may be one that can't be.
#[allow(clippy::type_complexity, reason = "said in one place, and taken apart in one")]
fn slots(
    header: &Header,
    options: &LuksOptions,
    cpu: Cpu,
) -> Result<Vec<(u32, Result<Candidate, Error>)>, Error> {
    match header {
        Header::Luks1(header) => {
            let named = |id: u32| options.keyslot.is_none_or(|named| named == id);
            let all = (0u32..).zip(&header.slots);
            let enabled: Vec<_> =
                all.filter(|(id, slot)| named(*id) && slot.state == luks1::SlotState::Enabled).collect();
            if let (Some(id), true) = (options.keyslot, enabled.is_empty()) {
                return Err(no_slot(id));
            }
            let candidate = |id, slot| {
                let checks = vec![Check::of_luks1(header)];
                Candidate { id, slot: Slot::of_luks1(header, slot), checks, is_of_data: true }
            };
            Ok(enabled.into_iter().map(|(id, slot)| (id, Ok(candidate(id, slot)))).collect())
        }
        Header::Luks2(header) => slots_of_luks2(header, is_of_data(&header.metadata), options, cpu),
    }
}

/// Whether a digest is of a key of the data.
fn is_of_data(metadata: &luks2::Metadata) -> impl Fn(&Digest) -> bool + use<> {
    let digests: Vec<u32> = metadata.digests_of_data().into_iter().map(|digest| digest.id).collect();
    move |digest| digests.contains(&digest.id)
}

pub(super) fn no_slot(id: u32) -> Error {
    Reason::SlotNotActive(id).of(Error::argument(format!("key slot {id} is not active")))
}

#[allow(clippy::type_complexity, reason = "as above")]
fn slots_of_luks2(
    header: &luks2::Header,
    is_wanted: impl Fn(&Digest) -> bool,
    options: &LuksOptions,
    cpu: Cpu,
) -> Result<Vec<(u32, Result<Candidate, Error>)>, Error> {
    let metadata = &header.metadata;
    if metadata.has_token_out_of_range() {
        let text = "LUKS2 metadata: a token's number is above 31, on which cryptsetup ends itself";
        return Err(Error::corrupt(text));
    }
    let (keyslots, digests) = (metadata.keyslots(), metadata.digests());
    let mut found = Vec::new();
    for id in metadata.keyslot_order() {
        let Some(keyslot) = keyslots.iter().find(|slot| slot.id == id && slot.kind == "luks2") else {
            continue;
        };
        let mut of_slot: Vec<&Digest> =
            digests.iter().filter(|digest| digest.keyslots.contains(&id)).collect();
        let is_bound = of_slot.iter().any(|digest| is_wanted(digest));
        if is_bound {
            of_slot.retain(|digest| is_wanted(digest));
        }
        let wanted = match options.keyslot {
            Some(named) => named == id,
            None => (is_bound || options.unbound) && keyslot.priority != Priority::Ignore,
        };
        if wanted {
            let checks =
                || of_slot.iter().map(|digest| Check::of_luks2(digest, cpu)).collect::<Result<_, _>>();
            let candidate = || {
                let (slot, checks) = (Slot::of_luks2(keyslot, cpu)?, checks()?);
                Ok(Candidate { id, slot, checks, is_of_data: is_bound })
            };
            found.push((keyslot.priority, id, candidate()));
        }
    }
    if let (Some(id), true) = (options.keyslot, found.is_empty()) {
        return Err(no_slot(id));
    }
    found.sort_by_key(|(priority, ..)| *priority);
    Ok(found.into_iter().map(|(_, id, slot)| (id, slot)).collect())
}

/// Key slot that is tried, and what tells whether its key is right.
struct Candidate {
    id: u32,
    slot: Slot,
    checks: Vec<Check>,
    is_of_data: bool,
}

impl Candidate {
    /// Costs of trying the slot: deriving its key, and comparing what is in it with digests.
    fn cost(&self, providers: &Providers) -> Result<Cost, Error> {
        let mut cost = self.slot.kdf.cost(self.slot.cipher_key_len, providers)?;
        for check in &self.checks {
            cost.iterations = cost.iterations.saturating_add(check.cost(providers)?.iterations);
        }
        Ok(cost)
    }

    /// The key in the slot, if the passphrase is the slot's.
    fn open(
        &self,
        device: &dyn BlockDevice,
        passphrase: &SecretVec,
        limits: &KdfLimits,
        providers: &Providers,
    ) -> Result<Option<SecretVec>, Error> {
        let encryption = &self.slot.encryption;
        if is_null(encryption) && !passphrase.is_empty() {
            let text =
                format!("its cipher is {encryption}, which hides nothing; only an empty passphrase opens it");
            return Err(Error::unsupported(text));
        }
        let key = self.slot.unseal(device, passphrase, limits, providers)?;
        for check in &self.checks {
            if check.fits(&key, limits, providers)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Check {
    fn of_luks1(header: &luks1::Header) -> Check {
        Check {
            hash: header.hash.clone(),
            iterations: header.digest_iterations,
            salt: header.digest_salt.to_vec(),
            digest: header.digest.to_vec(),
        }
    }

    pub fn of_luks2(digest: &Digest, cpu: Cpu) -> Result<Check, Error> {
        if digest.kind != "pbkdf2" {
            return Err(Error::unsupported(format!("digest {} is of type '{}'", digest.id, digest.kind)));
        }
        Ok(Check {
            hash: digest.hash.clone(),
            iterations: digest.iterations,
            salt: decode(&digest.salt, "digest's salt", cpu)?,
            digest: decode(&digest.digest, "digest", cpu)?,
        })
    }

    fn cost(&self, providers: &Providers) -> Result<Cost, Error> {
        Cost::of_pbkdf2(&self.hash, self.iterations, self.digest.len(), providers)
    }

    /// Whether the digest is that of a key, at the cost of a budget.
    ///
    /// # Errors
    /// `Unsupported` if it costs more than is left, and for a hash that is not known; `Corrupt` for a digest of no use.
    pub fn fits_within(
        &self,
        key: &SecretVec,
        budget: &mut Budget,
        providers: &Providers,
    ) -> Result<bool, Error> {
        budget.spend(&self.cost(providers)?)?;
        self.fits(key, &budget.limits, providers)
    }

    /// Whether the digest is that of a key.
    fn fits(&self, key: &SecretVec, limits: &KdfLimits, providers: &Providers) -> Result<bool, Error> {
        // With nothing to compare with, any key would be right.
        if !DIGEST_LEN.contains(&self.digest.len()) {
            return Err(Error::corrupt(format!("a digest of {} bytes", self.digest.len())));
        }
        let hash = providers.hash(&self.hash)?;
        let found = pbkdf2(hash, key.expose(), &self.salt, self.iterations, self.digest.len(), limits)?;
        Ok(constant_time_eq(found.expose(), &self.digest))
    }
}

fn check_volume_key(
    header: &Header,
    key: &SecretVec,
    budget: &mut Budget,
    providers: &Providers,
) -> Result<Unlocked, Error> {
    match header {
        Header::Luks1(header) => {
            check_key(key, Some(header.key_bytes), &[Check::of_luks1(header)], budget, providers)
        }
        Header::Luks2(header) => {
            let metadata = &header.metadata;
            check_key_of_digests(metadata, is_of_data(metadata), key, budget, providers)
        }
    }
}

fn check_key_of_digests(
    metadata: &luks2::Metadata,
    is_wanted: impl Fn(&Digest) -> bool,
    key: &SecretVec,
    budget: &mut Budget,
    providers: &Providers,
) -> Result<Unlocked, Error> {
    let digests: Vec<Digest> = metadata.digests().into_iter().filter(|digest| is_wanted(digest)).collect();
    let named = |slot: &Keyslot| digests.iter().any(|digest| digest.keyslots.contains(&slot.id));
    let len = metadata.keyslots().iter().find(|slot| named(slot)).map(|slot| slot.key_size);
    let checks: Vec<Check> =
        digests.iter().map(|digest| Check::of_luks2(digest, providers.cpu())).collect::<Result<_, _>>()?;
    check_key(key, len, &checks, budget, providers)
}

fn check_key(
    key: &SecretVec,
    len: Option<u32>,
    checks: &[Check],
    budget: &mut Budget,
    providers: &Providers,
) -> Result<Unlocked, Error> {
    // HMAC fills keys up with zeros, so a key of another length may have the same digest.
    let wrong = || Reason::WrongVolumeKey.of(Error::coded(Code::WrongKey, "this is not the volume key"));
    if len.is_some_and(|len| usize_of(len) != key.len()) {
        return Err(wrong());
    }
    for check in checks {
        if check.fits_within(key, budget, providers)? {
            let volume_key = key.clone();
            return Ok(Unlocked { keyslot: None, volume_key, is_empty_passphrase: false, is_of_data: true });
        }
    }
    Err(wrong())
}

#[cfg(test)]
mod tests {
    use casemate_providers::{Argon2, Argon2Variant};

    use super::*;
    use crate::Pbkdf;

    fn slot(kdf: Pbkdf) -> Candidate {
        let (area, encryption, hash) = (0..0, String::new(), String::new());
        let slot = Slot { key_len: 0, area, encryption, cipher_key_len: 0, hash, kdf, salt: Vec::new() };
        Candidate { id: 0, slot, checks: Vec::new(), is_of_data: true }
    }

    #[test]
    fn slots_share_threads_and_memory() {
        let pbkdf2 = |iterations| slot(Pbkdf::Pbkdf2 { hash: String::new(), iterations });
        let argon2 = |memory, lanes| {
            slot(Pbkdf::Argon2(Argon2 { variant: Argon2Variant::Id, passes: 4, memory, lanes }))
        };
        let small: Vec<_> = (0..8).map(|_| argon2(1000, 1)).collect();
        for (slots, threads, expected) in [
            (&[pbkdf2(1000), pbkdf2(1500), pbkdf2(2001), pbkdf2(2002)][..], 8, 3),
            (&[pbkdf2(1000), pbkdf2(1), pbkdf2(1)], 2, 2),
            (&[pbkdf2(1000), pbkdf2(1)], 1, 1),
            (&[argon2(1 << 20, 4), argon2(8, 1)], 4, 1),
            (&[argon2(1 << 20, 4)], 2, 1),
            (&[argon2(1 << 20, 1), argon2(1000, 1)], 4, 1),
            (&small, 4, 4),
            (&small, 64, 8),
        ] {
            assert_eq!(together(slots, 1 << 20, threads), expected);
        }
    }
}
