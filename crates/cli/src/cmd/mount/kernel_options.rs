//! Mount options of the kernel for a mounted folder, in mount(8)'s words.

use std::str::FromStr;

use casemate_fuse::Flag;

/// A list of options for the kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelOptions {
    flags: Vec<Flag>,
    /// Whether nothing may be written, which is so without --write anyway.
    pub is_read_only: bool,
}

/// The words, and what they ask for that is not so without.
const WORDS: &[(&str, Option<Flag>)] = &[
    ("dev", Some(Flag::Dev)),
    ("nodev", None),
    ("suid", Some(Flag::Suid)),
    ("nosuid", None),
    ("exec", None),
    ("noexec", Some(Flag::NoExec)),
    ("ro", None),
];

impl KernelOptions {
    pub fn flags(&self) -> Vec<Flag> {
        self.flags.clone()
    }

    /// Whether a word is one of these.
    pub fn has(word: &str) -> bool {
        WORDS.iter().any(|(known, _)| *known == word)
    }
}

impl FromStr for KernelOptions {
    type Err = String;

    fn from_str(list: &str) -> Result<KernelOptions, String> {
        let mut options = KernelOptions::default();
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let Some((_, flag)) = WORDS.iter().find(|(known, _)| *known == word) else {
                if word == "rw" {
                    return Err("rw: --write allows writes".to_owned());
                }
                let known: Vec<&str> = WORDS.iter().map(|(known, _)| *known).collect();
                return Err(format!("{word} is not one of {}", known.join(", ")));
            };
            options.flags.extend(flag.filter(|flag| !options.flags.contains(flag)));
            options.is_read_only |= word == "ro";
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_mount() {
        let flags = |list: &str| list.parse::<KernelOptions>().map(|options| options.flags());
        assert_eq!(flags("ro,nodev,nosuid"), Ok(Vec::new()));
        assert_eq!(flags("dev,,noexec,dev"), Ok(vec![Flag::Dev, Flag::NoExec]));
        assert!(flags("loop").unwrap_err().starts_with("loop is not one of dev, nodev"));
        assert!(flags("dev,rw").unwrap_err().contains("--write"));
    }
}
