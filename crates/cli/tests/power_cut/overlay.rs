//! Overlays that are committed to their images.

use std::fs;

use casemate::blockdev::BlockDevice;
use casemate::{Access, Image, Providers, Work};
use casemate_testkit::Rng;
use casemate_testkit::power::{Files, State, write_folder};

use crate::{Judge, Outcome, Session, retry, scratch};

/// Judges that the command, run again, completes the commit; until then the image may be anything between, and the
/// overlay is not to be used.
fn judge<'a>(before: &Files, after: &Files) -> Judge<'a> {
    let [before, after] = [before, after].map(|files| files["image"].clone());
    let place = scratch();
    Box::new(move |_, State { files, .. }: &State| {
        // These are copies, with times of modification of their own.
        write_folder(place.path(), files);
        let (image, overlay) = (place.path().join("image"), place.path().join("overlay"));
        let is_after = files["image"] == after;
        let shown =
            retry(|| Image::open(&image, Access::Read)?.overlay_on_trust(&overlay, &Providers::default()));
        let is_usable = shown.is_ok();
        if let Ok(shown) = shown {
            let mut bytes = vec![0; after.len()];
            shown.device().read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
            if bytes != after {
                return Err("what is seen through the overlay is something else".to_owned());
            }
        }
        retry(|| Image::open(&image, Access::Change)?.commit_overlay_on_trust(&overlay, &Work::default()))?;
        if fs::read(&image).unwrap() != after {
            return Err("committed again, and the image is something else".to_owned());
        }
        retry(|| Image::open(&image, Access::Read)?.overlay_on_trust(&overlay, &Providers::default()))?;
        Ok(match (files["image"] == before, is_after) {
            (true, _) => Outcome::Before,
            (_, true) if is_usable => Outcome::After,
            _ => Outcome::Between,
        })
    })
}

#[test]
fn an_overlay_is_committed_at_any_moment() {
    let mut session = Session::new("overlay commit");
    let mut rng = Rng::new(6);
    let image = session.path().join("image");
    fs::write(&image, rng.bytes((2 << 20) + 700)).unwrap();
    {
        let image = Image::open(&image, Access::Read).unwrap();
        let over = image.overlay(&session.path().join("overlay"), &Providers::default()).unwrap();
        // Among the samples that tell images apart, and elsewhere.
        for (at, len) in [(0, 5000), (1 << 20, 20_000), (1_500_000, 3), ((2 << 20) - 100, 800)] {
            over.device().write_at(&rng.bytes(len), at).unwrap();
        }
        over.device().flush().unwrap();
    }
    let line = "overlay commit overlay image";
    if !session.cut(150, line, line, judge) {
        return;
    }
    session.end(100);
}
