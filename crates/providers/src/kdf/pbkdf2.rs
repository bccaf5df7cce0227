//! PBKDF2 (RFC 8018) with HMAC over any of the hashes.

use casemate_primitives::secret::SecretVec;

use super::{KdfError, KdfLimits, is_stopped};
use crate::hash::Hash;
use crate::hmac::Hmac;

/// Derives `len` bytes from a passphrase and a salt of any lengths, by `iterations` of HMAC for each digest of output.
///
/// ```text
/// U1 = HMAC(passphrase, salt || block number, from 1, big-endian in 4 bytes)
/// Ui = HMAC(passphrase, Ui-1)
/// block = U1 ^ U2 ^ ... ^ Un
/// ```
///
/// # Errors
/// [`KdfError::TooExpensive`] for more iterations than `limits` grants; [`KdfError::Invalid`] for none, or for more
/// bytes than a 32-bit number of blocks has.
pub fn pbkdf2(
    hash: Hash,
    passphrase: &[u8],
    salt: &[u8],
    iterations: u32,
    len: usize,
    limits: &KdfLimits,
) -> Result<SecretVec, KdfError> {
    let invalid = |text: String| KdfError::Invalid(format!("pbkdf2-{}: {text}", hash.name()));
    if iterations == 0 {
        return Err(invalid("no iterations".to_owned()));
    }
    let blocks =
        u32::try_from(len.div_ceil(hash.digest_len())).map_err(|_| invalid(format!("{len} bytes")))?;
    if u64::from(iterations) * u64::from(blocks) > limits.iterations {
        return Err(KdfError::TooExpensive(format!(
            "it demands {iterations} iterations for each of {blocks} digests; at most {} are granted",
            limits.iterations
        )));
    }
    let digest_len = hash.digest_len();
    let hmac = Hmac::new(hash, passphrase);
    let mut key = SecretVec::zeroed(len);
    let mut last = SecretVec::zeroed(digest_len);
    let mut sum = SecretVec::zeroed(digest_len);
    let mut inner = SecretVec::zeroed(digest_len);
    for (number, out) in (1..=blocks).zip(key.expose_mut().chunks_mut(digest_len)) {
        hmac.tag_into(&[salt, &number.to_be_bytes()].concat(), &mut inner, last.expose_mut());
        sum.expose_mut().copy_from_slice(last.expose());
        for iteration in 1..iterations {
            if iteration.is_multiple_of(ASK) && is_stopped() {
                return Err(KdfError::Stopped);
            }
            hmac.again(&mut inner, last.expose_mut());
            sum.expose_mut().iter_mut().zip(last.expose()).for_each(|(sum, byte)| *sum ^= byte);
        }
        out.copy_from_slice(&sum.expose()[..out.len()]);
    }
    Ok(key)
}

/// Iterations, of about a microsecond each, until it is asked again whether to stop.
const ASK: u32 = 1 << 12;

#[cfg(test)]
mod tests {
    use casemate_primitives::{Cpu, hex};

    use super::*;

    fn derive(hash: &str, passphrase: &[u8], salt: &[u8], iterations: u32, len: usize) -> String {
        let hash = Hash::named(hash, Cpu::detect()).unwrap();
        let key = pbkdf2(hash, passphrase, salt, iterations, len, &KdfLimits::default()).unwrap();
        hex::encode(key.expose())
    }

    #[test]
    fn keys_are_those_of_rfc_6070_and_rfc_7914() {
        let (long, salt) = (b"passwordPASSWORDpassword", b"saltSALTsaltSALTsaltSALTsaltSALTsalt");
        assert_eq!(derive("sha1", b"password", b"salt", 1, 20), "0c60c80f961f0e71f3a9b524af6012062fe037a6");
        assert_eq!(
            derive("sha1", b"password", b"salt", 4096, 20),
            "4b007901b765489abead49d926f721d065a429c1"
        );
        assert_eq!(
            derive("sha1", long, salt, 4096, 25),
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038"
        );
        assert_eq!(derive("sha1", b"pass\0word", b"sa\0lt", 4096, 16), "56fa6aa75548099dcc37d7f03425e0c3");
        assert_eq!(
            derive("sha256", b"passwd", b"salt", 1, 64),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
             49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783"
        );
        // From CPython's hashlib: more output than a digest.
        assert!(
            derive("sha512", b"passphrase", b"salt", 1000, 100)
                .starts_with("6c3901714f1204ccf98b8ec605bcba0b")
        );
        assert!(derive("sha512", b"passphrase", b"salt", 1000, 100).ends_with("dee7a2ca8497e"));
    }

    #[test]
    fn demands_are_bounded() {
        let limits = KdfLimits { iterations: 1000, ..KdfLimits::default() };
        let derive = |iterations, len| {
            let hash = Hash::named("sha256", Cpu::detect()).unwrap();
            pbkdf2(hash, b"", b"", iterations, len, &limits).map(|key| key.len())
        };
        assert_eq!(derive(1000, 32), Ok(32));
        assert_eq!(derive(500, 64), Ok(64));
        assert!(matches!(derive(1001, 32), Err(KdfError::TooExpensive(_))));
        assert!(matches!(derive(501, 33), Err(KdfError::TooExpensive(_))));
        assert!(matches!(
            derive(u32::MAX, usize::MAX),
            Err(KdfError::Invalid(_) | KdfError::TooExpensive(_))
        ));
        assert!(matches!(derive(0, 32), Err(KdfError::Invalid(_))));
    }
}
