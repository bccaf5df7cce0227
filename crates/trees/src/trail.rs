//! Folders on the way through a tree, each of which knows the way to it.

use std::ops::Deref;
use std::sync::Arc;

use crate::join;

/// A folder with its name, the folder above, and what is known of it besides. Those below it share it: a tree can make the
/// path of each of its folders long.
#[derive(Debug)]
pub struct Trail<T> {
    above: Option<Arc<Trail<T>>>,
    name: Box<[u8]>,
    known: T,
}

impl<T> Trail<T> {
    /// The folder that a walk begins in.
    pub fn top(known: T) -> Arc<Trail<T>> {
        Arc::new(Trail { above: None, name: Box::default(), known })
    }

    /// The folder `name` in this one.
    pub fn below(self: &Arc<Self>, name: &[u8], known: T) -> Arc<Trail<T>> {
        Arc::new(Trail { above: Some(Arc::clone(self)), name: name.into(), known })
    }

    /// The folder above; none for the one that the walk began in.
    pub fn above(&self) -> Option<&Arc<Trail<T>>> {
        self.above.as_ref()
    }

    /// The folder's name; empty for the one that the walk began in.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The path from where the walk began.
    pub fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut folder = self;
        while let Some(above) = &folder.above {
            names.push(&folder.name[..]);
            folder = above;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path of a name in this folder.
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        join(&self.path(), name)
    }
}

impl<T> Deref for Trail<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_all_names_but_that_of_the_top() {
        let top = Trail::top(2);
        let lib = top.below(b"usr", 11).below(b"lib", 12);
        assert_eq!((&*lib.path(), lib.name(), **lib), (&b"usr/lib"[..], &b"lib"[..], 12));
        assert_eq!((top.path_of(b"etc"), lib.path_of(b"x")), (b"etc".to_vec(), b"usr/lib/x".to_vec()));
        assert_eq!((lib.above().map(|above| above.path()), top.path()), (Some(b"usr".to_vec()), Vec::new()));
    }
}
