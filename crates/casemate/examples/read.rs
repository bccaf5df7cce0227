//! Prints a file of an ext4 file system in dm-crypt in a partition: read DISK PARTITION KEYFILE PATH

use std::io::Write;

use casemate::crypt::MappingOptions;
use casemate::ext4::ReadOptions;
use casemate::{Access, Error, Image, SecretSource, Work};

fn main() -> Result<(), Error> {
    let [disk, partition, key, path] = arguments()?;
    let partition = partition.parse().map_err(|_| Error::argument("the partition is not a number"))?;
    let work = Work::default();
    let mapping = MappingOptions::default().with_key(&SecretSource::file(key), &work)?;
    let image = Image::open(disk, Access::Read)?.partition(partition)?.crypt(mapping)?;
    let contents = image.ext4(&ReadOptions::default(), &work)?.read(path)?;
    Ok(std::io::stdout().write_all(&contents)?)
}

fn arguments<const N: usize>() -> Result<[String; N], Error> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().map_err(|_| Error::argument("read DISK PARTITION KEYFILE PATH"))
}
