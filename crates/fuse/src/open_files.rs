//! Files that programs have open.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use casemate::Error;
use casemate::blockdev::BlockDevice;
use casemate::ext4::InodeNo;

/// The contents of the files that are open, by their inodes: a file that is open many times is kept once.
#[derive(Default)]
pub struct OpenFiles(RwLock<HashMap<InodeNo, Open>>);

struct Open {
    /// `None` after they have changed, until somebody reads them again.
    contents: Option<Arc<dyn BlockDevice>>,
    times: u64,
}

impl OpenFiles {
    /// Opens a file once more; `open` does it the first time, and after its contents have changed.
    pub fn open(
        &self,
        number: InodeNo,
        open: impl FnOnce() -> Result<Box<dyn BlockDevice>, Error>,
    ) -> Result<(), Error> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // One whose contents have changed is opened anew: its key may be gone.
        if let Some(file) = all.get_mut(&number).filter(|file| file.contents.is_some()) {
            file.times += 1;
            return Ok(());
        }
        // Others open and read their files while this one's map is read.
        drop(all);
        let contents: Arc<dyn BlockDevice> = open()?.into();
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let file = all.entry(number).or_insert(Open { contents: None, times: 0 });
        file.contents = Some(contents);
        file.times += 1;
        Ok(())
    }

    /// The contents of a file that is open; of a file whose contents have changed since, `Some(None)`.
    pub fn get(&self, number: InodeNo) -> Option<Option<Arc<dyn BlockDevice>>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&number).map(|file| file.contents.clone())
    }

    /// Keeps the contents of a file that is open.
    pub fn keep(&self, number: InodeNo, contents: &Arc<dyn BlockDevice>) {
        self.set(number, Some(Arc::clone(contents)));
    }

    /// Forgets the contents of a file: they have changed.
    pub fn changed(&self, number: InodeNo) {
        self.set(number, None);
    }

    /// Marks all open files as changed.
    pub fn all_changed(&self) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.values_mut().for_each(|file| file.contents = None);
    }

    fn set(&self, number: InodeNo, contents: Option<Arc<dyn BlockDevice>>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = all.get_mut(&number) {
            file.contents = contents;
        }
    }

    /// Closes a file once.
    pub fn close(&self, number: InodeNo) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = all.get_mut(&number) {
            file.times -= 1;
            if file.times == 0 {
                all.remove(&number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use casemate::blockdev::MemoryDevice;

    use super::*;

    const FILE: InodeNo = InodeNo::ROOT;

    #[test]
    fn a_file_stays_as_long_as_somebody_has_it_open() {
        let files = OpenFiles::default();
        let open = || files.open(FILE, || Ok(Box::new(MemoryDevice::new(vec![1; 3]))));
        open().unwrap();
        files.open(FILE, || panic!("it is open")).unwrap();
        files.close(FILE);
        assert_eq!(files.get(FILE).unwrap().unwrap().size(), 3);
        files.changed(FILE);
        assert!(files.get(FILE).unwrap().is_none());
        files.close(FILE);
        assert!(files.get(FILE).is_none());
        files.close(FILE);
        assert!(files.open(FILE, || Err(Error::corrupt("no map"))).is_err());
        assert!(files.get(FILE).is_none());
    }
}
