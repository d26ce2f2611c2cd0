//! What is in the packages.

use std::path::Path;

use anyhow::Context;

use crate::file::File;

/// A processor that packages are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cpu {
    X86_64,
    Aarch64,
}

impl Cpu {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The name of Linux, Rust and RPM.
    pub(crate) fn linux(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name of Debian, Go and OCI.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.linux())
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cpu| cpu.linux() == name)
    }
}

/// What the packages for a processor hold, in all formats.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    pub(crate) cpu: Cpu,
    pub(crate) program: Vec<u8>,
    pub(crate) files: Vec<File>,
}

/// Version and time of a release.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// Counts packages of one version.
    pub(crate) revision: u32,
    /// Seconds since 1970: the age of every file.
    pub(crate) epoch: u64,
}

/// A script that a package manager runs, by the names of Debian and RPM.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A package for one processor, in no particular format.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    pub(crate) release: Release,
    pub(crate) cpu: Cpu,
    pub(crate) files: Vec<File>,
    pub(crate) scripts: Vec<Script>,
}

pub(crate) const HOME: &str = "https://github.com/weir-ndn/weir";
pub(crate) const LICENCE: &str = "Apache-2.0 OR MIT";

/// A format of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Deb,
    Rpm,
}

/// The package `weir`: program, services, configuration, manual and licences.
///
/// The format decides over scripts and the place of zsh's completions.
pub(crate) fn weir(
    root: &Path,
    release: &Release,
    contents: &Contents,
    format: Format,
) -> anyhow::Result<Package> {
    let mut files = contents.files.clone();
    files.push(File::program("/usr/bin/weir", contents.program.as_slice()));
    let folder = match format {
        Format::Deb => "deb",
        Format::Rpm => "rpm",
    };
    if format == Format::Rpm {
        for file in &mut files {
            file.path = file.path.replace("/zsh/vendor-completions/", "/zsh/site-functions/");
        }
    }
    Ok(Package {
        name: "weir",
        summary: "Content router for Named Data Networking",
        description: "Weir is a router with a cache in memory and on disks, tools to publish and\n\
                      fetch files by name, a gateway to HTTP, and a controller that spreads large\n\
                      files over several routers. The router runs as the service weir-router.",
        release: release.clone(),
        cpu: contents.cpu,
        files,
        scripts: scripts(&root.join("packaging").join(folder))?,
    })
}

/// The units of systemd.
pub(crate) fn units(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut units = Vec::new();
    for (name, text) in read_folder(&root.join("packaging/systemd"))? {
        if !name.ends_with(".md") {
            units.push(File::plain(format!("/usr/lib/systemd/system/{name}"), text));
        }
    }
    Ok(units)
}

fn scripts(folder: &Path) -> anyhow::Result<Vec<Script>> {
    let files = read_folder(folder)?;
    Ok(files.into_iter().map(|(name, text)| Script { name, text }).collect())
}

/// Names and texts of the files in a folder, sorted.
fn read_folder(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let failed = || format!("cannot read {}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, std::fs::read_to_string(entry.path()).with_context(failed)?));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small package with a script of Debian.
    pub(crate) fn example(cpu: Cpu) -> Package {
        Package {
            name: "example",
            summary: "An example",
            description: "One line.\nAnother one.",
            release: Release { version: "1.2.3".into(), revision: 1, epoch: 1_000_000_000 },
            cpu,
            files: vec![
                File::program("/usr/bin/example", "#!/bin/sh\n"),
                File::config("/etc/example", "key = 1\n"),
            ],
            scripts: vec![Script { name: "postinst".into(), text: "#!/bin/sh\n".into() }],
        }
    }

    #[test]
    fn each_format_has_its_scripts_and_completions() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let release = example(Cpu::X86_64).release;
        let files = vec![File::plain("/usr/share/zsh/vendor-completions/_weir", "")];
        let contents = Contents { cpu: Cpu::X86_64, program: Vec::new(), files };
        let package = |format| weir(&root, &release, &contents, format).expect("package");
        let (deb, rpm) = (package(Format::Deb), package(Format::Rpm));
        assert!(deb.scripts.iter().any(|script| script.name == "postinst"));
        assert!(rpm.scripts.iter().any(|script| script.name == "postun"));
        let has =
            |package: &Package, path: &str| package.files.iter().any(|file| file.path == path);
        assert!(has(&deb, "/usr/share/zsh/vendor-completions/_weir") && has(&deb, "/usr/bin/weir"));
        assert!(has(&rpm, "/usr/share/zsh/site-functions/_weir"));
        let units = units(&root).expect("units");
        for name in ["router.service", "router.socket", "controller.service", "gateway.service"] {
            let name = format!("/weir-{name}");
            assert!(units.iter().any(|unit| unit.path.ends_with(&name)), "{name}");
        }
    }
}
