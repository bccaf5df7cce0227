//! Base64, one call after another on the same buffers, beside what encodes and decodes today.
//!
//! `base64 [peers|backends|alphabets] [encode|decode]`: against other crates and the two loops of the kernel's past,
//! back end against back end, and alphabet against alphabet. Without an argument: `peers`, both directions.

use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::PAD;
use base64::engine::simd::Simd;
use casemate_benches::Race;
use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_primitives::testing::Rng;
use casemate_primitives::{Cpu, Feature};

/// Bytes of the data, not of the text.
const SIZES: [usize; 5] = [24, 64, 255, 1024, 64 * 1024];

/// The standard alphabet, for the loops below.
static CHARACTERS: &[u8; 64] = Alphabet::STANDARD.characters();

/// Characters in no order.
const CUSTOM: Alphabet =
    match Alphabet::new(b"q8~}|{zyxwvutsr7ponmlkjihgfedcba`_^]!\\[ZYXWVUTSRQPONMLKJIHGFED9(") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 distinct ASCII characters"),
    };

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "peers".into());
    let direction = args.next().unwrap_or_default();
    for bytes in SIZES {
        let data = Rng::new(1).bytes(bytes);
        if direction != "decode" {
            Encoding::new(&data).run(&mode);
        }
        if direction != "encode" {
            Decoding::new(&data).run(&mode);
        }
    }
}

/// The codecs that race in `mode`; the first one is what the others are compared with.
fn codecs(mode: &str) -> Vec<(String, Base64<'static>)> {
    let cpu = Cpu::detect();
    let standard = &Alphabet::STANDARD;
    let named = |codec: Base64<'static>, what: &str| (format!("casemate {} {what}", codec.name()), codec);
    match mode {
        "peers" => [cpu, cpu.without(Feature::Vbmi)]
            .map(|cpu| named(Base64::new(cpu, standard, Padding::Padded), "padded"))
            .into(),
        "backends" => {
            Base64::available(cpu, standard, Padding::Padded).map(|codec| named(codec, "padded")).collect()
        }
        "alphabets" => [("standard", standard), ("URL-safe", &Alphabet::URL_SAFE), ("custom", &CUSTOM)]
            .iter()
            .flat_map(|(name, alphabet)| {
                [Padding::Padded, Padding::Unpadded].into_iter().flat_map(move |padding| {
                    let what = format!("{name} {padding:?}");
                    Base64::available(cpu, alphabet, padding).map(move |codec| named(codec, &what))
                })
            })
            .collect(),
        other => panic!("{other} is none of peers, backends, alphabets"),
    }
}

/// A race in which `data` becomes its text.
struct Encoding<'a> {
    race: Race<'a>,
    data: &'a [u8],
    text: Vec<u8>,
}

impl<'a> Encoding<'a> {
    fn new(data: &'a [u8]) -> Encoding<'a> {
        let items = items(data.len());
        let race = Race::new(format!("encode {} bytes", data.len()), data.len() * items).items(items);
        Encoding { race, data, text: base64::engine::general_purpose::STANDARD.encode(data).into() }
    }

    fn add(
        &mut self,
        name: &str,
        text_len: usize,
        encode: impl Fn(&[u8], &mut [u8]) -> usize + 'a,
    ) -> Vec<u8> {
        let mut text = Aligned::new(&vec![0; text_len]);
        assert_eq!(encode(self.data, text.get()), text_len, "{name}");
        let result = text.get().to_vec();
        let (mut data, items) = (Aligned::new(self.data), items(self.data.len()));
        self.race.add(name, move || {
            let (data, text) = (data.get(), text.get());
            let written: usize = (0..items).map(|_| encode(black_box(data), text)).sum();
            black_box((written, text));
        });
        result
    }

    fn run(mut self, mode: &str) {
        for (name, codec) in codecs(mode) {
            let len = codec.encoded_len(self.data.len());
            let text = self.add(&name, len, move |data, text| codec.encode(data, text));
            assert_eq!(codec.decode_to_vec(&text).as_deref(), Ok(self.data), "{name}");
        }
        if mode == "peers" {
            self.peers();
        }
        self.race.run();
    }

    fn peers(&mut self) {
        let turbo = base64_turbo::STANDARD;
        let simd = base64_simd::STANDARD;
        let engine = Simd::standard(PAD);
        let scalar = base64::engine::general_purpose::STANDARD;
        let len = self.text.len();
        let texts = [
            self.add("base64-turbo", len, move |data, text| turbo.encode_slice(data, text).unwrap()),
            self.add("base64-simd", len, move |data, text| {
                simd.encode(data, base64_simd::Out::from_slice(text)).len()
            }),
            self.add("base64, Simd engine", len, move |data, text| engine.encode_slice(data, text).unwrap()),
            self.add("base64, STANDARD", len, move |data, text| scalar.encode_slice(data, text).unwrap()),
            self.add("data-encoding", len, move |data, text| {
                data_encoding::BASE64.encode_mut(data, text);
                text.len()
            }),
            self.add("3 bytes at a time", len, encode_blocks),
            self.add("bit by bit", len, encode_bits),
        ];
        assert!(texts.iter().all(|text| *text == self.text));
    }
}

/// A race in which a text becomes its data again.
struct Decoding<'a> {
    race: Race<'a>,
    data: &'a [u8],
}

