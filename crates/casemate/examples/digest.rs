//! Prints the fs-verity digests of files, as `fsverity digest` does: digest FILE...

use std::path::{Path, PathBuf};

use casemate::fsverity::{Parameters, describe_many};
use casemate::{Error, Work};

fn main() -> Result<(), Error> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let work = Work::default();
    // Small files are shared out among the cores; results come in their order.
    describe_many(&files, &Parameters::default(), &work, |results| {
        for (path, described) in results {
            match described.and_then(|descriptor| descriptor.digest(&work.providers)) {
                Ok(digest) => println!("{digest} {}", path.display()),
                Err(error) => eprintln!("{error}"),
            }
        }
        Ok(())
    })
}
