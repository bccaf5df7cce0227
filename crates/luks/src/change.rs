//! Key slots added and removed, so that at any moment the header opens with the keys of before or of after.
//!
//! A new slot's area is written first, and then the header that names it. A slot that goes is wiped first: from then on it
//! opens nothing, whatever the header says.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use crate::Header;
use crate::json::{Json, Object};
use crate::luks1::{self, SlotState};
use crate::luks2::{self, Metadata};
use casemate_blockdev::{Advice, AtFile, BlockDevice, Lease, u32_of, u64_of, usize_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

use super::areas::{free_area, free_slot, no_free_slot, taken_slot};
use super::backup::{self, write_private};
use super::digest::new_digest;
use super::random::Source;
use super::slot::{AreaCipher, Material, Slot, area_len};
use super::unlock::no_slot;
use super::{LuksKey, LuksOptions, Reason, Unlocked, Volume, refuse_empty};
use crate::Error;
use crate::pbkdf::Pbkdf;

/// A key slot that is to be made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewKeyOptions {
    /// The number of a slot that is added; the first free one if `None`. A passphrase of LUKS1 that is changed keeps its slot's
    /// number if it is this one; LUKS2 always keeps it.
    pub keyslot: Option<u32>,
    /// KDF that makes a key of the passphrase, with its costs; if `None`, Argon2id, or PBKDF2 for LUKS1.
    pub pbkdf: Option<Pbkdf>,
    /// The hash of the stripes, of LUKS2; SHA-256 if `None`.
    pub hash: Option<String>,
    /// The cipher of the slot's area, of LUKS2; that of the data, or AES-XTS, if `None`.
    pub area: Option<AreaCipher>,
    /// Whether the passphrase may be empty, which anybody knows.
    pub allow_empty_passphrase: bool,
}

/// A random key.
///
/// # Errors
/// `Io` if there are no random bytes.
pub fn random_key(len: usize) -> Result<SecretVec, Error> {
    let mut key = SecretVec::zeroed(len);
    Source::System.fill(key.expose_mut())?;
    Ok(key)
}

impl Volume {
    /// Puts the volume key into a free key slot, which a passphrase opens then. Returns the slot's number.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading, the slot is not free, or there is no room for one; `Unsupported` if
    /// the header requires something; `Io`: then everything is as it was, or the slot is there.
    pub fn add_key(
        &mut self,
        unlocked: &Unlocked,
        passphrase: &SecretVec,
        options: &NewKeyOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        refuse_empty(passphrase, options.allow_empty_passphrase)?;
        unlocked.check_of_data().at(self.header_image.name())?;
        let lease = self.lease_header()?;
        if let Header::Luks1(header) = &mut self.header {
            let image = &self.header_image;
            let added = add_luks1(header, image.top(), unlocked, passphrase, options, &work.providers);
            return added.at(image.name());
        }
        drop(lease);
        self.put_key(unlocked.volume_key(), Some(unlocked), passphrase, options, work)
    }

    /// Puts a key that is for no data into a free key slot of LUKS2. Returns the slot's number.
    ///
    /// # Errors
    /// Errors of [`Volume::add_key`].
    pub fn add_unbound_key(
        &mut self,
        key: &SecretVec,
        passphrase: &SecretVec,
        options: &NewKeyOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        refuse_empty(passphrase, options.allow_empty_passphrase)?;
        self.put_key(key, None, passphrase, options, work)
    }

    /// Puts a key into a free key slot of LUKS2: one that was found, under its digest, or a new one, under a digest of its own.
    fn put_key(
        &mut self,
        key: &SecretVec,
        known: Option<&Unlocked>,
        passphrase: &SecretVec,
        options: &NewKeyOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        let providers = &work.providers;
        let added = self.edit_around(
            work,
            write_material,
            |header, metadata| {
                let id = free_slot(&header.metadata, options.keyslot)?;
                let digest = known.map(|known| digest_of(&header.metadata, known)).transpose()?;
                let mut options = options.clone();
                if known.is_none() {
                    options.area = options.area.or_else(area_of_unbound);
                }
                let start = free_area(&header.metadata, key.len())?;
                let sealed = seal_luks2(&header.metadata, start, key, passphrase, &options, providers)?;
                let digest = match digest {
                    Some(digest) => digest.id,
                    None => {
                        let free = free_digest(&header.metadata)?;
                        let json = new_digest(key, &sealed.0.hash, &[], &mut Source::System, providers)?;
                        if let Some(digests) = metadata.get_mut("digests").and_then(Json::object_mut) {
                            digests.set(free.to_string(), json.into());
                        }
                        free
                    }
                };
                set_slot(metadata, id, sealed.0.to_json(providers.cpu()), digest);
                Ok((id, sealed))
            },
            |_, _| Ok(()),
        )?;
        Ok(added.0)
    }

