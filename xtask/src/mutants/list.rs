//! The mutations of our own: each is a fault that somebody could make, and the suites that have to notice it.
//!
//! `text` is found once in its file, or the test of this crate fails: so a change of the code comes with a change of the mutation.

use super::mutation::{Mutation, Suite};

const INTEGRITY_JOURNAL: Suite = Suite { krate: "integrity", target: "journal", filter: "" };
const CRYPT_CORPUS: Suite = Suite { krate: "crypt", target: "corpus", filter: "" };
const CRYPT_LIB: Suite = Suite { krate: "crypt", target: "lib", filter: "" };
const VERITY_SIGNATURE: Suite = Suite { krate: "verity", target: "signature", filter: "" };
const VERITY_LIB: Suite = Suite { krate: "verity", target: "lib", filter: "" };
const FSCRYPT_METADATA: Suite = Suite { krate: "fscrypt", target: "metadata", filter: "" };
const FSCRYPT_LIB: Suite = Suite { krate: "fscrypt", target: "lib", filter: "" };
const FSCRYPT_BOTH_WAYS: Suite = Suite { krate: "fscrypt", target: "both_ways", filter: "" };
const NBD_SERVER: Suite = Suite { krate: "nbd", target: "server", filter: "" };
const NBD_LIB: Suite = Suite { krate: "nbd", target: "lib", filter: "" };
const BLOCKDEV_LIB: Suite = Suite { krate: "blockdev", target: "lib", filter: "" };
const LUKS_HEADERS: Suite = Suite { krate: "luks", target: "headers", filter: "" };
const LUKS_LIB: Suite = Suite { krate: "luks", target: "lib", filter: "" };
const EXT4_INTERRUPTED: Suite = Suite { krate: "ext4", target: "interrupted", filter: "" };
const EXT4_LIB_TRANSACTION: Suite = Suite { krate: "ext4", target: "lib", filter: "transaction" };
const EXT4_JOURNAL: Suite = Suite { krate: "ext4", target: "journal", filter: "" };
const CLI_ANSWERS: Suite = Suite { krate: "cli", target: "answers", filter: "" };
const CLI_LIB_STREAMS: Suite = Suite { krate: "cli", target: "lib", filter: "streams" };
const CLI_LIB_ANSWER: Suite = Suite { krate: "cli", target: "lib", filter: "answer" };
const CLI_LUKS_OTHERS: Suite = Suite { krate: "cli", target: "luks", filter: "others" };
const CASEMATE_LUKS: Suite = Suite { krate: "casemate", target: "luks", filter: "" };
const CASEMATE_PATHS: Suite = Suite { krate: "casemate", target: "paths", filter: "made_anew" };
const CLI_LUKS_HEADERS: Suite = Suite { krate: "cli", target: "luks", filter: "headers" };
const CLI_POWER_CUT_KEYS_CHANGE: Suite = Suite { krate: "cli", target: "power_cut", filter: "keys_change" };
const CLI_MOUNT_COMMITS: Suite = Suite { krate: "cli", target: "mount", filter: "commits" };
const FUSE_LIB_CALLER: Suite = Suite { krate: "fuse", target: "lib", filter: "caller" };

/// All mutations of the list.
pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "made-below-an-open-layer",
        file: "crates/blockdev/src/reach.rs",
        text: r"        self.check_no_layer_in(start..self.top().size())?;
