//! One template for every back end that this CPU can run.

use std::iter;

use base64::Engine;
use base64::alphabet::Alphabet as PeerAlphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, PAD};
use serde_json::Value;

use super::*;
use crate::testing::{Guarded, Rng};

/// Backwards and with control characters: nothing that a built-in alphabet's structure would explain.
const ODD: Alphabet =
    match Alphabet::new(b"\x00\x01\x1f /\x7f~}|{zyxwvutsrqponmlkjihgfedcba`_^]\\[ZYXWVUTSRQPONMLKJIHGFE") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 distinct ASCII characters"),
    };

static ALPHABETS: [Alphabet; 4] = [Alphabet::STANDARD, Alphabet::URL_SAFE, Alphabet::IMAP, ODD];

const PADDINGS: [Padding; 2] = [Padding::Padded, Padding::Unpadded];

/// The codecs of this CPU for each alphabet and padding.
fn codecs() -> Vec<Base64<'static>> {
    let kinds = ALPHABETS.iter().flat_map(|alphabet| PADDINGS.map(|padding| (alphabet, padding)));
    kinds.flat_map(|(alphabet, padding)| Base64::available(Cpu::detect(), alphabet, padding)).collect()
}

/// The definition: all bits in a row, six at a time.
fn naive_encode(alphabet: &Alphabet, padding: Padding, bytes: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| byte >> i & 1)).collect();
    let mut text: Vec<u8> = bits
        .chunks(6)
        .map(|bits| {
            let value = bits.iter().chain(iter::repeat(&0)).take(6).fold(0, |value, bit| value << 1 | bit);
            alphabet.characters()[usize::from(value)]
        })
        .collect();
    while padding == Padding::Padded && !text.len().is_multiple_of(4) {
        text.push(b'=');
    }
    text
}

/// The rules, one after the other, from left to right.
fn naive_decode(
    alphabet: &Alphabet,
    padding: Padding,
    text: &[u8],
) -> Result<Vec<u8>, (usize, DecodeErrorKind)> {
    let mut bits = Vec::new();
    for (i, byte) in text.iter().enumerate() {
        if let Some(value) = alphabet.characters().iter().position(|character| character == byte) {
            bits.extend((0..6).rev().map(|i| (value >> i & 1) as u8));
        } else if *byte != b'=' {
            return Err((i, DecodeErrorKind::InvalidByte));
        } else {
            let rest = &text[i..];
            let group = padding == Padding::Padded && text.len().is_multiple_of(4);
            if !(group && (rest == b"=" || rest == b"==")) {
                return Err((i, DecodeErrorKind::Padding));
            }
            break;
        }
    }
    let complete = match padding {
        Padding::Padded => text.len().is_multiple_of(4),
        Padding::Unpadded => text.len() % 4 != 1,
    };
    if !complete {
        return Err((text.len(), DecodeErrorKind::BadLength));
    }
    let whole = bits.len() / 8 * 8;
    if bits[whole..].contains(&1) {
        return Err((bits.len() / 6 - 1, DecodeErrorKind::NonCanonicalTail));
    }
    Ok(bits.chunks_exact(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit)).collect())
}

fn decode(codec: &Base64, text: &[u8]) -> Result<Vec<u8>, (usize, DecodeErrorKind)> {
    codec.decode_to_vec(text).map_err(|error| (error.position, error.kind))
}

/// The input that the vector file describes.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn the_expected_back_ends_are_there() {
    let names: Vec<&str> = Base64::available(Cpu::detect(), &ODD, Padding::Padded)
        .map(|codec| codec.name())
        .inspect(|name| println!("base64 back end: {name}"))
        .collect();
    assert_eq!(names.last(), Some(&"portable"));
    assert_eq!(names[0], Base64::new(Cpu::detect(), &ODD, Padding::Padded).name());
    assert_eq!(Base64::new(Cpu::portable(), &ODD, Padding::Padded).name(), "portable");
    let has = |features: &[Feature]| Cpu::detect().has_all(features);
    assert_eq!(names.contains(&"x86_64-vbmi"), has(&[Feature::Avx512, Feature::Vbmi]));
    assert_eq!(names.contains(&"x86_64-avx2"), has(&[Feature::Avx2]));
    assert_eq!(names.contains(&"aarch64-neon"), has(&[Feature::Neon]));
}

