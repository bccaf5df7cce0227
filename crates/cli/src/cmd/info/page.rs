//! The page that `casemate info --html` draws: one file, without scripts and without anything from elsewhere.

use std::fmt::Write as _;

use casemate::blockdev::u32_of;
use casemate::probe::{self, Found};

use super::{Place, commands, name};
use crate::calendar::utc;
use crate::size::{grouped, shown};
use crate::streams::visible;

/// Commands that the summary names.
const MOST_COMMANDS: usize = 8;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;background:#fff}\
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:0 0 .3rem}\
.row{position:relative;height:3.2rem;margin:.3rem 0;background:repeating-linear-gradient(45deg,#f3f4f6,#f3f4f6 6px,#e9ebee 6px,#e9ebee 12px);border-radius:4px}\
.part{position:absolute;top:0;bottom:0;min-width:3px;box-sizing:border-box;border:1px solid #fff;border-radius:4px;overflow:hidden;color:#fff;white-space:nowrap}\
.part span{position:relative;padding:.2rem .4rem;display:block;font-size:.8rem;text-overflow:ellipsis;overflow:hidden}\
.gone{position:absolute;right:0;top:0;bottom:0;background:repeating-linear-gradient(45deg,#cf222e,#cf222e 4px,#f3f4f6 4px,#f3f4f6 10px)}\
.summary{border:1px solid #d8dee4;border-radius:6px;padding:.7rem 1rem;margin:1rem 0}.summary ul{margin:0;padding-left:1.1rem}\
.sub{color:#57606a;overflow-wrap:anywhere}\
.full{position:absolute;left:0;bottom:0;height:30%;background:rgba(0,0,0,.35)}\
.plain{background:#3b6ea5}.crypt{background:#7b4ea3}.hash{background:#2e8555}.table{background:#69737d}.unknown{background:#9a6700}\
.damaged{outline:3px solid #cf222e;outline-offset:-3px}\
article{border:1px solid #d8dee4;border-left-width:6px;border-radius:6px;padding:.7rem 1rem;margin:.8rem 0}\
article.plain{background:none;border-left-color:#3b6ea5}article.crypt{background:none;border-left-color:#7b4ea3}\
article.hash{background:none;border-left-color:#2e8555}article.table{background:none;border-left-color:#69737d}\
article.unknown{background:none;border-left-color:#9a6700}article.damaged{outline:none;border-color:#cf222e}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.3rem 0}dt{color:#57606a}dd{margin:0;overflow-wrap:anywhere}\
.bad{color:#cf222e;font-weight:600}code{display:block;background:#f6f8fa;padding:.25rem .5rem;border-radius:4px;margin:.2rem 0;overflow-x:auto}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.row{background:#21262d}code{background:#161b22}article,.summary{border-color:#30363d}dt,.sub{color:#8b949e}.bad{color:#ff7b72}}\
@media print{article,.summary,.row{break-inside:avoid}body{margin:0}*{print-color-adjust:exact}}";

/// The image as a whole, for the head of the page.
#[derive(Clone, Copy)]
pub struct Heading<'a> {
    /// Name of the image.
    pub title: &'a str,
    /// When the page is made, in seconds since 1970.
    pub time: u64,
    /// The image's SHA-256 in hexadecimal, if it was asked for.
    pub digest: Option<&'a str>,
}

/// The page.
pub fn html(heading: Heading<'_>, found: &Found, place: &Place) -> String {
    let mut bars = String::new();
    let mut level = vec![found];
    while !level.is_empty() {
        bars.push_str("<div class=\"row\">");
        level.iter().for_each(|part| bars.push_str(&bar(part, found)));
        bars.push_str("</div>\n");
        level = level.iter().flat_map(|part| &part.inside).collect();
    }
    let all = all(found);
    let articles: String = all.iter().map(|part| article(part, place)).collect();
    let (title, size) = (escaped(heading.title), sized(found.len));
    let digest = heading.digest.map_or_else(String::new, |digest| format!("<br>SHA-256 {digest}"));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n<p class=\"sub\">{size}<br>casemate {}, {}{digest}</p>\n{}\
         <p>To scale, from the first byte to the last; dark at the foot: in use; framed in red: damaged; red stripes: cut off.</p>\n\
         {bars}{articles}</html>\n",
        env!("CARGO_PKG_VERSION"),
        utc(heading.time),
        summary(&all, place),
    )
}

/// Everything that was found, each before what is inside it.
fn all(found: &Found) -> Vec<&Found> {
    let (mut all, mut stack) = (Vec::new(), vec![found]);
    while let Some(part) = stack.pop() {
        all.push(part);
        stack.extend(part.inside.iter().rev());
    }
    all
}

/// Answers to the first questions: what it is, what protects it, what is wrong, what to do.
fn summary(all: &[&Found], place: &Place) -> String {
    let line = |part: &Found, text: &str| match part.partition {
        Some(number) => format!("partition {number}: {text}"),
        None => text.to_owned(),
    };
    let contents = all
        .iter()
        .map(|part| line(part, &format!("{}, {}", name(part), shown(part.full.unwrap_or(part.len)))));
    let protection = all.iter().filter_map(|part| Some(line(part, &protection(part)?)));
    let damage = all.iter().flat_map(|part| part.damage.iter().map(|damage| line(part, damage)));
    let damage: Vec<String> = damage.collect();
    let (class, damage) = match damage.is_empty() {
        true => ("", vec!["nothing was seen; nothing was verified: the commands below do that".to_owned()]),
        false => (" class=\"bad\"", damage),
    };
    let protection: Vec<String> = protection.collect();
    let protection = match protection.is_empty() {
        true => vec!["nothing that was found: neither encryption nor a hash tree".to_owned()],
        false => protection,
    };
    let items = |lines: &[String]| match lines {
        [line] => escaped(line),
        lines => {
            let items: String = lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
            format!("<ul>{items}</ul>")
        }
    };
    let told: Vec<String> = all.iter().flat_map(|part| commands(part, place)).collect();
    let mut advice: String =
        told.iter().take(MOST_COMMANDS).map(|command| format!("<code>{}</code>", escaped(command))).collect();
    if told.len() > MOST_COMMANDS {
        write!(advice, "{} more are below", told.len() - MOST_COMMANDS).expect("writing to a string");
    }
    if all.iter().any(|part| part.full.is_some()) {
        advice.insert_str(0, "The image is shorter than what it holds. If it is a copy, copy it again, before anything is repaired.");
    }
    if advice.is_empty() {
        advice.push_str("casemate info --scan searches all of the image.");
    }
    format!(
        "<section class=\"summary\"><dl>\
         <dt>What it is</dt><dd>{}</dd><dt>What protects it</dt><dd>{}</dd>\
         <dt>What is wrong</dt><dd{class}>{}</dd><dt>What to do</dt><dd>{advice}</dd></dl></section>\n",
        items(&contents.collect::<Vec<_>>()),
        items(&protection),
        items(&damage),
    )
}

/// Protection that something found gives what is in it.
fn protection(part: &Found) -> Option<String> {
    let cipher = part.fact("cipher").map_or_else(String::new, |cipher| format!(" by {cipher}"));
    match part.what {
        Some(probe::LUKS) => {
            Some(format!("encryption{cipher} (LUKS{})", part.fact("version").unwrap_or_default()))
        }
        Some("a BitLocker header") => Some("encryption (BitLocker)".to_owned()),
        Some(probe::VERITY) => Some("a hash tree of dm-verity, for those who know the root hash".to_owned()),
        Some(probe::INTEGRITY) => Some("tags of dm-integrity".to_owned()),
        Some(probe::EXT) => part.fact("features").map(str::to_owned),
        _ => None,
    }
}

/// A number of bytes in full and rounded.
fn sized(bytes: u64) -> String {
    format!("{} bytes ({})", grouped(bytes), shown(bytes))
}

/// The colour of what protects it.
fn class(found: &Found) -> String {
    let class = match found.what {
        Some(probe::LUKS | "a BitLocker header") => "crypt",
        Some(probe::VERITY | "a dm-integrity superblock") => "hash",
        Some(probe::GPT | probe::MBR) => "table",
        None => "unknown",
        Some(_) => "plain",
    };
    let damaged = if found.damage.is_empty() { "" } else { " damaged" };
    format!("{class}{damaged}")
}

/// Where what has no room stands at last, in percent: it is as wide as the rest.
const EDGE: f64 = 99.5;

fn bar(part: &Found, whole: &Found) -> String {
    let percent = |bytes: u64| percent(bytes, whole.full.unwrap_or(whole.len));
    let full = part.used.map_or_else(String::new, |used| {
        format!("<i class=\"full\" style=\"width:{:.3}%\"></i>", self::percent(used, part.len).min(100.0))
    });
    // What lies behind the end of a disk that is cut off, and says not how long it was, stands at its edge.
    let left = percent(part.start.saturating_sub(whole.start)).min(EDGE);
    let len = part.full.unwrap_or(part.len);
    let width = percent(len).min(100.0 - left);
    let gone = match len.saturating_sub(part.len) {
        0 => String::new(),
        gone => format!("<i class=\"gone\" style=\"width:{:.3}%\"></i>", self::percent(gone, len)),
    };
    let (class, title, size) = (class(part), escaped(&title(part)), shown(len));
    format!(
        "<div class=\"part {class}\" style=\"left:{left:.4}%;width:{width:.4}%\" title=\"{title}\">{full}{gone}\
         <span>{title}<br>{size}</span></div>"
    )
}

/// Part of a whole in percent, to four digits behind the point.
fn percent(part: u64, whole: u64) -> f64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    f64::from(u32_of((part * 1_000_000 + whole / 2) / whole)) / 10_000.0
}

fn title(part: &Found) -> String {
    match part.partition {
        Some(number) => format!("{number}: {}", name(part)),
        None => name(part),
    }
}

fn article(part: &Found, place: &Place) -> String {
    let mut text = format!("<article class=\"{}\"><h2>{}</h2><dl>", class(part), escaped(&title(part)));
    let mut row = |key: &str, value: String| {
        write!(text, "<dt>{}</dt><dd>{}</dd>", escaped(key), escaped(&value)).expect("writing to a string");
    };
    row("at byte", grouped(part.start));
    row("size", sized(part.len));
    if let Some(full) = part.full {
        row("size before it was cut off", sized(full));
    }
    for (key, value) in &part.facts {
        row(key, value.clone());
    }
    if let Some(used) = part.used {
        row("in use", format!("{}, {}%", sized(used), used.saturating_mul(100) / part.len.max(1)));
    }
    text.push_str("</dl>");
    for damage in &part.damage {
        write!(text, "<p class=\"bad\">damaged: {}</p>", escaped(damage)).expect("writing to a string");
    }
    for stale in &part.stale {
        write!(text, "<p>{}</p>", escaped(&super::stale(stale))).expect("writing to a string");
    }
    for command in commands(part, place) {
        write!(text, "<code>{}</code>", escaped(&command)).expect("writing to a string");
    }
    text + "</article>\n"
}

/// Text that is nothing but text in HTML, and steers neither a terminal nor the order of what stands beside it.
fn escaped(text: &str) -> String {
    let text = visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
