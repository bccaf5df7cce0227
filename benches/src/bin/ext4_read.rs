//! Small files of an ext4 image, opened and read through the library: by path, and by what a folder's entries say. The image
//! has 2000 files in one folder, in the page cache, and is warm.
//!
//! Arguments: the folder for the image [/dev/shm].

use std::path::PathBuf;
use std::process::Command;

use casemate::ext4::{Found, Handful, InodeNo, ReadOptions};
use casemate::{Access, Image, Work};
use casemate_benches::Race;

const FILES: usize = 2000;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".to_owned()));
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("tree/folder")).expect("a folder for the image");
    let paths: Vec<_> = (0..FILES).map(|number| format!("/folder/file-{number:04}")).collect();
    for path in &paths {
        std::fs::write(folder.join("tree").join(&path[1..]), path).expect("a file");
    }
    let image = folder.join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(folder.join("tree")).arg(&image).arg("64M");
    assert!(mke2fs.status().expect("mke2fs").success());

    let work = Work::default();
    let fs = Image::open(&image, Access::Read).expect("the image").ext4(&ReadOptions::default(), &work);
    let fs = fs.expect("a file system");
    let entries = fs.read_dir("/folder").expect("a folder");
    let numbers: Vec<InodeNo> = entries.iter().map(|entry| entry.inode).collect();
    let inode = |number: InodeNo| fs.inode(number).expect("an inode");
    let bytes: usize = paths.iter().map(String::len).sum();
    let mut race = Race::new(format!("{FILES} files of {bytes} bytes"), bytes).items(FILES);
    race.add("open by path", || paths.iter().for_each(|path| drop(fs.open(path).expect("a file"))));
    race.add("open by entry", || {
        numbers.iter().for_each(|number| drop(fs.open_inode(&inode(*number)).expect("a file")));
    });
    race.add("read by path", || {
        paths.iter().for_each(|path| assert_eq!(fs.read(path).expect("a file"), path.as_bytes()));
    });
    race.add("read by entry", || {
        let read = |number: &InodeNo| fs.read_inode(&inode(*number)).expect("a file").len();
        assert_eq!(numbers.iter().map(read).sum::<usize>(), bytes);
    });
    race.add("read_many", || {
        let mut sum = 0;
        fs.read_many(&numbers, &work, |handful| {
            sum += handful.into_iter().map(|(_, contents)| contents.expect("a file").len()).sum::<usize>();
            Ok(())
        })
        .expect("all files");
        assert_eq!(sum, bytes);
    });
    race.add("files", || {
        let (mut sum, mut files) = (0, fs.files(&fs.inodes().root().expect("the root")).expect("a walk"));
        let mut add = |_: &[Found], handful: Handful<'_>| {
            sum += handful.into_iter().map(|(_, contents)| contents.expect("a file").len()).sum::<usize>();
            Ok(())
        };
        while files.read(&work, &mut add).expect("all files") {}
        assert_eq!(sum, bytes);
    });
    race.add("read_dir", || assert_eq!(fs.read_dir("/folder").expect("a folder").len(), FILES));
    race.run();
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}