#[test]
fn vectors() {
    let json: Value = serde_json::from_str(include_str!("../../../../vectors/base64.json")).unwrap();
    let name = |codec: &Base64| match codec.alphabet().characters()[62..] {
        [b'+', b'/'] => Some("standard"),
        [b'-', b'_'] => Some("url_safe"),
        [b'+', b','] => Some("imap"),
        _ => None,
    };
    for codec in codecs() {
        let Some(name) = name(&codec) else { continue };
        let padded = codec.padding() == Padding::Padded;
        for case in json["encoded"].as_array().unwrap() {
            let len = case["length"].as_u64().unwrap() as usize;
            let mut text = case[name].as_str().unwrap().to_owned();
            while padded && !text.len().is_multiple_of(4) {
                text.push('=');
            }
            assert_eq!(codec.encode_to_string(&pattern(len)), text, "{codec:?} length {len}");
            assert_eq!(decode(&codec, text.as_bytes()), Ok(pattern(len)), "{codec:?} length {len}");
        }
        for case in json["named"].as_array().unwrap() {
            let mut text = case["text"].as_str().unwrap();
            if !padded {
                text = text.trim_end_matches('=');
            }
            let last = codec.alphabet().characters().last_chunk::<2>().unwrap().map(char::from);
            let text = text.replace('+', &last[0].to_string()).replace('/', &last[1].to_string());
            assert_eq!(codec.encode_to_string(&hex(&case["bytes"])), text, "{codec:?} {case}");
            assert_eq!(decode(&codec, text.as_bytes()), Ok(hex(&case["bytes"])), "{codec:?} {case}");
        }
        for case in json["texts"].as_array().unwrap().iter().filter(|_| name == "standard") {
            let expected = &case[if padded { "padded" } else { "unpadded" }];
            let found = decode(&codec, &hex(&case["text"]));
            assert_eq!(found.clone().ok(), expected.as_str().map(|_| hex(expected)), "{codec:?} {case}");
            assert_eq!(found, naive_decode(codec.alphabet(), codec.padding(), &hex(&case["text"])));
        }
    }
}

#[test]
fn errors_say_what_and_where() {
    use DecodeErrorKind::{BadLength, InvalidByte, NonCanonicalTail};
    let standard = &Alphabet::STANDARD;
    let cases: &[(&[u8], Padding, usize, DecodeErrorKind)] = &[
        (b"Zg=!", Padding::Padded, 2, DecodeErrorKind::Padding),
        (b"Zm$=", Padding::Padded, 2, InvalidByte),
        (b"Z===", Padding::Padded, 1, DecodeErrorKind::Padding),
        (b"Zg", Padding::Padded, 2, BadLength),
        (b"Zg=", Padding::Padded, 2, DecodeErrorKind::Padding),
        (b"Zm9v====", Padding::Padded, 4, DecodeErrorKind::Padding),
        (b"Zm==A", Padding::Padded, 2, DecodeErrorKind::Padding),
        (b"Zg\0=", Padding::Padded, 2, InvalidByte),
        (b"Zh==", Padding::Padded, 1, NonCanonicalTail),
        (b"Zm9=", Padding::Padded, 2, NonCanonicalTail),
        (b"Zg=!", Padding::Unpadded, 2, DecodeErrorKind::Padding),
        (b"Zm$=", Padding::Unpadded, 2, InvalidByte),
        (b"Zg==", Padding::Unpadded, 2, DecodeErrorKind::Padding),
        (b"Zm9vY", Padding::Unpadded, 5, BadLength),
        (b"Zh", Padding::Unpadded, 1, NonCanonicalTail),
        (b"Zm9", Padding::Unpadded, 2, NonCanonicalTail),
        (b"Z-==", Padding::Padded, 1, InvalidByte),
        // The first error counts, even if the length alone would refuse the text.
        (b"Z_9vY", Padding::Unpadded, 1, InvalidByte),
    ];
    for (text, padding, position, kind) in cases {
        for codec in Base64::available(Cpu::detect(), standard, *padding) {
            assert_eq!(decode(&codec, text), Err((*position, *kind)), "{codec:?} {}", text.escape_ascii());
        }
        assert_eq!(naive_decode(standard, *padding, text), Err((*position, *kind)));
    }
}

