//! The order of layers and the forbidden edges between crates (docs: ARCHITECTURE.md).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::circles::{self, CallCircle, Crate};
use crate::tidy::repository_files;
use crate::unused::{self, Source};

/// Top-level folders from the lowest layer up. A crate may depend on its own layer or a lower one.
const LAYERS: &[&str] =
    &["core", "sim", "io", "bindings", "lab", "app", "tests", "benches", "xtask"];

/// Layers whose public items need a user in another crate.
const LAYERS_OF_LIBRARIES: &[&str] = &["core", "sim", "io", "lab"];

/// Edges that the order of layers allows and that are forbidden all the same: (from, to), each a
/// folder or a single crate.
const FORBIDDEN: &[(&str, &str)] = &[
    ("io", "sim"),
    ("sim", "io"),
    ("bindings", "sim"),
    ("lab", "bindings"),
    ("app", "bindings"),
    ("core/store", "core/forward"),
    ("core/transport", "core/forward"),
    ("core/forward", "core/transport"),
    ("core/control", "core/forward"),
    ("sim/plan", "sim/netsim"),
    ("lab/scenario", "lab/real"),
    ("lab/scenario", "lab/run"),
    ("lab/real", "lab/run"),
    ("lab/scenario", "lab/plot"),
    ("lab/real", "lab/plot"),
    ("lab/plot", "lab/scenario"),
];

/// The only core crate that may hold unsafe code: packet buffers and prefetch live there.
const CORE_WITH_UNSAFE: &str = "core/base";

/// Folders of crates and names of types.
type KnownCircles = &'static [(&'static str, &'static str)];

/// Types with a known circle of calls, by folder of the crate. The list may only shrink: a circle
/// of another type is a finding, and so is a listed type without a circle.
const KNOWN_CALL_CIRCLES: KnownCircles = &[];

/// One dependency of a workspace crate on another, both by folder (`core/store`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
}

/// Findings over the whole workspace, one line each.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = cargo_metadata(root)?;
    let edges = workspace_edges(root, &metadata)?;
    let mut findings: Vec<String> = edges.iter().filter_map(edge_finding).collect();
    findings.extend(plain_run_finding(&programs_of_default_members(&metadata)?));
    for folder in member_folders(root, &metadata)? {
        if folder.starts_with("core/") {
            let path = root.join(&folder).join("src/lib.rs");
            let source = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            findings.extend(core_attribute_findings(&folder, &source));
        }
    }
    findings.extend(circles(root)?);
    findings.extend(unused(root)?);
    Ok(findings)
}

/// Circles of files within a crate, by imports and by calls between the files of a type. Prints
/// the known circles of calls.
pub(crate) fn circles(root: &Path) -> anyhow::Result<Vec<String>> {
    let crates = read_crates(root)?;
    let imports = crates.iter().flat_map(|(_, modules)| circles::findings(root, modules));
    let calls = call_circles(root, &crates);
    let known = KNOWN_CALL_CIRCLES;
    for (folder, circle) in calls.iter().filter(|(folder, circle)| is_known(known, folder, circle))
    {
        println!("{folder}: {circle} (known; `layers --calls` shows the calls)");
    }
    Ok(imports.chain(call_findings(KNOWN_CALL_CIRCLES, &calls)).collect())
}

/// Circles of calls alone, each printed with its calls.
pub(crate) fn calls(root: &Path) -> anyhow::Result<Vec<String>> {
    let circles = call_circles(root, &read_crates(root)?);
    for (folder, circle) in &circles {
        println!("{folder}: {circle}");
        circle.lines().for_each(|line| println!("    {line}"));
    }
    Ok(call_findings(KNOWN_CALL_CIRCLES, &circles))
}

/// Circles of calls, each with the folder of its crate.
type CallCircles = Vec<(String, CallCircle)>;

