//! Headers of LUKS1 that old tools and partitioners have damaged, mended as cryptsetup mends them.

use casemate_providers::Providers;

use crate::{Error, Result};

use super::{DIGEST_LEN, HEADER_LEN, Header, Slot, SlotState};

/// Bytes of the volume keys whose slots have a known place.
const USUAL_KEYS: [u32; 3] = [16, 32, 64];

/// The slot whose salt the signature of a partition table falls into.
const SIGNED_SLOT: usize = 6;

impl Header {
    /// Reads a header that may be damaged, and mends what can be: IVs of ECB, which has none, names of hashes in upper case,
    /// and places and stripes of slots that hold no key. A slot whose mark means nothing is active if it is otherwise as a slot with a
    /// key. Returns the header with what was mended; nothing of a sound one is.
    ///
    /// # Errors
    /// `Corrupt` for what is none, and for damage of other kinds; `Unsupported` for an unknown hash.
    pub fn repaired(bytes: &[u8; HEADER_LEN], providers: &Providers) -> Result<(Header, Vec<String>)> {
        let mut header = Header::parse(bytes)?;
        let hash = header.hash.to_ascii_lowercase();
        if providers.hash(&hash)?.digest_len() < DIGEST_LEN {
            return Err(Error::unsupported(format!("LUKS1 header: hash {hash} is too short")));
        }
        let is_odd = header.cipher_mode.starts_with("ecb-") || header.hash != hash;
        let has_usual_places = USUAL_KEYS.contains(&header.key_bytes) && header.slots[0].offset >= 8;
        let is_unmarked = header.slots.iter().any(|slot| unmarked(slot).is_some());
        if header.check().is_ok() && !is_odd && !(is_unmarked && has_usual_places) {
            return Ok((header, Vec::new()));
        }
        if !has_usual_places {
            header.check()?;
            return Err(Error::corrupt(
                "LUKS1 header: an unusual key or place of slots, which nothing can be told of",
            ));
        }
        let mut mended = Vec::new();
        if header.cipher_mode.starts_with("ecb-") {
            mended.push(format!("cipher mode {} is ecb now", header.cipher_mode));
            header.cipher_mode = "ecb".to_owned();
        }
        if header.hash != hash {
            mended.push(format!("hash {} is {hash} now", header.hash));
            header.hash = hash;
        }
        let usual = Header::new(&header.cipher_name, &header.cipher_mode, &header.hash, header.key_bytes)?;
        let is_signed = bytes[510..512] == [0x55, 0xaa];
        for (k, (slot, usual)) in header.slots.iter_mut().zip(&usual.slots).enumerate() {
            let is_in_place = (slot.offset, slot.stripes) == (usual.offset, usual.stripes);
            if let Some(mark) = unmarked(slot).filter(|_| is_in_place) {
                mended.push(format!(
                    "key slot {k} had the mark {mark:08x}, which means nothing; it has a salt and iterations, so it is active now"
                ));
                slot.state = SlotState::Enabled;
            }
            if slot.state == SlotState::Enabled {
                continue;
            }
            let before = mended.len();
            if slot.offset != usual.offset {
                mended.push(format!("key slot {k} begins at sector {}, not {}", usual.offset, slot.offset));
            }
            if slot.stripes != usual.stripes {
                mended.push(format!("key slot {k} has {} stripes, not {}", usual.stripes, slot.stripes));
            }
            if k == SIGNED_SLOT && is_signed {
                mended.push(format!("key slot {k} had the signature of a partition table in its salt"));
            }
            if mended.len() > before {
                *slot = *usual;
            }
        }
        header.check()?;
        Ok((header, mended))
    }
}

/// The mark of a slot, if it means nothing and the slot is otherwise as one with a key: others have neither salt nor iterations. Active,
/// a slot without a key opens nothing, because the header has the volume key's digest.
fn unmarked(slot: &Slot) -> Option<u32> {
    let has_key = slot.iterations > 0 && slot.salt.iter().any(|byte| *byte != 0);
    match slot.state {
        SlotState::Invalid(mark) if has_key => Some(mark),
        _ => None,
    }
}
