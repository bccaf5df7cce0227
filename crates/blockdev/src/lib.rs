//! Block devices as values, the worker pool, and progress.
//!
//! A [`BlockDevice`] is read and written at positions through `&self`, by many threads at once. Devices nest:
//! a [`Window`] of a [`FileDevice`] is a device again, and so is everything that the format crates build on
//! top. [`Pool`] spreads numbered pieces of work over threads; [`Progress`] hears how far they are and can
//! stop them.
#![forbid(unsafe_code)]

mod device;
mod exclusive;
mod file;
mod memory;
mod output;
mod overlay;
mod overlay_file;
mod partition;
mod pool;
mod progress;
mod window;

pub use device::BlockDevice;
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use output::OutputFile;
pub use overlay::Overlay;
pub use overlay_file::OverlayFile;
pub use partition::{Partition, partitions};
pub use pool::Pool;
pub use progress::{NoProgress, Progress};
pub use window::Window;
