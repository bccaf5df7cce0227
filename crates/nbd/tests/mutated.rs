//! Clients' messages, changed at random: nothing panics, everything is answered in the protocol's own form, and a
//! request that passes its check lies within the export. The fuzz target `nbd` looks further; this runs everywhere.

use casemate_nbd::protocol::{
    Agreed, ClientHello, Command, Description, MAX_PAYLOAD, Negotiation, OptionHeader, Request, Step,
    TlsMode, flags,
};
use casemate_testkit::{Rng, slow_tests};

const SIZE: u64 = 1 << 40;

/// How far a session came, and what became of its requests.
#[derive(Debug, Default)]
struct Outcome {
    options: u64,
    transmissions: u64,
    accepted: u64,
    refused: u64,
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &counted(data)].concat()
}

/// A client that uses all that there is.
fn session(rng: &mut Rng) -> Vec<u8> {
    let name = counted(b"disk");
    let contexts = [&name[..], &[0, 0, 0, 2], &counted(b"base:allocation"), &counted(b"qemu:x")].concat();
    let info = [&name[..], &[0, 2, 0, 1, 0, 3]].concat();
    let mut bytes = vec![0, 0, 0, 3];
    // Any of them, in any order; the last one ends in requests.
    let options = [
        option(8, &[]),
        option(3, &[]),
        option(5, &[]),
        option(8, &[]),
        option(9, &contexts),
        option(10, &contexts),
        option(11, &[]),
        option(6, &info),
    ];
    for _ in 0..rng.below(8) {
        bytes.extend(&options[rng.below(options.len() as u64) as usize]);
    }
    bytes.extend(if rng.below(2) == 0 { option(7, &info) } else { option(1, b"disk") });
    for number in 0..rng.below(12) {
        let commands = [
            Command::Read,
            Command::Write,
            Command::Disconnect,
            Command::Flush,
            Command::Trim,
            Command::Cache,
            Command::WriteZeroes,
            Command::BlockStatus,
        ];
        let request = Request {
            command: Ok(commands[rng.below(8) as usize]),
            flags: [0, 0, Request::FUA, Request::DF, Request::NO_HOLE][rng.below(5) as usize],
            cookie: number,
            offset: rng.below(SIZE),
            len: rng.below(1 << 25) as u32,
        };
        bytes.extend(request.to_bytes());
    }
    bytes
}

/// A few changes, as files and networks make them, and as somebody makes them who knows what lengths are for.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.below(6) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        let len = (rng.below(9) as usize).min(bytes.len() - at);
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            2 => drop(bytes.drain(at..at + len)),
            3 => drop(bytes.splice(at..at, rng.bytes(len))),
            4 => bytes[at..at + len].fill(0xff),
            _ => bytes.truncate(at),
        }
    }
}

/// The protocol's own form of answers to an option.
fn check_answers(out: &[u8], option: u32, step: &Step) {
    if option == 1 {
        let len = if matches!(step, Step::Transmission(..)) {
            [10, 134].contains(&out.len())
        } else {
            out.is_empty()
        };
        return assert!(len, "{} bytes", out.len());
    }
    let mut rest = out;
    let mut last = 0;
    while !rest.is_empty() {
        let be32 = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        assert_eq!((&rest[..8], be32(8)), (&0x0003_e889_0455_65a9u64.to_be_bytes()[..], option));
        last = be32(12);
        rest = &rest[20 + be32(16) as usize..];
    }
    assert!(last == 1 || last >> 31 == 1, "an answer ends with an acknowledgement or an error: {last:#x}");
}

fn talk(bytes: &[u8], tls: TlsMode, outcome: &mut Outcome) {
    let Some((hello, mut rest)) = bytes.split_first_chunk() else { return };
    let Some(hello) = ClientHello::from_bytes(*hello) else { return };
    let export =
        flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::SEND_TRIM | flags::SEND_CACHE;
    let export = Description { name: "disk".to_owned(), size: SIZE, flags: export, preferred_block: 4096 };
    let mut talk = Negotiation::new([export.clone()].into(), tls, hello);
    let mut secured = false;
    while let Some((header, after)) = rest.split_first_chunk() {
        let Some(header) = OptionHeader::from_bytes(header) else { return };
        let Some((data, after)) = after.split_at_checked(header.len as usize) else { return };
        rest = after;
        let mut out = Vec::new();
        let step = talk.option(header.option, data, &mut out);
        check_answers(&out, header.option, &step);
        outcome.options += 1;
        match step {
            Step::Continue => assert!(!out.is_empty()),
            Step::StartTls => {
                assert!(tls != TlsMode::Off && !secured);
                secured = true;
                talk.secured();
            }
            Step::Close => return,
            Step::Transmission(number, agreed) => {
                assert_eq!(number, 0);
                assert!(tls != TlsMode::Require || secured, "nothing is served in the clear");
                outcome.transmissions += 1;
                return requests(rest, &export, agreed, outcome);
            }
        }
    }
}

fn requests(bytes: &[u8], export: &Description, agreed: Agreed, outcome: &mut Outcome) {
    assert!(agreed.structured || !agreed.allocation);
    for bytes in bytes.as_chunks().0 {
        let Some(request) = Request::from_bytes(bytes) else { return };
        assert_eq!(request.to_bytes(), *bytes);
        let Ok(command) = request.check(export.size, export.flags, agreed.allocation) else {
            outcome.refused += 1;
            continue;
        };
        outcome.accepted += 1;
        assert_eq!(request.command, Ok(command));
        match command {
            Command::Disconnect | Command::Flush => {}
            Command::WriteZeroes => panic!("it was not offered"),
            Command::Read | Command::Write => assert!(request.len <= MAX_PAYLOAD),
            Command::BlockStatus => assert!(agreed.allocation && request.len > 0),
            Command::Trim | Command::Cache => {}
        }
        if !matches!(command, Command::Disconnect | Command::Flush) {
            assert!(request.offset.checked_add(request.len.into()).is_some_and(|end| end <= export.size));
        }
    }
}

#[test]
fn changed_sessions() {
    let rounds = if slow_tests() { 20_000_000 } else { 300_000 };
    let mut rng = Rng::new(std::process::id().into());
    let (mut right, mut changed) = (Outcome::default(), Outcome::default());
    for round in 0..rounds {
        let tls = [TlsMode::Off, TlsMode::On, TlsMode::Require][round % 3];
        let mut bytes = session(&mut rng);
        if round % 16 == 0 {
            talk(&bytes, tls, &mut right);
        }
        mutate(&mut bytes, &mut rng);
        talk(&bytes, tls, &mut changed);
    }
    // The changes let enough through to reach what comes after.
    assert!(right.transmissions > rounds as u64 / 64 && right.accepted > 0 && right.refused > 0, "{right:?}");
    assert!(changed.transmissions > rounds as u64 / 10, "{changed:?}");
    assert!(changed.accepted > rounds as u64 / 10 && changed.refused > rounds as u64 / 10, "{changed:?}");
}
