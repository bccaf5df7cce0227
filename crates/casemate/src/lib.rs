//! The Linux storage-protection stack in user space, as a library: dm-verity, fs-verity, dm-crypt, LUKS, dm-integrity,
//! fscrypt, ext4 and NBD, byte for byte as the kernel reads and writes them, without root and without a kernel.
//!
//! Programs link this crate. The format crates below it do the work and do not know each other; this crate joins them. An
//! [`Image`] is opened and locked once, layers are stacked on it, and all work is done on the topmost device:
//!
//! ```text
//!   Image::open("disk.img") ─┬─ .partition(2) ─┬─ .crypt(mapping) ─┬─ .verity(hash, root) ─── .overlay(file)
//!                            └─ .window(..)    │                   │
//!                                              │   any of these, in any order
//!                                              ▼
//!    .ext4() .ext4_writer() .ext4_check()   .verity_format() .verity_volume()   .serve()   .device()
//! ```
//!
//! Options are structs with defaults: take `X::default()` and set what differs; those of [`ext4`] are chained, as
//! `PutOptions::new().recursive(true)`. [`ext4::BuildSpec`] makes new file systems. [`Work`] has the threads, the
//! implementations of ciphers and hashes, and a listener for progress, waits and notes ([`blockdev::Events`]);
//! `Work::default()` has all cores, the fastest implementations, and no listener.
//!
//! # Six jobs
//!
//! Make a dm-verity hash area for an image, as `veritysetup format` does:
//!
//! ```
//! use casemate::verity::FormatOptions;
//! use casemate::{Access, Image, Work};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::write(path("root.img"), vec![7; 1 << 20])?;
//! let data = Image::open(path("root.img"), Access::Read)?;
//! let hash = Image::create(path("root.hash"))?;
//! let made = data.verity_format(&hash, &FormatOptions::default(), &Work::default())?;
//! println!("{}", casemate::hex::encode(&made.root_hash));
//! # assert_eq!(std::fs::metadata(path("root.hash"))?.len(), 4096 * 4);
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! Check data against it, and name every bad block:
//!
//! ```
//! # use casemate::verity::FormatOptions;
//! use casemate::verity::VerityOptions;
//! use casemate::{Access, Image, Work};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::write(path("root.img"), vec![7; 1 << 20])?;
//! # let hash = Image::create(path("root.hash"))?;
//! # let data = Image::open(path("root.img"), Access::Read)?;
//! # let root_hash = data.verity_format(&hash, &FormatOptions::default(), &Work::default())?.root_hash;
//! # std::fs::write(path("root.img"), [vec![7; 9000], vec![8; (1 << 20) - 9000]].concat())?;
//! let (data, hash) =
//!     (Image::open(path("root.img"), Access::Read)?, Image::open(path("root.hash"), Access::Read)?);
//! let volume = data.verity_volume(&hash, &VerityOptions::default())?;
//! let summary = volume.verify(&root_hash, &Work::default(), &mut |finding| {
//!     println!("{:?}", finding.block);
//!     Ok(())
//! })?;
//! assert_eq!(summary.bad_data.count(), 254);
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! The fs-verity digest of a file, as `fsverity digest` prints it:
//!
//! ```
//! use casemate::Work;
//! use casemate::fsverity::{self, Parameters};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("file");
//! # std::fs::write(&path, "hello")?;
//! let digest = fsverity::digest(&path, &Parameters::default(), &Work::default())?;
//! assert!(digest.to_string().starts_with("sha256:"));
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! Read a file of an ext4 file system in dm-crypt in a partition:
//!
//! ```
//! use casemate::crypt::MappingOptions;
//! use casemate::ext4::ReadOptions;
//! use casemate::{Access, Image, SecretSource, Work};
//!
//! # let Some(mke2fs) = casemate_testkit::tool("mke2fs") else { return Ok(()) };
//! # let Some(sfdisk) = casemate_testkit::tool("sfdisk") else { return Ok(()) };
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::create_dir_all(path("tree/etc"))?;
//! # std::fs::write(path("tree/etc/os-release"), "ID=casemate\n")?;
//! # std::fs::write(path("disk.key"), (0..32).collect::<Vec<u8>>())?;
//! # let mut mke2fs = std::process::Command::new(mke2fs);
//! # casemate_testkit::run(mke2fs.args(["-q", "-t", "ext4", "-d"]).args([path("tree"), path("plain")]).arg("8M"));
//! # let table = "printf 'label: gpt\nstart=2048,size=2048\nstart=4096,size=16384\n'";
//! # let script = format!("truncate -s 12M disk.img && {table} | {} -q disk.img", sfdisk.display());
//! # casemate_testkit::run(std::process::Command::new("sh").args(["-ec", &script]).current_dir(&folder));
//! # let mapping = MappingOptions::default().with_key(&SecretSource::file(path("disk.key")), &Work::default())?;
//! # let encrypted = Image::open(path("disk.img"), Access::Change)?.partition(2)?.crypt(mapping)?;
//! # encrypted.device().write_at(&std::fs::read(path("plain"))?, 0)?;
//! # drop(encrypted);
//! let work = Work::default();
//! let mapping = MappingOptions::default().with_key(&SecretSource::file(path("disk.key")), &work)?;
//! let disk = Image::open(path("disk.img"), Access::Read)?.partition(2)?.crypt(mapping)?;
//! let fs = disk.ext4(&ReadOptions::default(), &work)?;
//! assert_eq!(fs.read("/etc/os-release")?, b"ID=casemate\n");
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! Put a tree of files into an ext4 image, all of it or nothing:
//!
//! ```
//! use casemate::ext4::{PutOptions, ReadOptions, WriteOptions};
//! use casemate::{Access, Image, Work};
//!
//! # let Some(mke2fs) = casemate_testkit::tool("mke2fs") else { return Ok(()) };
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::create_dir_all(path("tree/bin"))?;
//! # std::fs::write(path("tree/bin/tool"), "#!")?;
//! # casemate_testkit::run(std::process::Command::new(mke2fs).args(["-q", "-t", "ext4"]).arg(path("root.img")).arg("8M"));
//! let work = Work::default();
//! let image = Image::open(path("root.img"), Access::Change)?;
//! let mut writer = image.ext4_writer(&WriteOptions::new(), &work)?;
//! let report = writer.put(&path("tree/."), b"/", &PutOptions::new().recursive(true), &work)?;
//! writer.commit()?;
//! # assert_eq!((report.files, report.directories), (1, 1));
//! # drop((writer, image));
//! # let fs = Image::open(path("root.img"), Access::Read)?.ext4(&ReadOptions::default(), &work)?;
//! # assert_eq!(fs.read("/bin/tool")?, b"#!");
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! Serve an image over NBD, with what clients write kept in a file beside it:
//!
//! ```
//! use std::time::Duration;
//!
//! use casemate::nbd::Listener;
//! use casemate::serve::ServeOptions;
//! use casemate::{Access, Image, Providers};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = |name: &str| folder.path().join(name);
//! # std::fs::write(path("root.img"), vec![7; 1 << 20])?;
//! let image = Image::open(path("root.img"), Access::Read)?;
//! let image = image.overlay(&path("changes"), &Providers::default())?;
//! let service = image.serve(Listener::unix(&path("socket"))?, &ServeOptions::default())?;
//! println!("{}", service.uris()[0]);
//! service.stop(Duration::from_secs(10))?;
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! Programs that do this, with arguments, are in `crates/casemate/examples`.
//!
//! # Modules
//!
//! [`ImageSpec`] says an image with its layers in one word. [`verity`], [`fsverity`] and [`signature`], [`crypt`] and [`luks`], [`integrity`], [`ext4`], [`fscrypt`] and [`backup`], [`serve`] and [`nbd`]:
//! one for each format, with what hangs on an [`Image`] and the values that go in and come out. [`SecretSource`] reads keys
//! and passphrases from wherever they are, [`Keys`] opens encrypted folders. [`blockdev`] has the devices, for those who bring
//! their own ([`Image::over`]).
//!
//! # Errors
//!
//! There is one type, [`Error`]: a [kind](ErrorKind) whose number stays, a [place](Place) as data, a text that names the
//! structure and says what to do next, and a cause. `Mismatch` and `Corrupt` answer a question with no, `Locked` asks for
//! a key, `Busy` for another moment. No text holds a secret.
//!
//! # Threads
//!
//! Images, devices and open file systems are read and written through `&self` by any number of threads. What takes long
//! spreads over [`Work::pool`](Work), and stops when [`blockdev::Events::advance`] says so. A [`ext4::Writer`] is used by one
//! thread at a time; what was not committed when it is dropped never happened. Bytes of an image have one writer at a time: a
//! second one is refused as `Busy` ([`Medium::lease`]). A [`ext4::FileSystem`] that was opened before a change was committed may
//! show neither what was nor what is: open it again.
//!
//! # Limits
//!
//! Linux on x86-64 and AArch64; other CPUs work, slowly. On other systems [`serve`], [`nbd`], and what asks the running kernel
//! for fs-verity and ciphers, are not there. One process changes an image at a time, which is locked for that;
//! what looks at no locks is not stopped. docs/reference/support.md has the list.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]
// What only serving needs.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

