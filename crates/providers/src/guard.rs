//! A watch on implementations outside the CPU.
//!
//! Such an engine can return wrong data, fail midway or never answer. The CPU is many times faster (over 50
//! times in the figures that made the kernel's fscrypt refuse them), so checking every result against it costs
//! little beside the engine's own time, and what the caller gets is always right.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::cipher::{Direction, Driver, DriverError, Ivs, MAX_IV_LEN};

/// How long an engine may take for one request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A driver outside the CPU with the CPU's own beside it.
pub(crate) struct Guard {
    engine: Arc<dyn Driver>,
    own: Box<dyn Driver>,
    name: String,
    patience: Duration,
    /// Why the engine is not asked any more.
    retired: OnceLock<String>,
    /// One request at a time: engines have one queue, and a stuck one must not collect threads.
    turn: Mutex<()>,
}

impl Guard {
    pub fn new(engine: Box<dyn Driver>, own: Box<dyn Driver>, name: String) -> Guard {
        let (engine, retired, turn) = (Arc::from(engine), OnceLock::new(), Mutex::new(()));
        Guard { engine, own, name, patience: PATIENCE, retired, turn }
    }

    /// Lets `ask` have a copy of `data`; gives back what it made of it, or retires the engine.
    fn try_engine(
        &self,
        data: &[u8],
        ask: impl FnOnce(&dyn Driver, &mut [u8]) -> Result<(), DriverError> + Send + 'static,
    ) -> Option<Vec<u8>> {
        if self.retired.get().is_some() {
            return None;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, receiver) = mpsc::channel();
        let (engine, mut copy) = (Arc::clone(&self.engine), data.to_vec());
        // A thread for each request: if the engine never answers, the thread is all that is lost.
        thread::spawn(move || {
            let result = ask(&*engine, &mut copy).map(|()| copy);
            let _ = sender.send(result);
        });
        let why = match receiver.recv_timeout(self.patience) {
            Ok(Ok(made)) => return Some(made),
            Ok(Err(error)) => error.0,
            Err(RecvTimeoutError::Timeout) => format!("no answer within {:?}", self.patience),
            Err(RecvTimeoutError::Disconnected) => "it panicked".to_owned(),
        };
        self.retire(why);
        None
    }

    fn retire(&self, why: String) {
        let _ = self.retired.set(format!("{} is not asked any more: {why}", self.name));
    }

    fn compare(&self, made: Option<Vec<u8>>, right: &[u8]) {
        if made.is_some_and(|made| made != right) {
            self.retire("it returned wrong data".to_owned());
        }
    }
}

impl Driver for Guard {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let own_iv = iv.to_vec();
        let made = self.try_engine(unit, move |engine, data| engine.one(direction, &own_iv, data));
        self.own.one(direction, iv, unit)?;
        self.compare(made, unit);
        Ok(())
    }

    fn many(
        &self,
        direction: Direction,
        size: usize,
        ivs: &Ivs<'_>,
        iv_len: usize,
        data: &mut [u8],
    ) -> Result<(), DriverError> {
        let mut list = vec![0; data.len() / size * iv_len];
        debug_assert!(iv_len <= MAX_IV_LEN);
        for (k, iv) in list.chunks_exact_mut(iv_len.max(1)).enumerate() {
            ivs.write(k, iv);
        }
        let made = self.try_engine(data, move |engine, data| {
            engine.many(direction, size, &Ivs::List(&list), iv_len, data)
        });
        self.own.many(direction, size, ivs, iv_len, data)?;
        self.compare(made, data);
        Ok(())
    }

    fn trouble(&self) -> Option<&str> {
        self.retired.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the IV's first byte to everything.
    struct Good;

    impl Driver for Good {
        fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
            for byte in unit {
                *byte = match direction {
                    Direction::Encrypt => byte.wrapping_add(iv[0]),
                    Direction::Decrypt => byte.wrapping_sub(iv[0]),
                };
            }
            Ok(())
        }
    }

    type Misbehave = fn(&mut [u8]) -> Result<(), DriverError>;

    /// Behaves until the third request.
    struct Bad(Misbehave, std::sync::atomic::AtomicU32);

    impl Driver for Bad {
        fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
            Good.one(direction, iv, unit)?;
            if self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 {
                Ok(())
            } else {
                (self.0)(unit)
            }
        }
    }

    #[test]
    fn whatever_the_engine_does_the_result_is_right() {
        let wrong = |unit: &mut [u8]| {
            unit[5] ^= 1;
            Ok(())
        };
        let fails = |unit: &mut [u8]| {
            unit.fill(0xee);
            Err(DriverError("error midway".into()))
        };
        let hangs = |_: &mut [u8]| {
            thread::sleep(Duration::from_secs(3600));
            Ok(())
        };
        let panics = |_: &mut [u8]| panic!("engine on fire");
        let cases: [(Misbehave, &str); 4] =
            [(wrong, "wrong data"), (fails, "error midway"), (hangs, "no answer"), (panics, "panicked")];
        for (misbehave, why) in cases {
            let engine = Box::new(Bad(misbehave, Default::default()));
            let mut guard = Guard::new(engine, Box::new(Good), "bad-engine".into());
            // Long enough for a thread to start on a busy machine, except where nothing will come.
            guard.patience = Duration::from_secs(if why == "no answer" { 2 } else { 60 });
            for round in 0..6u8 {
                let mut data = [round; 64];
                guard.one(Direction::Encrypt, &[7], &mut data).unwrap();
                assert_eq!(data, [round + 7; 64], "{why}");
                assert_eq!(guard.trouble().is_some(), round >= 2, "{why}, round {round}");
            }
            assert!(guard.trouble().unwrap().contains(why), "{:?}", guard.trouble());
            let mut data = [1; 64];
            guard.many(Direction::Encrypt, 16, &Ivs::Little { first: 1, step: 1 }, 16, &mut data).unwrap();
            assert_eq!((data[0], data[63]), (2, 5), "{why}");
        }
    }
}
