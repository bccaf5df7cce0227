//! mke2fs' configuration file: the defaults of types of file systems and of their usages.
//!
//! Source: mke2fs.conf(5) of e2fsprogs 1.47. Read are `base_features`, `features`, `default_features`, `blocksize`, `cluster_size`,
//! `inode_ratio`, `inode_size`, `flex_bg_size`, `reserved_ratio`, `default_mntopts`, `errors`, `hash_alg`, `num_backup_sb`,
//! `packed_meta_blocks`, `options`, and `fs_type` of the defaults. Everything else is left aside.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use casemate::Error;
use casemate::ext4::{BuildOptions, Features, Tuning};

use crate::streams::tell;

/// Path of the file, unless the environment has another one.
const PATH: &str = "/etc/mke2fs.conf";
const VARIABLE: &str = "MKE2FS_CONFIG";

/// Features that mke2fs takes where the file has none.
const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";

/// A configuration file: names of section and subsection, tag and value of each relation, in their order.
#[derive(Debug, Default)]
pub struct Configuration {
    relations: Vec<(Vec<String>, String)>,
    /// Names of all subsections.
    subsections: Vec<Vec<String>>,
}

impl Configuration {
    /// Reads the file of this system; `None` if there is none, as mke2fs has defaults of its own.
    ///
    /// # Errors
    /// `Io`; `Argument` for a line that is not understood.
    pub fn read() -> Result<Option<Configuration>, Error> {
        let path = env::var_os(VARIABLE).map_or_else(|| PathBuf::from(PATH), PathBuf::from);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| Error::io(path.display(), error))?,
        };
        Configuration::parse(&String::from_utf8_lossy(&text)).map(Some).map_err(|line| {
            Error::argument(format!("Syntax error in mke2fs config file ({}, line #{line})", path.display()))
        })
    }

    /// Reads a text; the error is the number of a line.
    fn parse(text: &str) -> Result<Configuration, usize> {
        let (mut all, mut path, mut opening) = (Configuration::default(), Vec::new(), None);
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(tag) = opening.take() {
                if line != "{" {
                    return Err(number);
                }
                path.push(tag);
                all.subsections.push(path.clone());
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let (name, _) = section.split_once(']').filter(|_| path.len() < 2).ok_or(number)?;
                path = vec![name.trim().to_owned()];
                continue;
            }
            if line.starts_with('}') {
                path.pop().filter(|_| !path.is_empty()).ok_or(number)?;
                continue;
            }
            let (tag, value) = line.split_once('=').filter(|_| !path.is_empty()).ok_or(number)?;
            let (tag, value) = (unquoted(tag.trim().trim_end_matches('*')), value.trim());
            // What is quoted may have the signs of a comment.
            let plain = value.split(['#', ';']).next().unwrap_or_default().trim_end();
            match if value.starts_with('"') { value } else { plain } {
                "" => opening = Some(tag),
                "{" => {
                    path.push(tag);
                    all.subsections.push(path.clone());
                }
                value => {
                    let place = path.iter().cloned().chain([tag]).collect();
                    all.relations.push((place, unquoted(value)));
                }
            }
        }
        match path.len() {
            0 | 1 => Ok(all),
            _ => Err(text.lines().count()),
        }
    }

    fn get(&self, place: &[&str]) -> Option<&str> {
        self.relations.iter().find(|(found, _)| found == place).map(|(_, value)| &**value)
    }

    /// The type of file system that is made if none is named.
    pub fn default_type(&self) -> Option<&str> {
        self.get(&["defaults", "fs_type"])
    }

    fn has(&self, name: &str) -> bool {
        self.subsections.iter().any(|place| place == &["fs_types", name])
    }

    /// Value of a tag: that of the last type or usage that has it, or of the defaults.
    fn value(&self, types: &[&str], tag: &str) -> Option<&str> {
        let of_types = types.iter().rev().find_map(|name| self.get(&["fs_types", name, tag]));
        of_types.or_else(|| self.get(&["defaults", tag]))
    }

    /// Defaults of a type of file system and of usages, a list with commas; with `features`, the changes that the command line asks
    /// for, in place of the default ones.
    ///
    /// # Errors
    /// `Argument` for a type that the file does not define, and for values that make no sense.
    pub fn apply(
        &self,
        options: &mut BuildOptions,
        kind: &str,
        usages: &str,
        features: &[String],
    ) -> Result<(), Error> {
        if kind != "ext2" && !self.has(kind) {
            let text = format!("Your mke2fs.conf file does not define the {kind} filesystem type.");
            return Err(Error::argument(text));
        }
        let types: Vec<&str> = std::iter::once(kind).chain(usages.split(',')).collect();
        for name in types[1..].iter().filter(|name| **name != "default" && !self.has(name)) {
            tell(format!("\nWarning: the fs_type {name} is not defined in mke2fs.conf\n\n"));
        }
        let number = |tag: &str| self.value(&types, tag).map(|text| number(tag, text)).transpose();
        let size = |tag: &str| {
            // OK to cut: what is larger is refused as a size.
            number(tag).map(|number| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
        };

        options.features = Features::default();
        options.features.change(self.value(&types, "base_features").unwrap_or(BASE_FEATURES))?;
        for name in &types {
            options.features.change(self.get(&["fs_types", name, "features"]).unwrap_or_default())?;
        }
        match features {
            [] => options.features.change(self.value(&types, "default_features").unwrap_or_default())?,
            lists => lists.iter().try_for_each(|list| options.features.change(list))?,
        }
        // The size of a page, which is this in the images that most make.
        options.block_size = match self.value(&types, "blocksize") {
            Some(text) if text.starts_with('-') => 4096,
            _ => size("blocksize")?.unwrap_or(4096),
        };
        options.cluster_size = size("cluster_size")?.filter(|size| *size > 0);
        options.inode_ratio = number("inode_ratio")?.unwrap_or(8192);
        options.inode_size = size("inode_size")?.unwrap_or(128);
        options.groups_per_flex = size("flex_bg_size")?.unwrap_or(16);
        options.reserved_percent = match self.value(&types, "reserved_ratio") {
            Some(text) => text.parse().map_err(|_| wrong("reserved_ratio", text))?,
            None => 5.0,
        };
        let mut tuning = Tuning::default();
        tuning.change_mount_options(self.value(&types, "default_mntopts").unwrap_or("acl,user_xattr"))?;
        options.mount_options = tuning.mount_options.0;
        if let Some(action) = self.value(&types, "errors") {
            tuning.set_on_errors(action)?;
            options.on_errors = tuning.on_errors.unwrap_or(options.on_errors);
        }
        if let Some(name) = self.value(&types, "hash_alg") {
            tuning.set_extended(&format!("hash_alg={name}"))?;
            options.hash_version = tuning.hash_version.unwrap_or(options.hash_version);
        }
        for tag in ["num_backup_sb", "packed_meta_blocks"] {
            if let Some(text) = self.value(&types, tag) {
                options.set_extended(&format!("{tag}={}", truth(text)))?;
            }
        }
        options.set_extended(self.value(&types, "options").unwrap_or_default())
    }
}

