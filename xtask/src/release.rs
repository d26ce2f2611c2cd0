//! `cargo xtask release`: what a release must pass in addition to `ci`.

#[cfg(test)]
mod tests;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::layers;
use crate::steps::step;
use xtask::tools::{self, run, target_folder};

const DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const SEMVER_CHECKS: (&str, &str) = ("cargo-semver-checks", "0.51.0");

/// The first release, which has no earlier one to be compared with.
const FIRST_VERSION: &str = "0.2.0";

const CHART: &str = "packaging/helm/weir/Chart.yaml";

/// Where cargo-deny looks for the database, below `db-path` in `deny.toml`: the name and a hash of
/// the database's address.
const ADVISORIES: &str = "advisory-db-3157b0e258782691";

/// Arguments of `cargo xtask release`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReleaseOptions {
    /// A checkout of the database of vulnerabilities.
    advisories: Option<PathBuf>,
}

impl ReleaseOptions {
    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word {
                "--advisories" => {
                    let folder = words.next().context("--advisories needs a folder")?;
                    options.advisories = Some(folder.into());
                }
                other => bail!("unexpected argument `{other}`"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn check(root: &Path, options: &ReleaseOptions) -> anyhow::Result<()> {
    let metadata = layers::cargo_metadata(root)?;
    let public = public_crates(&metadata)?;
    step("version", || check_version(root, &public))?;
    step("dependencies", || check_dependencies(root, options))?;
    step("crates", || build_crates(root, &public))?;
    step("interfaces", || compare_interfaces(root, &public))
}

/// A crate that is published.
#[derive(Debug, PartialEq, Eq)]
struct PublicCrate {
    name: String,
    version: String,
    /// Dependencies on crates of the workspace that lack a version or are not published.
    wrong: Vec<String>,
}

/// The crates without `publish = false`, in the order of their names.
fn public_crates(metadata: &Value) -> anyhow::Result<Vec<PublicCrate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let is_public = |package: &Value| package["publish"].is_null();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let public: Vec<&Value> = packages.iter().filter(|package| is_public(package)).collect();
    let mut crates: Vec<PublicCrate> = public
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let wrong = dependencies.filter(|to| to["path"].is_string() && to["kind"] != "dev");
            let wrong = wrong.filter(|to| {
                to["req"] == "*" || !public.iter().any(|package| package["name"] == to["name"])
            });
            let wrong = wrong.map(|to| text(&to["name"])).collect();
            PublicCrate { name: text(&package["name"]), version: text(&package["version"]), wrong }
        })
        .collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

/// All public crates and the Helm chart have one version, which the changelog describes. The crates
/// depend on each other by version.
fn check_version(root: &Path, public: &[PublicCrate]) -> anyhow::Result<()> {
    let first = public.first().context("no crate is public")?;
    for package in public {
        if package.version != first.version {
            bail!(
                "{} has version {}, but {} has {}",
                package.name,
                package.version,
                first.name,
                first.version
            );
        }
        if let Some(wrong) = package.wrong.first() {
            bail!(
                "{} depends on {wrong}: give {wrong} a version in the root Cargo.toml, and remove \
                 its `publish = false`",
                package.name
            );
        }
    }
    let heading = format!("## [{}]", first.version);
    let changelog = fs::read_to_string(root.join("CHANGELOG.md"))?;
    if !changelog.lines().any(|line| line.starts_with(&heading)) {
        bail!("CHANGELOG.md has no section `{heading}`");
    }
    check_chart(&fs::read_to_string(root.join(CHART))?, &first.version)
}

/// The chart starts the image of its own version, unless its values name another one.
fn check_chart(chart: &str, version: &str) -> anyhow::Result<()> {
    for key in ["version", "appVersion"] {
        let line = chart.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let found =
            line.with_context(|| format!("{CHART} has no `{key}`"))?.trim().trim_matches('"');
        if found != version {
            bail!("{CHART} has {key} {found}, but the crates have {version}");
        }
    }
    Ok(())
}

/// Licences, sources and bans of all dependencies, and known vulnerabilities if the database is
/// given.
fn check_dependencies(root: &Path, options: &ReleaseOptions) -> anyhow::Result<()> {
    let program = tools::install(root, DENY.0, DENY.1, &[])?;
    let mut deny = Command::new(program);
    deny.current_dir(root).args(["--offline", "check", "--hide-inclusion-graph"]);
    deny.args(["bans", "licenses", "sources"]);
    if let Some(folder) = &options.advisories {
        let link = target_folder(root).join("advisories").join(ADVISORIES);
        fs::create_dir_all(link.parent().context("it has a folder")?)?;
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let folder = fs::canonicalize(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        symlink(folder, link)?;
        deny.arg("advisories");
    } else {
        eprintln!("==> no --advisories FOLDER: known vulnerabilities are NOT checked");
    }
    run(&mut deny)
}

/// Packs each public crate as the registry gets it, and builds what was packed. In one folder, so
/// that dependencies are built once and not again for each crate.
fn build_crates(root: &Path, public: &[PublicCrate]) -> anyhow::Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).args(["package", "--locked", "--quiet", "--target-dir"]);
    cargo.arg(target_folder(root).join("crates"));
    cargo.args(public.iter().flat_map(|package| ["--package", &package.name]));
    run(&mut cargo)
}

/// Compares the interfaces of the public crates with those of the last release.
fn compare_interfaces(root: &Path, public: &[PublicCrate]) -> anyhow::Result<()> {
    let version = &public.first().context("no crate is public")?.version;
    let mut git = Command::new("git");
    let tags = tools::output(git.current_dir(root).args(["tag", "--list", "v*"]))?;
    let Some(tag) = baseline(tags.lines(), version)? else {
        eprintln!(
            "==> {version} is the first release, so interfaces are NOT compared. The next release \
             is compared with the tag v{version}."
        );
        return Ok(());
    };
    eprintln!("==> comparing with {tag}");
    let program = tools::install(root, SEMVER_CHECKS.0, SEMVER_CHECKS.1, &[])?;
    let mut check = Command::new(program);
    check.current_dir(root).args(["semver-checks", "--baseline-rev", tag]);
    check.args(public.iter().flat_map(|package| ["--package", &package.name]));
    run(&mut check)
}

/// The tag of the last release before a version: `None` for the first release.
///
/// # Errors
/// There is no such tag although the version is not the first one.
fn baseline<'a>(
    tags: impl Iterator<Item = &'a str>,
    version: &str,
) -> anyhow::Result<Option<&'a str>> {
    let wanted = numbers(version).with_context(|| format!("{version} is no version"))?;
    let tags = tags.filter_map(|tag| Some((numbers(tag.strip_prefix('v')?)?, tag)));
    let last = tags.filter(|(numbers, _)| *numbers < wanted).max();
    if last.is_none() && version != FIRST_VERSION {
        bail!("no tag of a release before {version}; fetch the tags with `git fetch --tags`");
    }
    Ok(last.map(|(_, tag)| tag))
}

/// The numbers of `1.2.3`. Versions before a release, such as `1.2.3-rc1`, have none.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let parts = version.split('.').map(|part| part.parse().ok());
    parts.collect::<Option<Vec<u64>>>()?.try_into().ok()
}