fn call_circles(root: &Path, crates: &[(String, Crate)]) -> CallCircles {
    let of_crate = |(folder, modules): &(String, Crate)| {
        let circles = circles::of_calls(root, modules);
        circles.into_iter().map(|circle| (folder.clone(), circle)).collect::<Vec<_>>()
    };
    crates.iter().flat_map(of_crate).collect()
}

fn is_known(known: KnownCircles, folder: &str, circle: &CallCircle) -> bool {
    known.contains(&(folder, &circle.type_name))
}

fn call_findings(known: KnownCircles, circles: &[(String, CallCircle)]) -> Vec<String> {
    let new = circles.iter().filter(|(folder, circle)| !is_known(known, folder, circle));
    let new = new.map(|(_, circle)| {
        format!("{}:1: {circle}; `layers --calls` shows the calls", circle.first_file())
    });
    let ended = known.iter().filter(|(folder, type_name)| {
        !circles.iter().any(|(of, circle)| of == folder && circle.type_name == *type_name)
    });
    let ended = ended.map(|(folder, type_name)| {
        format!(
            "xtask/src/layers.rs:1: `{type_name}` of {folder} has no circle of calls any more: \
             remove it from KNOWN_CALL_CIRCLES"
        )
    });
    new.chain(ended).collect()
}

/// The modules of each library and program, with the folder of the crate.
fn read_crates(root: &Path) -> anyhow::Result<Vec<(String, Crate)>> {
    let metadata = cargo_metadata(root)?;
    let mut crates = Vec::new();
    for package in packages(&metadata)? {
        let folder = folder_of(root, package["manifest_path"].as_str().unwrap_or_default())?;
        for target in package["targets"].as_array().into_iter().flatten() {
            let file = Path::new(target["src_path"].as_str().unwrap_or_default());
            if target["kind"].as_array().is_some_and(|kinds| kinds.iter().all(is_product)) {
                crates.push((folder.clone(), Crate::read_from(file)?));
            }
        }
    }
    Ok(crates)
}

/// Whether targets of this kind are checked for circles. Tests are not.
fn is_product(kind: &Value) -> bool {
    !["test", "bench", "example", "custom-build"].iter().any(|other| kind == other)
}

/// Public items of libraries that nothing uses.
pub(crate) fn unused(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut folders = member_folders(root, &cargo_metadata(root)?)?;
    folders.push("fuzz".into());
    let mut sources = Vec::new();
    for file in repository_files(root)?.into_iter().filter(|file| file.ends_with(".rs")) {
        let Some(folder) = folders.iter().find(|folder| is_under(&file, folder)) else { continue };
        let path = root.join(&file);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let is_library = LAYERS_OF_LIBRARIES.iter().any(|layer| is_under(folder, layer))
            && file.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with("/src/"))
            && !file.contains("/src/bin/");
        sources.push(Source { folder: folder.clone(), file, text, is_library });
    }
    unused::findings(&sources)
}

pub(crate) fn cargo_metadata(root: &Path) -> anyhow::Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// What `cargo run` alone can start.
fn programs_of_default_members(metadata: &Value) -> anyhow::Result<Vec<&str>> {
    let defaults = metadata["workspace_default_members"].as_array();
    let defaults = defaults.context("cargo metadata lists no default members")?;
    let members = packages(metadata)?.iter().filter(|package| defaults.contains(&package["id"]));
    let targets = members.filter_map(|package| package["targets"].as_array()).flatten();
    let programs = targets
        .filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds == &["bin"]))
        .filter_map(|target| target["name"].as_str());
    Ok(programs.collect())
}

/// The README's first command, `cargo run --release -- demo`, must start `weir`.
fn plain_run_finding(programs: &[&str]) -> Option<String> {
    (programs != ["weir"]).then(|| {
        let what = "`cargo run` must start weir alone, but the default members have";
        format!("Cargo.toml:4: {what} {programs:?}")
    })
}

