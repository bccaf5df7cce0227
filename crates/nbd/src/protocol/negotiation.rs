//! The negotiation before requests: options and their answers.

use std::sync::Arc;

use casemate_blockdev::{u32_of, usize_of};

use super::{ALLOCATION_ID, MAX_NAME, MAX_OPTION, MAX_PAYLOAD};

/// The description of the export that clients are given.
#[derive(Clone, Debug)]
pub struct Description {
    /// The export's name; empty for the default one.
    pub name: String,
    /// The export's size in bytes.
    pub size: u64,
    /// The export's transmission flags.
    pub flags: u16,
    /// The bytes that requests should be multiples of, for speed.
    pub preferred_block: u32,
}

/// The use of TLS: whether connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No connection is encrypted.
    #[default]
    Off,
    /// Connections are encrypted if the client wants them to be.
    On,
    /// All connections are encrypted; a client that does not begin TLS is told nothing.
    Require,
}

/// The flags that a client answers the greeting with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// Whether the client wants no zeros behind the answer to `NBD_OPT_EXPORT_NAME`.
    pub no_zeroes: bool,
}

/// The header before an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option's number.
    pub option: u32,
    /// Bytes of the option's data, at most [`MAX_OPTION`].
    pub len: u32,
}

/// The features of the transmission that client and server have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Whether reads are answered with structured replies.
    pub structured: bool,
    /// Whether `BLOCK_STATUS` may be asked for `base:allocation`.
    pub allocation: bool,
}

/// The phase of a connection after an option was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client's next option.
    Continue,
    /// TLS's own handshake, on the same connection; then [`Negotiation::secured`].
    StartTls,
    /// The transmission: the client's requests to the export of this number, counted from 0.
    Transmission(usize, Agreed),
    /// The end: the connection is to be closed after the answer.
    Close,
}

/// One client's negotiation.
#[derive(Debug)]
pub struct Negotiation {
    exports: Arc<[Description]>,
    tls: TlsMode,
    secured: bool,
    no_zeroes: bool,
    structured: bool,
    /// The number of the export whose block status may be asked for.
    allocation: Option<usize>,
}

impl ClientHello {
    /// Reads the client's flags; `None` if one is unknown, or the client does not speak the fixed newstyle.
    pub fn from_bytes(bytes: [u8; 4]) -> Option<ClientHello> {
        match u32::from_be_bytes(bytes) {
            1 => Some(ClientHello { no_zeroes: false }),
            3 => Some(ClientHello { no_zeroes: true }),
            _ => None,
        }
    }
}

impl OptionHeader {
    /// Bytes of a header.
    pub const LEN: usize = 16;

    /// Reads an option's header; `None` if its magic number is missing, or its data is too long to be taken.
    pub fn from_bytes(bytes: &[u8; OptionHeader::LEN]) -> Option<OptionHeader> {
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let header = OptionHeader { option: be32(8), len: be32(12) };
        (bytes[..8] == *b"IHAVEOPT" && header.len <= MAX_OPTION).then_some(header)
    }
}

impl Negotiation {
    /// The negotiation about these exports with a client whose flags have come.
    pub fn new(exports: Arc<[Description]>, tls: TlsMode, hello: ClientHello) -> Negotiation {
        let no_zeroes = hello.no_zeroes;
        Negotiation { exports, tls, secured: false, no_zeroes, structured: false, allocation: None }
    }

    /// Forgets what was agreed on before TLS began: somebody between client and server may have said it.
    pub fn secured(&mut self) {
        self.secured = true;
        (self.structured, self.allocation) = (false, None);
    }

    /// The export of a name.
    fn find(&self, name: &[u8]) -> Option<(usize, &Description)> {
        self.exports.iter().enumerate().find(|(_, export)| export.name.as_bytes() == name)
    }

    /// The transmission to an export. Block status of one export is not that of another.
    fn begin(&self, export: usize) -> Step {
        let allocation = self.allocation == Some(export);
        Step::Transmission(export, Agreed { structured: self.structured, allocation })
    }

