//! Advice of the library's errors, as this command's options.

use casemate::{Advice, Error};

/// An error's text with advice as options, and the name of its file; `specified` where the command line has an image
/// specification, which options do not go with.
pub fn worded(error: &Error, specified: bool) -> String {
    error.worded(&|advice| specified.then(|| in_specification(advice)).flatten().or_else(|| option(advice)))
}

/// The part of an image specification that does what an advice recommends; `None` if there is none.
fn in_specification(advice: &Advice) -> Option<String> {
    let words = match advice {
        Advice::Superblock(block) => return Some(format!("superblock={block}")),
        Advice::Partition => "partition=N",
        Advice::OnePartition(number) => return Some(format!("partition={number}")),
        Advice::LayerHashOffset(offset) => return Some(format!("hash-offset={offset}")),
        Advice::CheckLayers => "crypt, crypt-offset, skip, sector-size, offset",
        Advice::Protector => "protector=FILE",
        Advice::FscryptKdfLimit => "fscrypt-kdf-limit=TIMES",
        Advice::BitmapMode => "bitmap-mode",
        Advice::JournalIntegrity => "journal-integrity=NAME,journal-integrity-key-file=FILE",
        Advice::JournalCrypt => "journal-crypt=NAME,journal-crypt-key-file=FILE",
        Advice::KeySlot => "key-slot=N",
        Advice::KdfLimit => "kdf-limit=TIMES",
        Advice::KeyFile => "key-file=FILE",
        Advice::OpenLuks => "luks",
        Advice::EqualHalves => "allow-equal-halves",
        Advice::VolumeKey => "volume-key-file=FILE",
        Advice::LuksHeader => "header=FILE",
        Advice::OtherData => "overwrite",
        _ => return None,
    };
    Some(words.to_owned())
}

/// Option of the command line that does what an advice recommends; `None` if there is none.
pub fn option(advice: &Advice) -> Option<String> {
    let option = match advice {
        Advice::Overwrite => "--overwrite",
        Advice::Superblock(block) => return Some(format!("--superblock {block}")),
        Advice::Partition => "--partition N",
        Advice::OnePartition(number) => return Some(format!("--partition {number}")),
        Advice::HashOffset(offset) => return Some(format!("--hash-offset {offset}")),
        Advice::LayerHashOffset(offset) => return Some(format!("--verity-hash-offset {offset}")),
        Advice::HashAreaBehind(offset) => return Some(format!("--hash-offset {offset}")),
        Advice::CheckLayers => "--crypt, --crypt-offset, --skip, --sector-size, --offset",
        Advice::DataBlocks => "--data-blocks N",
        Advice::FecRoots => "--fec-roots N",
        Advice::Align(bytes) => return Some(format!("--align {bytes}")),
        Advice::KeySize(bits) => return Some(format!("--key-size {bits}")),
        Advice::InPlace => "--in-place",
        Advice::Journal => "--journal FILE",
        Advice::Resume => "--resume",
        Advice::Recover => "casemate ext4 recover",
        Advice::CommitOverlay => "casemate overlay commit",
        Advice::TrustImage => "--trust-image",
        Advice::RecoverAt(offset) => return Some(format!("casemate ext4 recover --offset {offset}")),
        Advice::Protector => "--protector FILE",
        Advice::FscryptKdfLimit => "--fscrypt-kdf-limit TIMES",
        Advice::Unmount => "casemate umount",
        Advice::Lazy | Advice::LoseChanges => "--lazy",
        Advice::Control => "--control SOCKET",
        Advice::BitmapMode => "--integrity-bitmap-mode",
        Advice::JournalIntegrity => "--journal-integrity NAME --journal-integrity-key-file FILE",
        Advice::JournalCrypt => "--journal-crypt NAME --journal-crypt-key-file FILE",
        Advice::KeySlot => "--key-slot N",
        Advice::KdfLimit => "--kdf-limit TIMES",
        Advice::KeyFile => "--key-file FILE",
        Advice::OpenLuks => "--luks",
        Advice::EqualHalves => "--allow-equal-halves",
        Advice::AddFeature(name) => return Some(format!("casemate ext4 tune --features {name}")),
        Advice::VolumeKey => "--volume-key-file FILE",
        Advice::LuksHeader => "--luks-header FILE",
        Advice::OtherData => "--luks-overwrite",
        Advice::ReduceDeviceSize(bytes) => return Some(format!("--reduce-device-size {bytes}")),
        Advice::CryptOffset(bytes) => return Some(format!("--crypt-offset {bytes}")),
        Advice::EncryptAgain(reduce, offset) if *offset == reduce / 2 => {
            return Some(format!("--reduce-device-size {reduce}"));
        }
        Advice::EncryptAgain(reduce, offset) => {
            return Some(format!("--reduce-device-size {reduce} --crypt-offset {offset}"));
        }
        Advice::ConvertToLuks2 => "casemate luks convert --type luks2",
        Advice::FinishReencryption => "casemate luks reencrypt --resume-only",
        Advice::BeginReencryption => "casemate luks reencrypt --init-only",
        Advice::BuildBlockSize(bytes) => return Some(format!("casemate ext4 build --block-size {bytes}")),
        Advice::BuildSize(bytes) => return Some(format!("casemate ext4 build --size {bytes}")),
        Advice::BuildInodeSize(bytes) => return Some(format!("casemate ext4 build --inode-size {bytes}")),
        Advice::BuildInodes(count) => return Some(format!("casemate ext4 build --inodes {count}")),
        Advice::BuildFeatures(list) => return Some(format!("casemate ext4 build --features {list}")),
        Advice::BuildLabel(label) => return Some(format!("casemate ext4 build --label '{label}'")),
        Advice::BuildUuid(uuid) => return Some(format!("casemate ext4 build --uuid {uuid}")),
        Advice::BuildHashSeed(seed) => return Some(format!("casemate ext4 build --hash-seed {seed}")),
        Advice::BuildFiles => "casemate ext4 diff --files lists what differs in them",
        Advice::BuildTime => "SOURCE_DATE_EPOCH=SECONDS casemate ext4 build",
        Advice::BuildOwner => "casemate ext4 build --owner UID:GID",
        _ => return None,
    };
    Some(option.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn names<'a>(command: &'a clap::Command, into: &mut Vec<&'a str>) {
        into.extend(command.get_arguments().filter_map(clap::Arg::get_long));
        command.get_subcommands().for_each(|inner| names(inner, into));
    }

    #[test]
    fn every_advice_is_worded_with_options_that_exist() {
        let cli = Cli::command();
        let mut known = Vec::new();
        names(&cli, &mut known);
        for advice in Advice::each() {
            let option = option(&advice).unwrap_or_else(|| panic!("{advice:?} has no option"));
            for word in option.split([' ', ',']).filter_map(|word| word.strip_prefix("--")) {
                assert!(known.contains(&word), "{advice:?}: {option}");
            }
        }
    }
}
