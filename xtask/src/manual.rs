//! The manual as a book: `docs`, with a page for each command, by mdBook.
//!
//! That pages are listed, links lead somewhere and commands run is tested with the command (`documents.rs`), without mdBook:
//! building it takes minutes.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};

const VERSION: &str = "0.5.4";

/// Builds the book into `target/manual`.
pub fn manual(_: &mut Report) -> Outcome {
    let mdbook = mdbook()?;
    cargo(["build", "--quiet", "--workspace", "--bin", "casemate"]).run()?;
    let folder = root().join("target/manual-source");
    let _ = fs::remove_dir_all(&folder);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    copy(&root().join("docs"), &folder.join("docs"), Path::new("docs")).map_err(failed)?;
    fs::copy(root().join("book.toml"), folder.join("book.toml")).map_err(failed)?;
    add_commands(&folder.join("docs"))?;
    let target = root().join("target/manual");
    let command = step(mdbook, ["build", "--dest-dir"]).args(&[&target.to_string_lossy()]);
    command.folder(&folder).run()?;
    println!("{}", target.join("index.html").display());
    Ok(())
}

/// The path of mdBook: the one that is installed, or one that is built into `target/tools`.
fn mdbook() -> Result<PathBuf, String> {
    if Command::new("mdbook").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok("mdbook".into());
    }
    let tools = root().join("target/tools");
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        let install = cargo(["install", "--quiet", "--locked", "mdbook", "--version", VERSION, "--root"]);
        install.args(&[&tools.to_string_lossy()]).run()?;
    }
    Ok(program)
}

/// Copies a folder of pages; links to files that are not pages of the book become their names.
fn copy(from: &Path, to: &Path, name: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (own, target) = (name.join(entry.file_name()), to.join(entry.file_name()));
        if entry.path().is_dir() {
            copy(&entry.path(), &target, &own)?;
        } else if own.extension().is_some_and(|end| end == "md") {
            let page = without_outside(&fs::read_to_string(entry.path())?, name);
            // In the book README.md is a folder's index; the summary has the names of files.
            let is_summary = own.ends_with("SUMMARY.md");
            let page = if is_summary { page } else { page.replace("/README.md)", "/index.md)") };
            fs::write(target, page)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A page in `folder` whose links that leave the book are text.
fn without_outside(text: &str, folder: &Path) -> String {
    let depth = folder.components().count();
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let end = after.find(')').unwrap_or(after.len() - 1);
        let link = &after[2..end];
        let ups = link.split('/').take_while(|part| *part == "..").count();
        match before.rfind('[') {
            Some(start) if ups >= depth => {
                let label = &before[start + 1..];
                let _ = write!(out, "{}{label}", &before[..start]);
            }
            _ => out.push_str(&rest[..at + end + 1]),
        }
        rest = &after[end + 1..];
    }
    out + rest
}

/// Writes a page for each command, as its manual page names it, and lists it in the summary.
fn add_commands(docs: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", docs.display());
    let casemate = root().join("target/debug/casemate").to_string_lossy().into_owned();
    let pages = docs.join("reference/man");
    step(&casemate, ["man"]).args(&[&pages.to_string_lossy()]).run()?;
    let mut commands = Vec::new();
    for entry in fs::read_dir(&pages).map_err(failed)? {
        let page = fs::read_to_string(entry.map_err(failed)?.path()).map_err(failed)?;
        // casemate-layers has none.
        if let Some((_, usage)) = page.split_once(".SH SYNOPSIS\n.nf\n") {
            let line = usage.lines().next().unwrap_or_default().replace("\\-", "-");
            let words = line.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
            commands.push(words.map(str::to_owned).collect::<Vec<_>>());
        }
    }
    fs::remove_dir_all(&pages).map_err(failed)?;
    commands.sort();
    let mut list = String::new();
    // The help of fleet is Python's, and fleet has a page.
    for words in commands.iter().filter(|words| words.len() > 1 && words[1] != "fleet") {
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).chain(["--help"]).collect();
        let help = step(&casemate, []).args(&arguments).output()?;
        let (title, name) = (words.join(" "), words.join("-"));
        let page = format!("# {title}\n\n```text\n{}\n```\n", help.trim_end());
        fs::write(docs.join(format!("reference/{name}.md")), page).map_err(failed)?;
        let indent = "  ".repeat(words.len() - 1);
        let _ = writeln!(list, "{indent}- [{title}](reference/{name}.md)");
    }
    let path = docs.join("SUMMARY.md");
    let summary = fs::read_to_string(&path).map_err(failed)?;
    let line = "- [Commands](reference/commands.md)\n";
    fs::write(&path, summary.replace(line, &format!("{line}{list}"))).map_err(failed)
}
