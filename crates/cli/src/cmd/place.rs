//! The image that a command works on, and the part of it.

use std::path::PathBuf;

use casemate::{Access, Error, Image};

use crate::size::bytes;

/// An image, or a part of it.
#[derive(clap::Args, Clone, Debug)]
pub struct PlaceArgs {
    /// The image file or block device.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    #[command(flatten)]
    pub part: PartArgs,
}

/// The part of an image.
#[derive(clap::Args, Clone, Debug)]
pub struct PartArgs {
    /// Begin at this byte of the image.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, conflicts_with = "partition")]
    pub offset: u64,
    /// The partition (GPT or MBR) of the image, counted from 1.
    #[arg(short = 'P', long, value_name = "N")]
    pub partition: Option<u32>,
}

impl PlaceArgs {
    /// The image, or its part.
    pub fn open(&self, access: Access) -> Result<Image, Error> {
        self.part.of(Image::open(&self.image, access)?, None)
    }
}

impl PartArgs {
    /// The part of an image: a partition, or at most so many bytes from the offset on.
    pub fn of(&self, image: Image, size: Option<u64>) -> Result<Image, Error> {
        match self.partition {
            Some(number) => image.partition(number),
            None => image.window(self.offset, size),
        }
    }
}
