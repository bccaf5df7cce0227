//! The registry's order of our own back ends is that of the primitives, whatever the CPU lacks.

use casemate_primitives::sha256::Sha256;
use casemate_primitives::sha512::Sha512;
use casemate_primitives::{Cpu, Feature};
use casemate_providers::{Origin, Policy, Registry};

/// This CPU, this CPU without each feature and each two of them, and none of them.
fn narrowed() -> Vec<Cpu> {
    let all = Cpu::detect();
    let mut cpus = vec![Cpu::portable()];
    for a in Feature::all() {
        cpus.extend(Feature::all().map(|b| all.without(a).without(b)));
    }
    cpus.sort_by_key(|cpu| format!("{cpu:?}"));
    cpus.dedup();
    cpus
}

/// The drivers of our own rows for `algorithm`, by falling priority.
fn own<'a>(registry: &'a Registry, algorithm: &str) -> Vec<&'a str> {
    let own = registry.rows().iter().filter(|row| row.origin == Origin::Own && row.algorithm == algorithm);
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|row| std::cmp::Reverse(row.priority));
    assert!(own.is_sorted_by(|a, b| a.priority > b.priority), "{algorithm}: two rows of one priority");
    own.into_iter().map(|row| row.driver.as_str()).collect()
}

#[test]
fn hashes_run_on_what_the_primitives_would_choose() {
    for cpu in narrowed() {
        let registry = Registry::new(cpu);
        for (algorithm, best, order) in [
            (
                "sha256",
                Sha256::new(cpu).name(),
                Sha256::available(cpu).map(|sha| sha.name()).collect::<Vec<_>>(),
            ),
            ("sha512", Sha512::new(cpu).name(), Sha512::available(cpu).map(|sha| sha.name()).collect()),
        ] {
            let hash = registry.hash(algorithm, &Policy::default()).unwrap();
            assert_eq!(hash.driver(), format!("{algorithm}-{best}"), "{cpu:?}");
            let order: Vec<_> = order.iter().map(|name| format!("{algorithm}-{name}")).collect();
            assert_eq!(own(&registry, algorithm), order, "{cpu:?}");
        }
    }
}
