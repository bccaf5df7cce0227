//! The image that a command works on, and the part of it.

use std::path::PathBuf;

use casemate::blockdev::PartitionId;
use casemate::image_spec::{ImageSpec, LayerSpec};
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
    /// The partition (GPT or MBR) of the image: its number, counted from 1, or a GPT's UUID or name.
    #[arg(short = 'P', long, value_name = "WHICH")]
    pub partition: Option<PartitionId>,
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
        match &self.partition {
            Some(id) => image.partition_named(id, false),
            None => image.window(self.offset, size),
        }
    }

    /// An image with this part of it, and with layers that options give, or with its own ones.
    ///
    /// # Errors
    /// `Argument` if layers are given in both ways: nobody could tell which come first.
    pub fn under(&self, image: &ImageSpec, layers: Vec<LayerSpec>) -> Result<ImageSpec, Error> {
        self.sized(image, None, layers)
    }

    /// An image as [`PartArgs::under`] gives it, with a part of so many bytes.
    ///
    /// # Errors
    /// Those of [`PartArgs::under`].
    pub fn sized(
        &self,
        image: &ImageSpec,
        size: Option<u64>,
        layers: Vec<LayerSpec>,
    ) -> Result<ImageSpec, Error> {
        let part = match (&self.partition, self.offset, size) {
            (Some(id), ..) => Some(LayerSpec::Partition(id.clone())),
            (None, 0, None) => None,
            (None, offset, size) => Some(LayerSpec::Window { offset, size }),
        };
        let mut given = part.into_iter().chain(layers).peekable();
        if given.peek().is_some() && !image.layers().is_empty() {
            let text =
                "the image specification has layers, and options give others: give all of them in one place";
            return Err(Error::argument(text).at(image.file().display()));
        }
        Ok(given.fold(image.clone(), ImageSpec::with_layer))
    }
}