    /// Answers an option: appends what is to be sent to `out`, and says what comes next.
    pub fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let forbidden = self.tls == TlsMode::Require && !self.secured;
        let mut reply = |kind: u32, data: &[&[u8]]| {
            out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
            out.extend_from_slice(&option.to_be_bytes());
            out.extend_from_slice(&kind.to_be_bytes());
            let len: usize = data.iter().map(|part| part.len()).sum();
            // Names are at most MAX_NAME, everything else is a few bytes.
            out.extend_from_slice(&u32_of(len).to_be_bytes());
            data.iter().for_each(|part| out.extend_from_slice(part));
        };
        match option {
            OPT_ABORT => {
                reply(REP_ACK, &[]);
                return Step::Close;
            }
            OPT_STARTTLS => match () {
                () if !data.is_empty() || self.secured => reply(ERR_INVALID, &[]),
                () if self.tls == TlsMode::Off => reply(ERR_POLICY, &[]),
                () => {
                    reply(REP_ACK, &[]);
                    return Step::StartTls;
                }
            },
            OPT_EXPORT_NAME => match self.find(data) {
                Some((number, export)) if !forbidden => {
                    out.extend_from_slice(&export.size.to_be_bytes());
                    out.extend_from_slice(&export.flags.to_be_bytes());
                    if !self.no_zeroes {
                        out.extend_from_slice(&[0; 124]);
                    }
                    return self.begin(number);
                }
                // This option has no error replies.
                _ => return Step::Close,
            },
            _ if forbidden => reply(ERR_TLS_REQD, &[]),
            OPT_LIST if !data.is_empty() => reply(ERR_INVALID, &[]),
            OPT_LIST => {
                for export in &*self.exports {
                    let name = export.name.as_bytes();
                    reply(REP_SERVER, &[&u32_of(name.len()).to_be_bytes(), name]);
                }
                reply(REP_ACK, &[]);
            }
            OPT_INFO | OPT_GO => match parse_info(data) {
                Some((name, _)) if name.len() > MAX_NAME => reply(ERR_TOO_BIG, &[]),
                Some((name, wanted)) => match self.find(name) {
                    Some((number, Description { name, size, flags, preferred_block })) => {
                        let (size, flags) = (size.to_be_bytes(), flags.to_be_bytes());
                        reply(REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &size, &flags]);
                        if wanted.contains(&INFO_NAME) {
                            reply(REP_INFO, &[&INFO_NAME.to_be_bytes(), name.as_bytes()]);
                        }
                        let sizes = [1, *preferred_block, MAX_PAYLOAD].map(u32::to_be_bytes);
                        reply(REP_INFO, &[&INFO_BLOCK_SIZE.to_be_bytes(), &sizes.concat()]);
                        reply(REP_ACK, &[]);
                        if option == OPT_GO {
                            return self.begin(number);
                        }
                    }
                    None => reply(ERR_UNKNOWN, &[b"there is no export of this name"]),
                },
                None => reply(ERR_INVALID, &[]),
            },
            OPT_STRUCTURED_REPLY if !data.is_empty() => reply(ERR_INVALID, &[]),
            OPT_STRUCTURED_REPLY => {
                self.structured = true;
                reply(REP_ACK, &[]);
            }
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => match parse_contexts(data) {
                _ if !self.structured => reply(ERR_INVALID, &[b"structured replies come first"]),
                Some((name, _)) if name.len() > MAX_NAME => reply(ERR_TOO_BIG, &[]),
                Some((name, queries)) => match self.find(name) {
                    Some((number, _)) => {
                        let set = option == OPT_SET_META_CONTEXT;
                        let all = !set && queries.is_empty();
                        let asked = |query: &&[u8]| **query == *ALLOCATION || !set && **query == *b"base:";
                        let found = all || queries.iter().any(asked);
                        if set {
                            self.allocation = found.then_some(number);
                        }
                        if found {
                            let id = if set { ALLOCATION_ID } else { 0 };
                            reply(REP_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION]);
                        }
                        reply(REP_ACK, &[]);
                    }
                    None => reply(ERR_UNKNOWN, &[]),
                },
                None => reply(ERR_INVALID, &[]),
            },
            _ => reply(ERR_UNSUP, &[]),
        }
        Step::Continue
    }
}

/// The name, and the information that is asked for.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (name, rest) = counted(data)?;
    let (count, rest) = rest.split_first_chunk()?;
    let wanted = rest.chunks(2).map(|pair| Some(u16::from_be_bytes(pair.try_into().ok()?)));
    let wanted: Vec<u16> = wanted.collect::<Option<_>>()?;
    (wanted.len() == u16::from_be_bytes(*count).into()).then_some((name, wanted))
}