/// A name or a value without quotes around it, and with what its backslashes stand for.
fn unquoted(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else { return text.to_owned() };
    let (mut value, mut letters) = (String::new(), quoted.chars());
    while let Some(letter) = letters.next() {
        value.push(match letter {
            '"' => break,
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                other => other.unwrap_or('\\'),
            },
            other => other,
        });
    }
    value
}

/// A number, which what follows it does not belong to.
fn number(tag: &str, text: &str) -> Result<u64, Error> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().map_err(|_| wrong(tag, text))
}

/// Words for true and false as numbers.
fn truth(text: &str) -> &str {
    match text {
        "y" | "yes" | "t" | "true" | "on" => "1",
        "n" | "no" | "f" | "false" | "nil" | "off" => "0",
        other => other,
    }
}

fn wrong(tag: &str, text: &str) -> Error {
    Error::argument(format!("mke2fs.conf: {tag} = {text}: the value makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_read_as_the_manual_has_them() {
        let text = "# comment\n[defaults]\n\tblocksize = 4096 # a page\n\tbase_features = \"a b\\tc#d\" # e\n\n[fs_types]\n\
                    \text4 = {\n\t\tfeatures = x,y\n\t}\n\tsmall =\n\t{\n\t\tblocksize = 1024\n\t}\n";
        let all = Configuration::parse(text).unwrap();
        assert_eq!(all.get(&["fs_types", "ext4", "features"]), Some("x,y"));
        assert_eq!(all.value(&["ext4", "small"], "blocksize"), Some("1024"));
        assert_eq!(all.value(&["ext4"], "blocksize"), Some("4096"));
        assert_eq!(all.value(&["ext4"], "base_features"), Some("a b\tc#d"));
        assert!(all.has("small") && !all.has("big"));
        for (wrong, line) in [
            ("[defaults\n", 1),
            ("[defaults]\nx\n", 2),
            ("x = 1\n", 1),
            ("[a]\n}\n", 2),
            ("[a]\nb =\nc = 1\n", 3),
            ("[a]\nb = {\nc = 1\n", 3),
        ] {
            assert_eq!(Configuration::parse(wrong).err(), Some(line), "{wrong}");
        }
    }
}