    /// Puts the volume key under another passphrase, or other costs. Returns the slot's number: the one that was opened, but of
    /// LUKS1 with a free slot that one, unless `options` name the one that was opened. When the new slot is there the old one is wiped; until then it is a slot of its own.
    /// Where there is no room for that, the new key takes the old one's place, as other keys open the data meanwhile.
    ///
    /// # Errors
    /// Errors of [`Volume::add_key`], but a header with other keys may be full; `Argument` if a volume key was given instead
    /// of a passphrase.
    pub fn change_key(
        &mut self,
        unlocked: &Unlocked,
        passphrase: &SecretVec,
        options: &NewKeyOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        let Some(old) = unlocked.keyslot else {
            return Err(Error::argument("a volume key is in no key slot: add-key adds a passphrase"));
        };
        refuse_empty(passphrase, options.allow_empty_passphrase)?;
        let lease = self.lease_header()?;
        if let Header::Luks1(header) = &mut self.header {
            if header.slots.iter().all(|slot| slot.state != SlotState::Disabled) {
                let (image, key) = (&self.header_image, unlocked.volume_key());
                let done = put_luks1(header, image.top(), old, key, passphrase, options, &work.providers);
                return done.at(image.name()).map(|()| old);
            }
            drop(lease);
            let anywhere = NewKeyOptions { keyslot: None, ..options.clone() };
            let new = self.add_key(unlocked, passphrase, &anywhere, work)?;
            if options.keyslot != Some(old) {
                return self.erase_slots(&[old], work).map(|()| new);
            }
            // Until the old slot has the new key, the other slot has it too.
            self.copy_slot(new, old)?;
            return self.erase_slots(&[new], work).map(|()| old);
        }
        drop(lease);
        // Where the old slot has no number any more its area is wiped at once: it is free for others from then on.
        let wipe_left =
            |device: &dyn BlockDevice, ((moved, left), _): &((Option<u32>, Option<Range<u64>>), Sealed)| {
                match (moved, left) {
                    (None, Some(area)) => wipe(device, area.clone()),
                    _ => Ok(()),
                }
            };
        let change = |header: &mut luks2::Header, metadata: &mut Object| {
            let slot = header.metadata.keyslots().into_iter().find(|slot| slot.id == old);
            let object =
                metadata.get("keyslots").and_then(|slots| slots.object()?.get(old.to_string())?.object());
            let (Some(slot), Some(before)) = (slot, object.cloned()) else {
                return Err(no_slot(old));
            };
            let area = slot.area.offset..slot.area.offset.saturating_add(slot.area.size);
            let (digest, key) = (digest_of(&header.metadata, unlocked)?, unlocked.volume_key());
            let start = match free_area(&header.metadata, key.len()) {
                Ok(start) => start,
                Err(_) if digest.keyslots.len() > 1 && area_len(key.len())? <= slot.area.size => area.start,
                Err(full) => {
                    let text = format!("{}, and it must not be lost if power fails now", full.text());
                    return Err(Error::argument(text));
                }
            };
            let mut options = options.clone();
            if !digest.segments.contains(&0) {
                options.area = options.area.or_else(area_of_unbound);
            }
            let sealed = seal_luks2(&header.metadata, start, key, passphrase, &options, &work.providers)?;
            let mut json = sealed.0.to_json(work.providers.cpu());
            if let Some(priority) = before.get("priority") {
                json.set("priority", priority.clone());
            }
            let is_apart = start != area.start;
            let moved = free_slot(&header.metadata, None).ok().filter(|_| is_apart);
            if let Some(moved) = moved {
                set_slot(metadata, moved, before, digest.id);
            }
            set_slot(metadata, old, json, digest.id);
            Ok(((moved, is_apart.then_some(area)), sealed))
        };
        let ((moved, _), _) = self.edit_around(work, write_material, change, wipe_left)?;
        if let Some(moved) = moved {
            self.erase_slots(&[moved], work)?;
        }
        Ok(old)
    }

