//! Devices over devices: an image, and what is read through mappings on top of it.
//!
//! Each step takes the stack so far and lays one device on it, as device-mapper does, but as plain values.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{
    AtFile, BlockDevice, FileDevice, OutputFile, OverlayFile, Window, is_same_file, partitions, samples,
};
use casemate_crypt::CryptDevice;
use casemate_primitives::Cpu;
use casemate_primitives::sha256::Sha256;
use casemate_providers::Hash;
use casemate_verity::dm::Layout;
use casemate_verity::tree::VerifiedDevice;

pub use casemate_crypt::CryptStatistics;
pub use casemate_verity::tree::VerifiedStatistics;

use crate::Error;
use crate::crypt::Mapping;
use crate::image::{self, Access};
use crate::verity::{Source, layout_of};

type Below = Arc<dyn BlockDevice>;

/// An image with what lies on it.
pub struct Stack {
    image: PathBuf,
    top: Below,
    read_only: bool,
    layers: Vec<Layer>,
    /// What an overlay is tied to, if it is the topmost root hash.
    root_hash: Option<Vec<u8>>,
    preferred_block: u32,
}

enum Layer {
    Crypt(Arc<CryptDevice<Window<Below>>>),
    Verity(Arc<VerifiedDevice<Below, Below>>),
    Overlay(Arc<OverlayFile<Below, FileDevice>>),
}

/// What one device of a stack has done.
#[derive(Clone, Debug)]
pub enum LayerStatistics {
    /// A dm-crypt mapping, and the driver that does its work.
    Crypt(CryptStatistics, String),
    /// A dm-verity device.
    Verity(VerifiedStatistics),
    /// How many blocks of 4096 bytes an overlay holds.
    Overlay(u64),
}

impl Stack {
    /// Opens an image, and locks it against other commands of this project that would write to it (or, for one that is
    /// going to be written, use it at all).
    ///
    /// # Errors
    /// `Io`, [`Error::is_busy`] if it is in use.
    pub fn open(image: &Path, read_only: bool) -> Result<Stack, Error> {
        let device = image::open(image, if read_only { Access::ReadLocked } else { Access::Change })?;
        Ok(Stack { read_only, ..Stack::over(image, Arc::new(device)) })
    }

    /// An image, or a part of it, that is open already: it is read only, and not locked.
    pub fn over(image: &Path, device: Arc<dyn BlockDevice>) -> Stack {
        Stack {
            image: image.to_owned(),
            top: device,
            read_only: true,
            layers: Vec::new(),
            root_hash: None,
            preferred_block: 4096,
        }
    }

    /// The bytes from `offset` on: `len` of them, or all.
    ///
    /// # Errors
    /// `Argument` if they pass the end.
    pub fn window(mut self, offset: u64, len: Option<u64>) -> Result<Stack, Error> {
        let len = len.unwrap_or(self.top.size().saturating_sub(offset));
        let window = Window::new(self.top, offset, len);
        let window = window.map_err(|error| error.at(self.image.display()))?;
        self.top = Arc::new(window);
        Ok(self)
    }

    /// A partition of GPT or MBR, counted from 1.
    ///
    /// # Errors
    /// `Argument` if there is none of this number; `Corrupt` for a damaged table.
    pub fn partition(self, number: u32) -> Result<Stack, Error> {
        let image = self.image.display();
        let list = partitions(&*self.top).map_err(|error| error.at(&image))?;
        let found = list.iter().find(|partition| partition.number == number);
        let Some(found) = found else {
            return Err(Error::argument(format!("{image}: there is no partition {number}")));
        };
        self.window(found.start, Some(found.len))
    }

    /// A dm-crypt mapping. Discards reach the image only with `allow_discards`.
    ///
    /// # Errors
    /// `Argument` if the device below is not whole sectors.
    pub fn crypt(mut self, mapping: Mapping, allow_discards: bool) -> Result<Stack, Error> {
        let image = self.image.display();
        let mut device = mapping.over(self.top).map_err(|error| error.at(image))?;
        if allow_discards {
            device = device.allowing_discards();
        }
        let device = Arc::new(device);
        self.layers.push(Layer::Crypt(Arc::clone(&device)));
        self.top = device;
        Ok(self)
    }

