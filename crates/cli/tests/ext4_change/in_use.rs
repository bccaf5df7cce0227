//! Images that somebody else uses.

use std::fs;
use std::process::{Command, Stdio};

use crate::{CASEMATE, Place};

#[test]
fn what_is_in_use_or_not_understood_is_left_alone() {
    let Some(place) = Place::new("-O ^metadata_csum") else { return };
    let mut image = fs::read(place.path("image")).unwrap();
    // s_feature_ro_compat: shared_blocks.
    image[1024 + 0x65] |= 0x40;
    fs::write(place.path("image"), image).unwrap();
    place.no("mkdir image /x", 2, "shared_blocks");
    let Some(place) = Place::new("") else { return };
    let image = casemate::blockdev::FileDevice::open_exclusive(place.path("image")).unwrap();
    place.no("mkdir image /x", 2, "in use by another process");
    drop(image);
    place.yes("mkdir image /x");
}

#[test]
fn of_two_writers_one_changes_and_the_other_is_refused() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    for number in 0..300 {
        fs::write(place.path(&format!("tree/a/{number}")), vec![b'x'; 5000]).unwrap();
    }
    let mut refused = 0;
    for _ in 0..10 {
        let names = ["/one", "/two"];
        let both = names.map(|name| {
            let mut command = Command::new(CASEMATE);
            command.args(["ext4", "put", "-r", "--no-progress", "image", "tree", name]);
            command.current_dir(place.folder.path()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let outputs = both.map(|child| child.wait_with_output().unwrap());
        place.assert_clean();
        let mut changed = 0;
        for (name, output) in names.into_iter().zip(outputs) {
            let text = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {
                    place.yes(&format!("cat image {name}/a/299"));
                    place.yes(&format!("rm -r image {name}"));
                    changed += 1;
                }
                Some(2) if text.contains("image: in use by another process") => {
                    place.no(&format!("cat image {name}/a/299"), 2, "no such file");
                    refused += 1;
                }
                _ => panic!("{name}: {text}"),
            }
        }
        assert!(changed > 0);
    }
    // One may have ended before the other began, but not each time.
    assert!(refused > 0);
}

#[test]
fn a_served_or_mounted_image_is_left_alone() {
    let Some(place) = Place::new("") else { return };
    let script = |wrap: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["-m", "--propagation", "slave", "sh", "-c", wrap, CASEMATE])
            .current_dir(place.folder.path());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let mut served = Command::new(CASEMATE);
    served.args(["serve", "image", "--exec", &format!("{CASEMATE} ext4 mkdir image /x")]);
    let output = served.current_dir(place.folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("in use by another process"), "{text}");
    place.no("ls image /x", 2, "no such file");
    fs::create_dir(place.path("top")).unwrap();
    let said = script(
        "mount -o loop image top || { echo no mount; exit; }; \"$0\" ext4 mkdir image /x; echo $?; umount top",
    );
    if said.contains("no mount") {
        return casemate_testkit::skip("no loop mounts here");
    }
    assert!(said.contains("; unmount and detach") && said.contains("2\n"), "{said}");
    place.yes("mkdir image /x");
    place.assert_clean();
}
