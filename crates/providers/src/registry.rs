//! All implementations, and the choice among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use casemate_primitives::Cpu;

use crate::cipher::Cipher;
use crate::drivers;
use crate::engine::{Algorithm, Engine};
use crate::guard::{Guard, HashGuard, Watch};
use crate::hash::Hash;
use crate::policy::{Policy, Refusal};
use crate::row::{BadKey, MakeHash, Row};
use crate::selftest;

/// The implementations that a program knows, tested before they are used.
#[derive(Debug)]
pub struct Registry {
    rows: Vec<Row>,
    /// Findings about each row.
    known: Vec<Known>,
}

/// Findings about a row.
#[derive(Debug)]
struct Known {
    /// Result of the self-test, after the first request.
    verdict: OnceLock<Result<(), String>>,
    /// How it has done since, if it is outside the CPU.
    watch: Arc<Watch>,
}

impl Registry {
    /// The registry of everything that runs on `cpu`: our back ends and the vetted crates.
    pub fn new(cpu: Cpu) -> Registry {
        let mut rows = drivers::rows(cpu);
        rows.extend(drivers::hash::rows(cpu));
        Registry::of(rows)
    }

    /// The hashes alone that run on `cpu`; made, and each row tested, once for a process.
    pub(crate) fn hashes(cpu: Cpu) -> Arc<Registry> {
        static MADE: Mutex<Vec<(Cpu, Arc<Registry>)>> = Mutex::new(Vec::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, registry)) = made.iter().find(|(other, _)| *other == cpu) {
            return Arc::clone(registry);
        }
        let registry = Arc::new(Registry::of(drivers::hash::rows(cpu)));
        made.push((cpu, Arc::clone(&registry)));
        registry
    }

    fn of(rows: Vec<Row>) -> Registry {
        let mut registry = Registry { rows: Vec::new(), known: Vec::new() };
        for row in rows {
            registry.register(row).expect("our own rows keep the rules");
        }
        registry
    }

    /// Adds an implementation.
    ///
    /// # Errors
    /// The reason why it can't be in a registry: the multi-data-unit flag where the IV has not 16 bytes, or a
    /// driver name that is there already for this algorithm.
    pub fn register(&mut self, row: Row) -> Result<(), Refusal> {
        row.check().map_err(Refusal)?;
        if self.find(&row.algorithm, &row.driver).is_some() {
            return Err(Refusal(format!("{} is registered already for {}", row.driver, row.algorithm)));
        }
        let watch = Arc::new(Watch::new(row.driver.clone()));
        self.rows.push(row);
        self.known.push(Known { verdict: OnceLock::new(), watch });
        Ok(())
    }

    /// All rows, as they were registered.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of this algorithm and driver.
    pub fn find(&self, algorithm: &str, driver: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.algorithm == algorithm && row.driver == driver)
    }

    /// Whether the implementation does what its algorithm says; tested once, when first asked.
    ///
    /// # Errors
    /// The sentence that says what was wrong, or that the row is not one of these.
    pub fn self_test(&self, row: &Row) -> Result<(), &str> {
        let place = self.place(row).ok_or("it is not registered")?;
        let verdict = self.known[place].verdict.get_or_init(|| selftest::run(&self.rows[place]));
        verdict.as_ref().copied().map_err(String::as_str)
    }

    /// Faults of engines outside the CPU and was mended, a sentence for each that is no longer asked.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        self.known.iter().filter_map(|known| known.watch.trouble())
    }

    /// The ciphers of all rows: each mode with what it is of. Those whose IVs are made from the key are modes in modes.
    fn ciphers(&self) -> String {
        let mut modes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| !row.algorithm.starts_with("essiv(")) {
            if let Some((mode, rest)) = row.algorithm.strip_suffix(')').and_then(|name| name.split_once('('))
            {
                modes.entry(mode).or_default().insert(rest);
            }
        }
        let shown = |(mode, of): (&&str, &BTreeSet<&str>)| {
            format!("{mode}({})", of.iter().copied().collect::<Vec<_>>().join("|"))
        };
        modes.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    fn place(&self, row: &Row) -> Option<usize> {
        self.rows.iter().position(|other| other.algorithm == row.algorithm && other.driver == row.driver)
    }

    /// The watch on a row of these.
    fn watch(&self, row: &Row) -> Result<Arc<Watch>, ChoiceError> {
        let place = self.place(row).ok_or_else(|| refused("it is not registered".to_owned()))?;
        Ok(Arc::clone(&self.known[place].watch))
    }

    /// The row that `policy` chooses for `algorithm`: a named one, else the highest priority that is allowed and
    /// passes its tests.
    ///
    /// # Errors
    /// [`ChoiceError::Unknown`] if no row has the algorithm; [`ChoiceError::Refused`] with every row's reason.
    pub fn choose(&self, algorithm: &str, policy: &Policy) -> Result<&Row, ChoiceError> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| row.algorithm == algorithm).collect();
        if rows.is_empty() {
            return Err(ChoiceError::Unknown { name: algorithm.to_owned(), known: self.ciphers() });
        }
        // Who names a driver wants that one or an explanation, not another.
        let missing = |driver: &&String| !self.rows.iter().any(|row| row.driver == **driver);
        if let Some(driver) = policy.named().iter().find(missing) {
            return Err(ChoiceError::Refused(vec![Refusal(format!(
                "no implementation is called '{driver}'"
            ))]));
        }
        rows.sort_by_key(|row| (!policy.names(row), std::cmp::Reverse(row.priority)));
        let mut refusals = Vec::new();
        for row in rows {
            let tested = || {
                self.self_test(row)
                    .map_err(|why| Refusal(format!("{} failed its self-test: {why}", row.driver)))
            };
            match policy.allows(row).and_then(|()| tested()) {
                Ok(()) => return Ok(row),
                Err(refusal) if policy.names(row) => return Err(ChoiceError::Refused(vec![refusal])),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Err(ChoiceError::Refused(refusals))
    }

    /// The chosen implementation of `algorithm` under a key.
    ///
    /// A row outside the CPU is watched: each of its results is compared with the CPU's, work that it fails is
    /// redone, and after a failure it is not asked again.
    ///
    /// # Errors
    /// As [`Registry::choose`], and [`ChoiceError::Key`] for a key of a wrong length.
    pub fn cipher(&self, algorithm: &str, key: &[u8], policy: &Policy) -> Result<Cipher, ChoiceError> {
        let row = self.choose(algorithm, policy)?;
        let spec = row.cipher().map_err(refused)?;
        let mut cipher = Cipher::keyed(row, spec, key).map_err(ChoiceError::Key)?;
        if row.is_outside() {
            let own = self.cipher(algorithm, key, &Policy::cpu_only())?;
            cipher.driver = Box::new(Guard::new(cipher.driver, own.driver, self.watch(row)?));
        }
        Ok(cipher)
    }

    /// The chosen implementation of the hash called `name`, in lower or upper case.
    ///
    /// A row outside this program is watched as a cipher's is.
    ///
    /// # Errors
    /// [`ChoiceError::UnknownHash`], whose message lists the names that there are, and [`ChoiceError::Refused`].
    pub fn hash(&self, name: &str, policy: &Policy) -> Result<Hash, ChoiceError> {
        let algorithm = algorithm(name)?;
        let row = self.choose(algorithm.name(), policy)?;
        let (engine, outside) = match row.hash().map_err(refused)?.make {
            MakeHash::Own(engine) => (engine, None),
            MakeHash::Outside(ref driver) => {
                let guard = HashGuard::new(Arc::clone(driver), self.watch(row)?);
                (self.engine(algorithm)?, Some(guard))
            }
        };
        Ok(Hash::new(algorithm, &row.driver, row.origin, engine, outside))
    }

    /// The implementation of a hash on the CPU.
    fn engine(&self, algorithm: &Algorithm) -> Result<Engine, ChoiceError> {
        let row = self.choose(algorithm.name(), &Policy::cpu_only())?;
        match row.hash().map_err(refused)?.make {
            MakeHash::Own(engine) => Ok(engine),
            MakeHash::Outside(_) => Err(refused(format!("{} does not run on the CPU", row.driver))),
        }
    }
}

