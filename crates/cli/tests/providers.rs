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
    for algorithm in ["xts(camellia)", "sha1", "sha3-256"] {
        assert_eq!(chosen(algorithm)["origin"], "crate", "{algorithm}");
    }
    let flags = chosen("xts(aes)")["flags"].to_string();
    assert_eq!(flags, "[\"multi-data-unit\"]");
    let tests: Value = serde_json::from_str(&providers(&["selftest", "--json"])).unwrap();
    let tests = tests["selftests"].as_array().unwrap();
    assert!(tests.iter().any(|test| test["algorithm"] == "sha256" && test["driver"] == "sha256-crate"));
    for test in tests {
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
    let hashes = providers(&["bench", "--time", "2", "--algorithm", "sha256", "--json"]);
    let hashes: Value = serde_json::from_str(&hashes).unwrap();
    let own = hashes["bench"].as_array().unwrap().iter().find(|row| row["algorithm"] == "sha256").unwrap();
    assert!(own["single_mb_s"].as_f64().unwrap() > 0.0 && own["batched_mb_s"].as_f64().unwrap() > 0.0);
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

/// Hashes are chosen as ciphers are, wherever one is named.
#[test]
fn a_named_hash_driver_makes_the_same_trees() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("data"), vec![0x31; 1 << 20]).unwrap();
    let casemate = |args: &[&str]| {
        let mut command = Command::new(CASEMATE);
        command.current_dir(folder.path()).args(args);
        command
    };
    let own = run(&mut casemate(&["fsverity", "digest", "data"]));
    let named = run(&mut casemate(&["fsverity", "digest", "data", "--provider", "sha256-crate"]));
    assert_eq!(own, named);
    let format = ["verity", "format", "data", "hash", "--seed", "x", "--provider", "sha256-portable"];
    run(casemate(&format).args(["--root-hash-file", "root"]));
    let verify = ["verity", "verify", "data", "hash", "--root-hash-file", "root", "--provider"];
    run(casemate(&verify).arg("sha256-crate"));
    let refusals = [
        ("sha512-crate", "does not make sha256"),
        ("sha256-rocket", "no implementation is called 'sha256-rocket'"),
    ];
    for (driver, why) in refusals {
        for command in [&verify[..], &["fsverity", "digest", "data", "--provider"]] {
            let output = casemate(command).arg(driver).output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
            assert!(stderr.contains(why), "{stderr}");
        }
    }
}

/// The kernel's own hash drivers make what ours make, are refused unless named, and are found with their flags.
#[test]
fn the_kernels_hashes_are_used_only_when_named() {
    let folder = tempdir().unwrap();
    let dir = folder.path().display();
    std::fs::write(folder.path().join("data"), vec![0x31; 1 << 18]).unwrap();
    let script = format!(
        "cd {dir}\n\
         {CASEMATE} providers --json >list\n\
         {CASEMATE} providers selftest --json >tests\n\
         {CASEMATE} providers bench --json --time 2 --algorithm sha256 >bench\n\
         driver=$({CASEMATE} providers --algorithm sha256 | grep -o '^sha256 *af_alg:[^ ]*' | head -n 1 | cut -d ':' -f 2)\n\
         {CASEMATE} verity format data own --seed x --root-hash-file own.root\n\
         {CASEMATE} verity format data named --seed x --root-hash-file named.root --provider af_alg:$driver\n\
         {CASEMATE} verity verify data own --root-hash-file own.root --provider af_alg:$driver\n\
         cmp own named\n\
         {CASEMATE} fsverity digest data >own.digest\n\
         {CASEMATE} fsverity digest data --provider af_alg:$driver >named.digest\n\
         cmp own.digest named.digest\n\
         echo secret | {CASEMATE} crypt encrypt data own.crypt\n\
         echo secret | {CASEMATE} crypt encrypt data named.crypt --provider af_alg:$driver\n\
         cmp own.crypt named.crypt\n"
    );
    let Some(output) = Uml::new(script).run() else { return };
    let output = output.expect_success();
    assert_eq!(output.stderr, "", "nothing was mended");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let of_kernel = |name: &str, list: &str| -> Vec<Value> {
        let all: Value = serde_json::from_str(&read(name)).unwrap();
        let all = all[list].as_array().unwrap().iter();
        all.filter(|row| row["driver"].as_str().unwrap().starts_with("af_alg:")).cloned().collect()
    };
    let rows = of_kernel("list", "providers");
    for algorithm in ["sha256", "sha512", "sha1", "md5"] {
        let row = rows.iter().find(|row| row["algorithm"] == algorithm);
        let row = row.unwrap_or_else(|| panic!("{algorithm}"));
        assert_eq!(row["state"], "refused", "{row}");
        assert_eq!(row["flags"][0], "kernel-driver-only", "{row}");
    }
    let tests = of_kernel("tests", "selftests");
    assert!(tests.len() > 10, "{tests:?}");
    for test in tests {
        assert_eq!(test["result"], "passed", "{test}");
    }
    assert!(of_kernel("bench", "bench").iter().all(|row| row["single_mb_s"].as_f64().unwrap() > 0.0));
}
