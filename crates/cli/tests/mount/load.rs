//! Programs that write at random and look at what they wrote: fio.

use std::fs;
use std::process::Command;

use casemate_testkit::{mke2fs, run, slow_tests, tool};

use super::Folders;

/// Jobs of fio: each writes its own file and reads it again, with the checksums that it wrote into it; through the kernel's
/// pages, past them, and through maps of memory.
const JOBS: &str = "
[global]
directory=own
size=4m
verify=crc32c
verify_fatal=1
verify_dump=0
randrepeat=1
bsrange=512-64k
bs_unaligned=1
end_fsync=1
group_reporting=1
[random]
rw=randwrite
ioengine=psync
numjobs=2
[overwritten]
rw=randwrite
norandommap=1
bsrange=4k-4k
bs_unaligned=0
ioengine=libaio
iodepth=16
verify_backlog=64
[direct]
rw=randwrite
direct=1
bsrange=4k-32k
bs_unaligned=0
blockalign=4k
ioengine=libaio
iodepth=8
[mapped]
rw=randwrite
ioengine=mmap
bsrange=4k-16k
bs_unaligned=0
[allocated]
rw=write
fallocate=posix
ioengine=psync
";

#[test]
fn fio_reads_what_it_wrote() {
    let (Some(mke2fs), Some(_), Some(folders)) = (tool("mke2fs"), tool("fio"), Folders::new()) else {
        return;
    };
    folders.file("jobs.fio", JOBS);
    let kinds: &[&str] = if slow_tests() { &["-b 1024", "-b 4096", "-O bigalloc"] } else { &["-b 4096"] };
    for kind in kinds {
        mke2fs::make(&mke2fs, &format!("-t ext4 {kind}"), &folders.path("root.img"), "128M");
        folders.mount("--write root.img", "own");
        let fio = format!(
            "fio --loops={} jobs.fio > fio.log 2>&1 || {{ cat fio.log; false; }}",
            if slow_tests() { 20 } else { 1 }
        );
        folders.sh(&fio);
        // What is in the image is what was verified.
        folders.sh("cd own; sha256sum * > ../sums || true");
        folders.unmount("own");
        folders.yes("ext4 check root.img");
        fs::remove_dir_all(folders.path("copy")).ok();
        folders.yes("ext4 extract --no-progress root.img copy");
        folders.sh("rm -r copy/lost+found; cd copy; sha256sum * | diff - <(grep -v lost+found ../sums)");
        if let Some(e2fsck) = tool("e2fsck") {
            run(Command::new(e2fsck).arg("-fn").arg(folders.path("root.img")));
        }
    }
}
