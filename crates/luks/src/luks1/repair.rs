//! Headers of LUKS1 that old tools and partitioners have damaged, mended as cryptsetup mends them.

use casemate_providers::Providers;

use crate::{Error, Result};

use super::{DIGEST_LEN, HEADER_LEN, Header, SlotState};

/// Bytes of the volume keys whose slots have a known place.
const USUAL_KEYS: [u32; 3] = [16, 32, 64];

/// The slot whose salt the signature of a partition table falls into.
const SIGNED_SLOT: usize = 6;

impl Header {
    /// Reads a header that may be damaged, and mends what can be: IVs of ECB, which has none, names of hashes in upper case,
    /// and places and stripes of slots that hold no key. Returns it with what was mended; nothing of a sound one is.
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
        if header.check().is_ok() && !is_odd {
            return Ok((header, Vec::new()));
        }
        if !USUAL_KEYS.contains(&header.key_bytes) || header.slots[0].offset < 8 {
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
