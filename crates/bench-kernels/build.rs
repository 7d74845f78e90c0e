//! What google/snappy was built as: it has its fast paths only where flags say that the compiler knows them.
//!
//! Its crate passes `CXX` and `CXXFLAGS` to the compiler and looks at nothing itself, so what they say is what it is.

use std::env;
use std::process::Command;

const FLAGS: [&str; 3] = ["-DSNAPPY_HAVE_SSSE3=1", "-DHAVE_BUILTIN_EXPECT=1", "-DNDEBUG"];

fn main() {
    for variable in ["CXX", "CXXFLAGS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let flags = env::var("CXXFLAGS").unwrap_or_default();
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let version = Command::new(compiler).arg("--version").output();
    let is_clang =
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("clang version"));
    let is_x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "x86_64");
    let name = if is_x86 && !FLAGS.iter().all(|flag| flags.split_whitespace().any(|given| given == *flag)) {
        "google/snappy (no SIMD)"
    } else if !is_clang {
        "google/snappy (by GCC)"
    } else {
        "google/snappy"
    };
    println!("cargo:rustc-env=KEIRIN_GOOGLE_SNAPPY={name}");
}
