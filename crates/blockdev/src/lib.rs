//! Block devices as values, the worker pool, and listeners to long work.
//!
//! A [`BlockDevice`] is read and written at positions through `&self`, by many threads at once. Devices nest:
//! a [`Window`] of a [`FileDevice`] is a device again, and so is everything that the format crates build on
//! top. A [`Medium`] is a device with its name, and with the locks and leases that keep others from it. [`Pool`] spreads numbered pieces of work over threads; [`Events`] hears how far they are and can
//! stop them.
//!
//! ```
//! use casemate_blockdev::{BlockDevice, MemoryDevice, Window};
//!
//! let disk = MemoryDevice::new(vec![0; 8192]);
//! let partition = Window::new(&disk, 4096, 4096)?;
//! partition.write_at(b"boot", 0)?;
//! let mut bytes = [0; 4];
//! disk.read_at(&mut bytes, 4096)?;
//! assert_eq!(&bytes, b"boot");
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod advice;
pub mod android_sparse;
mod beneath;
mod buffer;
mod code;
mod device;
mod error;
mod events;
mod exclusive;
mod fetched;
mod file;
mod held;
mod identity;
pub mod inputs;
pub mod journal;
mod lease;
mod lock;
mod mark;
mod medium;
mod memory;
mod named;
mod number;
pub mod os;
mod output;
mod output_file;
mod overlay;
mod overlay_file;
mod partition;
mod partition_types;
mod pool;
mod random;
mod reach;
mod rescue_map;
mod salvage;
mod sample;
mod sequential;
pub mod signatures;
mod stack;
mod stream;
pub mod target;
mod trial;
mod unfinished;
pub mod units;
mod used;
mod uuid;
mod window;

pub use advice::Advice;
pub use buffer::Buffer;
pub use code::{Code, ErrorKind};
pub use device::{BlockDevice, copy_data};
pub use error::{AtFile, Error, Place, Result};
pub use events::{Events, NoEvents};
pub use fetched::Fetched;
pub use file::{FileDevice, set_len};
pub use held::Sharing;
pub use identity::{FileId, is_same_file, is_same_storage, sync_name};
pub use lease::{Lease, check_process};
pub use lock::Lock;
pub use mark::{InPlaceWork, MARK_NAME, Mark};
pub use medium::{Access, Medium, data_mode};
pub use memory::MemoryDevice;
pub use named::{Named, NamedStream};
pub use number::{u32_of, u64_of, usize_of};
pub use output::{Output, name_all};
pub use output_file::OutputFile;
pub use overlay::Overlay;
pub use overlay_file::{ConstantBase, OverlayBase, OverlayEdition, OverlayFile};
pub use partition::{
    Partition, PartitionId, PartitionTable, backup_fault, backup_gpt, gpt_at, partition_table, partitions,
    table_to_read,
};
pub use partition_types::type_name;
pub use pool::Pool;
pub use random::fill_random;
pub use rescue_map::{LARGEST_MAP, RescueMap};
pub use salvage::{DamageMap, Salvage, Unread};
pub use sample::samples;
pub use sequential::Sequential;
pub use stack::wipe_stack;
pub use stream::{Stream, stop_waiting_when};
pub use target::Target;
pub use trial::Trial;
pub use unfinished::{Change, has_unfinished_outputs, remove_unfinished_outputs, when_output_begins};
pub use used::{Contents, Used};
pub use uuid::Uuid;
pub use window::Window;
