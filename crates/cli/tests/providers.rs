//! The providers commands, here and inside a kernel that has AF_ALG.

use std::process::Command;

use casemate_testkit::uml::Uml;
use casemate_testkit::{run, tempdir};
use serde_json::Value;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

fn providers(args: &[&str]) -> String {
    run(Command::new(CASEMATE).arg("providers").args(args))
}

#[test]
fn every_row_is_listed_and_passes() {
    let list: Value = serde_json::from_str(&providers(&["--json"])).unwrap();
    let rows = list["providers"].as_array().unwrap();
    let chosen = |algorithm: &str| {
        let row = rows.iter().find(|row| row["algorithm"] == algorithm && row["state"] == "chosen");
        row.unwrap_or_else(|| panic!("{algorithm}")).clone()
    };
    for algorithm in
        ["xts(aes)", "cbc(aes)", "essiv(cbc(aes),sha256)", "adiantum(xchacha12,aes)", "hctr2(aes)", "sha256"]
    {
        assert_eq!(chosen(algorithm)["origin"], "casemate", "{algorithm}");
    }
    for algorithm in ["xts(serpent)", "sha1", "sha3-256"] {
        assert_eq!(chosen(algorithm)["origin"], "crate", "{algorithm}");
    }
    let flags = chosen("xts(aes)")["flags"].to_string();
    assert_eq!(flags, "[\"multi-data-unit\"]");
    let tests: Value =
        serde_json::from_str(&providers(&["selftest", "--json", "--algorithm", "aes"])).unwrap();
    for test in tests["selftests"].as_array().unwrap() {
        let result = test["result"].as_str().unwrap();
        assert!(result == "passed" || (test["driver"].as_str().unwrap().starts_with("af_alg")), "{test}");
    }
    assert!(providers(&[]).contains("ALGORITHM"));
}

#[test]
fn benchmarks_are_measured_and_drawn() {
    let folder = tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let args =
        ["bench", "--time", "2", "--algorithm", "xts(aes)", "--json", "--plot", plot.to_str().unwrap()];
    let bench: Value = serde_json::from_str(&providers(&args)).unwrap();
    let rows = bench["bench"].as_array().unwrap();
    assert!(rows.len() >= 2 && rows[0]["batched_mb_s"].as_f64().unwrap() > 0.0);
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("xts(aes) by xts-aes-"), "{svg}");
}

/// In Debian's User-Mode-Linux AF_ALG is there: its drivers are listed, refused by the policy with a sentence, pass
/// the tests, and do the work when they are named.
#[test]
fn the_kernels_ciphers_are_used_only_when_named() {
    let folder = tempdir().unwrap();
    let dir = folder.path().display();
    std::fs::write(folder.path().join("plain"), vec![0x31; 1 << 16]).unwrap();
    std::fs::write(folder.path().join("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    let script = format!(
        "cd {dir}\n\
         {CASEMATE} providers --json --algorithm 'xts(aes)' >list\n\
         {CASEMATE} providers selftest --json --algorithm 'xts(aes)' >tests\n\
         driver=$(grep -o '\"driver\":\"af_alg:[^\"]*' list | head -n 1 | cut -d '\"' -f 4)\n\
         echo \"$driver\"\n\
         {CASEMATE} crypt encrypt plain named --key-file key --key-size 512 --provider \"$driver\" --json\n\
         {CASEMATE} crypt encrypt plain own --key-file key --key-size 512\n\
         cmp named own\n"
    );
    let Some(output) = Uml::new(script).run() else { return };
    let output = output.expect_success();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let list: Value = serde_json::from_str(&read("list")).unwrap();
    let rows = list["providers"].as_array().unwrap();
    let kernel = rows.iter().find(|row| row["origin"] == "af_alg").expect("a row of the kernel's");
    assert_eq!(kernel["state"], "refused", "{kernel}");
    let why = kernel["reason"].as_str().unwrap();
    assert!(why.contains("kernel-driver-only") && why.ends_with("only when they are named"), "{why}");
    let tests: Value = serde_json::from_str(&read("tests")).unwrap();
    for test in tests["selftests"].as_array().unwrap() {
        assert_eq!(test["result"], "passed", "{test}");
    }
    assert!(output.stdout.contains("\"driver\":\"af_alg:"), "{}", output.stdout);
}
