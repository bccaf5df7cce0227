//! The image that a command works on, and the part of it.

use std::path::Path;

use clap::ValueHint;

use casemate::blockdev::PartitionId;
use casemate::image_spec::{ImageSpec, LayerSpec};
use casemate::{Access, Error, Image};

use crate::cmd::layers::image::{Asking, spec_parser};
use crate::context::Context;
use crate::size::bytes;

/// An image, or a part of it.
#[derive(clap::Args, Clone, Debug)]
pub struct PlaceArgs {
    /// The image: a file or block device, or a part of one, such as disk.img,partition=2, also with layers on it.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    part: PartArgs,
}

/// The part of an image.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PartArgs {
    /// Begin at this byte of the image.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, conflicts_with = "partition")]
    pub offset: u64,
    /// The partition (GPT or MBR) of the image: its number, counted from 1, or a GPT's UUID or name.
    #[arg(short = 'P', long, value_name = "WHICH")]
    pub partition: Option<PartitionId>,
}

impl PlaceArgs {
    /// All of a file, whatever commas its name has.
    pub fn of_file(file: &Path) -> PlaceArgs {
        PlaceArgs { image: ImageSpec::of_file(file), part: PartArgs::default() }
    }

    /// The image as options and specification say it.
    ///
    /// # Errors
    /// `Argument` if both say a place.
    pub fn spec(&self) -> Result<ImageSpec, Error> {
        self.part.under(&self.image, Vec::new())
    }

    /// The file or block device that all of it lies in.
    pub fn file(&self) -> &Path {
        self.image.file()
    }

    /// The files that are read to open the image: its own, and those of keys and headers of layers.
    pub fn files(&self) -> Vec<&Path> {
        [self.file()].into_iter().chain(self.image.files_beside()).collect()
    }

    /// Whether the image is less than its whole file, or lies on a layer.
    pub fn is_part(&self) -> bool {
        self.part.is_given() || !self.image.layers().is_empty()
    }

    /// The image, or its part, which holds a volume of such a kind.
    ///
    /// # Errors
    /// `Argument` if the specification opens that volume, which the command itself does; those of each layer.
    pub fn open(&self, access: Access, volume: VolumeKind, context: &Context) -> Result<Image, Error> {
        self.open_under(access, volume, context, Ok)
    }

    /// The image as [`PlaceArgs::open`] has it, over what `under` makes of the part of the file.
    ///
    /// # Errors
    /// Errors of [`PlaceArgs::open`] and of `under`.
    pub fn open_under(
        &self,
        access: Access,
        volume: VolumeKind,
        context: &Context,
        under: impl FnOnce(Image) -> Result<Image, Error>,
    ) -> Result<Image, Error> {
        let spec = self.spec()?;
        if spec.layers().last().is_some_and(|layer| layer.name() == volume.name()) {
            let text = format!(
                "image specification: this command works on the {name} volume itself: leave out the last '{name}' and its options, \
                 and give the volume's key with the command's own options",
                name = volume.name()
            );
            return Err(Error::argument(text).at(self.file().display()));
        }
        spec.check_device()?;
        spec.lay(under(spec.open_part(access, false)?)?, &Asking::of(context))
    }

    /// Refuses a partition's start as an offset, before anything is asked: what reaches from there to the device's end goes over
    /// those behind it.
    ///
    /// # Errors
    /// Errors of [`Medium::check_partitions`](casemate::blockdev::Medium::check_partitions); `Io`.
    pub fn refuse_partition(&self) -> Result<(), Error> {
        let spec = self.spec()?;
        let parts = spec.parts().0;
        if !parts.iter().any(|part| matches!(part, LayerSpec::Window { offset: 1.., .. })) {
            return Ok(());
        }
        let alone = parts.iter().cloned().fold(ImageSpec::of_file(self.file()), ImageSpec::with_layer);
        alone.open_part(Access::ReadUnlocked, false)?.check_partitions()
    }

    /// Refuses layers, for work that is done in the file itself.
    ///
    /// # Errors
    /// `Argument`, which names the words that can be given.
    pub fn refuse_layers(&self, work: &str) -> Result<(), Error> {
        refuse_layers(&self.spec()?, work)
    }
}

/// Kind of a volume that a command opens itself.
#[derive(Clone, Copy, Debug)]
pub enum VolumeKind {
    Integrity,
    Luks,
}

impl VolumeKind {
    fn name(self) -> &'static str {
        match self {
            VolumeKind::Integrity => "integrity",
            VolumeKind::Luks => "luks",
        }
    }
}

/// Refuses layers that are more than a place in the file, for work that is done in the file itself.
///
/// # Errors
/// `Argument`, which names the layer and the words that can be given.
pub fn refuse_layers(image: &ImageSpec, work: &str) -> Result<(), Error> {
    image.check_device()?;
    match image.parts().1.first() {
        None => Ok(()),
        Some(layer) => {
            let text = format!(
                "image specification: {work} can't go through '{}': the words here are partition=, offset= and size=",
                layer.name()
            );
            Err(Error::argument(text).at(image.file().display()))
        }
    }
}

/// An image with a partition of it, if one is given, and with layers that options give, or with its own ones.
///
/// # Errors
/// `Argument` if layers are given in both ways, or if the specification says how a file system is read.
pub fn with_partition(
    image: &ImageSpec,
    partition: Option<PartitionId>,
    layers: Vec<LayerSpec>,
) -> Result<ImageSpec, Error> {
    image.check_device()?;
    PartArgs { offset: 0, partition }.under(image, layers)
}

impl PartArgs {
    fn is_given(&self) -> bool {
        self.partition.is_some() || self.offset > 0
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
    /// Errors of [`PartArgs::under`].
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
