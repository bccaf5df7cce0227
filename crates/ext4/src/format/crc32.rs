//! The CRC-32 of old journal checksums: polynomial 0x04C11DB7, not reflected, no inversion.

use casemate_blockdev::usize_of;

/// The register after `bytes`, four bits at a time.
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        let crc = crc ^ u32::from(*byte) << 24;
        let crc = crc << 4 ^ NIBBLES[usize_of(crc >> 28)];
        crc << 4 ^ NIBBLES[usize_of(crc >> 28)]
    })
}

/// Contribution of each value of the high four bits, once they are shifted out.
const NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let (mut at, mut value) = (0, 0);
    while at < table.len() {
        let mut crc: u32 = value << 28;
        let mut bit = 0;
        while bit < 4 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer() {
        // CRC-32/MPEG-2 of the usual nine digits.
        assert_eq!(crc32(!0, b"123456789"), 0x0376_e6e7);
    }
}
