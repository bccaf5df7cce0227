//! The header of LUKS2 as a whole: the better one of two copies, and how both are written.

use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_providers::Providers;

use crate::{Advice, Error, Random, Result, changed};

use super::binary::{
    BINARY_LEN, BinaryHeader, LARGEST_HEADER, Place, SALT_LEN, SMALLEST_HEADER, invert_checksum,
};
use super::metadata::Metadata;

/// A header of LUKS2.
#[derive(Clone, Debug)]
pub struct Header {
    /// The label; empty if there is none.
    pub label: String,
    /// A second label; empty if there is none.
    pub subsystem: String,
    /// The UUID's text.
    pub uuid: String,
    /// The number that grows with every update.
    pub seqid: u64,
    /// The name of the hash that checksums are made with.
    pub checksum_alg: String,
    /// Keyslots, segments, digests, tokens and configuration.
    pub metadata: Metadata,
    /// The salts of both copies; `None` for one that must be made anew.
    salts: [Option<[u8; SALT_LEN]>; 2],
    /// The state that both copies were found in.
    copies: [CopyState; 2],
    /// The first bytes of both copies as they lie on the disk, checksums with them; `None` where that is not known.
    heads: [Option<Head>; 2],
    /// The metadata of the copy that is older by one update.
    superseded: Option<Box<Metadata>>,
}

/// State of a copy that tells of work which the other copy says is done.
const SUPERSEDED: &str = "it is of before the end of a reencryption, and superseded";

/// The binary header of a copy, as it was read or written.
type Head = Box<[u8; BINARY_LEN]>;

/// The state of a copy of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// The copy is whole, and has this number.
    Valid(u64),
    /// The copy is not there, or damaged: why.
    Damaged(String),
    /// The copy's checksum is right, and its metadata are not: why.
    Obsolete(String),
}

/// A copy that was looked for, and the size of the header where its checksum is right.
struct Found {
    state: CopyState,
    size: Option<u64>,
    copy: Option<(BinaryHeader, Metadata)>,
    /// Contents of a copy that the other one has superseded.
    superseded: Option<(BinaryHeader, Metadata)>,
    head: Option<Head>,
}

impl Found {
    fn damaged(why: impl Into<String>) -> Found {
        let state = CopyState::Damaged(why.into());
        Found { state, size: None, copy: None, superseded: None, head: None }
    }
}

impl Header {
    /// Reads both copies and takes the newer one of those that are whole. Nothing is written.
    ///
    /// # Errors
    /// `Corrupt` if neither is whole: why.
    pub fn read(device: &dyn BlockDevice, providers: &Providers) -> Result<Header> {
        let primary = read_copy(device, Place::Primary, 0, providers)?;
        let places = match primary.size {
            Some(size) => vec![size],
            None => possible_sizes().collect(),
        };
        let mut secondary = Found::damaged("not found");
        for offset in places {
            let found = read_copy(device, Place::Secondary, offset, providers)?;
            let is_found = found.size.is_some();
            if is_found || primary.size.is_some() {
                secondary = found;
            }
            if is_found {
                break;
            }
        }
        let salt = |found: &Found| found.copy.as_ref().map(|(binary, _)| binary.salt);
        let salts = [salt(&primary), salt(&secondary)];
        let copies = [primary.state, secondary.state];
        let heads = [primary.head, secondary.head];
        let ((binary, metadata), other) = match (primary.copy, secondary.copy) {
            (Some(one), Some(two)) if two.0.seqid > one.0.seqid => (two, Some(one)),
            (Some(one), other) => (one, other.or(secondary.superseded)),
            (None, Some(two)) => (two, primary.superseded),
            (None, None) => {
                let [one, two] = copies.map(|copy| copy.reason().to_owned());
                let text = format!("no valid LUKS header; primary: {one}; secondary: {two}");
                return Err(Error::corrupt(text));
            }
        };
        let BinaryHeader { seqid, label, checksum_alg, uuid, subsystem, .. } = binary;
        let superseded = other.filter(|(other, _)| other.seqid.checked_add(1) == Some(seqid));
        let superseded = superseded.map(|(_, metadata)| Box::new(metadata));
        Ok(Header { label, subsystem, uuid, seqid, checksum_alg, metadata, salts, copies, heads, superseded })
    }

    /// A header that was never written. Its first number is 1.
    pub fn new(uuid: String, metadata: Metadata) -> Header {
        let unwritten = || CopyState::Damaged("never written".to_owned());
        Header {
            label: String::new(),
            subsystem: String::new(),
            uuid,
            seqid: 0,
            checksum_alg: "sha256".to_owned(),
            metadata,
            salts: [None; 2],
            copies: [unwritten(), unwritten()],
            heads: [None, None],
            superseded: None,
        }
    }

    /// This header for a device that does not have it yet: its next writing compares nothing.
    #[must_use]
    pub fn for_new_device(mut self) -> Header {
        (self.heads, self.superseded) = ([None, None], None);
        self
    }