",
        by: "",
        suites: &[CASEMATE_PATHS],
    },
    Mutation {
        name: "integrity-journal-not-flushed",
        file: "crates/integrity/src/commit.rs",
        text: r"        }
        self.meta().flush()?;
        Ok((round, number))",
        by: r"        }
        Ok((round, number))",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-places-not-flushed",
        file: "crates/integrity/src/commit.rs",
        text: r"        self.write_places(&blocks(&writes.placing).collect::<Vec<_>>())?;
        self.flush_below()?;",
        by: "        self.write_places(&blocks(&writes.placing).collect::<Vec<_>>())?;",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-places-before-journal",
        file: "crates/integrity/src/commit.rs",
        text: "                position = self.write_journal(position, &blocks)?;",
        by: r"                self.write_places(&blocks)?;
                position = self.write_journal(position, &blocks)?;",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-journal-written-over-after-an-error",
        file: "crates/integrity/src/commit.rs",
        text: r"            writes.placing = std::mem::replace(&mut writes.waiting, rest);",
        by: r"            writes.placing = std::mem::replace(&mut writes.waiting, rest);
            if let Err(error) = self.place(writes) {
                writes.waiting.append(&mut writes.placing);
                return Err(error);
            }",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-first-mark-not-removed-first",
        file: "crates/integrity/src/commit.rs",
        text: "self.meta().write_at(&[0; 512], first)?;",
        by: "",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-replay-skipped-before-a-write",
        file: "crates/integrity/src/commit.rs",
        text: r"            self.data.write_at(&data, self.layout().data(block))?;
            self.meta().write_at(&tag, self.layout().tag(block))?;
        }
        Ok(())",
        by: r"        }
        Ok(())",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-replay-not-flushed",
        file: "crates/integrity/src/commit.rs",
        text: r"                }
                self.flush_below()?;
                // From here on",
        by: r"                }
                // From here on",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-journal-read-again-after-an-error",
        file: "crates/integrity/src/commit.rs",
        text: r"                writes.journal = Journal::default();
                writes.is_in_order = true;
