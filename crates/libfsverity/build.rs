//! The name that programs ask for which are linked to the original.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfsverity.so.0");
}