impl Hash {
    /// The algorithm called `name`, in lower or upper case, run by what the default policy chooses of what `cpu` has.
    ///
    /// # Errors
    /// As [`Registry::hash`].
    pub fn named(name: &str, cpu: Cpu) -> Result<Hash, ChoiceError> {
        Registry::hashes(cpu).hash(name, &Policy::default())
    }

    /// The digest's length in bytes of the algorithm called `name`.
    ///
    /// # Errors
    /// [`ChoiceError::UnknownHash`].
    pub fn digest_len_of(name: &str) -> Result<usize, ChoiceError> {
        Ok(algorithm(name)?.digest_len)
    }

    /// The lengths in bytes that digests have.
    pub fn digest_lens() -> BTreeSet<usize> {
        Algorithm::all().iter().map(|algorithm| algorithm.digest_len).collect()
    }
}

fn algorithm(name: &str) -> Result<&'static Algorithm, ChoiceError> {
    Algorithm::named(name).ok_or_else(|| ChoiceError::UnknownHash(name.to_owned()))
}

fn refused(why: String) -> ChoiceError {
    ChoiceError::Refused(vec![Refusal(why)])
}

/// The reason why there is no cipher or hash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// No implementation has this algorithm's name.
    Unknown {
        /// The name.
        name: String,
        /// The ciphers that there are, by their modes: `xts(aes|serpent)`.
        known: String,
    },
    /// No hash has this name.
    UnknownHash(String),
    /// Every implementation was refused, each for a reason.
    Refused(Vec<Refusal>),
    /// The key's length is wrong.
    Key(BadKey),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Unknown { name, known } => {
                write!(f, "no implementation of '{name}'; known are {known}")
            }
            ChoiceError::UnknownHash(name) => {
                let known: Vec<_> = Hash::names().collect();
                write!(f, "unknown hash algorithm '{name}'; known are {}", known.join(", "))
            }
            ChoiceError::Refused(refusals) => {
                let reasons: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
                f.write_str(&reasons.join("; "))
            }
            ChoiceError::Key(BadKey(text)) => f.write_str(text),
        }
    }
}

