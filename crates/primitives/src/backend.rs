//! The choice among the back ends of an algorithm: the one place that orders them.
//!
//! An algorithm's `mod.rs` has a table of rows, fastest first as measured, `portable` last. Which of them a
//! CPU can run, and in which order they are to be preferred there, is the same question for all algorithms,
//! so it is answered here: by [`available`] for lists of them, and by [`best`] for a single one. Priorities
//! elsewhere follow this order.

use std::fmt;

use crate::cpu::{Cpu, Feature};

/// A row of an algorithm's table of back ends: its functions, and what the CPU must have for them.
pub(crate) struct Row<F: 'static> {
    /// The back end's name, such as `portable`.
    pub name: &'static str,
    /// The features without which the row's instructions do not exist.
    needs: &'static [Feature],
    /// The features without which the row is slower than the next one that the CPU can run.
    pays_with: &'static [Feature],
    /// The functions. They may be called where the CPU has what the row needs.
    pub run: F,
}

impl<F> Row<F> {
    /// A row that is faster than the next one wherever it runs.
    pub const fn new(name: &'static str, needs: &'static [Feature], run: F) -> Row<F> {
        Row { name, needs, pays_with: &[], run }
    }

    /// The row, which is faster than the next one only where the CPU has these features besides.
    pub const fn pays_with(mut self, features: &'static [Feature]) -> Row<F> {
        self.pays_with = features;
        self
    }
}

impl<F> fmt::Debug for Row<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The rows of `table` that `cpu` can run, fastest first.
///
/// A row that does not pay on this CPU stands behind the next one that does.
pub(crate) fn available<F>(table: &'static [Row<F>], cpu: Cpu) -> impl Iterator<Item = &'static Row<F>> {
    let mut order = Vec::with_capacity(table.len());
    let mut slow = Vec::new();
    for row in table.iter().filter(|row| cpu.has_all(row.needs)) {
        if cpu.has_all(row.pays_with) {
            order.push(row);
            order.append(&mut slow);
        } else {
            slow.push(row);
        }
    }
    order.append(&mut slow);
    order.into_iter()
}

/// The fastest row of `table` that `cpu` can run: the first of [`available`].
///
/// # Panics
/// If the table has no row that needs nothing.
pub(crate) fn best<F>(table: &'static [Row<F>], cpu: Cpu) -> &'static Row<F> {
    let pays = |row: &&Row<F>| cpu.has_all(row.needs) && cpu.has_all(row.pays_with);
    table.iter().find(pays).expect("the portable back end needs nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aes::AesBackend;
    use crate::base64::{Alphabet, Base64, Padding};
    use crate::crc32c::Crc32c;
    use crate::reed_solomon::ReedSolomon;
    use crate::sha256::Sha256;
    use crate::sha512::Sha512;

    static TABLE: [Row<()>; 5] = [
        Row::new("wide", &[Feature::Avx512], ()).pays_with(&[Feature::WholeZmm]),
        Row::new("hashing", &[Feature::ShaNi], ()),
        Row::new("wide-alone", &[Feature::Avx512], ()),
        Row::new("carrying", &[Feature::Avx2], ()).pays_with(&[Feature::Gfni, Feature::WholeZmm]),
        Row::new("portable", &[], ()),
    ];

    fn order(cpu: Cpu) -> Vec<&'static str> {
        available(&TABLE, cpu).map(|row| row.name).collect()
    }

    #[test]
    fn a_row_that_does_not_pay_stands_behind_the_next_that_does() {
        use Feature::*;
        let cpu = |features: &[Feature]| Cpu::of(features);
        assert_eq!(order(cpu(&[])), ["portable"]);
        assert_eq!(order(cpu(&[Avx512, ShaNi, WholeZmm])), ["wide", "hashing", "wide-alone", "portable"]);
        assert_eq!(order(cpu(&[Avx512, ShaNi])), ["hashing", "wide", "wide-alone", "portable"]);
        assert_eq!(order(cpu(&[Avx512])), ["wide-alone", "wide", "portable"]);
        assert_eq!(order(cpu(&[Avx2, Gfni])), ["portable", "carrying"]);
    }

    /// For every algorithm whose handles can be made without running instructions, and for every CPU that lacks at
    /// most three features, whatever the CPU of the test has.
    #[test]
    fn what_new_makes_is_the_first_that_is_available() {
        let everything = Cpu::of(&Feature::all().collect::<Vec<_>>());
        let mut cpus = vec![everything];
        for a in Feature::all() {
            for b in Feature::all() {
                cpus.extend(Feature::all().map(|c| everything.without(a).without(b).without(c)));
            }
        }
        for cpu in cpus {
            let base64 = |codec: Base64<'_>| codec.name();
            let url = &Alphabet::URL_SAFE;
            let pairs = [
                (best(&TABLE, cpu).name, available(&TABLE, cpu).next().map(|row| row.name)),
                (AesBackend::new(cpu).name(), AesBackend::available(cpu).next().map(AesBackend::name)),
                (Sha256::new(cpu).name(), Sha256::available(cpu).next().map(|sha| sha.name())),
                (Sha512::new(cpu).name(), Sha512::available(cpu).next().map(|sha| sha.name())),
                (Crc32c::new(cpu).name(), Crc32c::available(cpu).next().map(|crc| crc.name())),
                (
                    base64(Base64::new(cpu, url, Padding::Unpadded)),
                    Base64::available(cpu, url, Padding::Unpadded).next().map(base64),
                ),
                (
                    ReedSolomon::new(cpu, 2).unwrap().backend(),
                    ReedSolomon::available(cpu, 2).unwrap().first().map(ReedSolomon::backend),
                ),
            ];
            for (new, first) in pairs {
                assert_eq!(Some(new), first, "{cpu:?}");
            }
        }
    }

    /// Halved 512-bit units make SHA-256's lanes slower than the instructions, and CRC-32C's streams than vectors.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn halved_units_are_known_to_whoever_lists_back_ends() {
        let whole = Cpu::of(&Feature::all().collect::<Vec<_>>());
        let halved = whole.without(Feature::WholeZmm);
        let sha256 = |cpu| Sha256::available(cpu).map(|sha| sha.name()).take(2).collect::<Vec<_>>();
        assert_eq!(sha256(whole), ["x86_64-avx512-2x16", "x86_64-sha-ni"]);
        assert_eq!(sha256(halved), ["x86_64-sha-ni", "x86_64-avx512-2x16"]);
        let crc32c = |cpu| Crc32c::available(cpu).map(|crc| crc.name()).take(2).collect::<Vec<_>>();
        assert_eq!(crc32c(whole), ["vpclmul-hybrid", "vpclmul-crc32"]);
        assert_eq!(crc32c(halved), ["vpclmul-crc32", "vpclmul-hybrid"]);
    }
}
