//! Kernels of other Debian suites, which mount what casemate makes.

use std::fs;
use std::path::Path;

use crate::install::{fetch_kernel, may_install};
use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};

/// Suites whose newest kernels are tried, beside that of the machine's own suite.
const SUITES: [&str; 3] = ["bookworm-backports", "trixie", "sid"];

/// Boots each suite's kernel in QEMU and has it mount, read and write images and volumes of many kinds.
pub fn kernels(report: &mut Report) -> Outcome {
    for suite in SUITES {
        let folder = root().join("target/kernels").join(suite);
        if !may_install() && !folder.exists() {
            report.skip(&format!("the kernel of {suite}: not root on a Debian system"))?;
            continue;
        }
        if !fetch_kernel(&folder, &apt_options(suite)?)? {
            report.skip(&format!("{suite} has no kernel for this machine"))?;
            continue;
        }
        let version = fs::read_dir(folder.join("lib/modules")).ok().and_then(|mut names| names.next()?.ok());
        println!(
            "{suite}: {}",
            version.map(|entry| entry.file_name().to_string_lossy().into_owned()).unwrap_or_default()
        );
        // Of the whole workspace, as `native` builds it; the other programs of this name run User-Mode-Linux.
        let test = cargo(["test", "--workspace", "--test", "kernel", "--", "a_stock_kernel", "kernels_read"]);
        test.env("CASEMATE_TEST_KERNEL", &folder).run_tests(report)?;
    }
    Ok(())
}

/// Options that let apt know packages of `suite` alone, from the machine's own mirror, and leave the machine's lists as they are.
fn apt_options(suite: &str) -> Result<Vec<String>, String> {
    let folder = root().join("target/kernels/apt").join(suite);
    for name in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(name)).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mirror = mirror().ok_or("apt's sources name no Debian mirror")?;
    let list = folder.join("sources.list");
    let key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
    fs::write(&list, format!("deb [{key}] {mirror} {suite} main\n"))
        .map_err(|error| format!("{}: {error}", list.display()))?;
    let option = |name: &str, path: &Path| format!("-oDir::{name}={}", path.display());
    let options = vec![
        option("Etc::SourceList", &list),
        "-oDir::Etc::SourceParts=-".to_owned(),
        option("State::Lists", &folder.join("lists")),
        option("Cache", &folder.join("cache")),
    ];
    step("apt-get", ["--quiet=2", "update"]).args(&options).run()?;
    Ok(options)
}

/// The mirror that the machine's own packages come from.
fn mirror() -> Option<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let texts =
        parts.chain(["/etc/apt/sources.list".into()]).filter_map(|path| fs::read_to_string(path).ok());
    let words: Vec<String> =
        texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    words.into_iter().find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"))
}
