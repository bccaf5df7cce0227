//! Protection of a journal against writers to the device: codes of its sections, and a cipher.
//!
//! A section gets its code first and is encrypted then, marks and all. A stream cipher's key stream runs over the journal once,
//! and over the marks behind it; a block cipher chains each section, whose IV is its number, encrypted.

use std::fmt;

use casemate_blockdev::{u32_of, u64_of, usize_of};
use casemate_primitives::secret::constant_time_eq;
use casemate_providers::{Cipher, Hmac, Ivs, Providers};

use crate::layout::{MARKS, METADATA_SECTORS, ROUNDS};
use crate::{Advice, Code, Error, Flags, Layout, Result, Superblock};

const SECTOR: usize = 512;

/// The byte of a metadata sector that its part of the section's code begins at, and bytes of a part.
const CODE: usize = 496;
const PART: usize = 8;

/// Key streams run over whole pages of a journal.
const PAGE: u64 = 4096;

/// Makes the MACs of a journal's sections, and encrypts them.
pub struct JournalSeal {
    code: Option<Hmac>,
    /// The salt, if codes are made with it and the section's number.
    salt: Option<[u8; 16]>,
    cipher: Option<(Cipher, bool)>,
    marks: [u64; ROUNDS],
    section_len: u64,
}

impl JournalSeal {
    /// The seal of a volume's journal: the hash of its codes, such as `hmac(sha256)`, and its cipher, `ctr(aes)` or
    /// `cbc(aes)`, each with its key; neither is named by the superblock. integritysetup's names (`hmac-sha256`, `ctr-aes`)
    /// are taken too.
    ///
    /// # Errors
    /// `Locked` if the journal has codes, and none are named; `Argument` if it has none; `Unsupported` for other algorithms.
    pub fn new(
        code: Option<(&str, &[u8])>,
        cipher: Option<(&str, &[u8])>,
        superblock: &Superblock,
        providers: &Providers,
    ) -> Result<JournalSeal> {
        // Sections do not depend on where the data lie.
        let layout = superblock.layout(superblock.log2_interleave_sectors == 0)?;
        let has_code = superblock.flags.contains(Flags::JOURNAL_MAC);
        let code = match code {
            None if has_code => return Err(no_code()),
            Some(_) if !has_code => return Err(Error::argument("the dm-integrity journal has no codes")),
            None => None,
            Some((name, key)) => {
                let hash = name.strip_prefix("hmac(").and_then(|name| name.strip_suffix(')'));
                let Some(hash) = hash.or(name.strip_prefix("hmac-")) else {
                    let text = format!("{name} for the dm-integrity journal: its codes are HMACs");
                    return Err(Error::unsupported(text));
                };
                Some(Hmac::new(providers.hash(hash)?, key))
            }
        };
        let salt = superblock.flags.contains(Flags::FIX_HMAC).then_some(superblock.salt);
        let section_len = layout.section_sectors() * u64_of(SECTOR);
        let mut seal = JournalSeal { code, salt, cipher: None, marks: MARKS, section_len };
        if let Some((name, key)) = cipher {
            let kernels = name.split_once('-').map(|(mode, of)| format!("{mode}({of})"));
            let kernels = kernels.as_deref().unwrap_or(name);
            let is_stream = kernels.starts_with("ctr(");
            if kernels.contains("chacha") || kernels.contains("salsa") || kernels.contains("arc4") {
                let text = format!(
                    "{name} for the dm-integrity journal: of stream ciphers ctr-aes and the like can be"
                );
                return Err(Error::unsupported(text));
            }
            if !is_stream && !kernels.starts_with("cbc(") {
                let text = format!("{name} for the dm-integrity journal: ctr-aes and cbc-aes can be");
                return Err(Error::unsupported(text));
            }
            seal.cipher = Some((providers.cipher(kernels, key)?, is_stream));
            if is_stream {
                seal.encrypt_marks(layout.journal_len().next_multiple_of(PAGE))?;
            }
        }
        Ok(seal)
    }

    /// Takes the marks from the key stream behind the journal. No two are the same.
    fn encrypt_marks(&mut self, offset: u64) -> Result<()> {
        let mut bytes: Vec<u8> = MARKS.iter().flat_map(|mark| mark.to_le_bytes()).collect();
        self.stream(offset, &mut bytes)?;
        for (round, bytes) in bytes.chunks_exact(8).enumerate() {
            // OK to unwrap: eight bytes.
            let mut mark = u64::from_le_bytes(bytes.try_into().unwrap());
            while self.marks[..round].contains(&mark) {
                mark = mark.wrapping_add(1);
            }
            self.marks[round] = mark;
        }
        Ok(())
    }

