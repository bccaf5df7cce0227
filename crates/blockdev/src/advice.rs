//! Advice: what helps against an error, as data that each front words.

use std::fmt;

macro_rules! kinds_of_advice {
    ($($(#[doc = $doc:literal])* $advice:ident $(($($value:ident: $type:ty),+))? = $name:literal $text:literal;)*) => {
        /// Advice that an error carries ([`Error::advise`](crate::Error::advise)): what to do, without the name of the option,
        /// argument or function that does it. Each front adds its own: the command `--superblock 8193`, Python
        /// `superblock=8193`.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Advice {
            $($(#[doc = $doc])* $advice $(($($type),+))?,)*
        }

        impl Advice {
            /// The advice's name for programs, such as `superblock`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Advice::$advice { .. } => $name,)*
                }
            }

            /// One of every sort: for tests of the fronts, each of which has to word them.
            pub fn each() -> Vec<Advice> {
                vec![$(Advice::$advice $(($(<$type>::default()),+))?),*]
            }
        }

        impl fmt::Display for Advice {
            /// Words for what to do, which fit every front: `read by the copy of the superblock in block 8193`.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Advice::$advice $(($($value),+))? => write!(f, $text),)*
                }
            }
        }
    };
}

kinds_of_advice! {
    /// The contents have to be replaced, and the caller has to say so.
    Overwrite = "overwrite" "allow it to be replaced";
    /// The block of a copy of the superblock that can be read by.
    Superblock(block: u64) = "superblock" "read by the copy of the superblock in block {block}";
    /// A partition has to be chosen.
    Partition = "partition" "choose a partition";
    /// The partition that has to be given alone, without those behind it.
    OnePartition(number: u32) = "one-partition" "give partition {number} alone";
    /// The byte that a hash area begins at, which was looked for elsewhere.
    HashOffset(offset: u64) = "hash-offset" "read the hash area at byte {offset}";
    /// The byte that the hash area of a dm-verity layer begins at, which was looked for elsewhere.
    LayerHashOffset(offset: u64) = "layer-hash-offset" "read the layer's hash area at byte {offset}";
    /// The first byte that a new hash area can begin at.
    HashAreaBehind(offset: u64) = "hash-area-behind" "let the hash area begin at byte {offset}";
    /// The layers under a file system have to be checked: key, cipher and place.
    CheckLayers = "check-layers" "check the cipher's parameters and the offset of the data";
    /// The number of dm-verity's data blocks has to be given.
    DataBlocks = "data-blocks" "give the number of data blocks";
    /// The number of roots of dm-verity's parity has to be given.
    FecRoots = "fec-roots" "give the parity's number of roots";
    /// The number that the size of a file system has to be a multiple of, in bytes.
    Align(bytes: u64) = "align" "make its size a multiple of {bytes} bytes";
    /// The bits of a key that use all of a key file.
    KeySize(bits: u64) = "key-size" "use all of it as a key of {bits} bits";
    /// One file is source and target: the work can be done in place.
    InPlace = "in-place" "transform it in place";
    /// A journal on a disk has to be named.
    Journal = "journal" "name a journal on a disk";
    /// Work in place that was stopped has to be resumed.
    Resume = "resume" "resume it";
    /// An interrupted change of the file system has to be completed.
    Recover = "recover" "complete the change";
    /// An interrupted change of a file system that begins at a byte of the image has to be completed.
    RecoverAt(offset: u64) = "recover-at" "complete the change of the file system at byte {offset}";
    /// An interrupted commit of an overlay has to be completed.
    CommitOverlay = "commit-overlay" "complete the commit";
    /// Nothing tells whether the image below an overlay is as it was, so the caller has to.
    TrustImage = "trust-image" "take the image as it is";
    /// One protector alone can be tried.
    Protector = "protector" "try one protector alone";
    /// More work may be allowed for fscrypt's protectors.
    FscryptKdfLimit = "fscrypt-kdf-limit" "allow protectors more work";
    /// Programs that use a mounted folder may go on, while it is unmounted for everybody else.
    Lazy = "lazy" "unmount it for everybody else";
    /// A mounted folder has to be unmounted.
    Unmount = "unmount" "unmount it";
    /// A mounted folder can be unmounted without its last changes.
    LoseChanges = "lose-changes" "unmount it without them";
    /// A folder has to be mounted with a control socket.
    Control = "control" "mount it with a control socket";
    /// A volume of dm-integrity was in use with a bitmap, and has to be opened so.
    BitmapMode = "integrity-bitmap-mode" "open it in bitmap mode";
    /// The algorithm and key of the codes of dm-integrity's journal.
    JournalIntegrity = "journal-integrity" "give the algorithm and key of the journal's codes";
    /// The algorithm and key that dm-integrity's journal is encrypted with.
    JournalCrypt = "journal-crypt" "if it is encrypted, give the journal's cipher and key";
    /// A LUKS volume has to be opened first.
    OpenLuks = "open-luks" "open the LUKS volume";
    /// One LUKS key slot alone can be tried, or has to be named.
    KeySlot = "key-slot" "name one key slot";
    /// More work may be allowed for opening a LUKS volume.
    KdfLimit = "kdf-limit" "allow more work";
    /// Nobody was there to be asked for a passphrase: the file with it has to be named.
    KeyFile = "key-file" "name the file with the passphrase or key";
    /// The volume key has to be given.
    VolumeKey = "volume-key" "give the volume key";
    /// The file of a LUKS header has to be named.
    LuksHeader = "luks-header" "name the file of the header";
    /// Data may be written of which their device shows that they are not of the LUKS header.
    OtherData = "other-data" "allow it to be overwritten";
    /// Room that the data give up at the end of the device for a header, in bytes.
    ReduceDeviceSize(bytes: u64) = "reduce-device-size" "let the data give up {bytes} bytes at the end of the device";
    /// Where encrypted data are to begin, in bytes.
    CryptOffset(bytes: u64) = "crypt-offset" "let the encrypted data begin at byte {bytes}";
    /// An encryption in place that was cut off has to be begun once more as it was: the bytes that the data give up, and where the
    /// encrypted data begin.
    EncryptAgain(reduce: u64, offset: u64) = "encrypt-again" "let the data give up {reduce} bytes at the end of the device, with the encrypted data from byte {offset} on";
    /// An XTS key with two equal halves may be used.
    EqualHalves = "equal-halves" "allow such a key";
    /// A file system lacks a feature that it can be given.
    AddFeature(name: String) = "add-feature" "add the feature {name}";
    /// A LUKS1 volume has to be converted to LUKS2.
    ConvertToLuks2 = "convert-to-luks2" "convert it to LUKS2 first";
    /// A reencryption that was begun has to be finished.
    FinishReencryption = "finish-reencryption" "finish the reencryption";
    /// A reencryption has to be begun first.
    BeginReencryption = "begin-reencryption" "begin a reencryption first";
    /// Two builds of a file system become more alike with one size of blocks, in bytes.
    BuildBlockSize(bytes: u64) = "build-block-size" "build both with blocks of {bytes} bytes";
    /// Two builds of a file system become more alike with one size, in bytes.
    BuildSize(bytes: u64) = "build-size" "build both with a size of {bytes} bytes";
    /// Two builds of a file system become more alike with one size of inodes, in bytes.
    BuildInodeSize(bytes: u64) = "build-inode-size" "build both with inodes of {bytes} bytes";
    /// Two builds of a file system become more alike with one number of inodes.
    BuildInodes(count: u64) = "build-inodes" "build both with {count} inodes";
    /// Features to add, and with a `^` to remove, that give the second build those of the first one.
    BuildFeatures(list: String) = "build-features" "change the features of the second build by {list}";
    /// Two builds of a file system become more alike with one label.
    BuildLabel(label: String) = "build-label" "build both with the label '{label}'";
    /// Two builds of a file system become more alike with one UUID.
    BuildUuid(uuid: String) = "build-uuid" "build both with the UUID {uuid}";
    /// Two builds of a file system become more alike with one seed of the directory hash.
    BuildHashSeed(seed: String) = "build-hash-seed" "build both with the hash seed {seed}";
    /// Two builds of a file system become more alike with one time, which no time of a file is later than.
    BuildTime = "build-time" "build both at one time, and let no file be later";
    /// Two builds of a file system become more alike if they are made of equal files.
    BuildFiles = "build-files" "build both of equal files";
    /// Two builds of a file system become more alike with one owner of all files.
    BuildOwner = "build-owner" "give all files one owner";
}

/// End of a text about an error: `; do this (--option), or do that (--other)`, in which `word` says what the caller's
/// language calls it. Empty without advice.
pub(crate) fn ending(advice: &[Advice], word: &dyn Fn(&Advice) -> Option<String>) -> String {
    let mut text = String::new();
    for (nth, advice) in advice.iter().enumerate() {
        let before = if nth == 0 { "; " } else { ", or " };
        let word = word(advice).map_or_else(String::new, |word| format!(" ({word})"));
        text.push_str(&format!("{before}{advice}{word}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn advice_has_a_name_and_names_no_option() {
        let all = Advice::each();
        assert_eq!(all.iter().map(Advice::name).collect::<BTreeSet<_>>().len(), all.len());
        for advice in all {
            assert!(!advice.to_string().contains("--"), "{advice}");
        }
        assert_eq!(Advice::Superblock(8193).to_string(), "read by the copy of the superblock in block 8193");
    }
}
