//! JSON as cryptsetup takes it and writes it.
//!
//! LUKS2 keeps its metadata as JSON, which json-c reads: far more than RFC 8259 allows. Comments, single quotes, a comma
//! behind the last member, NaN, bytes that are not UTF-8 and names that are there twice (the last one counts) are taken.
//! A header with them opens, so they are taken here too. [`Json::parse`] is that reader, [`Json::to_plain`] and
//! [`Json::to_pretty`] write what json-c writes. Members keep their order; strings are bytes.

use std::collections::HashMap;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without point or exponent, from -2^63 to 2^64-1; what lies outside is cut to that.
    Integer(i128),
    /// Any other number, as it is written.
    Double(String),
    /// A string's bytes.
    String(Vec<u8>),
    /// Values in their order.
    Array(Vec<Json>),
    /// Members in their order.
    Object(Object),
}

/// The members of a JSON object, in their order, found by name.
#[derive(Clone, Debug, Default)]
pub struct Object {
    members: Vec<(Vec<u8>, Json)>,
    places: HashMap<Vec<u8>, usize>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.members == other.members
    }
}

impl Object {
    /// The member of a name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Json> {
        self.places.get(name.as_ref()).map(|place| &self.members[*place].1)
    }

    /// The member of a name, to be changed.
    pub fn get_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut Json> {
        self.places.get(name.as_ref()).map(|place| &mut self.members[*place].1)
    }

    /// Sets a member: where one has the name already, in its place, and behind all others else.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: Json) {
        let name = name.as_ref();
        match self.places.get(name) {
            Some(place) => self.members[*place].1 = value,
            None => {
                self.places.insert(name.to_vec(), self.members.len());
                self.members.push((name.to_vec(), value));
            }
        }
    }

    /// Object with one member set in addition.
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Object {
        self.set(name, value.into());
        self
    }

    /// Keeps the members that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &Json) -> bool) {
        self.members.retain(|(name, value)| keep(name, value));
        self.places = self.members.iter().enumerate().map(|(k, (name, _))| (name.clone(), k)).collect();
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Json)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// Names and values, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut Json)> {
        self.members.iter_mut().map(|(name, value)| (&**name, value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::String(text.as_bytes().to_vec())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::String(text.into_bytes())
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Json {
        Json::Integer(number.into())
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Json {
        Json::Object(object)
    }
}

impl From<Vec<Json>> for Json {
    fn from(values: Vec<Json>) -> Json {
        Json::Array(values)
    }
}

impl Json {
    /// Reads the value at the beginning of `text`, which ends at its first NUL. Returns it with the place behind the value
    /// and the blanks and comments that follow; `None` for what json-c does not take, and for more than 65,536 values, of
    /// which no header has a hundredth.
    pub fn parse(text: &[u8]) -> Option<(Json, usize)> {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut parser = Parser { text, place: 0, values: 0 };
        parser.blanks()?;
        let value = parser.value(0)?;
        parser.blanks()?;
        Some((value, parser.place))
    }

    /// The object, if the value is one.
    pub fn object(&self) -> Option<&Object> {
        match self {
            Json::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The object, to be changed, if the value is one.
    pub fn object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Json::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The array, if the value is one.
    pub fn array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(values) => Some(values),
            _ => None,
        }
    }

    /// The string's bytes, if the value is one.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Json::String(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The string, if the value is one and UTF-8.
    pub fn text(&self) -> Option<&str> {
        str::from_utf8(self.bytes()?).ok()
    }

    /// The number, if the value is a whole one of 32 bits.
    pub fn number(&self) -> Option<u32> {
        match self {
            Json::Integer(number) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Number of values: this one and those in it.
    pub fn values(&self) -> usize {
        1 + match self {
            Json::Object(object) => object.iter().map(|(_, value)| value.values()).sum::<usize>(),
            Json::Array(values) => values.iter().map(Json::values).sum(),
            _ => 0,
        }
    }

    /// The text without blanks, as it lies in a header.
    pub fn to_plain(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, None);
        out
    }

    /// The text with a line for each member, as `cryptsetup luksDump --dump-json-metadata` prints it.
    pub fn to_pretty(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, Some(0));
        out
    }

    /// Writes the value; `level` is the depth of lines that are indented, if lines are.
    fn write(&self, out: &mut Vec<u8>, level: Option<usize>) {
        let line = |out: &mut Vec<u8>, level: Option<usize>| {
            if let Some(level) = level {
                out.push(b'\n');
                out.resize(out.len() + 2 * level, b' ');
            }
        };
        let inner = level.map(|level| level + 1);
        match self {
            Json::Null => out.extend(b"null"),
            Json::Bool(true) => out.extend(b"true"),
            Json::Bool(false) => out.extend(b"false"),
            Json::Integer(number) => out.extend(number.to_string().bytes()),
            Json::Double(text) => out.extend(text.bytes()),
            Json::String(bytes) => write_string(out, bytes),
            Json::Array(values) => {
                out.push(b'[');
                for (k, value) in values.iter().enumerate() {
                    if k > 0 {
                        out.push(b',');
                    }
                    line(out, inner);
                    value.write(out, inner);
                }
                line(out, level);
                out.push(b']');
            }
            Json::Object(object) => {
                out.push(b'{');
                for (k, (name, value)) in object.iter().enumerate() {
                    if k > 0 {
                        out.push(b',');
                    }
                    line(out, inner);
                    write_string(out, name);
                    out.push(b':');
                    value.write(out, inner);
                }
                line(out, level);
                out.push(b'}');
            }
        }
    }
}

fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            8 => out.extend(b"\\b"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            12 => out.extend(b"\\f"),
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0..32 => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// Containers within containers, at most.
const DEEPEST: usize = 31;

/// How many values there may be, since each takes some hundred bytes of memory and two of the text.
pub(crate) const MOST_VALUES: u32 = 1 << 16;

struct Parser<'a> {
    text: &'a [u8],
    place: usize,
    /// How many values have begun.
    values: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.place).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.place += 1;
        Some(byte)
    }

    /// Passes over a byte, if it is there.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.place += usize::from(found);
        found
    }

    /// Passes over a word in any case, if it is there.
    fn take_word(&mut self, word: &str) -> bool {
        let found = self.text[self.place..].get(..word.len());
        let found = found.is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
        self.place += if found { word.len() } else { 0 };
        found
    }

    /// Passes over blanks and comments; `None` for a comment that does not end.
    fn blanks(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.place += 1,
                Some(b'/') => {
                    let rest = &self.text[self.place..];
                    let len = match rest.get(1)? {
                        b'*' => 4 + rest[2..].windows(2).position(|end| end == b"*/")?,
                        b'/' => 3 + rest[2..].iter().position(|byte| *byte == b'\n')?,
                        _ => return None,
                    };
                    self.place += len;
                }
                _ => return Some(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' | b'\'' => Some(Json::String(self.string()?)),
            b'-' | b'0'..=b'9' => self.number(depth),
            _ if self.take_word("null") => Some(Json::Null),
            _ if self.take_word("true") => Some(Json::Bool(true)),
            _ if self.take_word("false") => Some(Json::Bool(false)),
            _ if self.take_word("nan") => Some(Json::Double("NaN".to_owned())),
            _ if self.take_word("infinity") => Some(Json::Double("Infinity".to_owned())),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.place += 1;
        let mut object = Object::default();
        loop {
            self.blanks()?;
            if self.take(b'}') {
                return Some(Json::Object(object));
            }
            if depth >= DEEPEST || !matches!(self.peek()?, b'"' | b'\'') {
                return None;
            }
            let name = self.string()?;
            // json-c keeps names as C does: they end at a NUL.
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.blanks()?;
            if !self.take(b':') {
                return None;
            }
            self.blanks()?;
            let value = self.value(depth + 1)?;
            object.set(name, value);
            self.blanks()?;
            if !self.take(b',') && self.peek()? != b'}' {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.place += 1;
        let mut values = Vec::new();
        loop {
            self.blanks()?;
            if self.take(b']') {
                return Some(Json::Array(values));
            }
            if depth >= DEEPEST {
                return None;
            }
            values.push(self.value(depth + 1)?);
            self.blanks()?;
            if !self.take(b',') && self.peek()? != b']' {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let quote = self.next()?;
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                byte if byte == quote => return Some(bytes),
                b'\\' => match self.next()? {
                    byte @ (b'"' | b'\\' | b'/') => bytes.push(byte),
                    b'b' => bytes.push(8),
                    b'n' => bytes.push(b'\n'),
                    b'r' => bytes.push(b'\r'),
                    b't' => bytes.push(b'\t'),
                    b'f' => bytes.push(12),
                    b'u' => {
                        let unit = self.unit()?;
                        let found = self.character(unit)?;
                        bytes.extend(found.encode_utf8(&mut [0; 4]).bytes());
                    }
                    _ => return None,
                },
                byte => bytes.push(byte),
            }
        }
    }

    /// The character that begins with a unit of UTF-16; what is half of one is a replacement character.
    fn character(&mut self, unit: u32) -> Option<char> {
        let is_high = (0xd800..0xdc00).contains(&unit);
        if is_high && self.text[self.place..].starts_with(b"\\u") {
            let before = self.place;
            self.place += 2;
            let low = self.unit()?;
            if (0xdc00..0xe000).contains(&low) {
                return char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
            }
            self.place = before;
        }
        Some(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn unit(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | char::from(self.next()?).to_digit(16)?))
    }

    fn number(&mut self, depth: usize) -> Option<Json> {
        let start = self.place;
        self.take(b'-');
        if self.place > start && self.take_word("infinity") {
            return Some(Json::Double("-Infinity".to_owned()));
        }
        let digits = |parser: &mut Self| {
            while parser.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                parser.place += 1;
            }
        };
        digits(self);
        let mut is_double = self.take(b'.');
        digits(self);
        if self.take(b'e') || self.take(b'E') {
            is_double = true;
            let _ = self.take(b'-') || self.take(b'+');
            digits(self);
        }
        let follows = self.peek();
        let is_end = matches!(follows, None | Some(b',' | b']' | b'}' | b'/' | b' ' | b'\t' | b'\n' | b'\r'));
        if depth > 0 && !is_end {
            return None;
        }
        // OK to unwrap: signs, digits, points and exponents.
        let text = str::from_utf8(&self.text[start..self.place]).unwrap();
        if is_double {
            let text = text.trim_end_matches(['e', 'E', '-', '+']);
            return text.parse::<f64>().is_ok().then(|| Json::Double(text.to_owned()));
        }
        let magnitude = text.trim_start_matches('-').trim_start_matches('0');
        if !text.ends_with(|last: char| last.is_ascii_digit()) {
            return None;
        }
        // More digits than these are more than 64 bits have.
        let magnitude: i128 = match magnitude.len() {
            0 => 0,
            1..=20 => magnitude.parse().ok()?,
            _ => i128::MAX,
        };
        Some(Json::Integer(match text.starts_with('-') {
            true => magnitude.saturating_neg().max(i64::MIN.into()),
            false => magnitude.min(u64::MAX.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Option<String> {
        let (value, end) = Json::parse(text.as_bytes())?;
        assert!(end <= text.len());
        Some(String::from_utf8(value.to_plain()).unwrap())
    }

    #[test]
    fn what_is_well_formed_comes_out_as_it_went_in() {
        for text in [
            r#"{"a":1,"b":[true,false,null,"x/y"],"c":{},"d":[],"e":-9223372036854775808,"f":18446744073709551615}"#,
            r#"{"z":"\b\n\r\t\f\"\\\u001f","a":1.50,"b":2e+5}"#,
            r#"{"":"é"}"#,
        ] {
            assert_eq!(plain(text).unwrap(), text);
        }
    }

    #[test]
    fn what_json_c_takes_is_taken() {
        for (text, meant) in [
            ("{'a':1}", r#"{"a":1}"#),
            ("{\"a\":1,}", r#"{"a":1}"#),
            ("[1,2,]", "[1,2]"),
            ("/* x */ {\"a\" : // y\n 1 } ", r#"{"a":1}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (r#"[NaN,-Infinity,TRUE,nULL]"#, r#"[NaN,-Infinity,true,null]"#),
            (
                r#"[007,99999999999999999999,-99999999999999999999]"#,
                "[7,18446744073709551615,-9223372036854775808]",
            ),
            (r#"["\u0041\ud83d\ude00\ud800x\u0000"]"#, "[\"A😀\u{fffd}x\\u0000\"]"),
            (r#"{"a\u0000b":1}"#, r#"{"a":1}"#),
            ("[1.5e,2.]", "[1.5,2.]"),
        ] {
            assert_eq!(plain(text).as_deref(), Some(meant), "{text}");
        }
        assert_eq!(Json::parse(b"{\"a\":\"\xff\"}  \0rest").unwrap().1, 11);
    }

    #[test]
    fn what_json_c_refuses_is_refused() {
        for text in [
            "",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "[1 2]",
            "[-]",
            "[1x]",
            "\"a",
            "[\"\\x\"]",
            "[\"\\u12\"]",
            "tru",
            "/* x",
            "[1.2.3]",
            "{,}",
        ] {
            assert_eq!(plain(text), None, "{text}");
        }
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(plain(&nested(32)).is_some());
        assert!(plain(&nested(33)).is_none());
        let many = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(plain(&many(65535)).is_some());
        assert!(plain(&many(65536)).is_none());
    }

    #[test]
    fn members_are_set_in_place_and_removed() {
        let mut object = Object::default().with("a", 1).with("b", 2).with("c", 3);
        object.set("b", Json::from("x"));
        object.retain(|name, _| name != b"a");
        object.set("d", Json::Array(Vec::new()));
        assert_eq!(object.get("c").and_then(Json::number), Some(3));
        assert_eq!(Json::Object(object).to_plain(), br#"{"b":"x","c":3,"d":[]}"#);
    }

    #[test]
    fn a_great_many_names_take_no_time_to_find() {
        let names: Vec<String> = (0..65_000).map(|k| format!("\"{k}\":0")).collect();
        let text = format!("{{{}}}", names.join(","));
        assert_eq!(Json::parse(text.as_bytes()).unwrap().0.object().unwrap().len(), 65_000);
    }
}
