//! The table line that tells device-mapper of a dm-verity device, and the partition UUIDs that follow from
//! the root hash.

use std::fmt;

use casemate_blockdev::Uuid;

use super::Layout;
use crate::{Error, hex};

/// The kernel's answer to a block that is corrupted or can't be read, other than an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// The kernel logs the corruption, and returns the block as it is (corruption only).
    Ignore,
    /// The kernel restarts the machine.
    Restart,
    /// The kernel panics.
    Panic,
}

/// A table line of the verity target; [`Display`](fmt::Display) writes it.
///
/// Source: Documentation/admin-guide/device-mapper/verity.rst.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// The layout of the dm-verity device.
    pub layout: &'a Layout,
    /// The root hash.
    pub root_hash: &'a [u8],
    /// The data device, as the kernel shall find it: a path, `MAJOR:MINOR`, `PARTUUID=`...
    pub data_device: String,
    /// The hash device.
    pub hash_device: String,
    /// The kernel's answer to corrupted blocks.
    pub on_corruption: Option<OnFault>,
    /// The kernel's answer to blocks that can't be read; `Ignore` is not possible.
    pub on_error: Option<OnFault>,
    /// Whether the kernel returns zeros for data blocks that should be zero, without reading them.
    pub ignore_zero_blocks: bool,
    /// Whether the kernel checks each data block only the first time that the block is read.
    pub check_at_most_once: bool,
    /// Whether the kernel hashes in a tasklet or bottom half, where the hash allows it.
    pub try_verify_in_tasklet: bool,
    /// The keyring description of a signature of the root hash.
    pub root_hash_sig_key_desc: Option<String>,
    /// The parity for forward error correction.
    pub fec: Option<TableFec>,
}

/// The place where the kernel finds parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFec {
    /// The device with the parity.
    pub device: String,
    /// Parity bytes of each codeword.
    pub roots: u32,
    /// The number of blocks that the parity covers: data, then the hash device from the tree on.
    pub blocks: u64,
    /// Where the parity begins, in blocks.
    pub start: u64,
}

impl<'a> Table<'a> {
    /// The table line without options.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length, or a device's name is empty or has spaces in it.
    pub fn new(
        layout: &'a Layout,
        root_hash: &'a [u8],
        data_device: String,
        hash_device: String,
    ) -> Result<Table<'a>, Error> {
        layout.check_root_hash(root_hash)?;
        for name in [&data_device, &hash_device] {
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(Error::argument(format!("'{name}' can't be part of a table line")));
            }
        }
        Ok(Table {
            layout,
            root_hash,
            data_device,
            hash_device,
            on_corruption: None,
            on_error: None,
            ignore_zero_blocks: false,
            check_at_most_once: false,
            try_verify_in_tasklet: false,
            root_hash_sig_key_desc: None,
            fec: None,
        })
    }

    /// The mapped device's length in sectors of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.layout.geometry().data_size() / 512
    }

    /// The kernel argument that makes the device at boot: `dm-mod.create="NAME,,MINOR,ro,TABLE"`.
    ///
    /// Source: Documentation/admin-guide/device-mapper/dm-init.rst.
    ///
    /// # Errors
    /// `Argument` if a name holds a character that separates fields there.
    pub fn kernel_argument(&self, name: &str, minor: Option<u32>) -> Result<String, Error> {
        let line = self.to_string();
        let reserved = [',', ';', '"', '\\'];
        let is_split = |name: &str| name.contains(|c: char| c.is_whitespace() || c.is_control());
        if name.is_empty() || name.contains(reserved) || is_split(name) || line.contains(reserved) {
            let text =
                format!("'{name}' or '{line}' can't be part of dm-mod.create=: it has {reserved:?} in it");
            return Err(Error::argument(text));
        }
        let minor = minor.map_or(String::new(), |minor| minor.to_string());
        Ok(format!("dm-mod.create=\"{name},,{minor},ro,{line}\""))
    }

    fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let mut flag = |set: bool, name: &str| options.extend(set.then(|| name.to_owned()));
        flag(self.on_corruption == Some(OnFault::Ignore), "ignore_corruption");
        flag(self.on_corruption == Some(OnFault::Restart), "restart_on_corruption");
        flag(self.on_corruption == Some(OnFault::Panic), "panic_on_corruption");
        flag(self.on_error == Some(OnFault::Restart), "restart_on_error");
        flag(self.on_error == Some(OnFault::Panic), "panic_on_error");
        flag(self.ignore_zero_blocks, "ignore_zero_blocks");
        flag(self.check_at_most_once, "check_at_most_once");
        flag(self.try_verify_in_tasklet, "try_verify_in_tasklet");
        let mut pair = |name: &str, value: String| options.extend([name.to_owned(), value]);
        if let Some(fec) = &self.fec {
            pair("use_fec_from_device", fec.device.clone());
            pair("fec_start", fec.start.to_string());
            pair("fec_blocks", fec.blocks.to_string());
            pair("fec_roots", fec.roots.to_string());
        }
        if let Some(description) = &self.root_hash_sig_key_desc {
            pair("root_hash_sig_key_desc", description.clone());
        }
        options
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.layout.parameters();
        write!(
            f,
            "0 {} verity {} {} {} {} {} {} {} {} {} {}",
            self.sectors(),
            parameters.hash_type.number(),
            self.data_device,
            self.hash_device,
            parameters.data_block_size.bytes(),
            parameters.hash_block_size.bytes(),
            self.layout.geometry().data_blocks(),
            self.layout.hash_start_block(),
            kernel_name(parameters.algorithm()),
            hex::encode(self.root_hash),
            parameters.salt,
        )?;
        let options = self.options();
        if options.is_empty() {
            return Ok(());
        }
        write!(f, " {} {}", options.len(), options.join(" "))
    }
}

