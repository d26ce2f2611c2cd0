//! Packages of RPM.

use anyhow::{Context, bail};
use rpm::{BuildConfig, FileOptions, PackageBuilder};

use crate::file::Kind;
use crate::package::{HOME, LICENCE, Package};

pub(crate) fn file_name(package: &Package) -> String {
    let release = &package.release;
    let cpu = package.cpu.linux();
    format!("{}-{}-{}.{cpu}.rpm", package.name, release.version, release.revision)
}

pub(crate) fn write(package: &Package) -> anyhow::Result<Vec<u8>> {
    let release = &package.release;
    let time = u32::try_from(release.epoch).context("RPM has no times after 2106")?;
    let cpu = package.cpu.linux();
    let mut builder =
        PackageBuilder::new(package.name, &release.version, LICENCE, cpu, package.summary);
    builder
        .using_config(BuildConfig::v4().source_date(time))
        .release(release.revision.to_string())
        .description(package.description)
        .url(HOME)
        .build_host("localhost");
    let mut files: Vec<_> = package.files.iter().collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in files {
        let mode = u16::try_from(file.mode).context("a mode has 12 bits")?;
        let options = FileOptions::new(file.path.clone()).permissions(mode);
        let options = match file.kind {
            Kind::Plain => options,
            Kind::Config => options.config().noreplace(),
            Kind::Doc => options.doc(),
            Kind::Folder => bail!("{}: packages hold no empty folders", file.path),
        };
        builder.with_file_contents(file.data.clone(), options)?;
    }
    for script in &package.scripts {
        let text = script.text.clone();
        match script.name.as_str() {
            "post" => builder.post_install_script(text),
            "preun" => builder.pre_uninstall_script(text),
            "postun" => builder.post_uninstall_script(text),
            other => bail!("packaging/rpm/{other} is no script of RPM"),
        };
    }
    let mut octets = Vec::new();
    builder.build()?.write(&mut octets)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use rpm::{FileFlags, IndexTag};

    use super::*;
    use crate::package::tests::example;
    use crate::package::{Cpu, Script};

    fn package() -> Package {
        let scripts = vec![Script { name: "post".into(), text: "true\n".into() }];
        Package { scripts, ..example(Cpu::X86_64) }
    }

    #[test]
    fn files_have_modes_and_kinds() {
        let octets = write(&package()).expect("package");
        assert_eq!(octets, write(&package()).expect("package"), "the same octets");
        let read = rpm::Package::parse(&mut &octets[..]).expect("package");
        read.verify_digests().expect("good hashes");
        let files = read.metadata.get_file_entries().expect("files");
        let files: Vec<_> = files
            .iter()
            .map(|file| {
                let is_config = file.flags().contains(FileFlags::CONFIG | FileFlags::NOREPLACE);
                (file.path().display().to_string(), file.permissions(), is_config)
            })
            .collect();
        let expected = [("/etc/example", 0o644, true), ("/usr/bin/example", 0o755, false)];
        assert_eq!(files, expected.map(|(path, mode, config)| (path.to_owned(), mode, config)));
        assert!(read.metadata.header.entry_is_present(IndexTag::RPMTAG_POSTIN));
    }

    #[test]
    fn unknown_scripts_are_refused() {
        let error = write(&example(Cpu::X86_64)).expect_err("postinst is Debian's");
        assert!(error.to_string().contains("no script of RPM"), "{error}");
    }
}
