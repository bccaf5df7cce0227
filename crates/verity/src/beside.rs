//! Files with the hashes of another one: what lies there is looked at before they are written.

use casemate_blockdev::target::{self, Consent, Made};
use casemate_blockdev::{Medium, signatures};

use crate::Error;
use crate::fs::Descriptor;

/// Kind of a file with the hashes of another one, beside which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// An fs-verity tree.
    Tree,
    /// A hash area of dm-verity.
    Area,
}

impl Beside {
    /// Asks for consent if what a medium holds would be lost to a tree or a hash area. An earlier one of the same kind needs
    /// no consent. `is_replaced` tells that a regular file, or an object of a store, is replaced as a whole: then data of no
    /// known kind need none.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn look_before(self, medium: &Medium, is_replaced: bool, consent: Consent<'_>) -> Result<(), Error> {
        let made = match self {
            Beside::Area => Made::Known(signatures::VERITY),
            Beside::Tree if Descriptor::leads_tree(medium)? => return Ok(()),
            Beside::Tree => Made::Data,
        };
        match is_replaced {
            true => target::look(medium.name(), medium.top(), made, true, consent),
            false => target::look_in_place(medium, made, consent),
        }
    }
}