    /// Puts into a key slot of LUKS1 what another one holds: both have the same key and the same stripes then.
    fn copy_slot(&mut self, from: u32, to: u32) -> Result<(), Error> {
        let _lease = self.lease_header()?;
        let image = &self.header_image;
        let Header::Luks1(header) = &mut self.header else {
            return Err(Error::unsupported("slots of LUKS2 are not copied").at(image.name()));
        };
        header.check_unchanged(image.top()).at(image.name())?;
        // OK to index: slots that were found.
        let (source, mut target) = (header.slots[usize_of(from)], header.slots[usize_of(to)]);
        let area = header.area(&source);
        // Stripes of a key of at most 1024 bytes.
        let mut stripes = SecretVec::zeroed(usize_of(area.end - area.start));
        let device = image.top();
        let copied = device.read_at(stripes.expose_mut(), area.start);
        let copied = copied.and_then(|()| device.write_at(stripes.expose(), header.area(&target).start));
        copied.and_then(|()| device.flush()).at(image.name())?;
        (target.state, target.iterations, target.salt) = (source.state, source.iterations, source.salt);
        header.slots[usize_of(to)] = target;
        header.write(device).at(image.name())
    }

    /// Saves the key that was found to a new file, which only its owner can read.
    ///
    /// # Errors
    /// `Argument` if there is such a file; `Io`.
    pub fn save_volume_key(&self, unlocked: &Unlocked, path: &Path) -> Result<(), Error> {
        write_private(path, 0o600, |file| Ok(file.write_all(unlocked.volume_key().expose())?))
    }

    /// Removes a key slot: its area is wiped, and nothing brings the key in it back. Backups of the header still have it.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading, the slot holds no key, or it is the last one that opens the data;
    /// `Unsupported` if the header requires something; `Io`: then the slot may still be there, and opens nothing.
    pub fn kill_slot(&mut self, id: u32, work: &Work<'_>) -> Result<(), Error> {
        match self.is_last_slot(id) {
            true => Err(Error::argument(format!(
                "key slot {id} is the last one that opens the data: add another key before it is removed"
            ))
            .at(self.header_image.name())),
            false => self.erase_slots(&[id], work),
        }
    }