/// The name, and the metadata contexts that are asked for.
fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = counted(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut queries = Vec::new();
    while !rest.is_empty() {
        let (query, after) = counted(rest)?;
        queries.push(query);
        rest = after;
    }
    (queries.len() == usize_of(u32::from_be_bytes(*count))).then_some((name, queries))
}

/// A text after its length, and what follows.
fn counted(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize_of(u32::from_be_bytes(*len)))
}

const ALLOCATION: &[u8] = b"base:allocation";

const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_STARTTLS: u32 = 5;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_LIST_META_CONTEXT: u32 = 9;
const OPT_SET_META_CONTEXT: u32 = 10;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const ERR_UNSUP: u32 = 0x8000_0001;
const ERR_POLICY: u32 = 0x8000_0002;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_TLS_REQD: u32 = 0x8000_0005;
const ERR_UNKNOWN: u32 = 0x8000_0006;
const ERR_TOO_BIG: u32 = 0x8000_0009;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_BLOCK_SIZE: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiation(tls: TlsMode) -> Negotiation {
        let export = |name: &str, size| Description {
            name: name.to_owned(),
            size,
            flags: 0x0101,
            preferred_block: 4096,
        };
        let exports = [export("disk", 1 << 20), export("other", 1 << 21)];
        Negotiation::new(exports.into(), tls, ClientHello { no_zeroes: true })
    }

    /// Kinds of the replies to an option, and what comes next.
    fn ask(negotiation: &mut Negotiation, option: u32, data: &[u8]) -> (Vec<u32>, Step) {
        let mut out = Vec::new();
        let step = negotiation.option(option, data, &mut out);
        let (mut kinds, mut rest) = (Vec::new(), &out[..]);
        while !rest.is_empty() {
            let be32 = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
            assert_eq!((&rest[..8], be32(8)), (&REPLY_MAGIC.to_be_bytes()[..], option));
            kinds.push(be32(12));
            rest = &rest[20 + be32(16) as usize..];
        }
        (kinds, step)
    }

    fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
        let counted = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        let mut data = counted(name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(counted(query)));
        data
    }

    #[test]
    fn a_client_agrees_on_everything() {
        let mut talk = negotiation(TlsMode::Off);
        let all = contexts("disk", &["x:y", "base:allocation"]);
        assert_eq!(ask(&mut talk, OPT_SET_META_CONTEXT, &all).0, [ERR_INVALID]);
        assert_eq!(ask(&mut talk, OPT_STRUCTURED_REPLY, b"x").0, [ERR_INVALID]);
        assert_eq!(ask(&mut talk, OPT_STRUCTURED_REPLY, &[]).0, [REP_ACK]);
        assert_eq!(ask(&mut talk, OPT_LIST, &[]).0, [REP_SERVER, REP_SERVER, REP_ACK]);
        assert_eq!(ask(&mut talk, 11, &[]).0, [ERR_UNSUP]);
        for queries in [&[][..], &["base:"]] {
            let found = ask(&mut talk, OPT_LIST_META_CONTEXT, &contexts("disk", queries)).0;
            assert_eq!(found, [REP_META_CONTEXT, REP_ACK]);
        }
        assert_eq!(ask(&mut talk, OPT_SET_META_CONTEXT, &all).0, [REP_META_CONTEXT, REP_ACK]);
        assert_eq!(ask(&mut talk, OPT_SET_META_CONTEXT, &contexts("none", &[])).0, [ERR_UNKNOWN]);
        assert_eq!(ask(&mut talk, OPT_INFO, b"\0\0\0\x04disk\0\0").0, [REP_INFO, REP_INFO, REP_ACK]);
        assert_eq!(ask(&mut talk, OPT_GO, b"\0\0\0\x03dis\0\0").0, [ERR_UNKNOWN]);
        for wrong in [&b""[..], b"\0\0\0\x05disk", b"\0\0\0\x04disk\0\x01", b"\0\0\0\x04disk\0\0\0"] {
            assert_eq!(ask(&mut talk, OPT_GO, wrong), (vec![ERR_INVALID], Step::Continue));
        }
        let (kinds, step) = ask(&mut talk, OPT_GO, b"\0\0\0\x04disk\0\x01\0\x01");
        assert_eq!(kinds, [REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
        assert_eq!(step, Step::Transmission(0, Agreed { structured: true, allocation: true }));
        // The last word on contexts counts.
        ask(&mut talk, OPT_SET_META_CONTEXT, &contexts("disk", &["base:"]));
        let step = ask(&mut talk, OPT_GO, b"\0\0\0\x04disk\0\0").1;
        assert_eq!(step, Step::Transmission(0, Agreed { structured: true, allocation: false }));
    }

    /// Metadata contexts of one export do not apply to another.
    #[test]
    fn each_export_for_itself() {
        let mut talk = negotiation(TlsMode::Off);
        let mut out = Vec::new();
        talk.option(OPT_LIST, &[], &mut out);
        assert!(out.windows(9).any(|part| part == b"\0\0\0\x05other"));
        ask(&mut talk, OPT_STRUCTURED_REPLY, &[]);
        ask(&mut talk, OPT_SET_META_CONTEXT, &contexts("disk", &["base:allocation"]));
        let agreed = Agreed { structured: true, allocation: false };
        let other = b"\0\0\0\x05other\0\0";
        assert_eq!(ask(&mut talk, OPT_GO, other).1, Step::Transmission(1, agreed));
        let agreed = Agreed { allocation: true, ..agreed };
        assert_eq!(ask(&mut talk, OPT_GO, b"\0\0\0\x04disk\0\0").1, Step::Transmission(0, agreed));
        let mut out = Vec::new();
        assert!(matches!(talk.option(OPT_EXPORT_NAME, b"other", &mut out), Step::Transmission(1, _)));
        assert_eq!(out[..8], (1u64 << 21).to_be_bytes());
    }

    #[test]
    fn the_old_way_in() {
        for (no_zeroes, len) in [(true, 10), (false, 134)] {
            let mut talk = negotiation(TlsMode::On);
            talk.no_zeroes = no_zeroes;
            let mut out = Vec::new();
            let step = talk.option(OPT_EXPORT_NAME, b"disk", &mut out);
            assert_eq!((step, out.len()), (Step::Transmission(0, Agreed::default()), len));
            assert_eq!(talk.option(OPT_EXPORT_NAME, b"", &mut Vec::new()), Step::Close);
        }
        assert_eq!(ClientHello::from_bytes([0, 0, 0, 4]), None);
        assert_eq!(ClientHello::from_bytes([0, 0, 0, 2]), None);
    }

    #[test]
    fn nothing_is_said_before_tls_where_it_is_required() {
        let mut talk = negotiation(TlsMode::Require);
        for option in [OPT_LIST, OPT_INFO, OPT_GO, OPT_STRUCTURED_REPLY, 77] {
            assert_eq!(ask(&mut talk, option, b"\0\0\0\x04disk\0\0"), (vec![ERR_TLS_REQD], Step::Continue));
        }
        let mut out = Vec::new();
        assert_eq!(talk.option(OPT_EXPORT_NAME, b"disk", &mut out), Step::Close);
        assert!(out.is_empty());
        assert_eq!(ask(&mut talk, OPT_STARTTLS, &[]), (vec![REP_ACK], Step::StartTls));
        talk.secured();
        assert_eq!(ask(&mut talk, OPT_STARTTLS, &[]).0, [ERR_INVALID]);
        assert!(matches!(ask(&mut talk, OPT_GO, b"\0\0\0\x04disk\0\0").1, Step::Transmission(..)));
        assert_eq!(ask(&mut negotiation(TlsMode::Off), OPT_STARTTLS, &[]).0, [ERR_POLICY]);
        assert_eq!(ask(&mut negotiation(TlsMode::Off), OPT_ABORT, &[]), (vec![REP_ACK], Step::Close));
    }

    #[test]
    fn what_was_agreed_before_tls_is_forgotten() {
        let mut talk = negotiation(TlsMode::On);
        ask(&mut talk, OPT_STRUCTURED_REPLY, &[]);
        talk.secured();
        let step = ask(&mut talk, OPT_GO, b"\0\0\0\x04disk\0\0").1;
        assert_eq!(step, Step::Transmission(0, Agreed::default()));
    }
}
