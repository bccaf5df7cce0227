//! Hash areas and parity over plain media: made, checked, repaired and brought up to date.

use std::sync::Arc;

use casemate_blockdev::MemoryDevice;
use casemate_testkit::Rng;
use casemate_verity::dm::{Fec, FormatOptions, Salt, Volume};
use casemate_verity::{ErrorKind, Medium, Work, refuse};

fn medium(bytes: Vec<u8>) -> Medium {
    Medium::over("disk", Arc::new(MemoryDevice::new(bytes)))
}

fn is_clean(volume: &Volume, root_hash: &[u8]) -> bool {
    volume.verify(root_hash, &Work::default(), &mut |_| Ok(())).unwrap().is_clean()
}

#[test]
fn damage_is_found_and_repaired_and_changes_are_followed() {
    let work = Work::default();
    let data = medium(Rng::new(1).bytes(64 * 4096));
    // The size of parity tells how many roots it has.
    let (hash, parity) = (medium(vec![0; 1 << 16]), medium(vec![0; 2 * 4096]));
    let mut options = FormatOptions::default();
    options.area.fec = Some(Fec::new(parity));
    let old = options.format(&data, &hash, &refuse, &work).unwrap().root_hash;
    let volume = Volume::read(&data, &hash, &options.area).unwrap();
    assert!(is_clean(&volume, &old) && volume.check_parity(&work).unwrap().is_empty());

    data.write_at(&[1; 100], 5000).unwrap();
    let opened = volume.open(&old, &work.providers).unwrap().laid_on(data.clone());
    assert!(opened.top().read_at(&mut [0; 10], 5000).is_err());
    opened.top().read_at(&mut [0; 10], 0).unwrap();
    assert!(opened.write_at(&[1], 0).unwrap_err().to_string().contains("can't be changed"));
    let tried = volume.try_repair(&old, &work).unwrap();
    assert!(tried.repaired.data.contains(1) && tried.changed_bytes > 0 && !is_clean(&volume, &old));
    assert_eq!(volume.repair(&old, &work).unwrap().data.count(), 1);
    assert!(is_clean(&volume, &old));

    data.write_at(&[2; 100], 5000).unwrap();
    let changed = volume.blocks_of(&std::iter::once(5000..5100).collect());
    let new = volume.update(&changed, Some(&old), &work).unwrap();
    assert!(new != old && is_clean(&volume, &new) && volume.check_parity(&work).unwrap().is_empty());
    let error = volume.open(&old, &work.providers).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
}

#[test]
fn nothing_is_lost_without_consent() {
    let work = Work::default();
    let (data, hash) = (medium(vec![7; 4 * 4096]), medium(vec![7; 1 << 16]));
    let mut options = FormatOptions::default();
    let error = options.format(&data, &hash, &refuse, &work).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let mut byte = [0];
    hash.top().read_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [7]);
    options.overwrite = true;
    options.format(&data, &hash, &refuse, &work).unwrap();
    // A hash area takes the place of another one.
    options.overwrite = false;
    options.area.salt = Some(Salt::from_text("abcd").unwrap());
    let root_hash = options.format(&data, &hash, &refuse, &work).unwrap().root_hash;
    assert!(is_clean(&Volume::read(&data, &hash, &options.area).unwrap(), &root_hash));
    options.area.data_blocks = Some(3);
    let error = Volume::read(&data, &hash, &options.area).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
}
