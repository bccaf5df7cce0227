//! Plain data encrypted where they lie: with the header in a file of its own, or before the data, which move to make room.
//!
//! A header before the data needs the place of the first data, and these need a place meanwhile. What the data give up at
//! the device's end has both: its second half gets the first data, and its first half a copy of the header, whole before a
//! byte of the first data is overwritten. So what is cut off while the header is written is completed from there. The first
//! sector is the first that is written over: whatever comes next, with any options, finds the beginning of a LUKS header and
//! takes no torn data for plain ones.
//!
//! ```text
//! before      | first data | data ...                    | given up: 2 * shift          |
//! begun       | first data | data ...                    | header's copy | first data    |
//! header      | header     | data ...                    | header's copy | first data    |
//! done        | header     | first data | data ... (encrypted)           | wiped         |
//! ```
//!
//! Where the data are fewer than the header's room, the copy lies behind the first data, which are all of them.

use std::ops::{Deref, Range};

use crate::Header;
use crate::json::{Json, Object};
use crate::luks2::reencrypt::{Backups, Direction, Mode, Reencryption, Resilience};
use crate::luks2::{self, Metadata, Segment, SegmentSize};
use casemate_blockdev::{AtFile, BlockDevice, Medium, MemoryDevice, Window, signatures, u64_of, usize_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::Work;

use super::length::given_up;
use super::sides::Keys;
use super::{ReencryptOptions, start};
use crate::areas::free_slot;
use crate::locks::claim_new;
use crate::new_volume::NewVolume;
use crate::random::Source;
use crate::volume::refuse_header_in_data;
use crate::{Advice, Error};
use crate::{LuksFormatOptions, LuksKey, LuksOptions, LuksVersion, Volume};

/// Bytes that are compared or copied at once.
const PIECE: u64 = 1 << 20;

/// Bytes of a header with its key slots in a file of its own, where nothing else is said.
const HEADER_LEN: u64 = 16 << 20;

/// Bytes of what a disk writes as a whole.
const SECTOR: u64 = 512;

/// Bytes at a device's end in which the copy of a header is looked for.
const TAIL: u64 = 256 << 20;

/// New header as it will lie on the disk.
struct Front {
    /// The pieces of it that are not zeros, in their order.
    pieces: Vec<(u64, Vec<u8>)>,
    len: u64,
}

impl Front {
    /// The front that lies on a device.
    fn read(device: &dyn BlockDevice, used: u64, len: u64) -> Result<Front, Error> {
        // Headers with their key slots have at most 136 MiB.
        let mut bytes = vec![0; usize_of(used)];
        device.read_at(&mut bytes, 0)?;
        Ok(Front { pieces: vec![(0, bytes)], len })
    }

    /// The byte behind all that is not zeros.
    fn end(&self) -> u64 {
        self.pieces.iter().map(|(start, piece)| start + u64_of(piece.len())).max().unwrap_or(0)
    }

    /// The bytes from a place on.
    fn get(&self, at: u64, out: &mut [u8]) {
        out.fill(0);
        for (start, piece) in &self.pieces {
            let (from, to) = ((*start).max(at), (start + u64_of(piece.len())).min(at + u64_of(out.len())));
            if from < to {
                let (here, there) = (usize_of(from - at), usize_of(from - start));
                let len = usize_of(to - from);
                out[here..here + len].copy_from_slice(&piece[there..there + len]);
            }
        }
    }

    /// Writes some of its bytes to a device that it begins.
    fn put(&self, device: &dyn BlockDevice, range: Range<u64>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            // At most a MiB.
            let mut buf = vec![0; usize_of((range.end - at).min(PIECE))];
            self.get(at, &mut buf);
            device.write_at(&buf, at)?;
            at += u64_of(buf.len());
        }
        device.flush()
    }

    /// Writes it to where nothing of use lies: the two copies of the header last, one after the other.
    fn write(&self, device: &dyn BlockDevice, hdr_size: u64) -> Result<(), Error> {
        self.put(device, 2 * hdr_size..self.end())?;
        self.put(device, 0..hdr_size)?;
        self.put(device, hdr_size..2 * hdr_size)
    }

    /// Writes it over data that are copied elsewhere, zeros included. The first sector says that it was begun, the rest of
    /// the primary header that the key slots are whole; the secondary one is not whole before.
    fn write_over(&self, device: &dyn BlockDevice, hdr_size: u64) -> Result<(), Error> {
        self.put(device, 0..SECTOR)?;
        self.put(device, hdr_size + SECTOR..self.len)?;
        self.put(device, SECTOR..hdr_size)?;
        self.put(device, hdr_size..hdr_size + SECTOR)
    }
}