#[test]
fn every_length_agrees_with_the_definition_and_with_another_codec() {
    let mut rng = Rng::new(64);
    let data = rng.bytes(1024);
    for codec in codecs() {
        // Its maker wants printable characters, which the odd alphabet does not have.
        let peer = std::str::from_utf8(codec.alphabet().characters())
            .ok()
            .and_then(|characters| PeerAlphabet::new(characters).ok())
            .map(|alphabet| {
                let config = match codec.padding() {
                    Padding::Padded => PAD,
                    Padding::Unpadded => NO_PAD,
                };
                GeneralPurpose::new(&alphabet, config)
            });
        assert_eq!(peer.is_none(), *codec.alphabet() == ODD);
        for len in 0..=data.len() {
            let bytes = &data[..len];
            let text = codec.encode_to_string(bytes);
            let naive = naive_encode(codec.alphabet(), codec.padding(), bytes);
            assert_eq!(text.as_bytes(), naive, "{codec:?} length {len}");
            assert_eq!(text.len(), codec.encoded_len(len));
            assert_eq!(decode(&codec, &naive).as_deref(), Ok(bytes), "{codec:?} length {len}");
            if let Some(peer) = &peer {
                assert_eq!(text, peer.encode(bytes), "{codec:?} length {len}");
                assert_eq!(peer.decode(&text).as_deref(), Ok(bytes));
            }
        }
    }
}

#[test]
fn nothing_outside_the_slices_is_touched() {
    let mut rng = Rng::new(65);
    // Beyond the unrolled loops of every back end, in bytes: 208 and all remainders of 96.
    for len in (0..=320).chain([1023, 4096]) {
        let bytes = rng.bytes(len);
        for codec in codecs() {
            let expected = naive_encode(codec.alphabet(), codec.padding(), &bytes);
            for at_end in [true, false] {
                let zeros = if at_end { Guarded::at_end } else { Guarded::at_start };
                let copy = if at_end { Guarded::copy_at_end } else { Guarded::copy_at_start };
                let mut text = zeros(expected.len());
                assert_eq!(codec.encode(&copy(&bytes), &mut text), expected.len());
                assert_eq!(*text, *expected, "{codec:?} length {len} at end {at_end}");
                let mut back = zeros(len);
                assert_eq!(codec.decode(&text, &mut back), Ok(len), "{codec:?} length {len} at end {at_end}");
                assert_eq!(*back, *bytes, "{codec:?} length {len} at end {at_end}");
            }
        }
    }
}

#[test]
fn what_lies_after_the_result_stays_as_it_was() {
    let mut rng = Rng::new(66);
    let data = rng.bytes(300);
    for codec in codecs() {
        for len in 0..data.len() {
            let mut text = [0xa5; 512];
            let written = codec.encode(&data[..len], &mut text);
            assert!(text[written..].iter().all(|byte| *byte == 0xa5), "{codec:?} length {len}");
            let mut bytes = [0x5a; 512];
            assert_eq!(codec.decode(&text[..written], &mut bytes), Ok(len), "{codec:?} length {len}");
            assert!(bytes[len..].iter().all(|byte| *byte == 0x5a), "{codec:?} length {len}");
        }
    }
}

#[test]
fn every_alignment_works() {
    let mut rng = Rng::new(67);
    let data = rng.bytes(64 + 300);
    for codec in codecs() {
        for offset in 0..64 {
            let bytes = &data[offset..offset + 300];
            let mut text = [0; 512];
            let len = codec.encode(bytes, &mut text[offset..]);
            let text = &text[offset..offset + len];
            assert_eq!(text, naive_encode(codec.alphabet(), codec.padding(), bytes), "{codec:?} at {offset}");
            let mut back = [0; 512];
            assert_eq!(codec.decode(text, &mut back[64 - offset..]), Ok(300), "{codec:?} at {offset}");
            assert_eq!(&back[64 - offset..][..300], bytes, "{codec:?} at {offset}");
        }
    }
}

