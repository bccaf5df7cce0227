//! Free numbers of key slots in the metadata of LUKS2, and free room for their stripes.

use std::ops::Range;

use crate::luks2::{self, Metadata};

use super::Reason;
use super::slot::area_len;
use crate::Error;

pub(super) fn no_free_slot() -> Error {
    Reason::SlotsFull.of(Error::argument("no key slot is free"))
}

/// Why a key can't go into the slot of a number, in a header with so many.
pub(super) fn taken_slot(id: u32, slots: u32) -> Error {
    match id < slots {
        true => Reason::SlotInUse(id).of(Error::argument(format!("key slot {id} is not free"))),
        false => {
            let text = format!("key slot {id}: there are key slots 0 to {}", slots - 1);
            Reason::NoSuchSlot { slot: id, slots }.of(Error::argument(text))
        }
    }
}

/// The number of a free key slot: the one that is wanted, or the first.
pub(super) fn free_slot(metadata: &Metadata, wanted: Option<u32>) -> Result<u32, Error> {
    let keyslots = metadata.keyslots();
    let is_free = |id: &u32| keyslots.iter().all(|slot| slot.id != *id);
    match wanted {
        None => (0..luks2::KEYSLOTS).find(is_free).ok_or_else(no_free_slot),
        Some(id) if id < luks2::KEYSLOTS && is_free(&id) => Ok(id),
        Some(id) => Err(taken_slot(id, luks2::KEYSLOTS)),
    }
}

/// The first byte of the first gap that has room for a key's stripes.
pub(super) fn free_area(metadata: &Metadata, key_len: usize) -> Result<u64, Error> {
    let len = area_len(key_len)?;
    let gap = gaps(metadata).into_iter().find(|gap| gap.end - gap.start >= len);
    let full = || Error::argument("the area for key slots has no room for another one");
    gap.map(|gap| gap.start).ok_or_else(full)
}

/// The gaps between areas of key slots. They begin at multiples of 4096.
pub(super) fn gaps(metadata: &Metadata) -> Vec<Range<u64>> {
    let room = metadata.keyslots_area();
    let mut taken: Vec<Range<u64>> = metadata
        .keyslots()
        .iter()
        .map(|slot| slot.area.offset..slot.area.offset.saturating_add(slot.area.size))
        .collect();
    taken.push(room.end..room.end);
    taken.sort_unstable_by_key(|area| area.start);
    let (mut gaps, mut start) = (Vec::new(), room.start);
    for area in taken {
        if start < area.start {
            gaps.push(start..area.start);
        }
        start = start.max(area.end.next_multiple_of(4096));
    }
    gaps
}
