//! Directories that programs have open, where names come and go meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use casemate::Error;
use casemate::blockdev::u64_of;
use casemate::ext4::{Name, Names};

/// Directories whose names are kept as they were when the list began. More that are listed at the same time are read again
/// for each piece.
const MOST: usize = 64;

/// The places that lists of names have come to: by the numbers that the kernel has for open directories.
#[derive(Default)]
pub struct OpenFolders(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    lists: HashMap<u64, List>,
    /// Folders whose names are kept, in the order in which they were read.
    kept: VecDeque<u64>,
}

/// A list of names on its way: sorted, so that it goes on behind the last name whatever has come or gone before it.
#[derive(Clone, Default)]
pub struct List {
    names: Option<Arc<Names>>,
    /// Difference between a place and the index of the name there.
    shift: i64,
    /// The last name that was told, and the place behind it.
    last: Vec<u8>,
    behind: u64,
}

impl List {
    /// The name at a place, counted from 0.
    pub fn get(&self, at: u64) -> Option<Name<'_>> {
        let index = at.checked_add_signed(self.shift)?;
        self.names.as_ref()?.get(usize::try_from(index).ok()?)
    }

    /// Notes that a name was told.
    pub fn tell(&mut self, name: &[u8], behind: u64) {
        self.last.clear();
        self.last.extend_from_slice(name);
        self.behind = behind;
    }
}

impl OpenFolders {
    /// A number for a directory that is opened.
    pub fn open(&self) -> u64 {
        let mut state = self.locked();
        state.next += 1;
        let number = state.next;
        state.lists.insert(number, List::default());
        number
    }

    /// The list of an open directory from a place on: it begins anew at 0. `read` reads the names.
    pub fn list(
        &self,
        number: u64,
        at: u64,
        read: impl FnOnce() -> Result<Arc<Names>, Error>,
    ) -> Result<List, Error> {
        let mut list = self.locked().lists.get(&number).cloned().unwrap_or_default();
        if list.names.is_some() && at > 0 {
            return Ok(list);
        }
        let names = read()?;
        list.shift = 0;
        if at > 0 && at == list.behind {
            let skipped = names.iter().take_while(|name| name.bytes <= &list.last[..]).count();
            list.shift = u64_of(skipped).wrapping_sub(at).cast_signed();
        }
        list.names = Some(names);
        Ok(list)
    }

    /// Keeps a list for the next piece.
    pub fn keep(&self, number: u64, list: List) {
        let mut state = self.locked();
        let State { lists, kept, .. } = &mut *state;
        let Some(place) = lists.get_mut(&number) else { return };
        *place = list;
        if !kept.contains(&number) {
            kept.push_back(number);
        }
        if kept.len() > MOST
            && let Some(old) = kept.pop_front().and_then(|old| lists.get_mut(&old))
        {
            old.names = None;
        }
    }

    /// Forgets a directory that is closed.
    pub fn close(&self, number: u64) {
        let mut state = self.locked();
        state.lists.remove(&number);
        state.kept.retain(|kept| *kept != number);
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
