//! Every test that SECURITY.md names for a promise is there.

use std::fs;
use std::path::Path;

/// `CRATE/FILE::NAME`, where the file may lie in folders.
fn is_test(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    word.split_once("::")
        .is_some_and(|(path, name)| is_name(name) && path.contains('/') && path.split('/').all(is_name))
}

#[test]
fn promises_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let tests: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| is_test(word)).collect();
    for test in &tests {
        let (path, name) = test.split_once("::").unwrap();
        let (krate, file) = path.split_once('/').unwrap();
        let file = root.join("crates").join(krate).join("tests").join(file).with_extension("rs");
        let file = if file.exists() { file } else { file.with_extension("").join("main.rs") };
        let source =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{test}: {}: {error}", file.display()));
        assert!(
            source.contains(&format!("#[test]\nfn {name}()")),
            "{test}: no such test in {}",
            file.display()
        );
    }
    // A row without a test is no promise.
    let table = text.split("## What survives what").nth(1).unwrap().split("\n## ").next().unwrap();
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).skip(1) {
        let header = row.ends_with("| tests |");
        assert!(header || row.split('`').any(is_test), "no test: {row}");
    }
    assert!(tests.len() > 30, "{}", tests.len());
}