    /// Encrypts or decrypts bytes from one of the stream's on, a multiple of 16.
    fn stream(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let Some((cipher, _)) = &self.cipher else { return Ok(()) };
        let first = u128::from(offset / 16);
        Ok(cipher.encrypt(&Ivs::Big { first, step: 0 }, bytes)?)
    }

    fn run(&self, number: u64, section: &mut [u8], encrypts: bool) -> Result<()> {
        let Some((cipher, is_stream)) = &self.cipher else { return Ok(()) };
        if *is_stream {
            return self.stream(number * self.section_len, section);
        }
        let mut iv = vec![0; cipher.iv_len()];
        let zero = iv.clone();
        // A block has more than four bytes.
        iv[..4].copy_from_slice(&u32_of(number).to_le_bytes());
        cipher.encrypt(&Ivs::List(&zero), &mut iv)?;
        match encrypts {
            true => cipher.encrypt(&Ivs::List(&iv), section)?,
            false => cipher.decrypt(&Ivs::List(&iv), section)?,
        }
        Ok(())
    }

    /// The marks of the rounds.
    pub(crate) fn marks(&self) -> &[u64; ROUNDS] {
        &self.marks
    }

    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Makes of a section what lies on the device.
    pub(crate) fn close(&self, layout: &Layout, number: u64, section: &mut [u8]) -> Result<()> {
        if let Some(code) = self.code(layout, number, section) {
            for (sector, part) in section.chunks_exact_mut(SECTOR).zip(code.chunks_exact(PART)) {
                sector[CODE..CODE + PART].copy_from_slice(part);
            }
        }
        self.run(number, section, true)
    }

    /// Decrypts a section that was read.
    pub(crate) fn open(&self, number: u64, section: &mut [u8]) -> Result<()> {
        self.run(number, section, false)
    }

    /// Checks the code of a section that was opened.
    pub(crate) fn check(&self, layout: &Layout, number: u64, section: &[u8]) -> Result<()> {
        let Some(code) = self.code(layout, number, section) else { return Ok(()) };
        let parts = section.chunks_exact(SECTOR).zip(code.chunks_exact(PART));
        match parts.fold(true, |is_right, (sector, part)| {
            is_right & constant_time_eq(&sector[CODE..CODE + PART], part)
        }) {
            true => Ok(()),
            false => Err(Error::coded(
                Code::BadDigest,
                format!(
                    "dm-integrity journal: the code of section {number} is not that of its entries: another key, or it was changed"
                ),
            )),
        }
    }

    /// The code of a section: of the numbers of its blocks, which its marks and tags go with.
    fn code(&self, layout: &Layout, number: u64, section: &[u8]) -> Option<Vec<u8>> {
        let hmac = self.code.as_ref()?;
        let mut message = Vec::new();
        if let Some(salt) = &self.salt {
            message.extend_from_slice(salt);
            message.extend_from_slice(&number.to_le_bytes());
        }
        for entry in 0..layout.section_entries() {
            let at = layout.place(entry);
            message.extend_from_slice(&section[at..at + 8]);
        }
        let mut code = hmac.tag(&message).expose().to_vec();
        code.resize(usize_of(METADATA_SECTORS) * PART, 0);
        Some(code)
    }

    /// The bytes of the superblock that its code takes, and what it is.
    fn superblock_code(&self, superblock: &[u8]) -> Option<(usize, Vec<u8>)> {
        let hmac = self.code.as_ref().filter(|_| self.salt.is_some())?;
        let at = superblock.len().checked_sub(hmac.tag_len())?;
        Some((at, hmac.tag(&superblock[..at]).expose().to_vec()))
    }

    /// Puts the superblock's code at its end, if it has one.
    pub(crate) fn close_superblock(&self, superblock: &mut [u8]) {
        if let Some((at, code)) = self.superblock_code(superblock) {
            superblock[at..].copy_from_slice(&code);
        }
    }

    pub(crate) fn check_superblock(&self, superblock: &[u8]) -> Result<()> {
        match self.superblock_code(superblock) {
            Some((at, code)) if !constant_time_eq(&superblock[at..], &code) => Err(Error::coded(
                Code::BadDigest,
                "dm-integrity superblock: its code is not that of the journal's key: another key, or it was changed",
            )),
            _ => Ok(()),
        }
    }
}

pub(crate) fn no_code() -> Error {
    Error::locked("dm-integrity: the journal has codes, whose key is needed").advise(Advice::JournalIntegrity)
}

impl fmt::Debug for JournalSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (has_code, is_encrypted) = (self.code.is_some(), self.is_encrypted());
        f.debug_struct("JournalSeal")
            .field("has_code", &has_code)
            .field("is_encrypted", &is_encrypted)
            .finish()
    }
}