/// The error that cut off the writing of the header, with what completes it.
fn cut_off(error: Error, size: u64, course: &Reencryption) -> Error {
    let error = error.map_text(|text| {
        format!(
            "{text}; the header was being written over the first data, of which the device's end has a copy: only the same \
             encryption once more completes this, and nothing else must write there"
        )
    });
    error.advise(Advice::EncryptAgain(given_up(course, size), course.backups.last.offset))
}

/// Encrypts data where they lie, as a LUKS2 volume that a passphrase opens. The header goes to `header`, a file of its own that
/// is new, or before the data: then [`ReencryptOptions::reduce_device_size`] says how many bytes at the end are given up, half
/// of which the header gets. What was cut off before the header was whole is completed by the same again; afterwards
/// [`Volume::reencrypt`] goes on. Returns whether all is done.
///
/// # Errors
/// `Argument` for what can't be, and for data that were changed since it was begun with; those of
/// [`Medium::check_partitions`]; `Mismatch` for another passphrase than it was begun with: nothing is changed then. `Io`, `Interrupted`: it can go on.
pub fn encrypt_in_place(
    data: &Medium,
    header: Option<&Medium>,
    passphrase: &SecretVec,
    format: &LuksFormatOptions,
    options: &ReencryptOptions,
    work: &Work<'_>,
) -> Result<bool, Error> {
    let _lease = Medium::lease_all(&[&[data], header.as_slice()].concat())?;
    if let Some(mode) = options.mode.filter(|mode| *mode != Mode::Encrypt) {
        return Err(Error::argument(format!("{} is not begun by this, which encrypts", mode.noun())));
    }
    if let Some(offset) = options.offset.filter(|offset| !offset.is_multiple_of(4096)) {
        let text = format!("data from byte {offset} on: that must be a multiple of 4096");
        return Err(Error::argument(text).at(data.name()));
    }
    data.check_partitions()?;
    data.check_partitions_in(options.offset.unwrap_or(0)..data.top().size())?;
    // With a header before the data the offset is the room for it, and all of the device is encrypted.
    data.check_table_at_end(header.and(options.offset).unwrap_or(0))?;
    let plain = PlainData(data);
    match header {
        Some(header) => plain.encrypt_apart(header, passphrase, format, options, work),
        None => plain.encrypt_here(passphrase, format, options, work),
    }
    .at(data.name())
}

/// Plain data that are encrypted where they lie.
struct PlainData<'a>(&'a Medium);

impl Deref for PlainData<'_> {
    type Target = Medium;

    fn deref(&self) -> &Medium {
        self.0
    }
}

