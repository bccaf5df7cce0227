//! Kinds of files by their first bytes.

use casemate_blockdev::signatures::{HEAD, ZEROS, known};
use casemate_blockdev::{BlockDevice, u64_of, usize_of};

/// Magic numbers that formats of files begin with, and the words for a guess.
const KINDS: &[(&[u8], &str)] = &[
    (b"\x7fELF", "an ELF program or library"),
    (b"#!", "a script"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"-----BEGIN ", "a PEM file"),
    (b"\0asm", "a WebAssembly module"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"BZh", "bzip2 data"),
    (b"<?xml", "an XML document"),
];

/// A guess of what a file is.
pub fn guess(file: &dyn BlockDevice) -> Option<&'static str> {
    // At most 64 KiB.
    let mut head = vec![0; usize_of(file.size().min(u64_of(HEAD)))];
    file.read_at(&mut head, 0).ok()?;
    let kind = KINDS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| *what);
    let known = || known(&head).filter(|what| *what != ZEROS);
    let is_text = || {
        let text = &head[..head.len().min(4096)];
        !text.is_empty()
            && text.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..))
    };
    kind.or_else(known)
        .or_else(|| (is_text() && std::str::from_utf8(utf8_part(&head)).is_ok()).then_some("a text"))
}

/// The first bytes of a text, without half a character at their end.
fn utf8_part(head: &[u8]) -> &[u8] {
    let text = &head[..head.len().min(4096)];
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() => &text[..error.valid_up_to()],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;

    #[test]
    fn guesses() {
        let guess = |bytes: &[u8]| super::guess(&MemoryDevice::new(bytes.to_vec()));
        assert_eq!(guess(b"%PDF-1.7"), Some("a PDF document"));
        assert_eq!(guess(b"hello\n"), Some("a text"));
        assert_eq!(guess(b"\x1f\x8b\x08\0"), Some("gzip data"));
        assert_eq!((guess(b""), guess(&[0; 5000]), guess(b"a\0b")), (None, None, None));
        let text = "\u{e4}".repeat(3000);
        assert_eq!(guess(&text.as_bytes()[..4097]), Some("a text"));
    }
}
