//! A watch on implementations outside the CPU.
//!
//! Such an engine can return wrong data, fail midway or never answer. The CPU is many times faster (over 50
//! times in the figures that made the kernel's fscrypt refuse them), so checking every result against it costs
//! little beside the engine's own time, and what the caller gets is always right.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use casemate_primitives::Messages;
use casemate_primitives::secret::SecretVec;

use crate::driver::{Direction, Driver, DriverError, HashDriver, Ivs, MAX_IV_LEN};

/// How long an engine may take for one request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cipher's driver outside the CPU with the CPU's own beside it.
pub(crate) struct Guard {
    engine: Arc<dyn Driver>,
    own: Box<dyn Driver>,
    watch: Arc<Watch>,
}

/// A hash's driver outside this program.
pub(crate) struct HashGuard {
    engine: Arc<dyn HashDriver>,
    watch: Arc<Watch>,
}

/// The record of an engine, and the patience with it; all that is keyed or made from one row shares it.
#[derive(Debug)]
pub(crate) struct Watch {
    name: String,
    patience: Duration,
    /// Why the engine is not asked any more.
    retired: OnceLock<String>,
    /// One request at a time: engines have one queue, and a stuck one must not collect threads.
    turn: Mutex<()>,
}

impl Watch {
    pub fn new(name: String) -> Watch {
        Watch { name, patience: PATIENCE, retired: OnceLock::new(), turn: Mutex::new(()) }
    }

    /// Gives back what the engine made, or retires it.
    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
    ) -> Option<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who waited for their turn must not wait for a stuck engine again.
        if self.retired.get().is_some() {
            return None;
        }
        let (sender, receiver) = mpsc::channel();
        // A thread for each request: if the engine never answers, the thread is all that is lost.
        thread::spawn(move || {
            let _ = sender.send(request());
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
        let _ = self.retired.set(format!("{} is not used any more: {why}", self.name));
    }

    fn compare(&self, made: Option<Vec<u8>>, right: &[u8]) {
        if made.is_some_and(|made| made != right) {
            self.retire("it returned wrong data".to_owned());
        }
    }

    pub fn trouble(&self) -> Option<&str> {
        self.retired.get().map(String::as_str)
    }
}

impl Guard {
    pub fn new(engine: Box<dyn Driver>, own: Box<dyn Driver>, watch: Arc<Watch>) -> Guard {
        Guard { engine: Arc::from(engine), own, watch }
    }

    /// Gives `ask` a copy of `data`; gives back what it made of it, or retires the engine.
    fn try_engine(
        &self,
        data: &[u8],
        ask: impl FnOnce(&dyn Driver, &mut [u8]) -> Result<(), DriverError> + Send + 'static,
    ) -> Option<Vec<u8>> {
        if self.trouble().is_some() {
            return None;
        }
        let (engine, mut copy) = (Arc::clone(&self.engine), data.to_vec());
        self.watch.ask(move || ask(&*engine, &mut copy).map(|()| copy))
    }
}

impl HashGuard {
    pub fn new(engine: Arc<dyn HashDriver>, watch: Arc<Watch>) -> HashGuard {
        HashGuard { engine, watch }
    }

    /// Has the engine hash every message, and compares with the `right` digests.
    pub fn compare(&self, prefix: &[u8], messages: Messages<'_>, suffix: &[u8], right: &[u8]) {
        if self.trouble().is_some() || messages.count() == 0 {
            return;
        }
        // What is hashed may be a key: no copy of it is left behind.
        let copies: Vec<_> = (0..messages.count()).map(|k| SecretVec::from(messages.get(k))).collect();
        let (engine, prefix, suffix) =
            (Arc::clone(&self.engine), SecretVec::from(prefix), SecretVec::from(suffix));
        let mut made = vec![0; right.len()];
        let made = self.watch.ask(move || {
            let digest_len = made.len() / copies.len();
            for (message, out) in copies.iter().zip(made.chunks_exact_mut(digest_len)) {
                engine.digest(&[prefix.expose(), message.expose(), suffix.expose()], out)?;
            }
            Ok(made)
        });
        self.watch.compare(made, right);
    }

    pub fn trouble(&self) -> Option<&str> {
        self.watch.trouble()
    }
}

impl Driver for Guard {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let own_iv = iv.to_vec();
        let made = self.try_engine(unit, move |engine, data| engine.one(direction, &own_iv, data));
        self.own.one(direction, iv, unit)?;
        self.watch.compare(made, unit);
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
        self.watch.compare(made, data);
        Ok(())
    }

    fn trouble(&self) -> Option<&str> {
        self.watch.trouble()
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::Cpu;
    use casemate_primitives::sha256::Sha256;

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

    const MISBEHAVIOURS: [(Misbehave, &str); 4] = [
        (
            |unit| {
                unit[5] ^= 1;
                Ok(())
            },
            "wrong data",
        ),
        (
            |unit| {
                unit.fill(0xee);
                Err(DriverError("error midway".into()))
            },
            "error midway",
        ),
        (
            |_| {
                thread::sleep(Duration::from_secs(3600));
                Ok(())
            },
            "no answer",
        ),
        (|_| panic!("engine on fire"), "panicked"),
    ];

    fn watch(why: &str) -> Arc<Watch> {
        // Long enough for a thread to start on a busy machine, except where nothing will come.
        let patience = Duration::from_secs(if why == "no answer" { 2 } else { 60 });
        Arc::new(Watch { patience, ..Watch::new("bad-engine".into()) })
    }

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
        for (misbehave, why) in MISBEHAVIOURS {
            let engine = Box::new(Bad(misbehave, Default::default()));
            let guard = Guard::new(engine, Box::new(Good), watch(why));
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

    /// A hash engine that does wrong in its third digest.
    struct BadHash(Misbehave, std::sync::atomic::AtomicU32);

    impl HashDriver for BadHash {
        fn digest(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError> {
            out.copy_from_slice(&Sha256::new(Cpu::portable()).hash(&parts.concat()));
            let calls = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if calls < 2 { Ok(()) } else { (self.0)(out) }
        }
    }

    #[test]
    fn whatever_a_hash_engine_does_the_digests_are_right() {
        for (misbehave, why) in MISBEHAVIOURS {
            let engine = Arc::new(BadHash(misbehave, Default::default()));
            let guard = HashGuard::new(engine, watch(why));
            let data = [3; 4 * 64];
            let messages = Messages::contiguous(&data, 64);
            let own = Sha256::new(Cpu::detect());
            let mut digests = [0; 4 * 32];
            own.hash_many(&own.midstate(b"a"), messages, b"b", &mut digests);
            let right = digests;
            guard.compare(b"a", messages.split_at(2).0, b"b", &digests[..64]);
            assert_eq!(guard.trouble(), None, "{why}");
            guard.compare(b"a", messages, b"b", &digests);
            assert!(guard.trouble().unwrap().contains(why), "{:?}", guard.trouble());
            guard.compare(b"a", messages, b"b", &digests);
            assert_eq!(digests, right);
        }
    }
}
