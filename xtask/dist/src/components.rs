//! The libraries that the program consists of: their bill of materials and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use xtask::tools::output;

use crate::package::{LICENCE, Release};
use crate::tools;

/// How deep the licences of bundled C code lie in a crate.
const FOLDERS_DEEP: usize = 4;

/// The start of the names of licence files, in capital letters.
const LICENCE_FILES: [&str; 6] =
    ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A crate in the program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Component {
    name: String,
    version: String,
}

impl Component {
    /// A package URL, unique in a bill of materials.
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// The crates in the program, with what each uses directly.
#[derive(Debug)]
pub(crate) struct Components {
    uses: BTreeMap<Component, BTreeSet<Component>>,
    /// From `cargo metadata`, by name and version.
    packages: BTreeMap<Component, Value>,
}

impl Components {
    /// Those of a crate of the workspace, built for a target of Rust.
    pub(crate) fn read(root: &Path, crate_name: &str, target: &str) -> anyhow::Result<Self> {
        let words = ["tree", "--locked", "--package", crate_name, "--target", target, "--edges"];
        let edges = ["normal,no-proc-macro", "--prefix", "depth", "--format", " {p}"];
        let tree = output(tools::cargo(root).args(words).args(edges))?;
        let words = ["metadata", "--locked", "--format-version=1", "--filter-platform", target];
        let metadata = output(tools::cargo(root).args(words))?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let packages = metadata["packages"].as_array().context("no packages")?;
        let of_value = |package: &Value| {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            Component { name: text("name"), version: text("version") }
        };
        Ok(Self {
            uses: parse_tree(&tree)?,
            packages: packages.iter().map(|package| (of_value(package), package.clone())).collect(),
        })
    }

    fn text(&self, component: &Component, key: &str) -> &str {
        self.packages.get(component).and_then(|package| package[key].as_str()).unwrap_or_default()
    }

    /// A bill of materials in CycloneDX 1.5.
    pub(crate) fn bill(&self, release: &Release) -> anyhow::Result<String> {
        let components = self.uses.keys().map(|component| {
            // Cargo allowed a slash for OR.
            let licence = self.text(component, "license").replace('/', " OR ");
            let mut entry = json!({
                "type": "library",
                "bom-ref": component.purl(),
                "name": component.name,
                "version": component.version,
                "purl": component.purl(),
                "licenses": [{ "expression": licence.replace("  OR  ", " OR ") }],
            });
            let repository = self.text(component, "repository");
            if !repository.is_empty() {
                entry["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
            }
            entry
        });
        let uses = self.uses.iter().map(|(component, uses)| {
            let uses: Vec<String> = uses.iter().map(Component::purl).collect();
            json!({ "ref": component.purl(), "dependsOn": uses })
        });
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": "weir-program",
                    "name": "weir",
                    "version": release.version,
                    "licenses": [{ "expression": LICENCE }],
                },
            },
            "components": components.collect::<Vec<_>>(),
            "dependencies": uses.collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&bill)? + "\n")
    }

    /// The licences of all libraries, each text once. `others` are texts of what is no crate, with
    /// its name.
    pub(crate) fn licences(&self, others: &[(&str, String)]) -> anyhow::Result<String> {
        let mut list = String::new();
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, text) in others {
            list += &format!("{name}\n");
            texts.entry(text.trim().to_owned()).or_default().push((*name).to_owned());
        }
        for component in self.uses.keys() {
            if component.name.starts_with("weir") {
                continue;
            }
            let Component { name, version } = component;
            list += &format!("{name} {version}: {}\n", self.text(component, "license"));
            let manifest = Path::new(self.text(component, "manifest_path"));
            let folder = manifest.parent().context("a manifest is in a folder")?;
            for text in licence_texts(folder)? {
                let of = texts.entry(text).or_default();
                of.push(format!("{name} {version}"));
                of.dedup();
            }
        }
        let mut page = format!(
            "Weir contains these libraries, under these licences:\n\n{list}\n\
             Their texts follow, each after the libraries that come with it.\n"
        );
        let line = "-".repeat(80);
        for (text, of) in &texts {
            page += &format!("\n{line}\n{}\n{line}\n\n{text}\n", of.join(", "));
        }
        Ok(page)
    }
}

