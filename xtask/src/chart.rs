//! `cargo xtask chart`: checks the Helm chart.
//!
//! Helm comes through Go's module proxy and `kubernetes-validate` from PyPI, both into `target`.
//! For each file of values in the chart's folder `ci`, the chart must pass `helm lint`, and what it
//! makes must be valid for the oldest and the newest version of Kubernetes that is supported.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use xtask::tools::{install_python, output, target_folder};

const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.20.2";
const VALIDATE: &str = "kubernetes-validate==1.37.0\n";
const VERSIONS: [&str; 2] = ["1.26", "1.35"];
/// Resources of other projects, which have no schema here.
const FOREIGN: &str = "monitoring.coreos.com/";

pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let folder = target_folder(root).join("chart");
    fs::create_dir_all(&folder)?;
    let helm = install_helm(&folder)?;
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, VALIDATE)?;
    let python = folder.join("python");
    install_python(&requirements, &python, "kubernetes_validate").context(
        "cannot install kubernetes-validate: python3 with venv and a network are needed",
    )?;
    let chart = root.join("packaging/helm/weir");
    for values in values(&chart)? {
        let name = values.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let with = |words: &[&str]| {
            let mut command = Command::new(&helm);
            command.args(words).arg(&chart).arg("--values").arg(&values);
            command
        };
        for version in VERSIONS {
            let cluster = format!("--kube-version={version}.0");
            output(&mut with(&["lint", "--strict", &cluster]))?;
            let text = output(&mut with(&["template", &cluster, "weir"]))?;
            let made = folder.join(format!("{name}.yaml"));
            fs::write(&made, own(&text))?;
            let mut validate = Command::new(python.join("bin/kubernetes-validate"));
            validate.args(["--strict", "--quiet", "--kubernetes-version", version]);
            output(validate.arg(&made)).with_context(|| name.clone())?;
        }
        println!("chart: {name} is valid for Kubernetes {}", VERSIONS.join(" and "));
    }
    refuses(&helm, &chart)
}

/// Values that the chart must refuse, with what the error must contain.
fn refuses(helm: &Path, chart: &Path) -> anyhow::Result<()> {
    for (value, expected) in [
        ("controller.enabled=true", "controller.tls.secret"),
        ("router.disk.type=ramdisk", "disk"),
        ("router.stor=1GiB", "stor"),
        ("router.faces[0].routes[0]=/a", "uri"),
    ] {
        let mut template = Command::new(helm);
        template.args(["template", "--kube-version=1.35.0"]).arg(chart).args(["--set", value]);
        match output(&mut template) {
            Err(error) if format!("{error:#}").contains(expected) => {}
            Err(error) => return Err(error).context(format!("{value}: no {expected}")),
            Ok(_) => bail!("the chart accepts {value}"),
        }
    }
    Ok(())
}

fn values(chart: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(chart.join("ci"))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.sort();
    if files.is_empty() {
        bail!("{} has no files of values", chart.join("ci").display());
    }
    Ok(files)
}

/// The resources of Kubernetes itself.
fn own(text: &str) -> String {
    let all = text.split("\n---\n").filter(|document| {
        let is_foreign = document.lines().any(|line| {
            line.strip_prefix("apiVersion: ").is_some_and(|name| name.starts_with(FOREIGN))
        });
        !is_foreign
    });
    all.collect::<Vec<_>>().join("\n---\n")
}

/// Builds Helm once. This takes some minutes.
fn install_helm(folder: &Path) -> anyhow::Result<PathBuf> {
    let (program, stamp) = (folder.join("helm"), folder.join("helm-version"));
    if program.exists() && fs::read_to_string(&stamp).is_ok_and(|text| text == HELM) {
        return Ok(program);
    }
    eprintln!("==> building {HELM}");
    output(
        Command::new("go").args(["install", HELM]).env("GOBIN", folder).env("GOFLAGS", "-mod=mod"),
    )
    .context("cannot build Helm: Go 1.24 or later and a network are needed the first time")?;
    fs::write(&stamp, HELM)?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_resources_are_left_out() {
        let text = "---\napiVersion: v1\nkind: A\n---\napiVersion: monitoring.coreos.com/v1\n\
                    kind: B\n---\napiVersion: apps/v1\nkind: C\n";
        let own = own(text);
        assert!(own.contains("kind: A") && own.contains("kind: C") && !own.contains("kind: B"));
    }
}