#[test]
fn any_wrong_byte_anywhere_is_found() {
    let mut rng = Rng::new(68);
    // In characters: quads, one register less and more, the unrolled loops with and without a tail.
    for len in [4, 24, 32, 63, 64, 66, 88, 130, 280, 360] {
        for codec in codecs() {
            let mut text = codec.encode_to_string(&rng.bytes(len * 3 / 4)).into_bytes();
            let mut bytes = vec![0; len];
            for position in 0..text.len() {
                let good = text[position];
                for wrong in (0..=255).filter(|byte| codec.alphabet().value(*byte).is_none()) {
                    text[position] = wrong;
                    let found = codec.decode(&text, &mut bytes).map_err(|error| (error.position, error.kind));
                    let kind = match wrong {
                        b'=' => DecodeErrorKind::Padding,
                        _ => DecodeErrorKind::InvalidByte,
                    };
                    // A pad at the end moves the error, or makes another valid text.
                    if text.len() - position > 2 || wrong != b'=' && good != b'=' {
                        assert_eq!(found, Err((position, kind)), "{codec:?} length {len} byte {wrong:#x}");
                    } else {
                        let expected = naive_decode(codec.alphabet(), codec.padding(), &text);
                        assert_eq!(found, expected.map(|bytes| bytes.len()), "{codec:?} {len} at {position}");
                    }
                }
                text[position] = good;
            }
            assert!(codec.decode(&text, &mut bytes).is_ok());
        }
    }
}

#[test]
fn left_over_bits_are_refused() {
    let mut rng = Rng::new(69);
    for codec in codecs() {
        for len in (1..200).filter(|len| len % 3 != 0) {
            let mut text = codec.encode_to_string(&rng.bytes(len)).into_bytes();
            let last = len * 8 / 6;
            let unused = if len % 3 == 1 { 4 } else { 2 };
            let value = codec.alphabet().value(text[last]).unwrap();
            assert_eq!(value % (1 << unused), 0);
            for bits in 1..1 << unused {
                text[last] = codec.alphabet().characters()[usize::from(value | bits)];
                let expected = Err((last, DecodeErrorKind::NonCanonicalTail));
                assert_eq!(decode(&codec, &text), expected, "{codec:?} length {len} bits {bits}");
            }
        }
    }
}

#[test]
fn short_random_texts_agree_with_the_rules() {
    let mut rng = Rng::new(70);
    for round in 0..20_000 {
        let len = rng.below(14) as usize;
        let texts = ALPHABETS.each_ref().map(|alphabet| {
            let mut text: Vec<u8> = (0..len).map(|_| alphabet.characters()[rng.below(64) as usize]).collect();
            for _ in 0..rng.below(4) {
                let at = rng.below(len as u64 + 1) as usize;
                text[at.min(len)..].fill(b'=');
                text.iter_mut().take(rng.below(2) as usize).for_each(|byte| *byte = b'\n');
            }
            text
        });
        for codec in codecs() {
            let index = ALPHABETS.iter().position(|alphabet| alphabet == codec.alphabet()).unwrap();
            let expected = naive_decode(codec.alphabet(), codec.padding(), &texts[index]);
            assert_eq!(decode(&codec, &texts[index]), expected, "{codec:?} round {round}");
        }
    }
}

#[test]
fn lengths() {
    for len in 0..1000 {
        for padding in PADDINGS {
            let text = naive_encode(&Alphabet::STANDARD, padding, &vec![0; len]);
            assert_eq!(padding.encoded_len(len), text.len());
            let max = padding.decoded_len_max(text.len());
            let codec = Base64::new(Cpu::portable(), &Alphabet::STANDARD, padding);
            assert_eq!(codec.decoded_len(&text), len);
            match padding {
                Padding::Unpadded => assert_eq!(max, len),
                Padding::Padded => assert_eq!(max, len.next_multiple_of(3)),
            }
        }
    }
    for padding in PADDINGS {
        assert_eq!(padding.encoded_len(usize::MAX), usize::MAX);
        assert_eq!(padding.decoded_len_max(usize::MAX), usize::MAX / 4 * 3 + 2);
        // The most that a slice can have.
        let most = isize::MAX as usize;
        assert!(padding.encoded_len(most) as u128 >= most as u128 * 4 / 3);
        assert!(padding.encoded_len(most) < usize::MAX);
    }
}

#[test]
#[should_panic = "room for 3 characters, 4 needed"]
fn too_little_room_for_the_text() {
    Base64::new(Cpu::detect(), &ODD, Padding::Padded).encode(b"a", &mut [0; 3]);
}

#[test]
#[should_panic = "room for 1 bytes, 2 needed"]
fn too_little_room_for_the_bytes() {
    let _ = Base64::new(Cpu::detect(), &Alphabet::STANDARD, Padding::Unpadded).decode(b"Zm8", &mut [0; 1]);
}
