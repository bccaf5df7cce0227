//! Marks on images, as the work needs them.

use crate::Error;

/// Marks of work on an image, which keep others from it until it is finished.
pub trait Marks {
    /// Whether the image has the mark of some work: then nobody else has written to it since.
    ///
    /// # Errors
    /// `Io`.
    fn is_marked(&self) -> Result<bool, Error>;

    /// Refuses an image that other work than that of this number has marked.
    ///
    /// # Errors
    /// `Io`; `Argument`.
    fn check(&self, id: [u8; 32]) -> Result<(), Error>;

    /// Marks the image, before its first byte changes.
    ///
    /// # Errors
    /// Errors of [`Marks::check`].
    fn set(&self, id: [u8; 32]) -> Result<(), Error>;
}

/// Marks of images that can have none.
#[derive(Clone, Copy, Debug)]
pub struct Unmarked;

impl Marks for Unmarked {
    fn is_marked(&self) -> Result<bool, Error> {
        Ok(false)
    }

    fn check(&self, _id: [u8; 32]) -> Result<(), Error> {
        Ok(())
    }

    fn set(&self, _id: [u8; 32]) -> Result<(), Error> {
        Ok(())
    }
}
