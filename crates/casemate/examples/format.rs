//! Makes a dm-verity hash area for an image and prints the root hash: format IMAGE HASH

use casemate::verity::FormatOptions;
use casemate::{Access, Error, Image, Work, hex};

fn main() -> Result<(), Error> {
    let [image, hash] = arguments()?;
    let data = Image::open(image, Access::Read)?;
    // The file appears when it is whole.
    let hash = Image::create(hash)?;
    let mut options = FormatOptions::default();
    options.area.algorithm = Some("sha512".to_owned());
    let made = data.verity_format(&hash, &options, &Work::default())?;
    println!("{}", hex::encode(&made.root_hash));
    Ok(())
}

fn arguments<const N: usize>() -> Result<[String; N], Error> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().map_err(|_| Error::argument("format IMAGE HASH"))
}