pub mod backup;
pub mod crypt;
mod errno;
pub mod ext4;
pub mod fsverity;
pub mod image;
pub mod image_spec;
pub mod integrity;
pub mod luks;
mod overlay;
pub mod part;
mod protectors;
mod reencrypt;
pub mod rescue;
#[cfg(target_os = "linux")]
pub mod serve;
pub mod target;
pub mod verity;

pub use casemate_blockdev as blockdev;
pub use casemate_blockdev::{Advice, Code, Error, ErrorKind, Lease, Medium, Output, Place, Result, units};
pub use casemate_fscrypt as fscrypt;
pub use casemate_fscrypt::Keys;
#[cfg(target_os = "linux")]
pub use casemate_nbd as nbd;
pub use casemate_primitives as primitives;
pub use casemate_primitives::base64;
pub use casemate_primitives::cpu::{Cpu, CpuError, Feature};
pub use casemate_primitives::crc32c::Crc32c;
pub use casemate_primitives::hex;
pub use casemate_primitives::secret::SecretVec;
pub use casemate_probe as probe;
pub use casemate_providers as providers;
pub use casemate_providers::{
    KdfLimits, Providers, SecretMissing, SecretSource, Work, stop_derivations_when,
};
pub use casemate_verity::{signature, tree};
pub use errno::errno;
pub use image::{Access, Image};
pub use image_spec::ImageSpec;
pub use target::Target;