impl std::error::Error for ChoiceError {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use casemate_primitives::testing::key_schedules;

    use super::*;
    use crate::cipher::RequestError;
    use crate::driver::{Direction, Driver, DriverError, HashDriver, Ivs, walk};
    use crate::flags::{Flags, Origin};
    use crate::row::{CipherSpec, HashSpec};

    #[test]
    fn every_row_of_every_cpu_passes() {
        for cpu in [Cpu::detect(), Cpu::portable()] {
            let registry = Registry::new(cpu);
            for row in registry.rows() {
                assert_eq!(registry.self_test(row), Ok(()), "{row:?} on {cpu:?}");
            }
        }
    }

    /// A row that many rows' names stand beside expands what it was asked for: data key and tweak key.
    #[test]
    fn a_key_is_expanded_for_the_chosen_back_end_alone() {
        let registry = Registry::new(Cpu::detect());
        let schedules = |algorithm: &str, key: &[u8]| {
            registry.choose(algorithm, &Policy::default()).unwrap();
            let before = key_schedules();
            registry.cipher(algorithm, key, &Policy::default()).unwrap();
            key_schedules() - before
        };
        assert_eq!(schedules("xts(aes)", &[7; 64]), 2);
        assert_eq!(schedules("cts(cbc(aes))", &[7; 32]), 1);
        assert_eq!(schedules("ecb(aes)", &[7; 16]), 1);
        assert_eq!(schedules("essiv(cbc(aes),sha256)", &[7; 32]), 2);
        let before = key_schedules();
        Registry::new(Cpu::detect());
        assert_eq!(key_schedules() - before, 0, "names are had without a key");
    }

