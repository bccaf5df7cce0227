//! Lists of digests, as `fsverity digest` prints them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use casemate_blockdev::os::{OsStrExt, OsStringExt};

use crate::fs::FileDigest;

/// A list of files and their digests, and the lines of it that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// One entry for each well-formed line, in order.
    pub entries: Vec<Entry>,
    /// The numbers of the other lines, from 1; empty lines and lines that begin with `#` are not counted among
    /// them.
    pub malformed: Vec<usize>,
}

/// A file and the digest that it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's name: any bytes but NUL.
    pub path: PathBuf,
    /// The expected digest.
    pub digest: FileDigest,
}

impl Manifest {
    /// Reads a list of digests. Each line is a digest, one space and a file name to the end of the line. As
    /// `sha256sum` does, a line that begins with a backslash has `\n`, `\r` and `\\` in its file name
    /// unescaped.
    pub fn from_bytes(bytes: &[u8]) -> Manifest {
        let mut manifest = Manifest::default();
        for (i, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            match Entry::from_line(line) {
                Some(entry) => manifest.entries.push(entry),
                None => manifest.malformed.push(i + 1),
            }
        }
        manifest
    }
}

impl Entry {
    fn from_line(line: &[u8]) -> Option<Entry> {
        let (line, escaped) = match line.strip_prefix(b"\\") {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let space = line.iter().position(|byte| *byte == b' ')?;
        let digest = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
        let name = &line[space + 1..];
        let name = if escaped { unescape(name)? } else { name.to_vec() };
        let usable = !name.is_empty() && !name.contains(&0);
        usable.then(|| Entry { path: OsString::from_vec(name).into(), digest })
    }

    /// The line for this entry, with its line end; escaped if the name holds a line end.
    pub fn to_line(&self) -> Vec<u8> {
        let digest = self.digest.to_string();
        match escape_name(&self.path) {
            Some(name) => [b"\\", digest.as_bytes(), b" ", &name, b"\n"].concat(),
            None => [digest.as_bytes(), b" ", self.path.as_os_str().as_bytes(), b"\n"].concat(),
        }
    }
}

/// A file name for output that is read line by line: `None` if it can stand as it is, else the name with
/// `\n`, `\r` and `\\` escaped. A line with an escaped name begins with a backslash, as `sha256sum` prints
/// it.
pub fn escape_name(path: &Path) -> Option<Vec<u8>> {
    let name = path.as_os_str().as_bytes();
    if !name.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return None;
    }
    let mut escaped = Vec::with_capacity(name.len() + 1);
    for byte in name {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            _ => escaped.push(*byte),
        }
    }
    Some(escaped)
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    fn entry(name: &[u8]) -> Entry {
        let digest = format!("sha256:{}", "07".repeat(32)).parse().unwrap();
        Entry { path: OsString::from_vec(name.to_vec()).into(), digest }
    }

    #[test]
    fn every_name_survives_its_line() {
        let mut rng = Rng::new(5);
        let mut names = vec![b" two spaces".to_vec(), b"a\nb\\c\r".to_vec(), b"back\\slash".to_vec()];
        for _ in 0..2000 {
            let len = 1 + rng.below(12) as usize;
            names.push(rng.bytes(len).into_iter().map(|byte| byte.max(1)).collect());
        }
        let lines: Vec<u8> = names.iter().flat_map(|name| entry(name).to_line()).collect();
        let manifest = Manifest::from_bytes(&lines);
        assert_eq!(manifest.malformed, [0; 0]);
        assert_eq!(manifest.entries, names.iter().map(|name| entry(name)).collect::<Vec<_>>());
    }

    #[test]
    fn wrong_lines_are_counted() {
        let digest = format!("sha256:{}", "07".repeat(32));
        let text = format!(
            "# a list\n\n{digest} a\r\n{digest}\n{digest} \nsha256:07 b\n\\{digest} c\\q\n{digest} d\0e\n\
             {digest} last"
        );
        let manifest = Manifest::from_bytes(text.as_bytes());
        assert_eq!(manifest.malformed, [4, 5, 6, 7, 8]);
        assert_eq!(manifest.entries, [entry(b"a"), entry(b"last")]);
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut rng = Rng::new(6);
        for _ in 0..2000 {
            let len = rng.below(300) as usize;
            let mut bytes = rng.bytes(len);
            if rng.below(2) == 0 {
                let mut line = entry(b"name").to_line();
                let at = rng.below(line.len() as u64) as usize;
                line[at] = rng.next_u64() as u8;
                bytes.extend(line);
            }
            let _ = Manifest::from_bytes(&bytes);
        }
    }
}
