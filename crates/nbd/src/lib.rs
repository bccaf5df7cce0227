//! The NBD protocol, and a server that exports any [`BlockDevice`](casemate_blockdev::BlockDevice) to any client.
//!
//! [`protocol`] turns bytes into requests and answers into bytes; it does no I/O. [`Server`] listens on a
//! Unix socket or on TCP, and runs requests of many clients on its [`Export`]s. [`tls`] decides which clients may
//! connect, and with which encryption.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use casemate_blockdev::MemoryDevice;
//! use casemate_nbd::tls::Tls;
//! use casemate_nbd::{Export, Limits, Listener, Server};
//!
//! # let folder = casemate_testkit::tempdir()?;
//! let disk = Arc::new(MemoryDevice::new(vec![0; 1 << 20]));
//! let export = Arc::new(Export::new(disk, "disk", false, 4096));
//! let listener = Listener::unix(&folder.path().join("socket"))?;
//! println!("{}", listener.address().uri(false, "disk"));
//! let server = Server::start(listener, vec![export], Tls::off(), Limits::default(), |fault| eprintln!("{fault}"))?;
//! server.stop(Duration::from_secs(1))?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Source: the protocol's description, doc/proto.md of the NetworkBlockDevice project.
//!
//! # Limits
//! No extended headers, no resizing, no metadata context but `base:allocation`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod connection;
mod crew;
mod export;
mod link;
mod listener;
mod log;
pub mod protocol;
mod reader;
mod reply;
mod room;
mod server;
mod shared;
pub mod tls;

pub use export::{Counters, Export, Statistics};
pub use listener::{Address, Listener};
pub use server::Server;
pub use shared::Limits;
