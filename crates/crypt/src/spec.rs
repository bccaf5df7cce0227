//! Cipher specifications: `cipher[:keycount]-chainmode-ivmode[:ivopts]` and `capi:api_spec-ivmode[:ivopts]`.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The IV mode: where a sector's IV comes from. `S` is the sector's number with the mapping's IV offset added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IvMode {
    /// No IV: the cipher takes none (ECB).
    None,
    /// S cut to 32 bits, little-endian.
    Plain,
    /// S as 64 bits, little-endian.
    Plain64,
    /// S as 64 bits, big-endian, at the IV's end.
    Plain64Be,
    /// `plain64`, encrypted under the key's hash of this name.
    Essiv(String),
    /// The number of the sector's first narrow block, counted from 1, big-endian, at the IV's end (for LRW).
    Benbi,
    /// An IV of zeros.
    Null,
    /// The byte offset, encrypted under the key (BitLocker).
    Eboiv,
    /// MD5 over the sector's number and its own plaintext (loop-AES, versions 2 and 3).
    Lmk,
    /// A seed from the key XOR S, and whitening over the ciphertext (old TrueCrypt).
    Tcw,
    /// `eboiv` with the Elephant diffuser around it (BitLocker of Windows Vista and 7).
    Elephant,
}

/// A cipher specification: cipher, number of keys that take turns, and IV mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The algorithm by its kernel name, without ESSIV: `xts(aes)`.
    pub algorithm: String,
    /// The number of keys that take turns, a power of two; 1 nearly always.
    pub key_count: usize,
    /// The IV mode.
    pub iv: IvMode,
    text: String,
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Spec, Error> {
        let bad = |why: &str| Error::argument(format!("cipher specification '{text}': {why}"));
        if text.is_empty() || text.len() > 256 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("not a specification such as aes-xts-plain64"));
        }
        let (algorithm, key_count, iv) = match text.strip_prefix("capi:") {
            Some(rest) => api_form(rest).ok_or_else(|| bad("the form is capi:api_spec-ivmode"))?,
            None => named_form(text).map_err(bad)?,
        };
        if algorithm.starts_with("authenc(")
            || algorithm.starts_with("gcm(")
            || algorithm.contains("poly1305")
        {
            return Err(Error::unsupported(format!("'{text}': authenticated encryption needs dm-integrity")));
        }
        // The kernel's spelling of ESSIV in the api form, and ours, mean the same mapping.
        let inner = algorithm
            .strip_prefix("essiv(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|r| r.rsplit_once(','));
        let (algorithm, iv) = match (inner, iv_mode(iv, text)?) {
            (Some((inner, hash)), IvMode::Plain64) => (inner.to_owned(), IvMode::Essiv(hash.to_owned())),
            (Some(_), _) => return Err(bad("essiv(...) takes plain64 IVs")),
            (None, iv) => (algorithm, iv),
        };
        let ecb = algorithm.starts_with("ecb(");
        if ecb != (iv == IvMode::None) {
            return Err(bad(if ecb { "ECB takes no IV" } else { "an IV mode is missing" }));
        }
        Ok(Spec { algorithm, key_count, iv, text: text.to_owned() })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `xts(aes)-plain64`; the algorithm may have dashes of its own, the IV mode's options may not.
fn api_form(rest: &str) -> Option<(String, usize, Option<&str>)> {
    // A dash within parentheses belongs to the algorithm.
    let after = rest.rfind(')').map_or(0, |place| place + 1);
    let (algorithm, iv) = match rest[after..].find('-') {
        Some(dash) => (&rest[..after + dash], Some(&rest[after + dash + 1..])),
        None => (rest, None),
    };
    (!algorithm.is_empty()).then(|| (algorithm.to_owned(), 1, iv))
}

/// `aes-xts-plain64`, `aes:64-cbc-lmk`, `aes`.
fn named_form(text: &str) -> Result<(String, usize, Option<&str>), &'static str> {
    let mut parts = text.splitn(3, '-');
    let cipher = parts.next().unwrap_or_default();
    let (mode, iv) = (parts.next(), parts.next());
    let (cipher, key_count) = match cipher.split_once(':') {
        Some((cipher, count)) => (cipher, count.parse().map_err(|_| "the key count is not a number")?),
        None => (cipher, 1usize),
    };
    if cipher.is_empty() || !key_count.is_power_of_two() || key_count > 1 << 16 {
        return Err("the key count must be a power of two");
    }
    // For compatibility with the first dm-crypt, "aes" and "aes-plain" mean aes-cbc-plain.
    let (mode, iv) = match (mode, iv) {
        (None, None) | (Some("plain"), None) => ("cbc", Some("plain")),
        (Some(mode), iv) => (mode, iv),
        (None, Some(_)) => return Err("a chain mode is missing"),
    };
    Ok((format!("{mode}({cipher})"), key_count, iv))
}

