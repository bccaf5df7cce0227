//! Arguments for the linker: on macOS the interpreter's functions are found when the module is loaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-undefined,dynamic_lookup");
    }
}
