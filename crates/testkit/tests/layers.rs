//! The layers hold: who may depend on whom, where versions stand, where unsafe code lives.
//!
//! Dependencies point down, and neighbours on a shelf do not know each other:
//!
//! ```text
//! doors      cli · python
//! services   server · cluster
//! query      engine
//! data       storage
//! pure       codecs · collation · csv     no I/O, no async, no global state
//! base       kernels · race               no I/O, no async; `kernels` holds the unsafe
//! beside     testkit (knows none of ours) · bench, bench-kernels (may know what they measure)
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use cargo_metadata::camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each crate, by the name of its folder, and those of ours that it may depend on.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("kernels", &[]),
    ("race", &[]),
    ("codecs", &["kernels", "race"]),
    ("collation", &["kernels", "race"]),
    ("csv", &["kernels", "race"]),
    ("storage", &["codecs", "collation", "kernels", "race"]),
    ("operators", &["collation", "kernels", "race"]),
    ("engine", &["codecs", "collation", "csv", "kernels", "operators", "race", "storage"]),
    ("cluster", &["codecs", "collation", "csv", "engine", "kernels", "operators", "race", "storage"]),
    // The two doors for clients go through the façade.
    ("server", &["engine"]),
    ("python", &["engine"]),
    ("cli", &["cluster", "engine", "server"]),
    ("testkit", &[]),
    ("bench-kernels", &["codecs", "collation", "kernels", "race", "testkit"]),
    (
        "bench",
        &[
            "bench-kernels",
            "codecs",
            "collation",
            "csv",
            "engine",
            "kernels",
            "operators",
            "race",
            "storage",
            "testkit",
        ],
    ),
];
/// What every crate may use in its own tests.
const FOR_TESTS: &str = "testkit";
/// DataFusion's upgrades have a known address.
const MAY_KNOW_DATAFUSION: [&str; 2] = ["engine", "cluster"];
/// Crates that do no I/O and never wait.
const PURE: [&str; 6] = ["codecs", "collation", "csv", "kernels", "operators", "race"];
const NOT_PURE: [&str; 6] = ["async-trait", "futures", "hyper", "object_store", "reqwest", "tokio"];
/// The home of unsafe code.
const MAY_BE_UNSAFE: &str = "kernels";
/// The one file elsewhere: only who knows the files of tables can say that nobody writes to them.
const UNSAFE_FILE: &str = "crates/storage/src/io/map.rs";

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).no_deps();
    command.exec().expect("cargo describes the workspace")
}

/// The folder that a crate lies in, which is its short name.
fn folder(package: &Package) -> &str {
    package.manifest_path.parent().and_then(|path| path.file_name()).expect("a manifest lies in a folder")
}

/// Fails with all that `problems` finds, one a line.
fn check(problems: impl Fn(&Metadata, &Package) -> Vec<String>) {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    let found: Vec<String> = packages.iter().flat_map(|package| problems(&metadata, package)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn dependencies_point_down() {
    check(|metadata, package| {
        let name = folder(package);
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            return vec![format!("crates/{name} has no shelf: add it to ALLOWED")];
        };
        let ours = metadata.workspace_packages();
        let mut problems = Vec::new();
        for dependency in &package.dependencies {
            let Some(target) = ours.iter().find(|other| *other.name == dependency.name) else { continue };
            let target = folder(target);
            let in_tests = dependency.kind == DependencyKind::Development;
            let allowed = allowed.contains(&target) || in_tests && target == FOR_TESTS;
            if !allowed {
                problems.push(format!("{name} must not depend on {target}"));
            }
        }
        problems
    });
}

#[test]
fn only_the_query_layer_knows_datafusion() {
    check(|_, package| {
        let name = folder(package);
        let mut dependencies =
            package.dependencies.iter().filter(|other| other.name.starts_with("datafusion"));
        if MAY_KNOW_DATAFUSION.contains(&name) || dependencies.next().is_none() {
            return Vec::new();
        }
        vec![format!("{name} must not depend on DataFusion")]
    });
}

#[test]
fn pure_crates_neither_read_nor_wait() {
    check(|_, package| {
        let name = folder(package);
        if !PURE.contains(&name) {
            return Vec::new();
        }
        let used = package.dependencies.iter().filter(|other| other.kind != DependencyKind::Development);
        let impure = used.filter(|other| NOT_PURE.contains(&other.name.as_str()));
        impure.map(|other| format!("{name} is pure and must not depend on {}", other.name)).collect()
    });
}

#[test]
fn versions_stand_in_the_root_manifest_only() {
    check(|_, package| {
        let manifest = fs::read_to_string(&package.manifest_path).expect("the manifest can be read");
        let mut in_dependencies = false;
        let mut problems = Vec::new();
        for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
                if line.contains("dependencies.") {
                    problems.push(format!("{}: write {line} in one line", package.manifest_path));
                }
            } else if in_dependencies && !line.contains("workspace = true") {
                problems.push(format!("{}: take from the workspace: {line}", package.manifest_path));
            }
        }
        let lints = manifest.contains("[lints]\nworkspace = true");
        if !lints {
            problems.push(format!("{}: take the lints from the workspace", package.manifest_path));
        }
        problems
    });
}

#[test]
fn unsafe_code_has_one_home() {
    check(|_, package| {
        if folder(package) == MAY_BE_UNSAFE {
            return Vec::new();
        }
        let roots: BTreeSet<_> = package
            .targets
            .iter()
            .filter(|target| target.is_lib() || target.is_bin() || target.is_proc_macro())
            .map(|target| &target.src_path)
            .collect();
        let text = |path: &Utf8Path| fs::read_to_string(path).expect("sources can be read");
        let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
        // What is forbidden has no exceptions.
        let has_exception =
            UNSAFE_FILE.starts_with(&format!("crates/{}/", folder.file_name().expect("a name")));
        let wanted = if has_exception { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        let lacking = roots.iter().filter(|path| !text(path).contains(wanted));
        let mut problems: Vec<_> = lacking.map(|path| format!("{path} lacks {wanted}")).collect();
        let allows = |path: &Utf8PathBuf| {
            let is_exception = path.as_str().ends_with(UNSAFE_FILE);
            let source = text(path);
            !is_exception
                && ["allow(unsafe_code", "expect(unsafe_code"].iter().any(|allow| source.contains(allow))
        };
        let files = sources(&folder.join("src"));
        problems.extend(
            files.iter().filter(|path| allows(path)).map(|path| format!("{path} allows unsafe code")),
        );
        problems
    });
}

/// All Rust files under a folder.
fn sources(folder: &Utf8Path) -> Vec<Utf8PathBuf> {
    let entries = folder.read_dir_utf8().expect("a crate has sources");
    let paths = entries.map(|entry| entry.expect("folders can be listed").into_path());
    let files = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension() == Some("rs")).collect()
}

/// Crates and their features, one a line, as cargo would build them for `selection`.
fn built_for(selection: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--prefix", "none", "--format", "{p} {f}"]);
    let output = command.args(selection).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    // A crate that was listed before is marked so.
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn the_command_line_and_the_workspace_share_one_build() {
    let workspace = built_for(&["--workspace"]);
    let alone = built_for(&["--package", "keirin-cli", "--edges", "normal,build"]);
    // Our own crates are small, and the benchmarks ask the kernels for more than a product should have.
    let built_twice: Vec<_> =
        alone.difference(&workspace).filter(|line| !line.contains("/crates/")).collect();
    assert!(
        built_twice.is_empty(),
        "the workspace asks for more features of {built_twice:?}: let the engine ask for them, too"
    );
}