    /// Checks that a passphrase opens the data when a key slot is gone, by the slots that stay; of the last one, that it opens
    /// the slot itself. Returns the number of the slot that it opens.
    ///
    /// # Errors
    /// Errors of [`Volume::unlock`].
    pub fn check_remaining(
        &self,
        id: u32,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        let mut slots = self.slots_of_data();
        if slots != [id] {
            slots.retain(|slot| *slot != id);
        }
        let none = Reason::NoUsableSlot.of(Error::argument("no key slot opens the data"));
        let mut checked = Err(none.at(self.header_image.name()));
        // By their numbers, so that those count too that are tried only where they are named.
        for slot in slots.into_iter().take(usize_of(options.tries)) {
            let options = LuksOptions { keyslot: Some(slot), ..options.clone() };
            checked = self.unlock(key, &options, work).map(|_| slot);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }

    /// Removes key slots as [`Volume::kill_slot`] does, the last one that opens the data too: then nothing but a backup of
    /// the header, or the volume key, opens them again.
    ///
    /// # Errors
    /// Errors of [`Volume::kill_slot`].
    pub fn erase_slots(&mut self, ids: &[u32], work: &Work<'_>) -> Result<(), Error> {
        let is_all = ids.len() == self.slots().len();
        if is_all {
            self.wipe_leftovers(work)?;
        }
        let lease = self.lease_header()?;
        let (image, slots) = (&self.header_image, self.areas());
        let area = |id: &u32| {
            let found = slots.iter().find(|(slot, _)| slot == id).map(|(_, area)| area.clone());
            found.ok_or_else(|| no_slot(*id))
        };
        let mut areas: Vec<_> = ids.iter().map(area).collect::<Result<_, _>>().at(image.name())?;
        // The damaged mark of a slot may be put right, and the slot would open the volume again.
        let is_unsure = |slot: &luks1::Slot| is_all && matches!(slot.state, SlotState::Invalid(_));
        if let Header::Luks1(header) = &self.header {
            areas.extend(header.slots.iter().filter(|slot| is_unsure(slot)).map(|slot| header.area(slot)));
        }
        let wipe_all =
            |device: &dyn BlockDevice| areas.iter().try_for_each(|area| wipe(device, area.clone()));
        match &mut self.header {
            Header::Luks1(header) => {
                header.check_unchanged(image.top()).at(image.name())?;
                wipe_all(image.top()).at(image.name())?;
                // OK to index: such slots were found.
                ids.iter().for_each(|id| header.slots[usize_of(*id)].disable());
                header.slots.iter_mut().filter(|slot| is_unsure(slot)).for_each(luks1::Slot::disable);
                header.write(image.top()).at(image.name())
            }
            Header::Luks2(_) => {
                drop(lease);
                let forget = |_: &mut luks2::Header, metadata: &mut Object| {
                    ids.iter().for_each(|id| forget_slot(metadata, *id));
                    Ok(())
                };
                self.edit_around(work, |device, ()| wipe_all(device), forget, |_, ()| Ok(()))
            }
        }
    }

    /// The numbers of the key slots that hold keys.
    pub fn slots(&self) -> Vec<u32> {
        self.areas().into_iter().map(|(id, _)| id).collect()
    }

    /// The numbers of those that hold the key of the data.
    pub fn slots_of_data(&self) -> Vec<u32> {
        let mut slots = self.slots();
        if let Header::Luks2(header) = &self.header {
            let digests = header.metadata.digests_of_data();
            slots.retain(|id| digests.iter().any(|digest| digest.keyslots.contains(id)));
        }
        slots
    }

    /// The numbers of those that hold the key of the data, and are tried only where they are named: their priority is `ignore`.
    pub fn ignored_slots(&self) -> Vec<u32> {
        crate::unlock::ignored_slots(&self.header)
    }

    /// Whether a key slot is the last one that opens the data.
    pub fn is_last_slot(&self, id: u32) -> bool {
        self.slots_of_data() == [id]
    }

    /// The key slots that hold keys, with the bytes of their stripes.
    fn areas(&self) -> Vec<(u32, Range<u64>)> {
        match &self.header {
            Header::Luks1(header) => {
                let enabled = (0..).zip(&header.slots).filter(|(_, slot)| slot.state == SlotState::Enabled);
                enabled.map(|(id, slot)| (id, header.area(slot))).collect()
            }
            Header::Luks2(header) => {
                let keyslots = header.metadata.keyslots().into_iter().filter(|slot| slot.kind == "luks2");
                // OK to add: validated.
                keyslots.map(|slot| (slot.id, slot.area.offset..slot.area.offset + slot.area.size)).collect()
            }
        }
    }

    /// Changes a header of LUKS2, its metadata as JSON, and writes both copies. What can't be changes nothing; nor does
    /// anything if another program has changed the header since it was read.
    pub(super) fn edit<T>(
        &mut self,
        work: &Work<'_>,
        change: impl FnOnce(&mut luks2::Header, &mut Object) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.edit_around(work, |_, _| Ok(()), change, |_, _| Ok(()))
    }

    /// Change of the header with something that is written to the image before the header says that it is there, and something after.
    fn edit_around<T>(
        &mut self,
        work: &Work<'_>,
        before: impl FnOnce(&dyn BlockDevice, &T) -> Result<(), Error>,
        change: impl FnOnce(&mut luks2::Header, &mut Object) -> Result<T, Error>,
        after: impl FnOnce(&dyn BlockDevice, &T) -> Result<(), Error>,
    ) -> Result<T, Error> {
        let _lease = self.lease_header()?;
        let image = &self.header_image;
        let Header::Luks2(header) = &self.header else {
            return Err(Error::unsupported("LUKS1 has nothing of this; LUKS2 has").at(image.name()));
        };
        let (mut changed, mut object) = (header.clone(), header.metadata.object().clone());
        let result = change(&mut changed, &mut object).at(image.name())?;
        changed.metadata = Metadata::new(object, changed.metadata.hdr_size()).at(image.name())?;
        let _claim = self.claim_header()?;
        before(image.top(), &result).at(image.name())?;
        let written = changed.write(image.top(), &work.providers, &mut |bytes| Source::System.fill(bytes));
        let written = written.and_then(|()| after(image.top(), &result));
        let written = written.at(image.name()).map(|()| result);
        self.header = Header::Luks2(changed);
        written
    }

    /// The right to change header and key slots; the data may have another writer.
    pub(super) fn lease_header(&self) -> Result<Lease, Error> {
        if let Header::Luks2(header) = &self.header
            && let Some(name) = header.metadata.requirements().first()
        {
            let mut text = format!("the LUKS2 header requires {name}, and was not changed");
            let is_under_way = matches!(self.noted_reencryption(), Ok(Some(_)));
            if is_under_way {
                text += ": the volume is being reencrypted";
            }
            let error = Error::unsupported(text).at(self.header_image.name());
            return Err(if is_under_way { error.advise(Advice::FinishReencryption) } else { error });
        }
        if let Header::Luks2(header) = &self.header {
            header.refuse_ending().at(self.header_image.name())?;
        }
        self.header_image.lease_bytes(0..backup::len(&self.header))
    }
}

fn add_luks1(
    header: &mut luks1::Header,
    device: &dyn BlockDevice,
    unlocked: &Unlocked,
    passphrase: &SecretVec,
    options: &NewKeyOptions,
    providers: &Providers,
) -> Result<u32, Error> {
    let is_free = |id: &usize| header.slots[*id].state == SlotState::Disabled;
    let id = match options.keyslot {
        None => (0..luks1::SLOTS).find(is_free).ok_or_else(no_free_slot)?,
        Some(id) => Some(usize_of(id))
            .filter(|id| *id < luks1::SLOTS && is_free(id))
            .ok_or_else(|| taken_slot(id, u32_of(luks1::SLOTS)))?,
    };
    let id = u32_of(id);
    put_luks1(header, device, id, unlocked.volume_key(), passphrase, options, providers).map(|()| id)
}

/// Puts the volume key into a slot of LUKS1, whatever that holds.
fn put_luks1(
    header: &mut luks1::Header,
    device: &dyn BlockDevice,
    id: u32,
    key: &SecretVec,
    passphrase: &SecretVec,
    options: &NewKeyOptions,
    providers: &Providers,
) -> Result<(), Error> {
    let pbkdf = options.pbkdf.clone().unwrap_or_else(|| Pbkdf::pbkdf2(&header.hash));
    pbkdf.check_luks1(&header.hash)?;
    // OK to index, here and below: a slot that was found.
    let mut slot = header.slots[usize_of(id)];
    let mut sealed = Slot { kdf: pbkdf, ..Slot::of_luks1(header, &slot) };
    let material = sealed.seal(passphrase, key, &mut Source::System, providers)?;
    sealed.put_luks1(&mut slot);
    header.check_unchanged(device)?;
    device.write_at(material.expose(), sealed.area.start)?;
    device.flush()?;
    header.slots[usize_of(id)] = slot;
    header.write(device)
}

/// Overwrites an area with random bytes, until they are on stable storage.
pub(super) fn wipe(device: &dyn BlockDevice, area: Range<u64>) -> Result<(), Error> {
    let mut noise = vec![0; 64 << 10];
    let mut place = area.start;
    while place < area.end {
        let now = usize_of((area.end - place).min(u64_of(noise.len())));
        Source::System.fill(&mut noise[..now])?;
        device.write_at(&noise[..now], place)?;
        place += u64_of(now);
    }
    device.flush()
}

/// A slot that was sealed, and the contents of its area.
type Sealed = (Slot, Material);

/// Writes the stripes of a slot that has been made, until they are on stable storage.
fn write_material<T>(device: &dyn BlockDevice, (_, (slot, material)): &(T, Sealed)) -> Result<(), Error> {
    device.write_at(material.expose(), slot.area.start)?;
    device.flush()
}

/// The digest of a key that was found.
fn digest_of(metadata: &Metadata, unlocked: &Unlocked) -> Result<luks2::Digest, Error> {
    let digest = metadata.digests().into_iter().find(|digest| match unlocked.keyslot {
        Some(slot) => digest.keyslots.contains(&slot),
        None => digest.segments.contains(&0),
    });
    digest.ok_or_else(|| Error::corrupt("no digest is of the volume key"))
}

/// Encrypts a key for an area of key slots that begins at a byte.
fn seal_luks2(
    metadata: &Metadata,
    start: u64,
    key: &SecretVec,
    passphrase: &SecretVec,
    options: &NewKeyOptions,
    providers: &Providers,
) -> Result<Sealed, Error> {
    let segments = metadata.segments();
    // An authenticating cipher can't encrypt an area.
    let cipher = segments.first().filter(|segment| segment.integrity.is_none());
    let cipher = cipher.map_or("", |segment| &segment.encryption);
    let hash = options.hash.as_deref().unwrap_or("sha256");
    let kdf = options.pbkdf.clone().unwrap_or_else(Pbkdf::argon2id);
    let mut slot = Slot::new(start, key.len(), cipher, hash, kdf)?.with_cipher(options.area.as_ref());
    let material = slot.seal(passphrase, key, &mut Source::System, providers)?;
    Ok((slot, material))
}

/// The number of a digest that is free.
fn free_digest(metadata: &Metadata) -> Result<u32, Error> {
    let digests = metadata.digests();
    let free = (0..luks2::DIGESTS).find(|id| digests.iter().all(|digest| digest.id != *id));
    free.ok_or_else(|| Error::argument("no digest is free"))
}

/// The cipher of a key slot whose key is for no data.
fn area_of_unbound() -> Option<AreaCipher> {
    Some(AreaCipher { cipher: "aes-xts-plain64".to_owned(), key_len: 64 })
}

/// Sets a key slot in metadata, and notes which digest its key has.
fn set_slot(metadata: &mut Object, id: u32, slot: Object, digest: u32) {
    let name = id.to_string();
    if let Some(keyslots) = metadata.get_mut("keyslots").and_then(Json::object_mut) {
        keyslots.set(&name, slot.into());
    }
    if let Some(names) = names_of(metadata, "digests", &digest.to_string())
        && names.iter().all(|slot| slot.bytes() != Some(name.as_bytes()))
    {
        names.push(Json::from(name));
    }
}

/// The names of key slots in an object of a section.
pub(super) fn names_of<'a>(metadata: &'a mut Object, section: &str, id: &str) -> Option<&'a mut Vec<Json>> {
    let section = metadata.get_mut(section)?.object_mut()?;
    match section.get_mut(id)?.object_mut()?.get_mut("keyslots")? {
        Json::Array(names) => Some(names),
        _ => None,
    }
}

/// Removes a key slot from metadata, wherever they name it.
fn forget_slot(metadata: &mut Object, id: u32) {
    let name = id.to_string();
    if let Some(keyslots) = metadata.get_mut("keyslots").and_then(Json::object_mut) {
        keyslots.retain(|slot, _| slot != name.as_bytes());
    }
    for section in ["digests", "tokens"] {
        let members = metadata.get_mut(section).and_then(Json::object_mut);
        for (_, member) in members.into_iter().flat_map(Object::iter_mut) {
            if let Some(Json::Array(names)) =
                member.object_mut().and_then(|member| member.get_mut("keyslots"))
            {
                names.retain(|slot| slot.bytes() != Some(name.as_bytes()));
            }
        }
    }
    // A digest that is of no slot and no segment any more tells of a key that nothing has.
    if let Some(digests) = metadata.get_mut("digests").and_then(Json::object_mut) {
        let is_empty = |digest: &Json, member: &str| {
            digest.object().and_then(|digest| digest.get(member)?.array()).is_none_or(<[Json]>::is_empty)
        };
        digests.retain(|_, digest| !is_empty(digest, "keyslots") || !is_empty(digest, "segments"));
    }
}
