//! PEM files, which may hold several blocks and text between them: finding the block that is wanted.

use der::pem;
use zeroize::Zeroizing;

use crate::Error;

/// A block of a PEM file.
pub(super) struct Block<'a> {
    pub(super) label: &'a str,
    /// The bytes that the block holds; they may be a private key.
    pub(super) der: Zeroizing<Vec<u8>>,
}

/// The decoded first block whose label is one of `labels`. `None` if there is no such block.
///
/// # Errors
/// `Corrupt` if the block is damaged, `Unsupported` if it is encrypted in the old OpenSSL way.
pub(super) fn find<'a>(file: &[u8], labels: &[&'a str]) -> Result<Option<Block<'a>>, Error> {
    let mut rest = file;
    while let Some(begin) = position(rest, b"-----BEGIN ") {
        let block = &rest[begin..];
        let header = &block[b"-----BEGIN ".len()..];
        let Some(label_len) = position(header, b"-----") else { break };
        let label = &header[..label_len];
        let end_line = [b"-----END ", label, b"-----"].concat();
        let Some(end) = position(block, &end_line) else {
            let label = String::from_utf8_lossy(label);
            return Err(Error::corrupt(format!("PEM: the block '{label}' has no end")));
        };
        let block = &block[..end + end_line.len()];
        if let Some(label) = labels.iter().find(|known| known.as_bytes() == label) {
            return Ok(Some(Block { label, der: decode(block, label)? }));
        }
        rest = &rest[begin + block.len()..];
    }
    Ok(None)
}

/// Whether a file looks like PEM at all.
pub(super) fn looks_like_pem(file: &[u8]) -> bool {
    position(file, b"-----BEGIN ").is_some()
}

fn decode(block: &[u8], label: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    if position(block, b"Proc-Type: 4,ENCRYPTED").is_some() {
        return Err(encrypted());
    }
    match pem::decode_vec(block) {
        Ok((_, bytes)) => Ok(Zeroizing::new(bytes)),
        Err(error) => Err(Error::corrupt(format!("PEM: the block '{label}' can't be decoded: {error}"))),
    }
}

/// The error for keys under a passphrase.
pub(super) fn encrypted() -> Error {
    let text = "the private key is encrypted; decrypt it first, for example with \
                'openssl pkey -in KEY -out PLAIN'";
    Error::unsupported(text.to_owned())
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