    /// A dm-verity device, which can't be written. If `hash` is the image itself, the hash area lies in the device
    /// below, after the data; otherwise it is that file as it is. `choose` sees what
    /// the superblock says, may refuse it, and is asked who shall hash; if it does not say, it is what `cpu` does best.
    ///
    /// # Errors
    /// Those of reading the superblock and of `choose`; `Argument` for a root hash of a wrong length or data that is too short.
    pub fn verity(
        mut self,
        hash: &Path,
        hash_offset: u64,
        source: &Source,
        root_hash: &[u8],
        cpu: Cpu,
        choose: impl FnOnce(&Layout) -> Result<Option<Hash>, Error>,
    ) -> Result<Stack, Error> {
        let tree: Below = match is_same_file(hash, &self.image) {
            true => Arc::clone(&self.top),
            false => Arc::new(image::open(hash, Access::ReadLocked)?),
        };
        let layout = match source {
            Source::Superblock => layout_of(hash, &tree, hash_offset)?,
            Source::Given { parameters, data_blocks } => {
                let block_size = u64::from(parameters.data_block_size.bytes());
                let data_blocks = data_blocks.unwrap_or(self.top.size() / block_size);
                Layout::new(parameters.clone(), data_blocks, hash_offset, None)
                    .map_err(|error| error.at(hash.display()))?
            }
        };
        let layout = match choose(&layout)? {
            Some(hash) => layout.with_hash(hash)?,
            None => layout,
        };
        let geometry = layout.geometry();
        if root_hash.len() != geometry.shape().digest_len() {
            let (found, right) = (root_hash.len(), geometry.shape().digest_len());
            let text = format!("the root hash has {found} bytes; digests have {right}");
            return Err(Error::argument(text));
        }
        if geometry.data_size() > self.top.size() {
            let (needed, size) = (geometry.data_size(), self.top.size());
            let image = self.image.display();
            return Err(Error::argument(format!(
                "{image}: the hash tree is over {needed} bytes, and there are {size}"
            )));
        }
        self.preferred_block = self.preferred_block.max(layout.parameters().data_block_size.bytes());
        let device = Arc::new(VerifiedDevice::new(
            geometry.clone(),
            layout.parameters().salted_hash(cpu),
            self.top,
            tree,
            layout.tree_offset(),
            root_hash,
        ));
        self.layers.push(Layer::Verity(Arc::clone(&device)));
        self.top = device;
        self.read_only = true;
        self.root_hash = Some(root_hash.get(..64).unwrap_or(root_hash).to_vec());
        Ok(self)
    }

    /// Takes writes, and keeps them in the file `path`, which is made if it is not there.
    ///
    /// # Errors
    /// `Argument` if the file is no overlay or belongs to another image, `Corrupt` if it is a damaged one; `Io`,
    /// [`Error::is_busy`] if it is in use.
    pub fn overlay(mut self, path: &Path) -> Result<Stack, Error> {
        type File = OverlayFile<Below, FileDevice>;
        if is_same_file(path, &self.image) {
            let text = format!("{}: changes of an image can't be kept in the image itself", path.display());
            return Err(Error::argument(text));
        }
        let identity = match &self.root_hash {
            Some(root_hash) => root_hash.clone(),
            None => self.sampled().at(self.image.display())?,
        };
        if !fs::exists(path).at(path.display())? {
            let new = OutputFile::create(path).at(path.display())?;
            File::format(new.device(), self.top.size(), &identity).at(path.display())?;
            new.commit(true).at(path.display())?;
            // The name must be there after a power failure too.
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            fs::File::open(folder).and_then(|folder| folder.sync_all()).at(path.display())?;
        }
        let store = image::open(path, Access::Change)?;
        let device = Arc::new(File::open(self.top, store, &identity).at(path.display())?);
        self.layers.push(Layer::Overlay(Arc::clone(&device)));
        self.top = device;
        self.read_only = false;
        Ok(self)
    }

    /// What tells the device on top from others: the SHA-256 of samples of it.
    fn sampled(&self) -> io::Result<Vec<u8>> {
        let mut hash = Sha256::new(Cpu::detect()).hasher();
        let mut data = Vec::new();
        for range in samples(self.top.size()) {
            // OK to cast: at most a MiB.
            data.resize((range.end - range.start) as usize, 0);
            self.top.read_at(&mut data, range.start)?;
            hash.update(&data);
        }
        Ok(hash.finalize().to_vec())
    }

    /// Takes no writes.
    pub fn make_read_only(mut self) -> Stack {
        self.read_only = true;
        self
    }

    /// The image that everything lies on.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The device on top.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.top)
    }

    /// Whether nothing can be written.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What requests should be multiples of, for speed.
    pub fn preferred_block(&self) -> u32 {
        self.preferred_block
    }

    /// What each device has done so far, from the image upwards.
    pub fn statistics(&self) -> Vec<LayerStatistics> {
        let of = |layer: &Layer| match layer {
            Layer::Crypt(device) => {
                LayerStatistics::Crypt(device.statistics(), device.cipher().driver_name().to_owned())
            }
            Layer::Verity(device) => LayerStatistics::Verity(device.statistics()),
            Layer::Overlay(device) => LayerStatistics::Overlay(device.changed_blocks()),
        };
        self.layers.iter().map(of).collect()
    }
}
