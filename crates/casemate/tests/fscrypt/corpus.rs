//! Images of every mode and flag, made by kernels 6.18 and 7.2.

use std::path::Path;

use casemate_testkit::fixture;

use crate::manifest::Manifest;

pub const IMAGES: [&str; 8] = [
    "v1-cbc-essiv-4k",
    "v1-xts-cts-1k",
    "v2-adiantum-1k",
    "v2-casefold-hctr2-4k",
    "v2-hctr2-lblk-4k",
    "v2-htree-1k",
    "v2-lblk64-4k",
    "v2-xts-cts-1k",
];

pub fn load(name: &str) -> Manifest {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fscrypt/fixtures");
    let manifest = serde_json::from_slice(&fixture(folder.join(format!("{name}.json.xz")))).unwrap();
    Manifest::new(name, fixture(folder.join(format!("{name}.img.xz"))), manifest)
}

#[test]
fn everything_is_as_the_kernel_had_it() {
    for name in IMAGES {
        load(name).check();
    }
}
