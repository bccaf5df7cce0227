//! The CRC-16 of old group descriptors: reflected polynomial 0xA001, no inversion.

/// The register after `bytes`, four bits at a time.
pub(crate) fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        let crc = crc ^ u16::from(*byte);
        let crc = crc >> 4 ^ NIBBLES[usize::from(crc & 15)];
        crc >> 4 ^ NIBBLES[usize::from(crc & 15)]
    })
}

/// Contribution of each value of the low four bits, once they are shifted out.
const NIBBLES: [u16; 16] = {
    let mut table = [0; 16];
    let (mut at, mut value) = (0, 0);
    while at < table.len() {
        let mut crc: u16 = value;
        let mut bit = 0;
        while bit < 4 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xa001 } else { 0 };
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
    fn known_answers() {
        // CRC-16/ARC and CRC-16/MODBUS of the usual nine digits.
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(!0, b"123456789"), 0x4b37);
    }
}
