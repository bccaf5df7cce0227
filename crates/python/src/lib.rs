//! casemate as a Python module: the native part, `casemate._casemate`.
//!
//! Python programs use the package in `python/casemate`, which gives this its usual shapes: file objects, paths,
//! hashes. There is no logic here: each function takes Python's values, calls the facade with the interpreter released, and turns
//! errors into exceptions. Values that are shared are behind `&self`, so any thread may use any object.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod build;
mod crypt;
mod device;
mod error;
mod ext4;
mod fscrypt;
mod fsverity;
mod input;
mod luks;
#[cfg(target_os = "linux")]
mod nbd;
mod part;
mod policy;
mod primitives;
mod repair;
mod verity;
mod work;
mod writer;

/// The native part of the package `casemate`.
#[pyo3::pymodule]
mod _casemate {
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::work::ask_while_waiting();
        Ok(())
    }

    #[pymodule_export]
    use crate::build::Build;
    #[pymodule_export]
    use crate::crypt::Sectors;
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::ext4::{FileSystem, Files};
    #[pymodule_export]
    use crate::fscrypt::{
        ContentCipher, MasterKey, NameCipher, fscrypt_backup, fscrypt_context, fscrypt_restore,
    };
    #[pymodule_export]
    use crate::fsverity::{
        Hasher, check_replaced, fsverity_digest, fsverity_digests, fsverity_is_whole_tree, fsverity_join,
        fsverity_part, fsverity_tree, fsverity_unit,
    };
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::fsverity::{fsverity_enable, fsverity_measure};
    #[pymodule_export]
    use crate::luks::{LuksVolume, luks_format};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::nbd::Server;
    #[pymodule_export]
    use crate::part::part_range;
    #[pymodule_export]
    use crate::primitives::{
        base64_decode, base64_encode, crc32c, crc32c_combine, crc32c_patch, sha256_many, version,
    };
    #[pymodule_export]
    use crate::verity::{
        verity_format, verity_is_whole_area, verity_join, verity_part, verity_unit, verity_verify,
    };
    #[pymodule_export]
    use crate::writer::Writer;
}
