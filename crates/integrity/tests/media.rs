//! Volumes over plain media: made, checked, copied, written.

use std::sync::Arc;

use casemate_blockdev::MemoryDevice;
use casemate_blockdev::target::{Made, refuse};
use casemate_integrity::{ErrorKind, FormatOptions, IntegrityOptions, Medium, Target, Volume, Work};
use casemate_testkit::Rng;

#[test]
fn a_volume_is_copied_unless_a_tag_does_not_fit() {
    let (work, options) = (Work::default(), IntegrityOptions::default());
    let disk = Medium::over("disk", Arc::new(MemoryDevice::new(vec![0; 4 << 20])));
    let target = Target::on(disk.clone(), Made::Data, &refuse).unwrap();
    let data = Rng::new(1).bytes(2 << 20);
    options.format(&target, &FormatOptions::new(4, [7; 16]), Some(&mut &data[..]), &work).unwrap();
    let open = || Volume::open(&disk, None, &options, &work.providers).unwrap();
    let volume = open();
    let mut stream = Vec::new();
    assert_eq!(volume.extract_stream(("copy", &mut stream), &work).unwrap(), 0);
    let (start, rest) = stream.split_at(data.len());
    assert!(start == data && rest.iter().all(|byte| *byte == 0));
    let copy = MemoryDevice::new(vec![1; volume.size() as usize]);
    assert_eq!(volume.copy_to(&copy, &work).unwrap(), 0);
    assert!(copy.into_bytes() == stream);

    disk.write_at(&[!data[1000]], volume.superblock().layout(false).unwrap().data(1) + 488).unwrap();
    let volume = open();
    let report = volume.verify(&work).unwrap();
    assert_eq!((report.wrong, &report.wrong_blocks[0]), (1, &(1..2)));
    let error = volume.extract_stream(("copy", &mut Vec::new()), &work).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().starts_with("disk: "), "{error}");
    let medium = volume.medium();
    assert!(medium.top().read_at(&mut [0; 1], 1000).is_err());
    medium.write_at(&data[512..1024], 512).unwrap();
    medium.top().flush().unwrap();
    drop(medium);
    assert_eq!(open().verify(&work).unwrap().wrong, 0);
}
