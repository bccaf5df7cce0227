//! Records of extended headers: "LENGTH KEY=VALUE\n", where the length counts itself.

/// A record: its key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The prefix before an extended attribute's name in the key of libarchive's record.
pub(super) const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";

/// Records that are taken: as many as a file has attributes, and then some.
const MOST_RECORDS: usize = 1 << 16;

/// A record as it is written. A key has no "=": names of attributes may, which GNU tar writes as "%3D", and "%" as
/// "%25".
pub(super) fn to_bytes((key, value): &Record) -> Vec<u8> {
    let key = &key.iter().fold(Vec::new(), |mut key, byte| {
        match byte {
            b'=' => key.extend(b"%3D"),
            b'%' => key.extend(b"%25"),
            _ => key.push(*byte),
        }
        key
    })[..];
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// All records of a header's body, first ones first. Numbers of the oldest sparse format, which have one key, go to
/// `numbers`.
pub(super) fn parse(mut body: &[u8], numbers: &mut Vec<u64>) -> Result<Vec<Record>, &'static str> {
    let mut records = Vec::new();
    while !body.is_empty() {
        let record = (|| {
            let space = body.iter().take(20).position(|byte| *byte == b' ')?;
            let len: usize = str::from_utf8(&body[..space]).ok()?.parse().ok()?;
            let (record, rest) = body.split_at_checked(len)?;
            let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
            let equals = text.iter().position(|byte| *byte == b'=')?;
            Some((&text[..equals], &text[equals + 1..], rest))
        })();
        let (key, value, rest) = record.ok_or("an extended header is malformed")?;
        body = rest;
        if matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes") {
            let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            numbers.push(number.ok_or("a record is not a number")?);
            continue;
        }
        if records.len() == MOST_RECORDS {
            return Err("an extended header has more than 2^16 records");
        }
        records.push((decoded(key), value.to_vec()));
    }
    Ok(records)
}

/// A key as it was before it was written.
fn decoded(mut key: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // libarchive writes any byte in a name as "%" and two hexadecimal digits.
    let is_libarchive = key.starts_with(LIBARCHIVE);
    while let [first, rest @ ..] = key {
        let (byte, rest) = match key {
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', high, low, rest @ ..] if is_libarchive => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, rest),
                _ => (*first, &key[1..]),
            },
            _ => (*first, rest),
        };
        plain.push(byte);
        key = rest;
    }
    plain
}

fn digit(letter: u8) -> Option<u8> {
    char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        let record = |key: &[u8], value: &[u8]| to_bytes(&(key.to_vec(), value.to_vec()));
        assert_eq!(record(b"a", b"b"), b"6 a=b\n");
        assert_eq!(record(b"a=b%", b"c="), b"15 a%3Db%25=c=\n");
        assert_eq!(record(b"path", &[b'x'; 90]).len(), 99);
        for len in 80..120 {
            let record = record(b"path", &vec![b'x'; len]);
            assert!(record.starts_with(record.len().to_string().as_bytes()), "{len}");
        }
    }

    #[test]
    fn keys_are_read_as_gnu_tar_writes_them() {
        for (written, key) in [
            ("SCHILY.xattr.user.a%3Db", "SCHILY.xattr.user.a=b"),
            ("user.100%25", "user.100%"),
            ("%253D%2525", "%3D%25"),
            ("100%", "100%"),
            ("%3", "%3"),
            ("%41", "%41"),
            ("LIBARCHIVE.xattr.user.%41%3d%2541%4", "LIBARCHIVE.xattr.user.A=%41%4"),
        ] {
            assert_eq!(decoded(written.as_bytes()), key.as_bytes(), "{written}");
        }
    }
}
