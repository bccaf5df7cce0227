//! The commands that README.md and the manual show, run as they are printed; the manual's pages and links.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::{kernel, run, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of all shell blocks of a document, one after the other; those of blocks that mount, where that works.
/// A block in a list is indented as the list is.
fn shell_blocks(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let (mut lines, mut block) = (Vec::new(), None::<(usize, Vec<String>)>);
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match &mut block {
            None if line.trim_start() == "```sh" => block = Some((indent, Vec::new())),
            None => {}
            Some((start, inner)) if line.trim() == "```" && indent == *start => {
                let mounts = inner.iter().any(|line| line.contains("casemate mount"));
                if !mounts || kernel::fuse_works() {
                    lines.append(inner);
                }
                block = None;
            }
            Some((start, inner)) => inner.push(line.get(*start..).unwrap_or_default().to_owned()),
        }
    }
    assert!(block.is_none(), "{document}: a block without an end");
    lines
}

/// Runs lines as one script that stops at the first failure, in an empty folder in which `docs` is this project's.
fn run_lines(lines: &[String]) {
    let folder = tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("docs"), folder.path().join("docs")).unwrap();
    let own = Path::new(CASEMATE).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::iter::once(own).chain(env::split_paths(&path)).chain(system);
    let path: OsString = env::join_paths(places).unwrap();
    let script = format!("set -euo pipefail\n{}\n", lines.join("\n"));
    run(Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .env("HOME", folder.path())
        .current_dir(folder.path()));
}

fn has_tools() -> bool {
    ["mke2fs", "openssl", "qemu-img", "qemu-io"].into_iter().all(|name| tool(name).is_some())
}

/// The pages of the manual in its order, below docs.
fn pages() -> Vec<String> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned());
    links.collect()
}

#[test]
fn commands_of_the_readme_run_as_printed() {
    // What builds the command, and what runs the project's tests, has been done here.
    let lines: Vec<String> =
        shell_blocks("README.md").into_iter().filter(|l| !l.starts_with("cargo ")).collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("casemate ")).count(), 6);
    run_lines(&lines);
}

#[test]
fn all_commands_by_example_run_as_printed() {
    if !has_tools() {
        return;
    }
    let pages = pages().into_iter().filter(|page| page == "commands.md" || page.starts_with("how-to/"));
    let lines: Vec<String> = pages.flat_map(|page| shell_blocks(&format!("docs/{page}"))).collect();
    assert!(lines.len() > 100, "{} lines", lines.len());
    run_lines(&lines);
}

/// A tutorial, or a page of reference with commands, runs alone.
#[test]
fn each_other_page_of_the_manual_runs_as_printed() {
    if !has_tools() {
        return;
    }
    let mut count = 0;
    for page in pages().iter().filter(|page| *page != "commands.md" && !page.starts_with("how-to/")) {
        let lines = shell_blocks(&format!("docs/{page}"));
        if !lines.is_empty() {
            run_lines(&lines);
            count += 1;
        }
    }
    assert!(count >= 5, "{count} pages");
}

/// All documents of the repository, relative to its root.
fn documents() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, found),
                false if path.extension().is_some_and(|end| end == "md") => found.push(path),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("docs"), &mut found);
    for entry in fs::read_dir(root()).unwrap() {
        found.extend(
            Some(entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md")),
        );
    }
    let mut names: Vec<String> =
        found.iter().map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Packages make a link for each name of the command's list, so the page about links has the same names, and the README those that
/// stand for a tool.
#[test]
fn documents_name_every_link() {
    let page = fs::read_to_string(root().join("docs/reference/links.md")).unwrap();
    let (table, _) = page.split_once("```").unwrap();
    let cells =
        table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split(" | ").next());
    let named: BTreeSet<&str> = cells
        .flat_map(|cell| cell.trim_start_matches("| ").split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    let links: BTreeSet<&str> = casemate_cli::LINKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, links);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for name in links.iter().filter(|name| !name.contains('.')) {
        assert!(readme.contains(&format!("`{name}`")), "README.md: {name}");
    }
}

#[test]
fn the_manual_has_every_page_once() {
    let listed = pages();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len());
    let present: BTreeSet<String> =
        documents().iter().filter_map(|name| name.strip_prefix("docs/").map(str::to_owned)).collect();
    let present: BTreeSet<String> = present.into_iter().filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(unique, present);
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    let (mut count, mut faults) = (0, Vec::new());
    for name in documents() {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") || link.starts_with("mailto:") || link.contains(['`', ' ', '\n']) {
                continue;
            }
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let own = root().join(&name);
            let target = if path.is_empty() { own } else { own.parent().unwrap().join(path) };
            match fs::read_to_string(&target) {
                _ if !target.exists() => faults.push(format!("{name}: {link}: no such file")),
                Ok(text) if !anchor.is_empty() && !anchors(&text).contains(anchor) => {
                    faults.push(format!("{name}: {link}: no such heading"));
                }
                _ => {}
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 150, "{count} links");
}

/// The commands that `--help` lists, by groups.
fn listed_commands() -> BTreeSet<String> {
    let help = run(Command::new(CASEMATE).arg("--help"));
    let jobs = help.lines().take_while(|line| *line != "Options:").filter(|line| line.starts_with("  "));
    let names = jobs.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn documents_and_help_know_the_same_commands() {
    let listed = listed_commands();
    assert!(listed.len() >= 7, "{listed:?}");
    let mut shown = BTreeSet::new();
    for document in documents()
        .iter()
        .filter(|name| !["docs/bench", "docs/formats", "ROADMAP"].iter().any(|start| name.starts_with(start)))
    {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let inline = text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("casemate "));
        let scripts = shell_blocks(document);
        let scripts = scripts.iter().flat_map(|line| line.split("casemate ").skip(1));
        for arguments in inline.chain(scripts) {
            let name = arguments.split_whitespace().next().unwrap();
            let is_word = name.starts_with(|first: char| first.is_ascii_lowercase()) && name != "help";
            assert!(!is_word || listed.contains(name), "{document}: casemate {arguments}");
            shown.insert(name.to_owned());
        }
    }
    let unknown: Vec<_> = listed.difference(&shown).collect();
    assert!(unknown.is_empty(), "no document shows {unknown:?}");
}

/// The page of image specifications has every word that there is, and no other.
#[test]
fn the_page_of_image_specifications_has_every_layer_and_option() {
    let page = fs::read_to_string(root().join("docs/reference/image-specification.md")).unwrap();
    for kind in casemate::image_spec::KINDS {
        let names = kind.options.iter().map(|choice| (choice.name, choice.value));
        for (name, value) in names.chain([(kind.name, kind.value)]) {
            let word = match value.trim_matches(['[', ']']) {
                "" => format!("`{name}`"),
                value => format!("`{name}={value}`"),
            };
            assert!(page.contains(&word), "{word}");
        }
    }
    let known: BTreeSet<&str> = casemate::image_spec::KINDS
        .iter()
        .flat_map(|kind| kind.options.iter().map(|choice| choice.name).chain([kind.name, kind.alias]))
        .collect();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    for word in rows.flat_map(|row| row.split('`').skip(1).step_by(2)) {
        let name = word.split(['=', ',']).next().unwrap();
        assert!(
            known.contains(name)
                || ["-", "@FILE", "auto", "ctr-aes", "cbc-aes", "DESCRIPTOR:FILE"].contains(&name),
            "{word}"
        );
    }
}
