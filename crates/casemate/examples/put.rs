//! Copies a tree of files into an ext4 image, all of it or nothing, and the same bytes each time: put IMAGE TREE PATH

use std::path::Path;

use casemate::ext4::{PutOptions, WriteOptions, source_date_epoch};
use casemate::{Access, Error, Image, Work};

fn main() -> Result<(), Error> {
    let [image, tree, path] = arguments()?;
    let work = Work::default();
    let mut options = WriteOptions::default();
    options.seed = Some(1);
    options.time = source_date_epoch()?;
    let mut writer = Image::open(image, Access::Change)?.ext4_writer(&options, &work)?;
    let mut put = PutOptions::default();
    put.recursive = true;
    put.owner = Some((0, 0));
    let report = writer.put(Path::new(&tree), path.as_bytes(), &put, &work)?;
    writer.commit()?;
    println!("{} files, {} bytes", report.files, report.bytes);
    Ok(())
}

fn arguments<const N: usize>() -> Result<[String; N], Error> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().map_err(|_| Error::argument("put IMAGE TREE PATH"))
}