fn iv_mode(iv: Option<&str>, text: &str) -> Result<IvMode, Error> {
    let Some(iv) = iv else { return Ok(IvMode::None) };
    let (name, option) = iv.split_once(':').map_or((iv, None), |(name, option)| (name, Some(option)));
    let mode = match (name, option) {
        ("plain", None) => IvMode::Plain,
        ("plain64", None) => IvMode::Plain64,
        ("plain64be", None) => IvMode::Plain64Be,
        ("essiv", Some(hash)) if !hash.is_empty() => IvMode::Essiv(hash.to_owned()),
        ("essiv", _) => {
            return Err(Error::argument(format!("'{text}': essiv needs a hash, as in essiv:sha256")));
        }
        ("benbi", None) => IvMode::Benbi,
        ("null", None) => IvMode::Null,
        ("eboiv", None) => IvMode::Eboiv,
        ("lmk", None) => IvMode::Lmk,
        ("tcw", None) => IvMode::Tcw,
        ("elephant", None) => IvMode::Elephant,
        ("random", None) => {
            return Err(Error::unsupported(format!("'{text}': random IVs are stored by dm-integrity")));
        }
        _ => return Err(Error::argument(format!("'{text}': unknown IV mode '{iv}'"))),
    };
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let cases = [
            ("aes-xts-plain64", "xts(aes)", 1, IvMode::Plain64),
            ("aes", "cbc(aes)", 1, IvMode::Plain),
            ("aes-plain", "cbc(aes)", 1, IvMode::Plain),
            ("aes-cbc-essiv:sha256", "cbc(aes)", 1, IvMode::Essiv("sha256".into())),
            ("aes:64-cbc-lmk", "cbc(aes)", 64, IvMode::Lmk),
            ("xchacha12,aes-adiantum-plain64", "adiantum(xchacha12,aes)", 1, IvMode::Plain64),
            ("cipher_null-ecb", "ecb(cipher_null)", 1, IvMode::None),
            ("capi:xts(aes)-plain64be", "xts(aes)", 1, IvMode::Plain64Be),
            ("capi:essiv(cbc(aes),sha256)-plain64", "cbc(aes)", 1, IvMode::Essiv("sha256".into())),
            ("capi:cbc(aes)-essiv:sha256", "cbc(aes)", 1, IvMode::Essiv("sha256".into())),
            ("capi:hctr2(aes)-plain64", "hctr2(aes)", 1, IvMode::Plain64),
            ("capi:ecb(aes)", "ecb(aes)", 1, IvMode::None),
        ];
        for (text, algorithm, key_count, iv) in cases {
            let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((&*spec.algorithm, spec.key_count, &spec.iv), (algorithm, key_count, &iv), "{text}");
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let cases = [
            ("", "not a specification"),
            ("aes-xts", "IV mode is missing"),
            ("aes-ecb-plain", "takes no IV"),
            ("aes-xts-plain65", "unknown IV mode 'plain65'"),
            ("aes:3-cbc-plain", "power of two"),
            ("aes:x-cbc-plain", "not a number"),
            ("aes-cbc-essiv", "needs a hash"),
            ("aes-gcm-random", "dm-integrity"),
            ("capi:-plain64", "capi:"),
            ("aes xts plain", "not a specification"),
        ];
        for (text, why) in cases {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
