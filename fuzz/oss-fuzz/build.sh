#!/bin/bash -eu
# Builds each fuzz target with OSS-Fuzz's sanitizer and leaves it in $OUT. The images that targets edit lie in $OUT/seeds.
cd "$SRC/casemate"
cargo fuzz build -O --debug-assertions
targets=fuzz/target/x86_64-unknown-linux-gnu/release
for source in fuzz/fuzz_targets/*.rs; do
    cp "$targets/$(basename "$source" .rs)" "$OUT/"
done
mkdir -p "$OUT/seeds"
cp fuzz/seeds/*.xz crates/integrity/tests/fixtures/journal.img.xz "$OUT/seeds/"