    #[test]
    fn the_order_is_hot_before_cold() {
        let registry = Registry::new(Cpu::detect());
        for algorithm in ["xts(aes)", "cbc(aes)", "essiv(cbc(aes),sha256)"] {
            let row = registry.choose(algorithm, &Policy::default()).unwrap();
            assert_eq!((row.origin, row.flags), (Origin::Own, Flags::MULTI_DATA_UNIT), "{row:?}");
        }
        let row = registry.choose("xts(camellia)", &Policy::default()).unwrap();
        assert_eq!(row.origin, Origin::Crate);
        let error = registry.choose("xts(rot13)", &Policy::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("no implementation of 'xts(rot13)'; known are adiantum(xchacha12,aes"),
            "{text}"
        );
        assert!(
            text.contains(" xts(aes|") && text.contains(" hctr2(aes)") && !text.contains("sha256"),
            "{text}"
        );
    }

    /// Wraps a good AES-XTS, and does wrong in one way.
    struct Faulty {
        inner: Box<dyn Driver>,
        fault: Fault,
        calls: Arc<AtomicU32>,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        Single,
        /// Its counter has 64 bits.
        Carry,
        /// It ruins units of this byte alone, which no test knows.
        Byte(u8),
    }

    impl Driver for Faulty {
        fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let marked = matches!(self.fault, Fault::Byte(byte) if unit.iter().all(|b| *b == byte));
            self.inner.one(direction, iv, unit)?;
            if self.fault == Fault::Single || marked {
                unit[0] ^= 1;
            }
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
            let Ivs::Little { first, step } = *ivs else {
                return walk(self, direction, size, ivs, iv_len, data);
            };
            for (k, unit) in data.chunks_mut(size).enumerate() {
                let mut iv = first.wrapping_add(k as u128 * u128::from(step));
                if self.fault == Fault::Carry {
                    let low = (first as u64).wrapping_add(k as u64 * step);
                    iv = (first >> 64 << 64) | u128::from(low);
                }
                self.one(direction, &iv.to_le_bytes(), unit)?;
            }
            Ok(())
        }
    }

    fn faulty(fault: Fault, flags: Flags, calls: &Arc<AtomicU32>) -> Row {
        let calls = Arc::clone(calls);
        let make = move |key: &[u8]| -> Result<Box<dyn Driver>, BadKey> {
            let good = Registry::new(Cpu::portable()).cipher("xts(aes)", key, &Policy::default()).unwrap();
            Ok(Box::new(Faulty { inner: good.driver, fault, calls: Arc::clone(&calls) }))
        };
        let spec = CipherSpec {
            iv_len: 16,
            block_len: 16,
            whole_blocks: false,
            key_lens: vec![64],
            make: Arc::new(make),
        };
        Row::new("xts(aes)", "xts-aes-engine", 4000, flags, Origin::External, spec)
    }

    fn registry_with(fault: Fault, flags: Flags) -> (Registry, Arc<AtomicU32>) {
        let calls = Arc::default();
        let mut registry = Registry::new(Cpu::detect());
        registry.register(faulty(fault, flags, &calls)).unwrap();
        (registry, calls)
    }

    #[test]
    fn an_engine_is_used_only_when_named_whatever_its_priority() {
        let named = Policy::default().naming("xts-aes-engine");
        for flag in [Flags::ASYNC, Flags::ALLOCATES_MEMORY, Flags::KERN_DRIVER_ONLY] {
            let (registry, _) = registry_with(Fault::None, flag);
            assert_ne!(registry.choose("xts(aes)", &Policy::default()).unwrap().driver, "xts-aes-engine");
            let refusal =
                Policy::default().allows(registry.find("xts(aes)", "xts-aes-engine").unwrap()).unwrap_err();
            assert!(refusal.to_string().ends_with("are used only when they are named"), "{refusal}");
            assert_eq!(registry.choose("xts(aes)", &named).unwrap().driver, "xts-aes-engine");
        }
        let (registry, _) = registry_with(Fault::None, Flags::NONE);
        assert_eq!(registry.choose("xts(aes)", &Policy::default()).unwrap().driver, "xts-aes-engine");
    }

    #[test]
    fn a_row_that_fails_its_tests_is_never_used() {
        let named = Policy::default().naming("xts-aes-engine");
        for (fault, why) in [(Fault::Single, "known answer"), (Fault::Carry, "differ from single ones")] {
            let (registry, _) = registry_with(fault, Flags::MULTI_DATA_UNIT);
            assert_ne!(registry.choose("xts(aes)", &Policy::default()).unwrap().driver, "xts-aes-engine");
            let error = registry.cipher("xts(aes)", &[1; 64], &named).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        // Without the flag the walker runs it, and a wrong counter of its own is never asked.
        let (registry, _) = registry_with(Fault::Carry, Flags::NONE);
        assert_eq!(registry.choose("xts(aes)", &Policy::default()).unwrap().driver, "xts-aes-engine");
    }

    #[test]
    fn the_flag_is_refused_where_the_iv_has_not_16_bytes() {
        let make = |_: &[u8]| -> Result<Box<dyn Driver>, BadKey> { Err(BadKey("never made".into())) };
        let spec = CipherSpec {
            iv_len: 32,
            block_len: 16,
            whole_blocks: false,
            key_lens: vec![32],
            make: Arc::new(make),
        };
        let row =
            Row::new("adiantum(x,aes)", "wide-engine", 1, Flags::MULTI_DATA_UNIT, Origin::External, spec);
        let refusal = Registry::new(Cpu::portable()).register(row).unwrap_err();
        assert!(refusal.to_string().contains("needs an IV of 16 bytes"), "{refusal}");
    }

    #[test]
    fn requests_keep_the_contract() {
        let registry = Registry::new(Cpu::detect());
        let cipher = |algorithm, len| registry.cipher(algorithm, &vec![3; len], &Policy::default());
        let ivs = Ivs::Little { first: 0, step: 1 };
        let xts = cipher("xts(aes)", 64).unwrap();
        assert_eq!(
            xts.with_data_unit_size(15).unwrap_err(),
            RequestError::UnitBelowBlock { unit: 15, block: 16 }
        );
        let xts = cipher("xts(aes)", 64).unwrap().with_data_unit_size(512).unwrap();
        for len in [0, 511, 513, 1000] {
            let error = xts.encrypt(&ivs, &mut vec![0; len]).unwrap_err();
            assert_eq!(error, RequestError::Length { len, unit: 512 });
        }
        let error = xts.encrypt(&Ivs::List(&[0; 16]), &mut [0; 1024]).unwrap_err();
        assert_eq!(error, RequestError::Ivs { given: 16, needed: 32 });
        let cbc = cipher("cbc(aes)", 32).unwrap();
        assert_eq!(
            cbc.with_data_unit_size(520).unwrap_err(),
            RequestError::PartBlock { unit: 520, block: 16 }
        );
        let error = cipher("xts(aes)", 63).unwrap_err().to_string();
        assert_eq!(
            error,
            "xts(aes) takes keys of 64 or 32 or 48 bytes (512 or 256 or 384 bits), not of 63 (504 bits)"
        );
    }

    #[test]
    fn a_named_engine_is_asked_and_watched() {
        let (registry, calls) = registry_with(Fault::None, Flags::ASYNC);
        let named = Policy::default().naming("xts-aes-engine");
        let engine = registry.cipher("xts(aes)", &[1; 64], &named).unwrap();
        let own = registry.cipher("xts(aes)", &[1; 64], &Policy::default()).unwrap();
        let (mut a, mut b) = ([5; 64], [5; 64]);
        let before = calls.load(Ordering::Relaxed);
        engine.encrypt(&Ivs::Little { first: 9, step: 1 }, &mut a).unwrap();
        own.encrypt(&Ivs::Little { first: 9, step: 1 }, &mut b).unwrap();
        assert_eq!(a, b);
        assert!(calls.load(Ordering::Relaxed) > before, "the engine was asked");
        assert_eq!((engine.trouble(), registry.troubles().next()), (None, None));
    }

    #[test]
    fn an_engine_that_failed_under_one_key_is_asked_under_no_other() {
        let (registry, calls) = registry_with(Fault::Byte(9), Flags::ASYNC);
        let named = Policy::default().naming("xts-aes-engine");
        let cipher = |key| registry.cipher("xts(aes)", &[key; 64], &named).unwrap();
        let (first, other) = (cipher(1), cipher(2));
        let encrypt = |cipher: &Cipher| {
            let mut data = [9; 64];
            cipher.encrypt(&Ivs::Little { first: 0, step: 1 }, &mut data).unwrap();
            data
        };
        let right = registry.cipher("xts(aes)", &[1; 64], &Policy::default()).unwrap();
        assert_eq!(encrypt(&first), encrypt(&right));
        let before = calls.load(Ordering::Relaxed);
        encrypt(&other);
        encrypt(&cipher(3));
        assert_eq!(calls.load(Ordering::Relaxed), before);
        let trouble = "xts-aes-engine is not used any more: it returned wrong data";
        assert_eq!(registry.troubles().collect::<Vec<_>>(), [trouble]);
    }

    /// Hashes rightly, or with one bit wrong in messages longer than a page.
    struct HashEngine {
        wrong: bool,
        calls: Arc<AtomicU32>,
    }

    impl HashDriver for HashEngine {
        fn digest(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            out.copy_from_slice(&Hash::named("sha256", Cpu::portable()).unwrap().digest(&parts.concat()));
            out[0] ^= u8::from(self.wrong && parts.concat().len() > 4096);
            Ok(())
        }
    }

    fn registry_with_hash(wrong: bool, flags: Flags) -> (Registry, Arc<AtomicU32>) {
        let calls = Arc::default();
        let spec = HashSpec::outside(32, Arc::new(HashEngine { wrong, calls: Arc::clone(&calls) }));
        let mut registry = Registry::new(Cpu::detect());
        registry.register(Row::new("sha256", "sha256-engine", 4000, flags, Origin::External, spec)).unwrap();
        (registry, calls)
    }

    #[test]
    fn a_hash_engine_is_used_only_when_named_and_watched_then() {
        let named = Policy::default().naming("sha256-engine");
        for flag in [Flags::ASYNC, Flags::ALLOCATES_MEMORY, Flags::KERN_DRIVER_ONLY] {
            let (registry, calls) = registry_with_hash(false, flag);
            let own = registry.hash("SHA256", &Policy::default()).unwrap();
            assert_eq!((own.origin(), calls.load(Ordering::Relaxed)), (Origin::Own, 0));
            let engine = registry.hash("sha256", &named).unwrap();
            assert_eq!((engine.driver(), engine.name()), ("sha256-engine", "sha256"));
            let before = calls.load(Ordering::Relaxed);
            assert_eq!(engine.digest(b"message"), own.digest(b"message"));
            assert_eq!((calls.load(Ordering::Relaxed) - before, engine.trouble()), (1, None));
        }
        let (registry, _) = registry_with_hash(true, Flags::ASYNC);
        let error = registry.hash("sha256", &named).unwrap_err().to_string();
        assert_eq!(
            error,
            "sha256-engine failed its self-test: 4096 random bytes hash differently from the portable code"
        );
        let error = registry.hash("sha512", &Policy::default().naming("sha512-rocket")).unwrap_err();
        assert_eq!(error.to_string(), "no implementation is called 'sha512-rocket'");
        let spec = HashSpec::outside(32, Arc::new(HashEngine { wrong: false, calls: Arc::default() }));
        let odd = Row::new("sha257", "odd", 1, Flags::NONE, Origin::External, spec);
        let refusal = Registry::new(Cpu::portable()).register(odd).unwrap_err();
        assert_eq!(refusal.to_string(), "odd: there is no portable sha257 to compare with");
    }
}