",
        by: "",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-bitmap-not-flushed-before-data",
        file: "crates/integrity/src/commit.rs",
        text: r"            self.meta().write_at(&bytes, self.layout().bitmap() + number * BITMAP_BLOCK)?;
        }
        self.meta().flush()",
        by: r"            self.meta().write_at(&bytes, self.layout().bitmap() + number * BITMAP_BLOCK)?;
        }
        Ok(())",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-dirty-bitmap-believed-with-a-key",
        file: "crates/integrity/src/commit.rs",
        text: "if flags.contains(flag) && !is_said && !is_safe {",
        by: "if false && flags.contains(flag) && !is_said && !is_safe {",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-recalculated-tags-not-flushed",
        file: "crates/integrity/src/commit.rs",
        text: r"        self.recalculate(first, count)?;
        self.flush_below()?;",
        by: "        self.recalculate(first, count)?;",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-foreign-journal-written",
        file: "crates/integrity/src/commit.rs",
        text: "if writes.journal.is_foreign() {",
        by: "if false && writes.journal.is_foreign() {",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-journal-section-mark-not-compared",
        file: "crates/integrity/src/journal.rs",
        text: "any(|mark| mark != Some(round))",
        by: "any(|mark| mark.is_none())",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-journal-code-not-checked",
        file: "crates/integrity/src/journal.rs",
        text: "seal.map_or(Ok(()), |seal| seal.check(layout, number, &section))?;",
        by: "",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-superblock-code-always-right",
        file: "crates/integrity/src/seal.rs",
        text: "Some((at, code)) if !constant_time_eq(&superblock[at..], &code) =>",
        by: "Some((at, code)) if superblock[at..].len() != code.len() =>",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-journal-code-fold-starts-anew",
        file: "crates/integrity/src/seal.rs",
        text: "is_right & constant_time_eq(&sector[CODE..CODE + PART], part)",
        by: "is_right | constant_time_eq(&sector[CODE..CODE + PART], part)",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-tags-not-compared",
        file: "crates/integrity/src/device.rs",
        text: "if !constant_time_eq(tags, &right) {",
        by: "if tags.len() != right.len() {",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-wrong-block-is-given-out",
        file: "crates/integrity/src/device.rs",
        text: "Err(Error::coded(Code::BadDigest, text))",
        by: "{ drop(text); Ok(()) }",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-partial-write-on-a-damaged-block",
        file: "crates/integrity/src/device.rs",
        text: "if len < size {",
        by: "if false && len < size {",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-recalculating-believed-with-a-key",
        file: "crates/integrity/src/device.rs",
        text: "if is_recalculating && guard.is_keyed() && !guard.may_recalculate() {",
        by: "if false && is_recalculating && guard.is_keyed() && !guard.may_recalculate() {",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-no-code-needed",
        file: "crates/integrity/src/device.rs",
        text: "None if superblock.flags.contains(Flags::JOURNAL_MAC) => return Err(no_code()),",
        by: "",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "integrity-short-keyed-tags-taken",
        file: "crates/integrity/src/tagger.rs",
        text: "const SHORTEST_CODE: u16 = 8;",
        by: "const SHORTEST_CODE: u16 = 1;",
        suites: &[INTEGRITY_JOURNAL],
    },
    Mutation {
        name: "crypt-hmac-not-compared",
        file: "crates/crypt/src/authenticated.rs",
        text: "found.is_none_or(|found| constant_time_eq(found.expose(), tag))",
        by: "found.is_none_or(|found| found.expose().len() == tag.len())",
        suites: &[CRYPT_CORPUS, CRYPT_LIB],
    },
    Mutation {
        name: "crypt-unauthentic-data-left",
        file: "crates/crypt/src/authenticated.rs",
        text: "data.fill(0);",
        by: "",
        suites: &[CRYPT_CORPUS, CRYPT_LIB],
    },
    Mutation {
        name: "crypt-sector-not-authenticated",
        file: "crates/crypt/src/authenticated.rs",
        text: "[&sector.to_le_bytes(), iv, data].concat()",
        by: "[&0_u64.to_le_bytes(), iv, data].concat()",
        suites: &[CRYPT_CORPUS, CRYPT_LIB],
    },
    Mutation {
        name: "crypt-aegis-tag-not-compared",
        file: "crates/crypt/src/aegis.rs",
        text: "constant_time_eq(&state.tag(associated.len(), data.len()), tag)",
        by: "state.tag(associated.len(), data.len()).len() == tag.len()",
        suites: &[CRYPT_CORPUS, CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-slot-not-flushed",
        file: "crates/crypt/src/in_place.rs",
        text: r"        journal.write_at(data, record.slot(zone))?;
        journal.flush()?;",
        by: "        journal.write_at(data, record.slot(zone))?;",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-record-not-flushed",
        file: "crates/crypt/src/in_place/record.rs",
        text: r"        journal.write_at(&self.to_bytes(sha256), (self.zones % 2) * RECORD)?;
        journal.flush()",
        by: "        journal.write_at(&self.to_bytes(sha256), (self.zones % 2) * RECORD)",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-image-not-flushed",
        file: "crates/crypt/src/in_place.rs",
        text: r"        image.write_at(data, offset)?;
        image.flush()?;",
        by: "        image.write_at(data, offset)?;",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-image-before-record",
        file: "crates/crypt/src/in_place.rs",
        text: r"        record.write(job.sha256, journal)?;
        image.write_at(data, offset)?;",
        by: r"        image.write_at(data, offset)?;
        record.write(job.sha256, journal)?;",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-slots-do-not-take-turns",
        file: "crates/crypt/src/in_place/record.rs",
        text: "RECORDS + (zone % 2) * self.hot_zone",
        by: "RECORDS + zone % 1",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-record-checksum-skipped",
        file: "crates/crypt/src/in_place/record.rs",
        text: "(sane && digest(sha256, body) == *checksum).then_some(record)",
        by: "(sane && digest(sha256, body).len() == checksum.len()).then_some(record)",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-key-not-compared",
        file: "crates/crypt/src/in_place.rs",
        text: "if !constant_time_eq(&record.key_tag, &key_tag(job, &record.salt)) {",
        by: "if record.key_tag.is_empty() {",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-image-not-compared",
        file: "crates/crypt/src/in_place.rs",
        text: "if constant_time_eq(&record.image_tag, &tag) {",
        by: "if record.image_tag.len() == tag.len() {",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-slot-digest-skipped",
        file: "crates/crypt/src/in_place.rs",
        text: "if digest(job.sha256, &data) != record.data_digest {",
        by: "if data.is_empty() {",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "crypt-in-place-old-record-left",
        file: "crates/crypt/src/in_place.rs",
        text: "journal.write_at(&vec![0; usize_of(RECORD)], RECORD)?;",
        by: "",
        suites: &[CRYPT_LIB],
    },
    Mutation {
        name: "verity-signature-message-digest-not-compared",
        file: "crates/verity/src/signature/mod.rs",
        text: " || !constant_time_eq(message_digest.as_bytes(), &expected)",
        by: "",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-signature-content-type-not-compared",
        file: "crates/verity/src/signature/mod.rs",
        text: "content_type != pkcs7::DATA || ",
        by: "",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-signature-signer-not-compared",
        file: "crates/verity/src/signature/mod.rs",
        text: ".find(|signer| certificate.is(&signer.signer))",
        by: ".next()",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-signature-not-verified",
        file: "crates/verity/src/signature/mod.rs",
        text: "certificate.key().verify(signed, signer.signature.as_bytes(), digest, providers)",
        by: "{ let _ = signed; Ok(()) }",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-sign-with-another-key",
        file: "crates/verity/src/signature/mod.rs",
        text: "if key.public_bytes() != certificate.key().to_bytes() {",
        by: "if key.public_bytes().is_empty() {",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-assemble-without-a-check",
        file: "crates/verity/src/signature/mod.rs",
        text: "certificate.key().verify(message, bare_signature, digest, providers)?;",
        by: "let _ = (message, providers);",
        suites: &[VERITY_SIGNATURE],
    },
    Mutation {
        name: "verity-digests-not-compared",
        file: "crates/verity/src/tree/verified.rs",
        text: "if expected != digest {",
        by: "if expected.len() != digest.len() {",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "verity-hash-block-not-checked",
        file: "crates/verity/src/tree/verified.rs",
        text: "if !self.mismatches(level + 1, index, &digest)?.is_empty() {",
        by: "if self.mismatches(level + 1, index, &digest)?.is_empty() && false {",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "verity-kept-block-not-compared",
        file: "crates/verity/src/tree/verified.rs",
        text: r"
            && *kept == number
",
        by: r"
            && *kept == *kept
",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "verity-reserved-bytes-not-checked",
        file: "crates/verity/src/dm/superblock.rs",
        text: r#"zeros(&bytes[344..], "bytes 344 to 511, which are reserved, are not zero")?;"#,
        by: "",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "verity-size-overflow-not-checked",
        file: "crates/verity/src/dm/superblock.rs",
        text: "if data_blocks == 0 || data_blocks.checked_mul(parameters.data_block_size.bytes().into()).is_none() {",
        by: "if data_blocks == 0 {",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "fsverity-digest-not-compared",
        file: "crates/verity/src/fs/digest.rs",
        text: "self.algorithm == other.algorithm && constant_time_eq(&self.bytes, &other.bytes)",
        by: "self.algorithm == other.algorithm",
        suites: &[VERITY_LIB],
    },
    Mutation {
        name: "fscrypt-wrapped-key-tag-not-compared",
        file: "crates/fscrypt/src/metadata/wrapped.rs",
        text: "if !constant_time_eq(tag.expose(), &self.tag) {",
        by: "if tag.is_empty() {",
        suites: &[FSCRYPT_METADATA],
    },
    Mutation {
        name: "fscrypt-wrapped-key-iv-not-tagged",
        file: "crates/fscrypt/src/metadata/wrapped.rs",
        text: "let tagged = [&iv[..], encrypted].concat();",
        by: "let tagged = [&iv[..0], encrypted].concat();",
        suites: &[FSCRYPT_METADATA],
    },
    Mutation {
        name: "fscrypt-another-policys-key-taken",
        file: "crates/fscrypt/src/key.rs",
        text: r"    pub fn file_key(&self, mode: Mode, inode: &InodeInfo) -> Result<SecretVec> {
        self.check_id(inode)?;",
        by: "    pub fn file_key(&self, mode: Mode, inode: &InodeInfo) -> Result<SecretVec> {",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-too-short-a-key-taken",
        file: "crates/fscrypt/src/key.rs",
        text: "if self.secret.len() < needed {",
        by: "if self.secret.len() < needed - needed {",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-dir-hash-of-another-key",
        file: "crates/fscrypt/src/key.rs",
        text: r"        self.check_id(directory)?;
",
        by: "",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-contents-without-hardware",
        file: "crates/fscrypt/src/key.rs",
        text: r#"        if self.hardware {
            let text = "contents"#,
        by: r#"        if false && self.hardware {
            let text = "contents"#,
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-units-past-what-ivs-count",
        file: "crates/fscrypt/src/contents.rs",
        text: "is_none_or(|end| end > last)",
        by: "is_none()",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-ivs-do-not-wrap",
        file: "crates/fscrypt/src/contents.rs",
        text: "self.cipher.run(direction, &counted(0), tail)?;",
        by: "self.cipher.run(direction, &counted(UNITS_OF_32_BITS.into()), tail)?;",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "fscrypt-removed-key-left-under-other-names",
        file: "crates/fscrypt/src/keyring.rs",
        text: "self.keys.retain(|_, other| other.secret() != key.secret());",
        by: "let _ = (key, self.keys.remove(id));",
        suites: &[FSCRYPT_LIB, FSCRYPT_BOTH_WAYS],
    },
    Mutation {
        name: "nbd-fua-not-flushed",
        file: "crates/nbd/src/connection.rs",
        text: "let mut flush = request.flags & Request::FUA != 0;",
        by: "let mut flush = false;",
        suites: &[NBD_SERVER],
    },
    Mutation {
        name: "nbd-flush-not-flushed",
        file: "crates/nbd/src/connection.rs",
        text: "Command::Flush | Command::Disconnect => flush = true,",
        by: "Command::Flush | Command::Disconnect => {}",
        suites: &[NBD_SERVER],
    },
    Mutation {
        name: "nbd-request-not-checked",
        file: "crates/nbd/src/connection.rs",
        text: "let checked = request.check(description.size, description.flags, self.agreed.allocation);",
        by: "let checked = request.check(u64::MAX, description.flags, self.agreed.allocation);",
        suites: &[NBD_SERVER],
    },
    Mutation {
        name: "nbd-no-hole-ignored",
        file: "crates/nbd/src/connection.rs",
        text: "let may_punch = request.flags & Request::NO_HOLE == 0;",
        by: "let may_punch = true;",
        suites: &[NBD_SERVER],
    },
    Mutation {
        name: "nbd-room-not-given-back-when-a-client-leaves",
        file: "crates/nbd/src/connection.rs",
        text: "read.inspect_err(|_| self.give_room(&request))?;",
        by: "read?;",
        suites: &[NBD_SERVER],
    },
    Mutation {
        name: "nbd-write-to-read-only",
        file: "crates/nbd/src/protocol/request.rs",
        text: "if writes && has(flags::READ_ONLY) {",
        by: "if command == Command::Write && has(flags::READ_ONLY) {",
        suites: &[NBD_LIB],
    },
    Mutation {
        name: "nbd-end-loosened",
        file: "crates/nbd/src/protocol/request.rs",
        text: "Some(end) if end <= size => Ok(command),",
        by: "Some(end) if end <= size + 1 => Ok(command),",
        suites: &[NBD_LIB],
    },
    Mutation {
        name: "nbd-largest-payload-loosened",
        file: "crates/nbd/src/protocol/request.rs",
        text: "moves && self.len > MAX_PAYLOAD",
        by: "moves && self.len > MAX_PAYLOAD + 1",
        suites: &[NBD_LIB],
    },
    Mutation {
        name: "nbd-contexts-before-structured-replies",
        file: "crates/nbd/src/protocol/negotiation.rs",
        text: "_ if !self.structured => reply(",
        by: "_ if false => reply(",
        suites: &[NBD_LIB],
    },
    Mutation {
        name: "nbd-count-of-contexts-not-compared",
        file: "crates/nbd/src/protocol/negotiation.rs",
        text: "(queries.len() == usize_of(u32::from_be_bytes(*count))).then_some((name, queries))",
        by: "(u32::from_be_bytes(*count) < u32::MAX).then_some((name, queries))",
        suites: &[NBD_LIB],
    },
    Mutation {
        name: "blockdev-lock-not-taken-for-a-new-name",
        file: "crates/blockdev/src/output_file.rs",
        text: "let replaced = self.replaced.map_or_else(|| claim_name(&self.path), |file| Ok(Some(file)))?;",
        by: "let replaced = self.replaced;",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-lock-of-a-name-that-moved",
        file: "crates/blockdev/src/exclusive.rs",
        text: "if os::id_at(path)? != os::id_of(device.file())? {",
        by: "if os::id_of(device.file())? != os::id_of(device.file())? {",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-lock-of-a-removed-file",
        file: "crates/blockdev/src/lock.rs",
        text: r"                    if os::id_at(&path).is_ok_and(|id| os::id_of(&held).is_ok_and(|held| held == id)) {
                        return",
        by: r"                    {
                        return",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-lock-shared-for-exclusive",
        file: "crates/blockdev/src/exclusive.rs",
        text: "let held = Held::lock(file, Sharing::Exclusive)?;",
        by: "let held = Held::lock(file, Sharing::Shared)?;",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-lock-file-removed-while-shared",
        file: "crates/blockdev/src/lock.rs",
        text: "let is_last = self.held.is_ours() && matches!(self.held.try_lock(), Ok(()));",
        by: "let is_last = self.held.is_ours();",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-failed-flush-forgotten",
        file: "crates/blockdev/src/file.rs",
        text: "*has_failed = done.is_err();",
        by: "",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-overlay-bits-before-data",
        file: "crates/blockdev/src/overlay_file.rs",
        text: "let written = noted().and_then(|()| self.store.flush()).and_then(|()| {",
        by: "let written = noted().and_then(|()| {",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-overlay-bits-not-flushed",
        file: "crates/blockdev/src/overlay_file.rs",
        text: "if parts.is_empty() { Ok(()) } else { self.store.flush() }",
        by: "Ok(())",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-overlay-dirty-part-forgotten",
        file: "crates/blockdev/src/overlay_file.rs",
        text: "parts.iter().for_each(|(number, _)| self.dirty[*number].store(true, Ordering::Release)),",
        by: "(),",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-overlay-commit-not-flushed",
        file: "crates/blockdev/src/overlay_file/commit.rs",
        text: "        self.below.flush()",
        by: "        Ok(())",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "blockdev-window-end-loosened",
        file: "crates/blockdev/src/window.rs",
        text: "Some(end) if end <= self.len => Ok(self.start + offset),",
        by: "Some(end) if end <= self.len + 1 => Ok(self.start + offset),",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "luks2-copy-not-flushed",
        file: "crates/luks/src/luks2/header.rs",
        text: r"        device.write_at(&bytes, hdr_offset)?;
        device.flush()?;",
        by: "        device.write_at(&bytes, hdr_offset)?;",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-good-copy-written-first",
        file: "crates/luks/src/luks2/header.rs",
        text: "if is_good(0) && !is_good(1) { [1, 0] } else { [0, 1] }",
        by: "if is_good(0) && !is_good(1) { [0, 1] } else { [0, 1] }",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-write-without-a-comparison",
        file: "crates/luks/src/luks2/header.rs",
        text: r"        self.check_unchanged(device)?;
        let seqid",
        by: "        let seqid",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-superseded-copy-left-whole",
        file: "crates/luks/src/luks2/header.rs",
        text: "                self.supersede(order[1], device)?;\n",
        by: "",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-repair-without-a-comparison",
        file: "crates/luks/src/luks2/header.rs",
        text: r"        self.check_unchanged(device)?;
        let good",
        by: "        let good",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-older-copy-taken",
        file: "crates/luks/src/luks2/header.rs",
        text: "if two.0.seqid > one.0.seqid =>",
        by: "if two.0.seqid < one.0.seqid =>",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-failed-copy-called-valid",
        file: "crates/luks/src/luks2/header.rs",
        text: r#"self.copies[k] = CopyState::Damaged("its writing failed".to_owned());"#,
        by: "",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-head-that-changed-while-read",
        file: "crates/luks/src/luks2/header.rs",
        text: "if copy[..BINARY_LEN] != *head {",
        by: "if copy[..BINARY_LEN].len() != head.len() {",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-checksum-not-compared",
        file: "crates/luks/src/luks2/binary.rs",
        text: "Ok(constant_time_eq(&found, &copy[CSUM.start..CSUM.start + found.len()]))",
        by: "Ok(found.len() <= copy[CSUM].len())",
        suites: &[LUKS_LIB, LUKS_HEADERS],
    },
    Mutation {
        name: "luks2-place-not-compared",
        file: "crates/luks/src/luks2/binary.rs",
        text: "if header.hdr_offset != offset {",
        by: "if false && header.hdr_offset != offset {",
        suites: &[LUKS_LIB],
    },
    Mutation {
        name: "luks1-sectors-not-flushed",
        file: "crates/luks/src/luks1.rs",
        text: r"            device.write_at(sector, offset)?;
            device.flush()?;",
        by: "            device.write_at(sector, offset)?;",
        suites: &[LUKS_HEADERS, LUKS_LIB],
    },
    Mutation {
        name: "luks1-first-sector-first",
        file: "crates/luks/src/luks1.rs",
        text: "for (offset, sector) in [(512, second), (0, first)] {",
        by: "for (offset, sector) in [(0, first), (512, second)] {",
        suites: &[LUKS_HEADERS, LUKS_LIB],
    },
    Mutation {
        name: "luks1-write-without-a-comparison",
        file: "crates/luks/src/luks1.rs",
        text: r"        self.check_unchanged(device)?;
        let bytes",
        by: "        let bytes",
        suites: &[LUKS_HEADERS],
    },
    Mutation {
        name: "luks1-key-left-in-a-disabled-slot",
        file: "crates/luks/src/luks1.rs",
        text: "(self.state, self.iterations, self.salt) = (SlotState::Disabled, 0, [0; SALT_LEN]);",
        by: "self.state = SlotState::Disabled;",
        suites: &[LUKS_HEADERS, LUKS_LIB],
    },
    Mutation {
        name: "luks-stripes-too-short-taken",
        file: "crates/luks/src/af.rs",
        text: "fill(&mut stripes[..last])?;",
        by: "fill(&mut stripes[..last - key.len()])?;",
        suites: &[LUKS_LIB],
    },
    Mutation {
        name: "ext4-log-not-flushed-before-it-counts",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"                log.write_transaction(device, blocks, now)?;
                self.flush(device)",
        by: "                log.write_transaction(device, blocks, now)",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-log-valid-not-flushed-before-places",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"                self.write_journal_superblock(device, sequence, first)?;
                self.flush(device)?;",
        by: "                self.write_journal_superblock(device, sequence, first)?;",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-places-not-flushed-before-the-log-is-empty",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"                write_blocks(device, size, blocks.iter())?;
                self.flush(device)?;
                let next",
        by: r"                write_blocks(device, size, blocks.iter())?;
                let next",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-log-empty-not-flushed-before-the-mark",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"                self.flush(device)?;
                self.mark(device, |mut superblock| superblock.set_needs_recovery(false))?;",
        by: "                self.mark(device, |mut superblock| superblock.set_needs_recovery(false))?;",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-needs-recovery-not-set",
        file: "crates/ext4/src/transaction/log.rs",
        text: "self.mark(device, |mut superblock| superblock.set_needs_recovery(true))?;",
        by: "",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-recovery-file-image-not-flushed-first",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"                self.flush(device)?;
                self.store_in(&file, device, blocks)?;",
        by: "                self.store_in(&file, device, blocks)?;",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-recovery-file-superblock-not-last",
        file: "crates/ext4/src/transaction/log.rs",
        text: "write_blocks(device, size, blocks.iter().filter(|(block, _)| **block != superblock))?;",
        by: "write_blocks(device, size, blocks.iter())?;",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-failed-flush-goes-on",
        file: "crates/ext4/src/transaction/log.rs",
        text: "device.flush().inspect_err(|error| self.failed = Some(Failed::Unknown(Some(again(error)))))",
        by: "device.flush()",
        suites: &[EXT4_INTERRUPTED, EXT4_LIB_TRANSACTION],
    },
    Mutation {
        name: "ext4-replay-not-flushed",
        file: "crates/ext4/src/transaction/log.rs",
        text: r"        device.write_at(&block, offset)?;
    }
    device.flush()",
        by: r"        device.write_at(&block, offset)?;
    }
    Ok(())",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "ext4-untold-log-dropped",
        file: "crates/ext4/src/transaction/log.rs",
        text: "if !journal::is_untold(&fs)? {",
        by: "if true {",
        suites: &[EXT4_INTERRUPTED],
    },
    Mutation {
        name: "blockdev-failed-flush-told-once",
        file: "crates/blockdev/src/file.rs",
        text: "*has_failed = done.is_err();",
        by: "",
        suites: &[BLOCKDEV_LIB],
    },
    Mutation {
        name: "ext4-journal-block-checksum-skipped",
        file: "crates/ext4/src/read/journal/replay.rs",
        text: "return self.checksums.verify_value(subject, &context, &bytes, copy.tag.checksum, place);",
        by: "return Ok(());",
        suites: &[EXT4_JOURNAL, EXT4_INTERRUPTED],
    },
    Mutation {
        name: "cli-broken-pipe-is-dropped-by-all",
        file: "crates/cli/src/streams.rs",
        text: "Err(error) if self.goes_on && error.kind()",
        by: "Err(error) if error.kind()",
        suites: &[CLI_ANSWERS],
    },
    Mutation {
        name: "cli-terminal-escapes-shown",
        file: "crates/cli/src/streams.rs",
        text: r#"tell(visible(&message.to_string()) + "\n");"#,
        by: r#"tell(message.to_string() + "\n");"#,
        suites: &[CLI_ANSWERS, CLI_LIB_STREAMS],
    },
    Mutation {
        name: "cli-marks-of-direction-shown",
        file: "crates/cli/src/streams.rs",
        text: r"| '\u{2028}'..='\u{202e}' ",
        by: "",
        suites: &[CLI_LIB_STREAMS],
    },
    Mutation {
        name: "cli-no-answers-two",
        file: "crates/cli/src/answer.rs",
        text: "Ok(Answer::No | Answer::Incomplete) => 1,",
        by: "Ok(Answer::No | Answer::Incomplete) => 2,",
        suites: &[CLI_ANSWERS],
    },
    Mutation {
        name: "cli-every-error-of-a-kind-answers-no",
        file: "crates/cli/src/answer.rs",
        text: "Err(error) if QUESTIONS.contains(&(command, Some(error.kind()))) => 1,",
        by: "Err(error) if QUESTIONS.iter().any(|(_, kind)| *kind == Some(error.kind())) => 1,",
        suites: &[CLI_LIB_ANSWER],
    },
    Mutation {
        name: "cli-cut-output-is-success",
        file: "crates/cli/src/answer.rs",
        text: "Err(error) if error.is_broken_pipe() => CUT,",
        by: "Err(error) if error.is_broken_pipe() => 0,",
        suites: &[CLI_LIB_ANSWER],
    },
    Mutation {
        name: "cli-interrupt-is-an-ordinary-error",
        file: "crates/cli/src/answer.rs",
        text: "Err(error) if error.is_interrupt() => signals::exit_status(),",
        by: "",
        suites: &[CLI_LIB_ANSWER],
    },
    Mutation {
        name: "luks-digest-of-a-key-always-right",
        file: "crates/luks/src/unlock.rs",
        text: "Ok(constant_time_eq(found.expose(), &self.digest))",
        by: "Ok(found.len() == self.digest.len())",
        suites: &[CLI_LUKS_OTHERS, CASEMATE_LUKS],
    },
    Mutation {
        name: "luks-digest-length-not-checked",
        file: "crates/luks/src/unlock.rs",
        text: "if !DIGEST_LEN.contains(&self.digest.len()) {",
        by: "if false && !DIGEST_LEN.contains(&self.digest.len()) {",
        suites: &[CASEMATE_LUKS],
    },
    Mutation {
        name: "luks-area-not-wiped",
        file: "crates/luks/src/change.rs",
        text: "device.write_at(&noise[..now], place)?;",
        by: "",
        suites: &[CLI_LUKS_HEADERS],
    },
    Mutation {
        name: "luks-material-not-flushed-before-the-header",
        file: "crates/luks/src/change.rs",
        text: r"    device.write_at(material.expose(), slot.area.start)?;
    device.flush()
",
        by: r"    device.write_at(material.expose(), slot.area.start)
",
        suites: &[CLI_POWER_CUT_KEYS_CHANGE],
    },
    Mutation {
        name: "fuse-commit-at-fsync-left-out",
        file: "crates/fuse/src/edits.rs",
        text: "self.changes().map_or(Ok(()), |changes| changes.commit().map_err(|error| self.error(error)))",
        by: "Ok(())",
        suites: &[CLI_MOUNT_COMMITS],
    },
    Mutation {
        name: "fuse-set-id-kept-for-all",
        file: "crates/fuse/src/caller.rs",
        text: "may_set_id: user == 0 };",
        by: "may_set_id: true };",
        suites: &[FUSE_LIB_CALLER],
    },
    Mutation {
        name: "fuse-another-threads-groups-taken",
        file: "crates/fuse/src/caller.rs",
        text: r#"if own("Uid") == Some(user) && own("Gid") == Some(group) {"#,
        by: r#"if own("Uid").is_some() {"#,
        suites: &[FUSE_LIB_CALLER],
    },
];