impl<'a> Decoding<'a> {
    fn new(data: &'a [u8]) -> Decoding<'a> {
        let items = items(data.len());
        let race = Race::new(format!("decode to {} bytes", data.len()), data.len() * items).items(items);
        Decoding { race, data }
    }

    fn add(&mut self, name: &str, text: Vec<u8>, decode: impl Fn(&[u8], &mut [u8]) -> usize + 'a) {
        // Some contestants want room for a text without padding.
        let mut data = Aligned::new(&vec![0; text.len() / 4 * 3 + 3]);
        let mut text = Aligned::new(&text);
        assert_eq!(decode(text.get(), data.get()), self.data.len(), "{name}");
        assert_eq!(&data.get()[..self.data.len()], self.data, "{name}");
        let items = items(self.data.len());
        self.race.add(name, move || {
            let (text, data) = (text.get(), data.get());
            let written: usize = (0..items).map(|_| decode(black_box(text), data)).sum();
            black_box((written, data));
        });
    }

    fn run(mut self, mode: &str) {
        for (name, codec) in codecs(mode) {
            let text = codec.encode_to_string(self.data).into();
            self.add(&name, text, move |text, data| codec.decode(text, data).unwrap());
        }
        if mode == "peers" {
            self.peers();
        }
        self.race.run();
    }

    fn peers(&mut self) {
        let turbo = base64_turbo::STANDARD;
        let simd = base64_simd::STANDARD;
        let engine = Simd::standard(PAD);
        let scalar = base64::engine::general_purpose::STANDARD;
        let text: Vec<u8> = scalar.encode(self.data).into();
        let len = self.data.len();
        self.add("base64-turbo", text.clone(), move |text, data| turbo.decode_slice(text, data).unwrap());
        self.add("base64-simd", text.clone(), move |text, data| {
            simd.decode(text, base64_simd::Out::from_slice(data)).unwrap().len()
        });
        self.add("base64, Simd engine", text.clone(), move |text, data| {
            engine.decode_slice(text, data).unwrap()
        });
        self.add("base64, STANDARD", text.clone(), move |text, data| {
            scalar.decode_slice(text, data).unwrap()
        });
        self.add("data-encoding", text.clone(), move |text, data| {
            data_encoding::BASE64.decode_mut(text, &mut data[..text.len() / 4 * 3]).unwrap()
        });
        let unpadded = text[..(len * 4).div_ceil(3)].to_vec();
        let reverse = Box::new(std::array::from_fn(|byte| {
            let place = CHARACTERS.iter().position(|character| usize::from(*character) == byte);
            place.map_or(-1, |value| value as i8)
        }));
        self.add("4 characters at a time", unpadded.clone(), move |text, data| {
            decode_blocks(&reverse, text, data)
        });
        self.add("bit by bit", unpadded, decode_bits);
    }
}

/// Bytes that begin where a cache line does: whoever got the better place in memory must not win by that.
struct Aligned {
    buffer: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(bytes: &[u8]) -> Aligned {
        let mut buffer = vec![0; bytes.len() + 63];
        let start = buffer.as_ptr().align_offset(64);
        buffer[start..][..bytes.len()].copy_from_slice(bytes);
        Aligned { buffer, start, len: bytes.len() }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..][..self.len]
    }
}

