//! Packages of Debian (deb(5)): an `ar` archive of a control archive and a data archive.

use std::fmt::Write as _;

use crate::file::{self, File, Kind};
use crate::package::{HOME, Package};

pub(crate) fn file_name(package: &Package) -> String {
    format!("{}_{}_{}.deb", package.name, version(package), package.cpu.debian())
}

fn version(package: &Package) -> String {
    format!("{}-{}", package.release.version, package.release.revision)
}

pub(crate) fn write(package: &Package) -> anyhow::Result<Vec<u8>> {
    let time = package.release.epoch;
    let control = file::gzip(&file::tar(&control_files(package), time)?)?;
    let data = file::gzip(&file::tar(&package.files, time)?)?;
    let mut archive = b"!<arch>\n".to_vec();
    // dpkg expects these members in this order.
    let members = [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control)];
    for (name, data) in members.into_iter().chain([("data.tar.gz", &data[..])]) {
        let size = data.len();
        // Name, time, user, group, mode and size, in columns (ar(5)).
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644");
        archive.extend(header.into_bytes());
        archive.extend(data);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

fn control_files(package: &Package) -> Vec<File> {
    let configs = package.files.iter().filter(|file| file.kind == Kind::Config);
    let conffiles: String = configs.map(|file| format!("{}\n", file.path)).collect();
    let mut files =
        vec![File::plain("control", control(package)), File::plain("conffiles", conffiles)];
    for script in &package.scripts {
        files.push(File::program(script.name.clone(), script.text.as_bytes()));
    }
    files
}

fn control(package: &Package) -> String {
    let kilobytes: usize = package.files.iter().map(|file| file.data.len().div_ceil(1024)).sum();
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: Weir developers <{HOME}>\n\
         Installed-Size: {kilobytes}\nSection: net\nPriority: optional\nHomepage: {HOME}\n\
         Description: {}\n",
        package.name,
        version(package),
        package.cpu.debian(),
        package.summary
    );
    for line in package.description.lines() {
        // `write!` to a String cannot fail.
        let _ = writeln!(text, " {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::package::Cpu;
    use crate::package::tests::example;
    use xtask::tools::output;

    #[test]
    fn members_are_aligned_and_in_order() {
        let octets = write(&example(Cpu::Aarch64)).expect("package");
        assert_eq!(octets, write(&example(Cpu::Aarch64)).expect("package"));
        let mut rest = octets.strip_prefix(b"!<arch>\n").expect("an archive");
        let mut names = Vec::new();
        while !rest.is_empty() {
            let header = str::from_utf8(&rest[..60]).expect("text");
            names.push(header[..16].trim().to_owned());
            let size: usize = header[48..58].trim().parse().expect("a size");
            rest = &rest[60 + size.next_multiple_of(2)..];
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    }

    #[test]
    fn dpkg_reads_the_package() {
        let folder = tempfile::tempdir().expect("folder");
        let package = example(Cpu::Aarch64);
        let path = folder.path().join(file_name(&package));
        std::fs::write(&path, write(&package).expect("package")).expect("write");
        let dpkg = |option: &str| output(Command::new("dpkg-deb").arg(option).arg(&path));
        let Ok(fields) = dpkg("--field") else {
            eprintln!("==> no program `dpkg-deb`: what it says of packages is NOT tested");
            return;
        };
        for line in ["Package: example", "Version: 1.2.3-1", "Architecture: arm64"] {
            assert!(fields.contains(line), "{fields}");
        }
        let files = dpkg("--contents").expect("contents");
        assert!(files.contains(" usr/bin/example") && files.contains(" etc/example"), "{files}");
        let control = dpkg("--info").expect("control");
        assert!(control.contains("conffiles") && control.contains("postinst"), "{control}");
    }
}