fn packages(metadata: &Value) -> anyhow::Result<&Vec<Value>> {
    metadata["packages"].as_array().context("cargo metadata lists no packages")
}

fn folder_of(root: &Path, manifest: &str) -> anyhow::Result<String> {
    let folder = Path::new(manifest).parent().context("a manifest has no folder")?;
    let relative = folder
        .strip_prefix(root)
        .with_context(|| format!("{} is outside the repository", folder.display()))?;
    Ok(relative.to_string_lossy().replace('\\', "/"))
}

fn member_folders(root: &Path, metadata: &Value) -> anyhow::Result<Vec<String>> {
    packages(metadata)?
        .iter()
        .map(|package| folder_of(root, package["manifest_path"].as_str().unwrap_or_default()))
        .collect()
}

fn workspace_edges(root: &Path, metadata: &Value) -> anyhow::Result<Vec<Edge>> {
    let mut edges = Vec::new();
    for package in packages(metadata)? {
        let from = folder_of(root, package["manifest_path"].as_str().unwrap_or_default())?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(path) = dependency["path"].as_str() else { continue };
            let to = folder_of(root, &format!("{path}/Cargo.toml"))?;
            let edge = Edge { from: from.clone(), to };
            if !edges.contains(&edge) {
                edges.push(edge);
            }
        }
    }
    Ok(edges)
}

fn layer(folder: &str) -> Option<usize> {
    let top = folder.split('/').next().unwrap_or(folder);
    LAYERS.iter().position(|layer| *layer == top)
}

fn is_under(folder: &str, place: &str) -> bool {
    folder == place || folder.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
}

fn edge_finding(edge: &Edge) -> Option<String> {
    let Edge { from, to } = edge;
    let at = format!("{from}/Cargo.toml:1");
    let (Some(from_layer), Some(to_layer)) = (layer(from), layer(to)) else {
        return Some(format!(
            "{at}: {from} -> {to}: a folder that is no layer; the layers are {}",
            LAYERS.join(", ")
        ));
    };
    if is_under(to, "app") {
        return Some(format!("{at}: {from} -> {to}: nothing may depend on app"));
    }
    if to_layer > from_layer {
        return Some(format!(
            "{at}: {from} -> {to}: a crate may use its own layer or one below it ({})",
            LAYERS.join(" < ")
        ));
    }
    FORBIDDEN
        .iter()
        .find(|(a, b)| is_under(from, a) && is_under(to, b))
        .map(|(a, b)| format!("{at}: {from} -> {to}: the edge {a} -> {b} is forbidden"))
}

