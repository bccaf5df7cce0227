//! Circles of files of one crate: each of them imports all others, at once or by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{files_in, without_comments};

/// The circles of a crate's files, by the modules' names. A file imports what it names behind `use`, `crate::` and `super::`. What a
/// module exports of another one is that one's: a list of exports imports nothing. Unit tests may name any.
pub fn of(source: &Path) -> Vec<String> {
    let modules = Modules::read(source);
    let arrows = modules.0.keys().map(|module| (&**module, modules.arrows(module))).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        modules.0.keys().map(|module| (&**module, reach(&arrows, module))).collect();
    let circle = |module: &&str| -> Vec<&str> {
        reached[module].iter().copied().filter(|other| reached[other].contains(module)).collect()
    };
    let circles = reached.keys().map(circle).filter(|circle| circle.len() > 1);
    circles.map(|circle| circle.join(", ")).collect::<BTreeSet<_>>().into_iter().collect()
}

/// All modules that one leads to.
fn reach<'a>(arrows: &'a BTreeMap<&'a str, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(arrows[module].iter().map(String::as_str).filter(|other| found.insert(*other)));
    }
    found
}

/// The modules of a crate by their paths, the crate's own empty.
struct Modules(BTreeMap<String, Module>);

struct Module {
    /// Paths that it names, but for those that it exports.
    named: Vec<String>,
    /// Names that it exports, each with its path.
    exported: BTreeMap<String, String>,
}

impl Modules {
    fn read(source: &Path) -> Modules {
        let mut modules = BTreeMap::new();
        for file in files_in(source).into_iter().filter(|file| !file.ends_with("tests.rs")) {
            let path = file.strip_prefix(source).unwrap().with_extension("");
            let mut names: Vec<_> = path.iter().map(|name| name.to_str().unwrap()).collect();
            names.pop_if(|name| ["lib", "mod"].contains(name));
            modules.insert(names.join("::"), Module::of(&fs::read_to_string(file).unwrap()));
        }
        Modules(modules)
    }

    /// The other modules that one imports. The crate's own imports nothing: it is the list of what there is.
    fn arrows(&self, module: &str) -> BTreeSet<String> {
        let named = self.0[module].named.iter().filter(|_| !module.is_empty());
        let found = named.filter_map(|path| self.owner(module, path, 8));
        found.filter(|owner| owner != module && self.0.contains_key(owner)).collect()
    }

    /// The module that has what a path within another one names, followed through so many exports.
    fn owner(&self, within: &str, path: &str, exports: u32) -> Option<String> {
        let mut base: Vec<&str> = within.split("::").filter(|name| !name.is_empty()).collect();
        let mut names = path.split("::").map(str::trim).peekable();
        let first = *names.peek()?;
        if first == "crate" {
            base.clear();
        }
        let is_below = |name: &str| self.0.contains_key(&[&base[..], &[name]].concat().join("::"));
        if !["crate", "self", "super"].contains(&first) && !is_below(first) {
            return None;
        }
        names.next_if(|name| ["crate", "self"].contains(name));
        while names.next_if_eq(&"super").is_some() {
            base.pop();
        }
        while let Some(name) = names.peek() {
            let below = [&base[..], &[name]].concat();
            if !self.0.contains_key(&below.join("::")) {
                break;
            }
            (base, _) = (below, names.next());
        }
        let owner = base.join("::");
        let exported = names.next().and_then(|name| self.0.get(&owner)?.exported.get(name));
        let next = exported.filter(|_| exports > 0).and_then(|path| self.owner(&owner, path, exports - 1));
        Some(next.unwrap_or(owner))
    }
}

impl Module {
    fn of(text: &str) -> Module {
        let tests = text.match_indices("\n#[cfg(test)]\n").map(|(at, line)| (at, &text[at + line.len()..]));
        let is_module =
            |text: &str| text.lines().next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'));
        let end = tests.into_iter().find(|(_, rest)| is_module(rest)).map_or(text.len(), |(at, _)| at);
        let (mut named, mut exported, mut rest) = (Vec::new(), BTreeMap::new(), String::new());
        let code = without_comments(&text[..end]);
        for statement in code.split_inclusive(';') {
            let start = statement.lines().map(str::trim_start).position(is_use);
            let Some(start) = start else {
                rest.push_str(statement);
                continue;
            };
            rest.extend(statement.lines().take(start).flat_map(|line| [line, "\n"]));
            let line: String = statement.lines().skip(start).collect();
            let (visibility, tree) = line.trim_end_matches(';').split_once("use ").unwrap();
            for path in paths(tree) {
                let (path, alias) = path.split_once(" as ").unwrap_or((&path, &path));
                match visibility.trim() {
                    "" => named.push(path.to_owned()),
                    _ => drop(
                        exported
                            .insert(alias.rsplit("::").next().unwrap().trim().to_owned(), path.to_owned()),
                    ),
                }
            }
        }
        for word in rest
            .replace("(in crate::", "(")
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        {
            if word.starts_with("crate::") || word.starts_with("super::") {
                named.push(word.trim_end_matches(':').to_owned());
            }
        }
        Module { named, exported }
    }
}

/// Whether a line begins with `use`, for the module itself or for others.
fn is_use(line: &str) -> bool {
    let line =
        line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
    line.starts_with("use ")
}

/// The paths of a tree of imports.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, list)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let (mut depth, mut part, mut found) = (0, String::new(), Vec::new());
    for c in list.rsplit_once('}').map_or(list, |(list, _)| list).chars().chain([',']) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            found.extend(
                paths(&std::mem::take(&mut part)).into_iter().map(|path| format!("{}{path}", before.trim())),
            );
        } else {
            part.push(c);
        }
    }
    found
}