impl PlainData<'_> {
    fn encrypt_apart(
        &self,
        header_image: &Medium,
        passphrase: &SecretVec,
        format: &LuksFormatOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        if options.reduce_device_size.is_some() {
            let text = "with a header in a file of its own the data stay where they are, and give up nothing";
            return Err(Error::argument(text));
        }
        self.refuse_luks(work)?;
        let size = self.top().size();
        let offset = options.offset.unwrap_or(0);
        super::length::refuse_middle(self, offset, options)?;
        super::length::refuse_cut(self, offset, options)?;
        // A header says that its key slots end before the data, wherever it lies itself.
        let room = (offset > 0).then(|| format.offset.unwrap_or(HEADER_LEN).min(offset));
        let made = new_header(passphrase, format, room, work)?;
        let header = luks2_of(&made)?;
        refuse_header_in_data(header_image, header.metadata.keyslots_area().end, self, offset)?;
        let last = Segment { offset, ..segment_of(header) };
        let (len, unit) = (size.saturating_sub(offset), u64::from(last.sector_size).max(512));
        if !len.is_multiple_of(unit) {
            return Err(Error::argument(format!(
                "{len} bytes of data are not a multiple of the sector size {unit}"
            )));
        }
        let previous = linear(offset, SegmentSize::Dynamic);
        let resilience = start::resilience(options, [&previous, &last], len, &work.providers)?;
        let area = start::largest_gap(&header.metadata)?;
        let mut course = Reencryption::new(
            Mode::Encrypt,
            Direction::Forward,
            resilience,
            (free_slot(&header.metadata, None)?, area),
            Backups { previous, last, moved: None },
            [None, Some(0)],
        )?;
        course.device_size = options.device_size;
        let keys = Keys::of_new_work([None, Some(made.volume_key.clone())], false);
        course.samples = start::sample(&course, self.0, &keys, &work.providers)?;
        let (front, header) = begun_front(&course, &made, size, options, work)?;
        let _lock = claim_new(header_image, &header.uuid)?;
        header_image.grow_to(made.offset())?;
        front.write(header_image.top(), header.metadata.hdr_size())?;
        header_image.commit()?;
        self.encrypt_on(header, header_image, &made, options, work)
    }

    fn encrypt_here(
        &self,
        passphrase: &SecretVec,
        format: &LuksFormatOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let size = self.top().size();
        let Some(reduce) = options.reduce_device_size else {
            let text = "the header needs room, at the end of the device or in a file of its own";
            let error = Error::argument(text).advise(Advice::ReduceDeviceSize(2 * HEADER_LEN));
            return Err(error.advise(Advice::LuksHeader));
        };
        start::refuse_protection(options)?;
        let shift = options.offset.unwrap_or(reduce / 2);
        if shift > reduce / 2 {
            return Err(Error::argument(format!(
                "data from byte {shift} on: {reduce} bytes that are given up at the end have room for half as much at the most"
            )));
        }
        if !reduce.is_multiple_of(8192) || shift == 0 {
            return Err(Error::argument(format!(
                "{reduce} bytes that the data give up: they must be a multiple of 8192"
            )));
        }
        let len = size.saturating_sub(reduce);
        if len == 0 {
            return Err(Error::argument(format!(
                "a device of {size} bytes is too small to give up {reduce} bytes at its end"
            )));
        }
        let moved = shift.min(len);
        if let Some(done) = self.complete((size, shift, moved), passphrase, options, work)? {
            return Ok(done);
        }
        self.refuse_luks(work)?;
        self.refuse_remnant(work)?;
        super::length::refuse_middle(self, 0, options)?;
        super::length::refuse_cut(self, 0, options)?;
        let is_known = super::fits::check(self, len, options.contents)?;
        let made = new_header(passphrase, format, Some(shift), work)?;
        if !(is_known && options.give_up_data) {
            self.refuse_used_end((size, shift, moved), reduce, is_known)?;
        }
        let header = luks2_of(&made)?;
        let last = segment_of(header);
        let unit = u64::from(last.sector_size);
        if !len.is_multiple_of(unit) || !shift.is_multiple_of(unit) {
            return Err(Error::argument(format!(
                "{len} bytes of data are not a multiple of the sector size {unit}"
            )));
        }
        let course = Reencryption::new(
            Mode::Encrypt,
            Direction::Backward,
            Resilience::None,
            (free_slot(&header.metadata, None)?, start::shift_area(&header.metadata)?),
            Backups {
                previous: linear(0, SegmentSize::Fixed(len)),
                last,
                moved: Some(linear(size - shift, SegmentSize::Fixed(moved))),
            },
            [None, Some(0)],
        )?;
        let (front, header) = begun_front(&course, &made, size, options, work)?;
        let front = Front { len: shift, ..front };
        let copy = copy_place(size, shift, moved);
        if front.end() > copy.end - copy.start {
            return Err(Error::argument(format!(
                "{len} bytes of data are too few: they leave no room for the temporary copy of the header"
            )));
        }
        let hdr_size = header.metadata.hdr_size();
        let _lock = claim_new(self, &header.uuid)?;
        copy_within(self, 0, size - shift, moved, work)?;
        self.top().flush()?;
        // From here on what was begun is found.
        let copy = Window::new(self.top(), copy.start, copy.end - copy.start)?;
        front.write(&copy, hdr_size)?;
        front.write_over(self.top(), hdr_size).map_err(|error| cut_off(error, size, &course))?;
        self.encrypt_on(header, self, &made, options, work)
    }

    /// Goes on behind a header that is whole.
    fn encrypt_on(
        &self,
        header: luks2::Header,
        header_image: &Medium,
        made: &NewVolume,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        if options.init_only {
            return Ok(false);
        }
        let course =
            header.metadata.reencryption()?.ok_or_else(|| Error::corrupt("no encryption was begun"))?;
        let keys = Keys::of_new_work([None, Some(made.volume_key.clone())], false);
        let mut volume = Volume {
            header: Header::Luks2(header),
            header_image: header_image.clone(),
            data: self.0.clone(),
            is_attached: header_image.is_same(self.0),
        };
        volume.go_on(course, &keys, &LuksOptions::default(), options, work)
    }

    /// Completes an encryption that was cut off while its header was written; `None` if none was.
    fn complete(
        &self,
        (size, shift, moved): (u64, u64, u64),
        passphrase: &SecretVec,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<Option<bool>, Error> {
        let place = copy_place(size, shift, moved);
        let copy = self.0.clone().window(place.start, Some(place.end - place.start))?;
        let Ok(header) = luks2::Header::read(copy.top(), &work.providers) else { return Ok(None) };
        let Ok(Some(course)) = header.metadata.reencryption() else { return Ok(None) };
        let is_ours = course.mode == Mode::Encrypt
            && course.backups.moved.as_ref().is_some_and(|moved| moved.offset == size - shift)
            && course.moved_len() == moved
            && course.backups.last.offset == shift;
        if !is_ours {
            return Ok(None);
        }
        let used = header.metadata.keyslots_area().end.min(place.end - place.start);
        let front = Front::read(copy.top(), used, shift)?;
        match self.compare(&front, size - shift, moved)? {
            Beginning::NoFront => return Ok(None),
            Beginning::Changed => {
                return Err(Error::argument(
                    "an encryption was begun here and cut off, and the image was changed since: what it begins with is \
                     neither the old data nor the new header",
                ));
            }
            Beginning::Front => {}
        }
        super::begun::check(&course, &header.metadata, self, options)?;
        let _lock = claim_new(self, &header.uuid)?;
        let mut volume = Volume {
            header: Header::Luks2(header.clone()),
            header_image: copy,
            data: self.0.clone(),
            is_attached: true,
        };
        let key = LuksKey::Passphrase(passphrase.clone());
        let parts = course.parts(size)?;
        let keys = volume.keys(&header, &course, &parts, &key, &LuksOptions::default(), work)?;
        let written = front.write_over(self.top(), header.metadata.hdr_size());
        written.map_err(|error| cut_off(error, size, &course))?;
        volume.header_image = self.0.clone();
        if options.init_only {
            return Ok(Some(false));
        }
        volume.go_on(course, &keys, &LuksOptions::default(), options, work).map(Some)
    }

    /// Refuses to encrypt what is a LUKS volume already, or was one and is damaged: its keys would be of no use any more.
    fn refuse_luks(&self, work: &Work<'_>) -> Result<(), Error> {
        let begins = crate::begins_with_luks(self)?;
        if begins && let Some((reduce, shift)) = self.begun_with(work)? {
            let text = "an encryption was cut off here while its header was written over the first data, of which the device's \
                        end has a copy: only the same encryption once more completes it";
            return Err(Error::argument(text).advise(Advice::EncryptAgain(reduce, shift)));
        }
        let found = signatures::device(self.top())?;
        let is_luks = begins
            || found == Some(signatures::LUKS_REENCRYPTED)
            || found.is_none_or(|what| what == signatures::ZEROS)
                && luks2::Header::read(self.top(), &work.providers).is_ok();
        match is_luks {
            true => Err(Error::argument(
                "it holds a LUKS header already, whose volume would be lost below another one; repair a damaged header with \
                 casemate luks repair, or wipe one that is not needed",
            )),
            false => Ok(()),
        }
    }

    /// Finds an encryption that was cut off while its header was written. The header's first sector is written first,
    /// so it equals that of a copy near the end. Returns the bytes that the device gives up and the bytes of the room
    /// for the header.
    fn begun_with(&self, work: &Work<'_>) -> Result<Option<(u64, u64)>, Error> {
        let size = self.top().size();
        let mut first = vec![0; usize_of(SECTOR)];
        self.top().read_at(&mut first, 0)?;
        let least = size.saturating_sub(TAIL).max(SECTOR);
        let mut end = size / SECTOR * SECTOR;
        while end > least {
            let start = end.saturating_sub(PIECE).max(least).next_multiple_of(SECTOR);
            // At most a MiB.
            let mut piece = vec![0; usize_of(end - start)];
            self.top().read_at(&mut piece, start)?;
            let copies = piece.chunks(first.len()).enumerate().filter(|(_, sector)| *sector == first);
            for at in copies.map(|(k, _)| start + u64_of(k) * SECTOR) {
                let copy = Window::new(self.top(), at, size - at)?;
                let Ok(header) = luks2::Header::read(&copy, &work.providers) else { continue };
                let Ok(Some(course)) = header.metadata.reencryption() else { continue };
                let (shift, moved) = (course.backups.last.offset, course.moved_len());
                let is_ours = course.mode == Mode::Encrypt
                    && shift.checked_mul(2).is_some_and(|room| room <= size)
                    && moved <= shift
                    && copy_place(size, shift, moved).start == at;
                if is_ours {
                    return Ok(Some((given_up(&course, size), shift)));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Refuses to give up an end with data. A file system that is known to end before them does not show that they are not in use: its
    /// size may be wrong, or something else lies behind it. What an encryption has left that was
    /// cut off before its first data were written over is zeros and their copy, and anything in the header's place once the copy
    /// is whole.
    fn refuse_used_end(
        &self,
        (size, shift, moved): (u64, u64, u64),
        reduce: u64,
        is_known: bool,
    ) -> Result<(), Error> {
        let (first, copy) = (size - shift..size - shift + moved, copy_place(size, shift, moved));
        let mut is_empty = true;
        let is_whole = self.sectors(first.clone(), |at, sector| {
            let mut old = vec![0; sector.len()];
            self.top().read_at(&mut old, at - first.start)?;
            is_empty &= is_zero(sector);
            Ok(old == sector)
        })?;
        let is_copied = is_whole && !is_empty;
        let is_free = self.sectors(size - reduce..size, |at, sector| {
            if is_zero(sector) || is_copied && (first.contains(&at) || copy.contains(&at)) {
                return Ok(true);
            }
            let Some(at) = at.checked_sub(first.start).filter(|at| *at < moved) else { return Ok(false) };
            let mut old = vec![0; sector.len()];
            self.top().read_at(&mut old, at)?;
            Ok(old == sector)
        })?;
        match is_free {
            true => Ok(()),
            false => Err(super::fits::used_end(reduce, is_known)),
        }
    }

    /// Whether something holds for all sectors of a part of the image.
    fn sectors(
        &self,
        part: Range<u64>,
        mut holds: impl FnMut(u64, &[u8]) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let (mut at, mut all) = (part.start, true);
        while at < part.end && all {
            // At most a MiB.
            let mut piece = vec![0; usize_of((part.end - at).min(PIECE))];
            self.top().read_at(&mut piece, at)?;
            for (k, sector) in piece.chunks(usize_of(SECTOR)).enumerate() {
                all = all && holds(at + u64_of(k) * SECTOR, sector)?;
            }
            at += u64_of(piece.len());
        }
        Ok(all)
    }

    /// Refuses data before which a header is written while another one's secondary copy lies in them: when the power fails
    /// behind the first sector this would be taken for the volume's.
    fn refuse_remnant(&self, work: &Work<'_>) -> Result<(), Error> {
        match luks2::Header::read(self.top(), &work.providers) {
            Ok(_) => Err(Error::argument(
                "the secondary header of an earlier LUKS2 volume lies in the data, and would be taken for the new one's when \
                 this is cut off: it must be overwritten first, or the header go to a file of its own",
            )),
            Err(_) => Ok(()),
        }
    }

    /// Looks at the sectors at the image's beginning, which are the front's or the moved data's if nothing else was written.
    fn compare(&self, front: &Front, moved: u64, len: u64) -> Result<Beginning, Error> {
        let (mut any, mut all) = (false, true);
        let mut at = 0;
        while at < len {
            let now = usize_of((len - at).min(PIECE));
            let (mut here, mut old, mut new) = (vec![0; now], vec![0; now], vec![0; now]);
            self.top().read_at(&mut here, at)?;
            self.top().read_at(&mut old, moved + at)?;
            front.get(at, &mut new);
            for ((here, old), new) in here.chunks(512).zip(old.chunks(512)).zip(new.chunks(512)) {
                any |= here == new && here != old && here.iter().any(|byte| *byte != 0);
                all &= here == new || here == old;
            }
            at += u64_of(now);
        }
        Ok(match (any, all) {
            (false, _) => Beginning::NoFront,
            (true, true) => Beginning::Front,
            (true, false) => Beginning::Changed,
        })
    }
}

/// State of the sectors at an image's beginning, whose encryption may have been begun.
enum Beginning {
    /// None is the front's.
    NoFront,
    /// Some are the front's, and the others the moved data's.
    Front,
    /// Some are the front's, and some neither.
    Changed,
}

/// Copies bytes to another place of a medium, on all threads.
pub(super) fn copy_within(
    medium: &Medium,
    from: u64,
    to: u64,
    len: u64,
    work: &Work<'_>,
) -> Result<(), Error> {
    work.pool.run(len.div_ceil(PIECE), Vec::new, |buf: &mut Vec<u8>, k| {
        // At most a MiB.
        buf.resize(usize_of((len - k * PIECE).min(PIECE)), 0);
        medium.top().read_at(buf, from + k * PIECE)?;
        medium.top().write_at(buf, to + k * PIECE)
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Where the copy of the header lies while the header is written: in front of the first data at their place at the end, or
/// behind them where the header itself comes so far.
fn copy_place(size: u64, shift: u64, moved: u64) -> Range<u64> {
    match size - 2 * shift >= shift {
        true => size - 2 * shift..size - shift,
        false => size - shift + moved..size,
    }
}

/// The header of a new volume, with its data from `offset` on; for a file of its own as large as was said, or 16 MiB.
fn new_header(
    passphrase: &SecretVec,
    format: &LuksFormatOptions,
    offset: Option<u64>,
    work: &Work<'_>,
) -> Result<NewVolume, Error> {
    let offset = offset.or(format.offset);
    let format = LuksFormatOptions { version: LuksVersion::Two, offset, ..format.clone() };
    if format.integrity.is_some() {
        return Err(Error::unsupported(
            "integrity protection has no encryption in place: its tags need room",
        ));
    }
    format.prepare(passphrase, work)
}

fn luks2_of(made: &NewVolume) -> Result<&luks2::Header, Error> {
    match made.header() {
        Header::Luks2(header) => Ok(header),
        Header::Luks1(_) => Err(Error::argument("LUKS1 has no encryption in place; LUKS2 has")),
    }
}

fn segment_of(header: &luks2::Header) -> Segment {
    // OK to unwrap: a new header has one.
    header.metadata.segments().remove(0)
}

/// A segment of plain data.
pub(super) fn linear(offset: u64, size: SegmentSize) -> Segment {
    Segment {
        id: 0,
        kind: "linear".to_owned(),
        offset,
        size,
        iv_tweak: 0,
        encryption: String::new(),
        sector_size: 0,
        integrity: None,
        flags: Vec::new(),
    }
}

/// The front of a volume that is about to be encrypted, and its header.
fn begun_front(
    course: &Reencryption,
    made: &NewVolume,
    size: u64,
    options: &ReencryptOptions,
    work: &Work<'_>,
) -> Result<(Front, luks2::Header), Error> {
    let mut header = luks2_of(made)?.clone().for_new_device();
    let keys = Keys::of_new_work([None, Some(made.volume_key.clone())], false);
    let metadata = placed(&header.metadata, course.backups.last.offset)?;
    header.metadata = start::begin(course, &metadata, &keys, size, options, &work.providers)?;
    // 16 KiB.
    let copies = MemoryDevice::new(vec![0; 2 * usize_of(header.metadata.hdr_size())]);
    header.write(&copies, &work.providers, &mut |bytes| Source::System.fill(bytes))?;
    let pieces = vec![(0, copies.into_bytes()), (made.stored.material_at, made.stored.material.clone())];
    Ok((Front { pieces, len: made.offset() }, header))
}

/// Metadata with their one segment moved to byte `offset`.
fn placed(metadata: &Metadata, offset: u64) -> Result<Metadata, Error> {
    let mut object = metadata.object().clone();
    let segments = object.get_mut("segments").and_then(Json::object_mut);
    let segment: Option<&mut Object> = segments.and_then(|all| all.get_mut("0")?.object_mut());
    if let Some(segment) = segment {
        segment.set("offset", offset.to_string().into());
    }
    Metadata::new(object, metadata.hdr_size())
}
