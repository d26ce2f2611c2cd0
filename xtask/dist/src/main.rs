//! `cargo xtask dist`: the packages of a release, in `target/dist`.

mod check;
mod components;
mod deb;
mod file;
mod image;
mod package;
mod programs;
mod rpm_package;
mod tools;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};
use xtask::tools::{output, target_folder};

use crate::components::Components;
use crate::file::File;
use crate::image::BOOK;
use crate::package::{Contents, Cpu, Format, Release};
use crate::tools::Tools;

const THIRD_PARTY: &str = "/usr/share/doc/weir/THIRD-PARTY";
/// Dashboards and alerts.
const MONITORING: &str = "/usr/share/weir/monitoring";
const BILL: &str = "/usr/share/doc/weir/sbom.cdx.json";

const USAGE: &str = "\
Usage: cargo xtask dist [--cpu CPU]... [--no-wheel] [--no-book] [--check]

Builds static programs, and packs them as deb, rpm and container image into target/dist, with a
wheel for Python. The files depend on the commit alone: SOURCE_DATE_EPOCH, or the time of the
commit, is the age of everything.

  --cpu CPU     only for this processor, x86_64 or aarch64 [default: both]
  --no-wheel    leave out the wheel
  --no-book     leave out the book, which `cargo xtask book` makes
  --check       then install the packages of this machine's processor and run what is in them: in a
                Debian in namespaces of its own, in an empty root, and as a container (needs root)";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    cpus: Vec<Cpu>,
    no_wheel: bool,
    no_book: bool,
    check: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--cpu" => {
                    let name = words.next().unwrap_or_default();
                    let cpu = Cpu::from_name(&name);
                    options.cpus.push(cpu.with_context(|| {
                        format!("--cpu is x86_64 or aarch64, not `{name}`\n\n{USAGE}")
                    })?);
                }
                "--no-wheel" => options.no_wheel = true,
                "--no-book" => options.no_book = true,
                "--check" => options.check = true,
                other => bail!("unexpected argument `{other}`\n\n{USAGE}"),
            }
        }
        if options.cpus.is_empty() {
            options.cpus = Cpu::ALL.to_vec();
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Options::parse(words).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no repository")?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let release = Release { version, revision: 1, epoch: epoch(root)? };
    let own = Cpu::from_name(std::env::consts::ARCH)
        .filter(|cpu| options.cpus.contains(cpu))
        .context("packages hold what the program prints, so one must be for this processor")?;
    let targets: Vec<String> = options.cpus.iter().map(|cpu| cpu.target()).collect();
    let tools = Tools::install(root, &targets)?;
    let out = target_folder(root).join("dist");
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;

    let mut programs = Vec::new();
    for cpu in &options.cpus {
        programs.push((*cpu, programs::build(root, &tools, *cpu, release.epoch)?));
    }
    let common = common_files(root, &programs::path(root, own), !options.no_book)?;
    let all: Vec<Contents> = programs
        .into_iter()
        .map(|(cpu, program)| {
            let mut files = common.clone();
            files.extend(component_files(root, &tools, &release, cpu)?);
            Ok(Contents { cpu, program, files })
        })
        .collect::<anyhow::Result<_>>()?;
    let mut written = Vec::new();
    let mut write = |name: String, octets: &[u8]| {
        let path = out.join(name);
        fs::write(&path, octets).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path.clone());
        anyhow::Ok(path)
    };
    let mut packages = Vec::new();
    for contents in &all {
        let name = format!("weir-{}-{}", release.version, contents.cpu.linux());
        let plain = write(name.clone(), &contents.program)?;
        fs::set_permissions(plain, fs::Permissions::from_mode(0o755))?;
        for (path, end) in [(THIRD_PARTY, "THIRD-PARTY"), (BILL, "cdx.json")] {
            let file = contents.files.iter().find(|file| file.path == path).context(path)?;
            write(format!("{name}.{end}"), &file.data)?;
        }
        let deb = package::weir(root, &release, contents, Format::Deb)?;
        let rpm = package::weir(root, &release, contents, Format::Rpm)?;
        let deb = write(deb::file_name(&deb), &deb::write(&deb)?)?;
        let rpm = write(rpm_package::file_name(&rpm), &rpm_package::write(&rpm)?)?;
        packages.push((contents, deb, rpm));
    }
    let image = write(image::file_name(&release), &image::write(&release, &all)?)?;
    if !options.no_wheel {
        written.push(programs::wheel(root, &tools, &out, release.epoch)?);
    }
    write_sums(&out, &written)?;
    if options.check {
        let next = Release { revision: 2, ..release };
        let of_own = packages.into_iter().find(|(contents, ..)| contents.cpu == own);
        let (contents, deb, rpm) = of_own.context("no package")?;
        let next = package::weir(root, &next, contents, Format::Deb)?;
        let next_deb = target_folder(root).join("dist-check").join(deb::file_name(&next));
        fs::create_dir_all(next_deb.parent().context("in a folder")?)?;
        fs::write(&next_deb, deb::write(&next)?)?;
        check::all(root, &check::Written { deb, next_deb, rpm, image, cpu: own })?;
    }
    Ok(())
}