/// A core crate states in its first file that it has no `std` and no unsafe code.
fn core_attribute_findings(folder: &str, source: &str) -> Vec<String> {
    let at = format!("{folder}/src/lib.rs:1");
    let attributes: Vec<String> = source
        .lines()
        .map(|line| line.split_whitespace().collect::<String>())
        .filter(|line| line.starts_with("#!["))
        .collect();
    let mut findings = Vec::new();
    if !attributes.iter().any(|line| line == "#![no_std]") {
        findings.push(format!("{at}: a core crate begins with #![no_std], without conditions"));
    }
    let forbids = attributes.iter().any(|line| line.starts_with("#![forbid(unsafe_code"));
    if folder != CORE_WITH_UNSAFE && !forbids {
        findings
            .push(format!("{at}: a core crate other than core/base has #![forbid(unsafe_code)]"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(from: &str, to: &str) -> Option<String> {
        edge_finding(&Edge { from: from.into(), to: to.into() })
    }

    #[test]
    fn lower_and_equal_layers_may_be_used() {
        for (from, to) in [
            ("core/forward", "core/store"),
            ("io/runtime", "core/forward"),
            ("app/weir", "io/runtime"),
            ("sim/netsim", "core/forward"),
            ("tests", "core/wire"),
            ("bindings/c", "io/socket"),
        ] {
            assert_eq!(finding(from, to), None, "{from} -> {to}");
        }
    }

    #[test]
    fn cargo_run_starts_weir_and_nothing_else() {
        assert_eq!(plain_run_finding(&["weir"]), None);
        assert!(plain_run_finding(&[]).is_some());
        assert!(plain_run_finding(&["disk_engine", "weir"]).is_some());
    }

    #[test]
    fn a_higher_layer_is_refused() {
        let message = finding("core/wire", "io/face").expect("core must not use io");
        assert!(message.starts_with("core/wire/Cargo.toml:1: core/wire -> io/face"), "{message}");
    }

    #[test]
    fn forbidden_edges_are_refused() {
        for (from, to) in [
            ("core/store", "core/forward"),
            ("core/transport", "core/forward"),
            ("core/forward", "core/transport"),
            ("core/control", "core/forward"),
            ("io/runtime", "sim/netem"),
            ("sim/netsim", "io/face"),
            ("sim/plan", "sim/netsim"),
            ("lab/scenario", "lab/real"),
            ("lab/real", "lab/run"),
            ("tests", "app/weir"),
            ("io/socket", "bindings/c"),
            ("bindings/c", "sim/plan"),
            ("bindings/c", "lab/scenario"),
            ("app/weir", "bindings/c"),
            ("app/other", "app/weir"),
        ] {
            assert!(finding(from, to).is_some(), "{from} -> {to} passed");
        }
    }

    #[test]
    fn a_crate_outside_the_layers_is_refused() {
        assert!(finding("misc/helper", "core/base").is_some());
    }

    #[test]
    fn a_name_that_only_begins_alike_is_another_crate() {
        assert_eq!(finding("core/store-tools", "core/forward"), None);
    }

    #[test]
    fn core_crates_state_no_std_and_no_unsafe() {
        let good = "#![no_std]\n#![forbid(unsafe_code)]\n";
        assert!(core_attribute_findings("core/wire", good).is_empty());
        assert_eq!(core_attribute_findings("core/wire", "#![no_std]\n").len(), 1);
        assert_eq!(core_attribute_findings("core/wire", "//! nothing\n").len(), 2);
        assert_eq!(core_attribute_findings("core/wire", "#![cfg_attr(x, no_std)]\n").len(), 2);
        assert!(core_attribute_findings("core/base", "#![no_std]\n").is_empty());
    }

    #[test]
    fn the_list_of_call_circles_is_exact() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub struct T;\n"),
            ("a.rs", "impl crate::T { fn f(&self) { self.g() } }\n"),
            ("b.rs", "impl crate::T { fn g(&self) { self.f() } }\n"),
        ];
        let circles = circles::tests::read_files(&files, circles::of_calls);
        let circles: CallCircles = circles.into_iter().map(|it| ("x".to_owned(), it)).collect();
        assert_eq!(call_findings(&[("x", "T")], &circles), [""; 0]);
        let new = call_findings(&[], &circles);
        assert_eq!(new.len(), 1);
        assert!(new[0].contains("a.rs:1: `T`: 2 of its 2 files call each other"), "{new:?}");
        let ended = call_findings(&[("x", "T"), ("y", "T")], &circles);
        assert_eq!(ended.len(), 1);
        assert!(ended[0].contains("`T` of y has no circle of calls any more"), "{ended:?}");
    }

    #[test]
    fn metadata_becomes_edges() {
        let metadata = serde_json::json!({ "packages": [{
            "manifest_path": "/r/core/store/Cargo.toml",
            "dependencies": [
                { "name": "weir-forward", "path": "/r/core/forward" },
                { "name": "sha2", "path": null },
            ],
        }]});
        let edges = workspace_edges(Path::new("/r"), &metadata).expect("good metadata");
        assert_eq!(edges, [Edge { from: "core/store".into(), to: "core/forward".into() }]);
        assert!(edge_finding(&edges[0]).is_some());
    }
}
