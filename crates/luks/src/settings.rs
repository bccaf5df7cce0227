//! Settings of a header beside its keys: UUID, labels, the order in which slots are tried, flags of mappings.

use crate::Header;
use crate::json::Json;
use crate::luks2::Priority;
use casemate_blockdev::{AtFile, Uuid};
use casemate_providers::Work;

use super::Volume;
use crate::Error;

/// The names of the flags that a header keeps for mappings, in the order in which it lists them.
pub const MAPPING_FLAGS: [&str; 6] = [
    "allow-discards",
    "same-cpu-crypt",
    "submit-from-crypt-cpus",
    "no-journal",
    "no-read-workqueue",
    "no-write-workqueue",
];

/// Settings of a header that are to be changed; what is `None` stays.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The UUID.
    pub uuid: Option<Uuid>,
    /// The label, of LUKS2.
    pub label: Option<String>,
    /// The second label, of LUKS2.
    pub subsystem: Option<String>,
    /// The priority of a key slot, of LUKS2.
    pub priority: Option<SlotPriority>,
    /// The flags of mappings, all of them, of LUKS2.
    pub flags: Option<Vec<String>>,
}

/// When a key slot is tried.
#[derive(Clone, Copy, Debug)]
pub struct SlotPriority {
    /// The number of the key slot.
    pub keyslot: u32,
    /// The priority.
    pub priority: Priority,
}

impl Volume {
    /// Changes settings, all of them in one update of the header.
    ///
    /// # Errors
    /// `Argument` for a label that is too long, a slot that is not there or an unknown flag; `Unsupported` for what LUKS1
    /// does not have, or if the header requires something; `Io`.
    pub fn configure(&mut self, settings: &Settings, work: &Work<'_>) -> Result<(), Error> {
        let lease = self.lease_header()?;
        let Settings { uuid, label, subsystem, priority, flags } = settings;
        if let Header::Luks1(header) = &mut self.header {
            let image = &self.header_image;
            if label.is_some() || subsystem.is_some() || priority.is_some() || flags.is_some() {
                let text = "LUKS1 has no labels, priorities or flags; LUKS2 has";
                return Err(Error::unsupported(text).at(image.name()));
            }
            header.uuid = uuid.map_or(header.uuid.clone(), |uuid| uuid.to_string());
            return header.write(image.top()).at(image.name());
        }
        drop(lease);
        self.edit(work, |header, metadata| {
            header.uuid = uuid.map_or(header.uuid.clone(), |uuid| uuid.to_string());
            header.label = label.as_ref().unwrap_or(&header.label).clone();
            header.subsystem = subsystem.as_ref().unwrap_or(&header.subsystem).clone();
            if let Some(SlotPriority { keyslot: id, priority }) = priority {
                let slot = metadata
                    .get_mut("keyslots")
                    .and_then(|slots| slots.object_mut()?.get_mut(id.to_string()));
                let slot = slot.and_then(Json::object_mut);
                let slot = slot.ok_or_else(|| super::unlock::no_slot(*id))?;
                match priority {
                    Priority::Ignore => slot.set("priority", Json::from(0)),
                    Priority::Normal => slot.retain(|name, _| name != b"priority"),
                    Priority::Prefer => slot.set("priority", Json::from(2)),
                }
            }
            if let Some(flags) = flags {
                if let Some(flag) = flags.iter().find(|flag| !MAPPING_FLAGS.contains(&&***flag)) {
                    let known = MAPPING_FLAGS.join(", ");
                    return Err(Error::argument(format!(
                        "unknown flag '{flag}'; mappings have the flags {known}"
                    )));
                }
                let wanted = MAPPING_FLAGS.iter().filter(|flag| flags.iter().any(|wanted| wanted == *flag));
                let list: Vec<Json> = wanted.map(|flag| Json::from(*flag)).collect();
                if let Some(config) = metadata.get_mut("config").and_then(Json::object_mut) {
                    config.set("flags", Json::from(list));
                }
            }
            Ok(())
        })
    }
}