/// What the packages of all processors and formats hold. The program of this machine prints its
/// configuration, its manual and the completions of shells.
fn common_files(root: &Path, program: &Path, with_book: bool) -> anyhow::Result<Vec<File>> {
    let mut files = package::units(root)?;
    let print = |words: &[&str]| output(Command::new(program).args(words));
    files.push(File::config("/etc/weir/weir.toml", print(&["router", "--print-default-config"])?));
    let gateway = print(&["gateway", "run", "--print-default-config"])?;
    files.push(File::config("/etc/weir/weir-gateway.toml", gateway));
    files.extend(completions(program)?);
    files.extend(manual(root, program)?);
    if with_book {
        let book = target_folder(root).join("book");
        if !book.join("index.html").exists() {
            bail!("{} has no book; run `cargo xtask book`", book.display());
        }
        add_folder(&book, BOOK, &mut files)?;
    }
    add_folder(&root.join("docs/monitoring"), MONITORING, &mut files)?;
    let doc = |name: &str| format!("/usr/share/doc/weir/{name}");
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        let text = fs::read(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        files.push(File::doc(doc(name), text));
    }
    let copyright = "Weir is licensed under Apache-2.0 (LICENSE-APACHE) or MIT (LICENSE-MIT), as \
                     you choose.\nTHIRD-PARTY has the licences of the libraries in it.\n";
    files.push(File::doc(doc("copyright"), copyright));
    Ok(files)
}

/// The licences and the bill of the libraries in the program for a processor.
fn component_files(
    root: &Path,
    tools: &Tools,
    release: &Release,
    cpu: Cpu,
) -> anyhow::Result<[File; 2]> {
    let components = Components::read(root, "weir", &cpu.target())?;
    let licences = components.licences(&tools.licences()?)?;
    Ok([File::doc(THIRD_PARTY, licences), File::doc(BILL, components.bill(release)?)])
}

/// Adds the files of a folder and of those in it.
fn add_folder(folder: &Path, to: &str, files: &mut Vec<File>) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let path = format!("{to}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().with_context(failed)?.is_dir() {
            add_folder(&entry.path(), &path, files)?;
        } else {
            files.push(File::doc(path, fs::read(entry.path()).with_context(failed)?));
        }
    }
    Ok(())
}

fn completions(program: &Path) -> anyhow::Result<Vec<File>> {
    let shells = [
        ("bash", "/usr/share/bash-completion/completions/weir"),
        ("zsh", "/usr/share/zsh/vendor-completions/_weir"),
        ("fish", "/usr/share/fish/vendor_completions.d/weir.fish"),
    ];
    let mut files = Vec::new();
    for (shell, path) in shells {
        let script = output(Command::new(program).args(["completions", shell]))?;
        files.push(File::plain(path, script));
    }
    Ok(files)
}

fn manual(root: &Path, program: &Path) -> anyhow::Result<Vec<File>> {
    let folder = target_folder(root).join("dist-manual");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    output(Command::new(program).arg("man").arg(&folder))?;
    let mut pages = Vec::new();
    add_folder(&folder, "/usr/share/man", &mut pages)?;
    let compressed = pages
        .into_iter()
        .map(|page| Ok(File::plain(format!("{}.gz", page.path), file::gzip(&page.data)?)));
    compressed.collect()
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit.
fn epoch(root: &Path) -> anyhow::Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH={text} is no number"));
    }
    let mut git = Command::new("git");
    let text = output(git.args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    text.trim().parse().context("git printed no time; set SOURCE_DATE_EPOCH")
}

/// `SHA256SUMS`, in the format of sha256sum(1).
fn write_sums(out: &Path, written: &[PathBuf]) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for path in written {
        let octets = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().context("a file has a name")?.to_string_lossy();
        lines.push(format!("{}  {name}\n", hex::encode(Sha256::digest(octets))));
        eprintln!("==> {}", path.display());
    }
    lines.sort();
    fs::write(out.join("SHA256SUMS"), lines.concat()).context("cannot write SHA256SUMS")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Options> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn folders_are_added_with_all_below() {
        let folder = tempfile::tempdir().expect("folder");
        fs::create_dir(folder.path().join("css")).expect("folder");
        fs::write(folder.path().join("css/a.css"), "a").expect("write");
        fs::write(folder.path().join("index.html"), "b").expect("write");
        let mut files = Vec::new();
        add_folder(folder.path(), BOOK, &mut files).expect("read");
        let mut paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        let expected = ["css/a.css", "index.html"].map(|name| format!("{BOOK}/{name}"));
        assert_eq!(paths, expected);
    }

    #[test]
    fn all_processors_are_the_default() {
        assert_eq!(parse(&[]).expect("no words").cpus, Cpu::ALL);
        let only = parse(&["--cpu", "aarch64", "--check", "--no-book"]).expect("good words");
        let cpus = vec![Cpu::Aarch64];
        assert_eq!(only, Options { cpus, no_wheel: false, no_book: true, check: true });
        assert!(parse(&["--cpu", "m68k"]).is_err() && parse(&["--fast"]).is_err());
    }
}