    /// The metadata before the last update, where that update was cut off between both copies.
    pub fn superseded(&self) -> Option<&Metadata> {
        self.superseded.as_deref()
    }

    /// Whether the last step of a reencryption was cut off: the superseded copy alone tells what is still to be wiped.
    pub fn is_ending(&self) -> bool {
        let is_under_way = |metadata: &Metadata| matches!(metadata.reencryption(), Ok(Some(_)));
        self.superseded().is_some_and(is_under_way) && !is_under_way(&self.metadata)
    }

    /// Refuses a change that would forget what the last step of a reencryption has still to wipe.
    ///
    /// # Errors
    /// `Unsupported` for a header whose reencryption was cut off in its last step.
    pub fn refuse_ending(&self) -> Result<()> {
        if !self.is_ending() {
            return Ok(());
        }
        let text = "the last step of a reencryption was cut off: the header is that of the end, and its other copy alone tells what is \
                    still to be wiped, such as plain data";
        Err(Error::unsupported(text).advise(Advice::FinishReencryption))
    }

    /// Checks that both copies are on the device as they were read, or written last: the number, salt and checksum of each.
    ///
    /// # Errors
    /// `Busy` if another program has changed them meanwhile; `Io`.
    pub fn check_unchanged(&self, device: &dyn BlockDevice) -> Result<()> {
        for (head, offset) in self.heads.iter().zip([0, self.metadata.hdr_size()]) {
            let Some(head) = head else { continue };
            let mut now = [0; BINARY_LEN];
            if offset + u64_of(now.len()) <= device.size() {
                device.read_at(&mut now, offset)?;
            }
            if now != **head {
                return Err(changed());
            }
        }
        Ok(())
    }

    /// The states of the first and the second copy.
    pub fn copies(&self) -> &[CopyState; 2] {
        &self.copies
    }

    /// Whether the first copy is the one that was taken.
    pub fn is_primary(&self) -> bool {
        self.copies[0] == CopyState::Valid(self.seqid)
    }

    /// Writes both copies with the next number, one after the other. At any moment one of them is whole, the old one or the
    /// new one: a copy that is not whole, or older, is the first that is written.
    ///
    /// # Errors
    /// `Argument` if something does not fit the header; those of [`Header::check_unchanged`] and [`Header::refuse_ending`]: nothing is
    /// written then; `Io`, `Unsupported`.
    pub fn write(
        &mut self,
        device: &dyn BlockDevice,
        providers: &Providers,
        random: Random<'_>,
    ) -> Result<()> {
        self.refuse_ending()?;
        self.write_both(device, providers, random, None::<fn() -> Result<()>>)
    }

    /// Writes both copies as [`Header::write`] does, and does something between them. When that is cut off, the copy that is
    /// left tells what it was done for ([`Header::superseded`]). Its checksum is inverted before that, so it is never taken for the
    /// header if the new copy is lost: what is done may destroy what it leads to.
    ///
    /// # Errors
    /// Errors of [`Header::write`] and of `between`.
    pub fn write_around(
        &mut self,
        device: &dyn BlockDevice,
        providers: &Providers,
        random: Random<'_>,
        between: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.write_both(device, providers, random, Some(between))
    }

    fn write_both(
        &mut self,
        device: &dyn BlockDevice,
        providers: &Providers,
        random: Random<'_>,
        mut between: Option<impl FnOnce() -> Result<()>>,
    ) -> Result<()> {
        self.check_unchanged(device)?;
        let seqid = self
            .seqid
            .checked_add(1)
            .ok_or_else(|| Error::unsupported("LUKS2 header: the sequence number can't grow further"))?;
        let is_good = |k: usize| self.copies[k] == CopyState::Valid(self.seqid);
        let order = if is_good(0) && !is_good(1) { [1, 0] } else { [0, 1] };
        for k in order {
            self.write_copy(k, seqid, device, providers, random)?;
            // From now on this is the newest: if the other copy fails, it is the first to be written again.
            self.seqid = seqid;
            if let Some(between) = between.take() {
                self.supersede(order[1], device)?;
                between()?;
            }
        }
        self.superseded = None;
        Ok(())
    }

    /// Writes the copies that are not whole, or older than the one that was taken, as that one is. Says whether there were
    /// any.
    ///
    /// # Errors
    /// Errors of [`Header::write`].
    pub fn repair(
        &mut self,
        device: &dyn BlockDevice,
        providers: &Providers,
        random: Random<'_>,
    ) -> Result<bool> {
        self.check_unchanged(device)?;
        let good = CopyState::Valid(self.seqid);
        let damaged = self.copies.iter().any(|copy| *copy != good);
        if damaged {
            for (k, copy) in self.copies.clone().into_iter().enumerate() {
                if copy != good {
                    self.write_copy(k, self.seqid, device, providers, random)?;
                }
            }
            self.superseded = None;
        }
        Ok(damaged)
    }

