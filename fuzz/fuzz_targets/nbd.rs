#![no_main]
//! What an NBD client sends: flags, options, then requests. Nothing panics, and every option is answered.

use casemate_nbd::protocol::{ClientHello, Description, Negotiation, OptionHeader, Request, Step, TlsMode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((hello, mut rest)) = bytes.split_first_chunk() else { return };
    let Some(hello) = ClientHello::from_bytes(*hello) else { return };
    let export = Description { name: "x".to_owned(), size: 1 << 40, flags: 0xffff, preferred_block: 4096 };
    let mode = [TlsMode::Off, TlsMode::On, TlsMode::Require][bytes.len() % 3];
    let mut talk = Negotiation::new([export].into(), mode, hello);
    while let Some((header, after)) = rest.split_first_chunk() {
        let Some(header) = OptionHeader::from_bytes(header) else { return };
        let Some((data, after)) = after.split_at_checked(header.len as usize) else { return };
        rest = after;
        let mut out = Vec::new();
        match talk.option(header.option, data, &mut out) {
            Step::Continue => assert!(!out.is_empty()),
            Step::StartTls => talk.secured(),
            Step::Close => return,
            Step::Transmission(_, agreed) => {
                for request in rest.chunks_exact(Request::LEN) {
                    let request: &[u8; Request::LEN] = request.try_into().expect("that many");
                    let Some(request) = Request::from_bytes(request) else { return };
                    assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
                    let _ = request.check(1 << 40, 0xffff, agreed.allocation);
                }
                return;
            }
        }
    }
});
