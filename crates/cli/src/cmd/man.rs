//! `casemate man`: manual pages from the same source as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;
use crate::help::{EXIT_STATUS, layers};
use crate::tools::LINKS;

/// Write the manual pages, one for each command.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder to write to, such as /usr/local/share/man/man1; created if missing.
    folder: PathBuf,
}

impl Args {
    pub fn run(self, _context: &Context) -> Result<Answer, Error> {
        let mut command = crate::command();
        command.build();
        let write = || {
            fs::create_dir_all(&self.folder)?;
            write_pages(&command, &self.folder)?;
            for (name, about, text) in [
                ("casemate-layers", "how commands read through partitions, dm-crypt and dm-verity", layers()),
                ("casemate-links", "other tools' names for the command", links()),
            ] {
                let (head, about) = (title(name), roff(&format!("{name} - {about}")));
                let page = format!("{head}.SH NAME\n{about}\n.SH DESCRIPTION\n{}", unfilled(&text));
                fs::write(self.folder.join(format!("{name}.1")), page)?;
            }
            Ok(())
        };
        write().map_err(|error: io::Error| Error::io(self.folder.display(), error))?;
        Ok(Answer::Yes)
    }
}

/// Text about the links, with a line for each.
fn links() -> String {
    let mut text = "\
A link to casemate with one of these names takes the command line of the tool
with that name, and gives its output and exit status:

"
    .to_owned();
    for (name, takes) in LINKS {
        text += &format!("  {name:<16} {takes}\n");
    }
    text
}

/// Definition of the string that clap_mangen writes for an apostrophe.
const QUOTES: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Footer of the pages: the program that made them.
const SOURCE: &str = concat!("casemate ", env!("CARGO_PKG_VERSION"));

/// Writes the page of a command and those of the commands in it.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.1")), page(command, name)?)?;
    let shown = |inner: &&Command| !inner.is_hide_set() && inner.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|inner| write_pages(inner, folder))
}

fn page(command: &Command, name: &str) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut out = Vec::new();
    man.render_name_section(&mut out)?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    write!(out, ".SH SYNOPSIS\n{}", unfilled(usage))?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.get_subcommands().any(|inner| inner.get_name() != "help") {
        man.render_subcommands_section(&mut out)?;
    }
    let help = command.get_after_long_help().or(command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut notes = ".SH NOTES";
    for part in help.split("\n\n").filter(|part| !part.is_empty()) {
        match part.split_once(":\n").filter(|(head, _)| head.starts_with("Example")) {
            Some((_, examples)) => write!(out, ".SH EXAMPLES\n{}", unfilled(examples))?,
            None if EXIT_STATUS.contains(part) => {}
            None => write!(out, "{}\n{}\n", std::mem::replace(&mut notes, ".PP"), roff(part))?,
        }
    }
    let status = EXIT_STATUS.split_once('\n').map_or(EXIT_STATUS, |(_, lines)| lines);
    write!(
        out,
        ".SH EXIT STATUS\n{}.SH SEE ALSO\ncasemate(1), casemate\\-layers(1), casemate\\-links(1)\n",
        unfilled(status)
    )?;
    Ok(format!("{}{}", title(name), tidied(&String::from_utf8_lossy(&out))))
}

/// Beginning of a page. The date is empty, so that the same program always writes the same pages.
fn title(name: &str) -> String {
    format!(".TH {name} 1 \"\" \"{SOURCE}\"\n{QUOTES}")
}

/// Text of clap_mangen without what mandoc complains of: the definition of a quote before each section, breaks beside an
/// empty line, and blanks at the ends of lines.
fn tidied(page: &str) -> String {
    let page = page.replace(QUOTES, "").replace("\n.br\n\n.br\n", "\n.sp\n");
    let page: String = page.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    // The command help has no page.
    match page.split_once("\\-help(1)\n") {
        Some((before, after)) => {
            let before = before.rsplit_once(".TP\n").map_or(before, |(before, _)| before);
            format!("{before}{}", after.split_once('\n').map_or("", |(_, after)| after))
        }
        None => page,
    }
}

/// Lines as they are.
fn unfilled(text: &str) -> String {
    format!(".nf\n{}\n.fi\n", roff(text.trim_end()))
}

/// Text that is nothing but text in roff.
fn roff(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}