/// The UUIDs of the partitions with the data and with the hash area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionUuids {
    /// Of the data.
    pub data: Uuid,
    /// Of the hash area.
    pub hash: Uuid,
}

/// The UUIDs of the data and the hash partition (UAPI group's Discoverable Partitions Specification): the first
/// and the last 128 bits of the root hash.
///
/// # Errors
/// `Argument` if the root hash is too short for both.
pub fn partition_uuids(root_hash: &[u8]) -> Result<PartitionUuids, Error> {
    match (root_hash.first_chunk(), root_hash.last_chunk()) {
        (Some(first), Some(last)) if root_hash.len() >= 32 => {
            Ok(PartitionUuids { data: Uuid::from_bytes(*first), hash: Uuid::from_bytes(*last) })
        }
        _ => {
            let text = "partition UUIDs need a root hash of 32 bytes or more";
            Err(Error::argument(text.to_owned()))
        }
    }
}

/// The kernel's name for an algorithm, where it is not the tools' one.
fn kernel_name(name: &str) -> &str {
    match name {
        "ripemd160" => "rmd160",
        "whirlpool" => "wp512",
        "stribog256" => "streebog256",
        "stribog512" => "streebog512",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dm::{Parameters, Salt};

    fn layout() -> Layout {
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.salt = Salt::from_text("1234").unwrap();
        let uuid = Uuid::from_text("5e34f531-3859-825c-fad6-33289ccfcb92").unwrap();
        Layout::new(parameters, 262_144, 0, Some(uuid)).unwrap()
    }

    fn table<'a>(layout: &'a Layout, root_hash: &'a [u8]) -> Table<'a> {
        Table::new(layout, root_hash, "/dev/sda1".to_owned(), "/dev/sda2".to_owned()).unwrap()
    }

    /// The example of the kernel's verity.rst, but for the salt's length.
    const LINE: &str = "0 2097152 verity 1 /dev/sda1 /dev/sda2 4096 4096 262144 1 sha256 \
        4392712ba01368efdf14b05c76f9e4df0d53664630b5d48632ed17a137f39076 1234";

    fn root_hash() -> Vec<u8> {
        hex::decode("4392712ba01368efdf14b05c76f9e4df0d53664630b5d48632ed17a137f39076").unwrap()
    }

    #[test]
    fn the_line_without_options() {
        assert_eq!(table(&layout(), &root_hash()).to_string(), LINE);
    }

    #[test]
    fn options_are_counted_by_words() {
        let (layout, root_hash) = (layout(), root_hash());
        let mut table = table(&layout, &root_hash);
        table.on_corruption = Some(OnFault::Restart);
        table.on_error = Some(OnFault::Panic);
        table.ignore_zero_blocks = true;
        table.check_at_most_once = true;
        table.try_verify_in_tasklet = true;
        table.root_hash_sig_key_desc = Some("key".to_owned());
        table.fec = Some(TableFec { device: "/dev/sda3".to_owned(), roots: 2, blocks: 264_210, start: 7 });
        let options = " 15 restart_on_corruption panic_on_error ignore_zero_blocks check_at_most_once \
            try_verify_in_tasklet use_fec_from_device /dev/sda3 fec_start 7 fec_blocks 264210 fec_roots 2 \
            root_hash_sig_key_desc key";
        assert_eq!(table.to_string(), format!("{LINE}{options}"));
    }

    #[test]
    fn the_kernel_argument() {
        let (layout, root_hash) = (layout(), root_hash());
        let mut table = table(&layout, &root_hash);
        let argument = table.kernel_argument("vroot", None).unwrap();
        assert_eq!(argument, format!("dm-mod.create=\"vroot,,,ro,{LINE}\""));
        assert!(table.kernel_argument("a,b", Some(1)).is_err());
        table.data_device = "/dev/a;b".to_owned();
        assert!(table.kernel_argument("vroot", Some(1)).is_err());
    }

    #[test]
    fn partitions_are_named_by_the_root_hash() {
        let PartitionUuids { data, hash } = partition_uuids(&root_hash()).unwrap();
        assert_eq!(data.to_string(), "4392712b-a013-68ef-df14-b05c76f9e4df");
        assert_eq!(hash.to_string(), "0d536646-30b5-d486-32ed-17a137f39076");
        assert!(partition_uuids(&[0; 20]).is_err());
    }
}
