//! `casemate completions`: completion scripts for shells.
//!
//! The scripts are clap's. Behind a comma of an image specification they complete its words, too: layers, and the options of the last
//! layer before the cursor, from [`KINDS`].

use clap_complete::Shell;

use casemate::Error;
use casemate::image_spec::KINDS;

use crate::answer::Answer;
use crate::context::Context;

/// Print a shell's completion script.
///
/// In bash, zsh and fish it also completes the words of an image specification: disk.img,partition=2,luks,...
///
/// For bash: casemate completions bash > ~/.local/share/bash-completion/completions/casemate
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell to print for.
    shell: Shell,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "casemate", &mut script);
        // OK to unwrap: scripts are text.
        let script = String::from_utf8(script).unwrap();
        context.print(with_layers(self.shell, script))?;
        Ok(Answer::Yes)
    }
}

/// A script that completes words of specifications, if there is one for the shell.
fn with_layers(shell: Shell, script: String) -> String {
    let layers = all(KINDS.iter().map(|kind| (kind.name, kind.value)));
    let cases = |case: &dyn Fn(&str, &str) -> String| {
        let of = |kind: &casemate::image_spec::Kind| {
            let options = all(kind.options.iter().map(|choice| (choice.name, choice.value)));
            case(&format!("{}|{}", kind.name, kind.alias), &options)
        };
        KINDS.iter().map(of).collect::<String>()
    };
    match shell {
        Shell::Bash => {
            let cases = cases(&|names, options| format!("            {names}) options='{options}' ;;\n"));
            script.replace("complete -F _casemate ", "complete -F _casemate_or_layers ")
                + &BASH.replace("LAYERS", &layers).replace("CASES", cases.trim_end())
        }
        Shell::Zsh => {
            let cases = cases(&|names, options| format!("            {names}) options=({options}) ;;\n"));
            let functions = ZSH.replace("LAYERS", &layers).replace("CASES", cases.trim_end());
            // Images are among the arguments that are files. Without a comma they complete as files do.
            let image = |line: &str| match line
                .strip_prefix("':")
                .and_then(|line| line.strip_suffix(":_files' \\"))
            {
                Some(argument) => format!("':{argument}:_casemate_image' \\\n"),
                None => format!("{line}\n"),
            };
            let script: String = script.lines().map(image).collect();
            script.replacen("\n_casemate() {", &format!("\n{functions}\n_casemate() {{"), 1)
        }
        Shell::Fish => {
            let cases = cases(&|names, options| {
                format!(
                    "            case {}\n                set options {options}\n",
                    names.replace('|', " ")
                )
            });
            script + &FISH.replace("LAYERS", &layers).replace("CASES", cases.trim_end())
        }
        _ => script,
    }
}

/// Words in a line: with "=" where a value must follow.
fn all(words: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let word = |(name, value): (&str, &str)| match value {
        "" => name.to_owned(),
        value if value.starts_with('[') => format!("{name} {name}="),
        _ => format!("{name}="),
    };
    words.map(word).collect::<Vec<_>>().join(" ")
}

const BASH: &str = r#"
# "=" parts words in bash, so the layers are those of the line up to the cursor.
_casemate_or_layers() {
    local cur=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT} options='' word
    local image=${line##* } last=${line##*,}
    if [[ $image != ?*,* || $image == -* ]]; then
        _casemate "$@"
        return
    fi
    COMPREPLY=()
    # Behind "=" a file follows, which readline completes.
    [[ $last != *=* ]] || return
    local -a words
    IFS=, read -ra words <<< "$image"
    for word in "${words[@]:1}"; do
        case "${word%%=*}" in
CASES
        esac
    done
    mapfile -t COMPREPLY < <(compgen -P "${cur%"$last"}" -W "LAYERS $options" -- "$last")
    [[ ${#COMPREPLY[@]} -eq 0 ]] || compopt -o nospace 2> /dev/null
}
"#;

const ZSH: &str = r#"
(( $+functions[_casemate_image] )) ||
_casemate_image() {
    local options word
    if [[ $PREFIX != ?*,* ]]; then
        _files "$@"
        return
    fi
    options=()
    for word in ${${(s:,:)PREFIX}[2,-1]}; do
        case ${word%%=*} in
CASES
        esac
    done
    if [[ ${PREFIX##*,} == *=* ]]; then
        compset -P '*='
        _files
        return
    fi
    compset -P '*,'
    compadd -S '' -- LAYERS $options
}
"#;

const FISH: &str = r#"
function __casemate_in_layers
    string match -qr '^[^-].*,[^=]*$' -- (commandline -ct)
end

function __casemate_layers
    set -l before (string replace -r '[^,]*$' '' -- (commandline -ct))
    set -l options
    for word in (string split , -- $before)[2..]
        switch (string replace -r '=.*' '' -- $word)
CASES
        end
    end
    for word in LAYERS $options
        echo $before$word
    end
end

complete -c casemate -n __casemate_in_layers -f -a '(__casemate_layers)'
"#;
