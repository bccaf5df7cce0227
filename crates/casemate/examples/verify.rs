//! Checks an image against its dm-verity hash area and prints each bad block: verify IMAGE HASH ROOT_HASH

use std::process::ExitCode;

use casemate::tree::Block;
use casemate::verity::VerityOptions;
use casemate::{Access, Error, Image, Work, hex};

fn main() -> Result<ExitCode, Error> {
    let [image, hash, root_hash] = arguments()?;
    let root_hash = hex::decode(&root_hash).ok_or_else(|| Error::argument("the root hash is not hex"))?;
    let (data, hash) = (Image::open(image, Access::Read)?, Image::open(hash, Access::Read)?);
    let volume = data.verity_volume(&hash, &VerityOptions::default())?;
    let mut report = |finding: casemate::tree::Finding| {
        match finding.block {
            Block::Data(index) => println!("data block {index}"),
            Block::Hash { level, index } => println!("hash block {index} of level {level}"),
        }
        Ok(())
    };
    let summary = volume.verify(&root_hash, &Work::default(), &mut report)?;
    Ok(if summary.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn arguments<const N: usize>() -> Result<[String; N], Error> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().map_err(|_| Error::argument("verify IMAGE HASH ROOT_HASH"))
}