/// Lines of `cargo tree --prefix depth`, such as `2 serde v1.0.229 (*)`. The tree below a crate is
/// shown once.
fn parse_tree(tree: &str) -> anyhow::Result<BTreeMap<Component, BTreeSet<Component>>> {
    let mut uses: BTreeMap<Component, BTreeSet<Component>> = BTreeMap::new();
    let mut above: Vec<Component> = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let failed = || format!("cargo tree printed `{line}`");
        let mut words = line.split_whitespace();
        let depth: usize = words.next().and_then(|word| word.parse().ok()).with_context(failed)?;
        let name = words.next().with_context(failed)?.to_owned();
        let version = words.next().and_then(|word| word.strip_prefix('v')).with_context(failed)?;
        let component = Component { name, version: version.to_owned() };
        above.truncate(depth);
        if let Some(user) = above.last() {
            uses.entry(user.clone()).or_default().insert(component.clone());
        }
        uses.entry(component.clone()).or_default();
        above.push(component);
    }
    Ok(uses)
}

/// The texts of the licence files in a folder and those below it, sorted by path.
fn licence_texts(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    find_licences(folder, FOLDERS_DEEP, &mut paths)?;
    paths.sort();
    let mut texts = Vec::new();
    for path in paths {
        let octets = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        texts.push(String::from_utf8_lossy(&octets).replace('\r', "").trim().to_owned());
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn find_licences(folder: &Path, deep: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let kind = entry.file_type().with_context(failed)?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_source = [".RS", ".C", ".H", ".PY"].iter().any(|end| name.ends_with(end));
        if kind.is_dir() && deep > 0 {
            find_licences(&entry.path(), deep - 1, found)?;
        } else if kind.is_file()
            && !is_source
            && LICENCE_FILES.iter().any(|start| name.starts_with(start))
        {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str =
        "0 weir v0.1.0 (/src/app/weir)\n1 b v2.0.0\n2 c v3.0.0+x\n1 c v3.0.0+x (*)\n";

    fn component(name: &str, version: &str) -> Component {
        Component { name: name.into(), version: version.into() }
    }

    #[test]
    fn a_tree_becomes_direct_uses() {
        let uses = parse_tree(TREE).expect("a tree");
        let (b, c) = (component("b", "2.0.0"), component("c", "3.0.0+x"));
        assert_eq!(uses[&component("weir", "0.1.0")], BTreeSet::from([b.clone(), c.clone()]));
        assert_eq!(uses[&b], BTreeSet::from([c.clone()]));
        assert!(uses[&c].is_empty());
        assert!(parse_tree("no tree").is_err());
    }

    #[test]
    fn each_licence_text_is_there_once() {
        let folder = tempfile::tempdir().expect("folder");
        let mut packages = BTreeMap::new();
        for name in ["b", "c"] {
            let below = folder.path().join(name).join("vendored");
            fs::create_dir_all(&below).expect("folder");
            fs::write(below.join("LICENSE-MIT"), "Permission is granted\r\n").expect("write");
            fs::write(below.join("license.rs"), "fn main() {}").expect("write");
            let manifest = folder.path().join(name).join("Cargo.toml");
            let package = json!({ "license": "MIT", "manifest_path": manifest });
            packages
                .insert(component(name, if name == "b" { "2.0.0" } else { "3.0.0+x" }), package);
        }
        let components = Components { uses: parse_tree(TREE).expect("a tree"), packages };
        let page = components.licences(&[("musl", "MIT, too".into())]).expect("licences");
        assert_eq!(page.matches("Permission is granted").count(), 1);
        assert!(page.contains("b 2.0.0, c 3.0.0+x\n") && page.contains("MIT, too"), "{page}");
        assert!(!page.contains("fn main") && !page.contains("weir 0.1.0"), "{page}");
    }

    #[test]
    fn a_bill_names_components_and_their_uses() {
        let components =
            Components { uses: parse_tree(TREE).expect("a tree"), packages: BTreeMap::new() };
        let release = Release { version: "1.2.3".into(), revision: 1, epoch: 0 };
        let bill = components.bill(&release).expect("bill");
        let bill: Value = serde_json::from_str(&bill).expect("JSON");
        assert_eq!(bill["components"].as_array().expect("components").len(), 3);
        assert_eq!(bill["dependencies"][0]["dependsOn"][0], "pkg:cargo/c@3.0.0+x");
    }
}
