//! `casemate luks config`.

use clap::ValueEnum;

use casemate::Error;
use casemate::luks::luks2::Priority;
use casemate::luks::{Settings, SlotPriority};

use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Change settings of a LUKS2 header: labels, the priority of a key slot, flags of mappings. Others stay.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks config vault.img --label vault\n\
    \x20 casemate luks config vault.img --key-slot 0 --priority prefer")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Args {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// The label; "" for none.
    #[arg(long, value_name = "LABEL", group = "what")]
    pub label: Option<String>,
    /// The second label; "" for none.
    #[arg(long, value_name = "LABEL", group = "what")]
    pub subsystem: Option<String>,
    /// The key slot to set the priority of.
    #[arg(long, value_name = "N", requires = "priority")]
    pub key_slot: Option<u32>,
    /// Priority of the key slot: tried before others, in its turn, or only if it is named.
    #[arg(long, value_name = "PRIORITY", group = "what", requires = "key_slot")]
    pub priority: Option<Tried>,
    /// Flags for the kernel when it opens the volume, separated by commas: allow-discards, same-cpu-crypt,
    /// submit-from-crypt-cpus, no-journal, no-read-workqueue, no-write-workqueue; "" clears them.
    #[arg(long, value_name = "FLAGS", group = "what")]
    pub persistent: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Tried {
    Prefer,
    Normal,
    Ignore,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut settings = Settings::default();
        settings.priority = self.key_slot.zip(self.priority).map(|(keyslot, tried)| {
            let priority = match tried {
                Tried::Prefer => Priority::Prefer,
                Tried::Normal => Priority::Normal,
                Tried::Ignore => Priority::Ignore,
            };
            SlotPriority { keyslot, priority }
        });
        let names =
            |list: &String| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        settings.flags = self.persistent.as_ref().map(names);
        (settings.label, settings.subsystem) = (self.label.clone(), self.subsystem.clone());
        self.header.changeable(context)?.configure(&settings, &context.opening())?;
        self.header.done(context, "changed");
        Ok(Answer::Yes)
    }
}

#[cfg(test)]
mod tests {
    use casemate::luks::MAPPING_FLAGS;

    use super::*;

    #[test]
    fn the_help_names_every_flag() {
        let help = <Args as clap::Args>::augment_args(clap::Command::new("config"));
        let help = help
            .get_arguments()
            .find(|arg| arg.get_id() == "persistent")
            .unwrap()
            .get_help()
            .unwrap()
            .to_string();
        assert!(MAPPING_FLAGS.iter().all(|flag| help.contains(flag)), "{help}");
    }
}
