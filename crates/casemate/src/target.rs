//! Places that new things are made on: looked at before anything in them is lost.

pub(crate) use casemate_blockdev::target::holds_data;
pub use casemate_blockdev::target::{Consent, Loss, Made, look_at_path, overwrite, refuse};

use crate::Image;

/// An image that something new is made on. What it held was looked at, and may be lost.
pub type Target = casemate_blockdev::Target<Image>;
