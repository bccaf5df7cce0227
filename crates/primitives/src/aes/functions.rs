//! Functions of a back end: modes and key expansion, compiled for its instructions.

/// Makes a back end's key expansion out of a constructor and its target features.
macro_rules! expand_function {
    ($expansion:expr $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        pub(super) fn expand(key: &[u8], keys: &mut super::schedule::Schedule) {
            keys.expand(key, $expansion);
        }
    };
}

/// Makes a back end's modes out of an engine's constructor and its target features.
macro_rules! engine_functions {
    ($engine:expr $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        pub(super) fn ecb(
            keys: &super::schedule::Schedule,
            direction: super::Direction,
            io: crate::inout::InOut<'_>,
        ) {
            match direction {
                super::Direction::Encrypt => super::modes::ecb::<_, false>($engine, keys, io),
                super::Direction::Decrypt => super::modes::ecb::<_, true>($engine, keys, io),
            }
        }

        $(#[target_feature(enable = $features)])?
        pub(super) fn counter(
            keys: &super::schedule::Schedule,
            start: super::modes::Counter,
            io: crate::inout::InOut<'_>,
        ) {
            super::modes::counter($engine, keys, start, io);
        }

        $(#[target_feature(enable = $features)])?
        pub(super) fn cbc(
            keys: &super::schedule::Schedule,
            direction: super::Direction,
            units: &super::Units<'_>,
            io: crate::inout::InOut<'_>,
        ) {
            match direction {
                super::Direction::Encrypt => super::modes::cbc_encrypt($engine, keys, units, io),
                super::Direction::Decrypt => super::modes::cbc_decrypt($engine, keys, units, io),
            }
        }

        $(#[target_feature(enable = $features)])?
        pub(super) fn cts(
            keys: &super::schedule::Schedule,
            direction: super::Direction,
            units: &super::Units<'_>,
            io: crate::inout::InOut<'_>,
        ) {
            match direction {
                super::Direction::Encrypt => super::modes::cts::<_, false>($engine, keys, units, io),
                super::Direction::Decrypt => super::modes::cts::<_, true>($engine, keys, units, io),
            }
        }

        $(#[target_feature(enable = $features)])?
        pub(super) fn xts(
            keys: &super::schedule::XtsKeys,
            direction: super::Direction,
            units: &super::Units<'_>,
            io: crate::inout::InOut<'_>,
        ) {
            match direction {
                super::Direction::Encrypt => super::modes::xts::<_, false>($engine, keys, units, io),
                super::Direction::Decrypt => super::modes::xts::<_, true>($engine, keys, units, io),
            }
        }
    };
}

pub(super) use {engine_functions, expand_function};