/// How many calls are timed together: the timer's own cost must not count.
fn items(bytes: usize) -> usize {
    (4096 / bytes).max(1)
}

/// As the kernel's file systems did it: an accumulator, and a character whenever it has 6 bits.
fn encode_bits(data: &[u8], text: &mut [u8]) -> usize {
    let (mut bits, mut count, mut len) = (0u32, 0, 0);
    for byte in data {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 6 {
            count -= 6;
            text[len] = CHARACTERS[(bits >> count & 63) as usize];
            len += 1;
        }
    }
    if count > 0 {
        text[len] = CHARACTERS[(bits << (6 - count) & 63) as usize];
        len += 1;
    }
    pad(text, len)
}

/// As it was proposed in 2025: 3 bytes become a word, the word 4 characters; then the rest.
fn encode_blocks(data: &[u8], text: &mut [u8]) -> usize {
    let character = |value: u32| CHARACTERS[value as usize];
    let (blocks, rest) = data.as_chunks::<3>();
    let (groups, end) = text.split_at_mut(blocks.len() * 4);
    for ([a, b, c], group) in blocks.iter().zip(groups.as_chunks_mut::<4>().0) {
        let word = u32::from(*a) << 16 | u32::from(*b) << 8 | u32::from(*c);
        *group = [
            character(word >> 18),
            character(word >> 12 & 63),
            character(word >> 6 & 63),
            character(word & 63),
        ];
    }
    let len = blocks.len() * 4;
    match *rest {
        [a] => {
            end[0] = character(u32::from(a) >> 2);
            end[1] = character(u32::from(a) << 4 & 63);
            pad(text, len + 2)
        }
        [a, b] => {
            let word = u32::from(a) << 8 | u32::from(b);
            end[0] = character(word >> 10);
            end[1] = character(word >> 4 & 63);
            end[2] = character(word << 2 & 63);
            pad(text, len + 3)
        }
        _ => len,
    }
}

fn pad(text: &mut [u8], len: usize) -> usize {
    let whole = len.next_multiple_of(4);
    text[len..whole].fill(b'=');
    whole
}

/// The old decoder: each character is looked for in the alphabet, and a byte goes out whenever there are 8 bits.
fn decode_bits(text: &[u8], data: &mut [u8]) -> usize {
    let (mut bits, mut count, mut len) = (0u32, 0, 0);
    for byte in text {
        let value = CHARACTERS.iter().position(|character| character == byte);
        bits = bits << 6 | value.expect("a character of the alphabet") as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            data[len] = (bits >> count) as u8;
            len += 1;
        }
    }
    assert_eq!(bits & ((1 << count) - 1), 0);
    len
}

/// What came after it: 4 characters through a reverse table become a word, the word 3 bytes; then the rest.
fn decode_blocks(reverse: &[i8; 256], text: &[u8], data: &mut [u8]) -> usize {
    let value = |character: u8| i32::from(reverse[usize::from(character)]);
    let (groups, rest) = text.as_chunks::<4>();
    let (blocks, end) = data.split_at_mut(groups.len() * 3);
    for ([a, b, c, d], block) in groups.iter().zip(blocks.as_chunks_mut::<3>().0) {
        let word = value(*a) << 18 | value(*b) << 12 | value(*c) << 6 | value(*d);
        assert!(word >= 0);
        *block = [(word >> 16) as u8, (word >> 8) as u8, word as u8];
    }
    match *rest {
        [a, b] => {
            let word = value(a) << 6 | value(b);
            assert!(word >= 0 && word & 15 == 0);
            end[0] = (word >> 4) as u8;
            blocks.len() + 1
        }
        [a, b, c] => {
            let word = value(a) << 12 | value(b) << 6 | value(c);
            assert!(word >= 0 && word & 3 == 0);
            end[..2].copy_from_slice(&[(word >> 10) as u8, (word >> 2) as u8]);
            blocks.len() + 2
        }
        _ => blocks.len(),
    }
}