    /// Marks a whole copy as one that the other copy has superseded, until that is on stable storage.
    fn supersede(&mut self, k: usize, device: &dyn BlockDevice) -> Result<()> {
        let offset = if k == 0 { 0 } else { self.metadata.hdr_size() };
        // As long as its writing may fail, nobody knows what lies there.
        if let (CopyState::Valid(_), Some(mut head)) = (&self.copies[k], self.heads[k].take()) {
            self.copies[k] = CopyState::Damaged(SUPERSEDED.to_owned());
            invert_checksum(&mut head[..]);
            device.write_at(&head[..], offset)?;
            device.flush()?;
            self.heads[k] = Some(head);
        }
        Ok(())
    }

    /// Writes one copy, until it is on stable storage.
    fn write_copy(
        &mut self,
        k: usize,
        seqid: u64,
        device: &dyn BlockDevice,
        providers: &Providers,
        random: Random<'_>,
    ) -> Result<()> {
        let place = [Place::Primary, Place::Secondary][k];
        let hdr_size = self.metadata.hdr_size();
        let salt = match self.salts[k] {
            Some(salt) => salt,
            None => {
                let mut salt = [0; SALT_LEN];
                random(&mut salt)?;
                salt
            }
        };
        let hdr_offset = if place == Place::Primary { 0 } else { hdr_size };
        let binary = BinaryHeader {
            hdr_size,
            seqid,
            label: self.label.clone(),
            checksum_alg: self.checksum_alg.clone(),
            salt,
            uuid: self.uuid.clone(),
            subsystem: self.subsystem.clone(),
            hdr_offset,
        };
        let bytes = binary.to_bytes(place, &self.metadata.to_plain(), providers)?;
        self.salts[k] = Some(salt);
        self.copies[k] = CopyState::Damaged("its writing failed".to_owned());
        self.heads[k] = None;
        device.write_at(&bytes, hdr_offset)?;
        device.flush()?;
        self.copies[k] = CopyState::Valid(seqid);
        self.heads[k] = bytes.first_chunk().copied().map(Box::new);
        Ok(())
    }
}

impl CopyState {
    /// Fault of the copy; empty if it has none.
    pub fn reason(&self) -> &str {
        match self {
            CopyState::Valid(_) => "",
            CopyState::Damaged(why) | CopyState::Obsolete(why) => why,
        }
    }
}

/// The sizes that a header may have, which is where its second copy lies.
fn possible_sizes() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(SMALLEST_HEADER), |size| Some(size * 2))
        .take_while(|size| *size <= LARGEST_HEADER)
}

/// Looks at a copy.
///
/// # Errors
/// Errors of reading; no contents are an error.
fn read_copy(device: &dyn BlockDevice, place: Place, offset: u64, providers: &Providers) -> Result<Found> {
    let mut head = [0; BINARY_LEN];
    if offset + u64_of(head.len()) > device.size() {
        return Ok(Found::damaged("the device ends before it"));
    }
    device.read_at(&mut head, offset)?;
    let mut found = look_at_copy(device, place, offset, &head, providers)?;
    found.head = Some(Box::new(head));
    Ok(found)
}

fn look_at_copy(
    device: &dyn BlockDevice,
    place: Place,
    offset: u64,
    head: &[u8; BINARY_LEN],
    providers: &Providers,
) -> Result<Found> {
    let binary = match BinaryHeader::from_bytes(head, place, offset) {
        Ok(binary) => binary,
        Err(error) => return Ok(Found::damaged(error.text())),
    };
    if offset + binary.hdr_size > device.size() {
        return Ok(Found::damaged("cut off"));
    }
    // At most 4 MiB.
    let mut copy = vec![0; usize_of(binary.hdr_size)];
    device.read_at(&mut copy, offset)?;
    // What was checked is what is used: the head that was read first may have been another one.
    if copy[..BINARY_LEN] != *head {
        return Ok(Found::damaged("it changed while it was read"));
    }
    match binary.checksum_is_right(&copy, providers) {
        Ok(true) => {}
        Ok(false) => {
            invert_checksum(&mut copy);
            let is_superseded = matches!(binary.checksum_is_right(&copy, providers), Ok(true));
            let metadata = Metadata::from_bytes(&copy[BINARY_LEN..], binary.hdr_size).ok();
            return Ok(match metadata.filter(|_| is_superseded) {
                None => Found::damaged("the checksum is wrong"),
                Some(metadata) => Found {
                    size: Some(binary.hdr_size),
                    superseded: Some((binary, metadata)),
                    ..Found::damaged(SUPERSEDED)
                },
            });
        }
        Err(error) => return Ok(Found::damaged(format!("checksum: {}", error.text()))),
    }
    let (size, head) = (Some(binary.hdr_size), None);
    Ok(match Metadata::from_bytes(&copy[BINARY_LEN..], binary.hdr_size) {
        Ok(metadata) => {
            let state = CopyState::Valid(binary.seqid);
            Found { state, size, copy: Some((binary, metadata)), superseded: None, head }
        }
        Err(error) => {
            let state = CopyState::Obsolete(error.text().into_owned());
            Found { state, size, copy: None, superseded: None, head }
        }
    })
}
