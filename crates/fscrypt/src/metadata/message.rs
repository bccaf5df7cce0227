//! Protobuf messages, as metadata.proto declares them. Fields that this crate does not need are left out:
//! decoding skips them.

use prost::Message;

use crate::{Error, Result};

#[derive(Clone, PartialEq, Message)]
pub(super) struct HashingCosts {
    #[prost(int64, tag = "2")]
    pub time: i64,
    #[prost(int64, tag = "3")]
    pub memory: i64,
    #[prost(int64, tag = "4")]
    pub parallelism: i64,
    #[prost(bool, tag = "5")]
    pub truncation_fixed: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WrappedKeyData {
    #[prost(bytes = "vec", tag = "1")]
    pub iv: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub encrypted_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub hmac: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtectorData {
    #[prost(string, tag = "1")]
    pub protector_descriptor: String,
    #[prost(int32, tag = "2")]
    pub source: i32,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    pub costs: Option<HashingCosts>,
    #[prost(bytes = "vec", tag = "5")]
    pub salt: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub uid: i64,
    #[prost(message, optional, tag = "7")]
    pub wrapped_key: Option<WrappedKeyData>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptionOptions {
    #[prost(int64, tag = "1")]
    pub padding: i64,
    #[prost(int32, tag = "2")]
    pub contents: i32,
    #[prost(int32, tag = "3")]
    pub filenames: i32,
    #[prost(int64, tag = "4")]
    pub policy_version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WrappedPolicyKey {
    #[prost(string, tag = "1")]
    pub protector_descriptor: String,
    #[prost(message, optional, tag = "2")]
    pub wrapped_key: Option<WrappedKeyData>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PolicyData {
    #[prost(string, tag = "1")]
    pub key_descriptor: String,
    #[prost(message, optional, tag = "2")]
    pub options: Option<EncryptionOptions>,
    #[prost(message, repeated, tag = "3")]
    pub wrapped_policy_keys: Vec<WrappedPolicyKey>,
}

/// Reads one message, which is the whole of `what`'s file.
pub(super) fn decode<M: Message + Default>(what: &str, bytes: &[u8]) -> Result<M> {
    if bytes.len() > super::MAX_LEN {
        let text = format!("{what}: {} bytes; such files have at most {}", bytes.len(), super::MAX_LEN);
        return Err(Error::corrupt(text));
    }
    M::decode(bytes)
        .map_err(|error| Error::corrupt(format!("{what}: the protobuf message can't be decoded: {error}")))
}
