//! The page that `casemate info --html` draws: one file, without scripts and without anything from elsewhere.

use std::fmt::Write as _;

use casemate::blockdev::u32_of;
use casemate::probe::{self, Found};

use super::{Place, commands, name};
use crate::size::shown;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1f24;background:#fff}\
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:0 0 .3rem}\
.row{position:relative;height:3.2rem;margin:.3rem 0;background:repeating-linear-gradient(45deg,#f3f4f6,#f3f4f6 6px,#e9ebee 6px,#e9ebee 12px);border-radius:4px}\
.part{position:absolute;top:0;bottom:0;min-width:3px;box-sizing:border-box;border:1px solid #fff;border-radius:4px;overflow:hidden;color:#fff;white-space:nowrap}\
.part span{position:relative;padding:.2rem .4rem;display:block;font-size:.8rem;text-overflow:ellipsis;overflow:hidden}\
.full{position:absolute;left:0;bottom:0;height:30%;background:rgba(0,0,0,.35)}\
.plain{background:#3b6ea5}.crypt{background:#7b4ea3}.hash{background:#2e8555}.table{background:#69737d}.unknown{background:#9a6700}\
.damaged{outline:3px solid #cf222e;outline-offset:-3px}\
article{border:1px solid #d8dee4;border-left-width:6px;border-radius:6px;padding:.7rem 1rem;margin:.8rem 0}\
article.plain{background:none;border-left-color:#3b6ea5}article.crypt{background:none;border-left-color:#7b4ea3}\
article.hash{background:none;border-left-color:#2e8555}article.table{background:none;border-left-color:#69737d}\
article.unknown{background:none;border-left-color:#9a6700}article.damaged{outline:none;border-color:#cf222e}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.3rem 0}dt{color:#57606a}dd{margin:0;overflow-wrap:anywhere}\
.bad{color:#cf222e;font-weight:600}code{display:block;background:#f6f8fa;padding:.25rem .5rem;border-radius:4px;margin:.2rem 0;overflow-x:auto}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.row{background:#21262d}code{background:#161b22}article{border-color:#30363d}dt{color:#8b949e}}";

/// The page.
pub fn html(title: &str, found: &Found, place: &Place) -> String {
    let mut bars = String::new();
    let mut level = vec![found];
    while !level.is_empty() {
        bars.push_str("<div class=\"row\">");
        level.iter().for_each(|part| bars.push_str(&bar(part, found)));
        bars.push_str("</div>\n");
        level = level.iter().flat_map(|part| &part.inside).collect();
    }
    let mut articles = String::new();
    let mut stack = vec![found];
    while let Some(part) = stack.pop() {
        articles.push_str(&article(part, place));
        stack.extend(part.inside.iter().rev());
    }
    let (title, size) = (escaped(title), shown(found.len));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}: {} bytes ({size})</h1>\n\
         <p>To scale, from the first byte to the last; dark at the foot: in use; framed in red: damaged.</p>\n\
         {bars}{articles}</html>\n",
        found.len
    )
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
    let percent = |bytes: u64| percent(bytes, whole.len);
    let full = part.used.map_or_else(String::new, |used| {
        format!("<i class=\"full\" style=\"width:{:.3}%\"></i>", self::percent(used, part.len).min(100.0))
    });
    // What lies behind the end of a disk that is cut off stands at its edge.
    let left = percent(part.start.saturating_sub(whole.start)).min(EDGE);
    let width = percent(part.len).min(100.0 - left);
    let (class, title, size) = (class(part), escaped(&title(part)), shown(part.len));
    format!(
        "<div class=\"part {class}\" style=\"left:{left:.4}%;width:{width:.4}%\" title=\"{title}\">{full}\
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
    row("at byte", part.start.to_string());
    row("size", format!("{} bytes ({})", part.len, shown(part.len)));
    for (key, value) in &part.facts {
        row(key, value.clone());
    }
    if let Some(used) = part.used {
        row(
            "in use",
            format!("{used} bytes ({}), {}%", shown(used), used.saturating_mul(100) / part.len.max(1)),
        );
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

/// Text that is nothing but text in HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
