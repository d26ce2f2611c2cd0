//! A container image in the layout of OCI, as a tar archive that `podman load` and `skopeo` read.

use std::io::Read;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::file::{self, File, Kind};
use crate::package::{Contents, Cpu, HOME, LICENCE, Release};

/// The folder of the book in the packages.
pub(crate) const BOOK: &str = "/usr/share/doc/weir/book";

/// The user of the router, in the image alone. Docker and Kubernetes know it by its number.
const USER: u32 = 6363;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub(crate) fn file_name(release: &Release) -> String {
    format!("weir-{}-oci.tar", release.version)
}

/// An image for several processors. Each has one layer: the program, its files, and what a system
/// without any other file needs.
pub(crate) fn write(release: &Release, all: &[Contents]) -> anyhow::Result<Vec<u8>> {
    let mut layout = Layout { blobs: Vec::new() };
    let mut manifests = Vec::new();
    for Contents { cpu, program, files: own } in all {
        let mut files = base_files();
        files.extend(own.iter().filter(|file| is_wanted(file)).cloned());
        files.push(File::program("/usr/bin/weir", program.as_slice()));
        let archive = file::tar(&files, release.epoch)?;
        let layer = layout.add(LAYER, file::gzip(&archive)?);
        let config = config(release, *cpu, &digest(&archive));
        let config = layout.add(CONFIG, serde_json::to_vec(&config)?);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        });
        let mut manifest = layout.add(MANIFEST, serde_json::to_vec(&manifest)?);
        manifest["platform"] = json!({ "architecture": cpu.debian(), "os": "linux" });
        manifests.push(manifest);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut index = layout.add(INDEX, serde_json::to_vec(&index)?);
    index["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });
    layout.blobs.push(File::plain("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#));
    layout.blobs.push(File::plain("index.json", serde_json::to_vec(&index)?));
    file::tar(&layout.blobs, release.epoch)
}

/// Services, completions and the book have no use in a container.
fn is_wanted(file: &File) -> bool {
    let is_doc = file.path.starts_with("/usr/share/doc/") && !file.path.starts_with(BOOK);
    file.kind == Kind::Config || is_doc
}

/// Blobs under the hash of their content.
struct Layout {
    blobs: Vec<File>,
}

impl Layout {
    /// Adds a blob, and returns its descriptor.
    fn add(&mut self, media_type: &str, data: Vec<u8>) -> Value {
        let digest = digest(&data);
        let descriptor = json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": data.len(),
        });
        self.blobs.push(File::plain(format!("blobs/sha256/{digest}"), data));
        descriptor
    }
}

fn digest(data: &[u8]) -> String {
    hex::encode(Sha256::digest(data))
}

fn base_files() -> Vec<File> {
    let user = format!("root:x:0:0:root:/:/\nweir:x:{USER}:{USER}:Weir:/var/lib/weir:/\n");
    vec![
        File::plain("/etc/passwd", user),
        File::plain("/etc/group", format!("root:x:0:\nweir:x:{USER}:\n")),
        File::folder("/run/nfd", 0o755, USER),
        File::folder("/tmp", 0o1777, 0),
        File::folder("/var/lib/weir", 0o750, USER),
        // Mount points, which a read-only root could not get later.
        File::folder("/dev", 0o755, 0),
        File::folder("/proc", 0o555, 0),
        File::folder("/sys", 0o555, 0),
    ]
}

fn config(release: &Release, cpu: Cpu, layer: &str) -> Value {
    json!({
        "architecture": cpu.debian(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/weir"],
            "Cmd": ["router"],
            "Env": [
                "PATH=/usr/bin",
                "HOME=/var/lib/weir",
                "STATE_DIRECTORY=/var/lib/weir",
            ],
            "WorkingDir": "/var/lib/weir",
            "ExposedPorts": { "6363/tcp": {}, "6363/udp": {} },
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "weir",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": LICENCE,
                "org.opencontainers.image.source": HOME,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
    })
}

/// The files of the image for one processor, as an archive.
pub(crate) fn layer(image: &[u8], cpu: Cpu) -> anyhow::Result<Vec<u8>> {
    let blob = |digest: &Value| {
        let digest = digest.as_str().and_then(|text| text.strip_prefix("sha256:"));
        find(image, &format!("blobs/sha256/{}", digest.context("no digest")?))
    };
    let document = |octets: Vec<u8>| serde_json::from_slice::<Value>(&octets);
    let outer = document(find(image, "index.json")?)?;
    let inner = document(blob(&outer["manifests"][0]["digest"])?)?;
    let manifests = inner["manifests"].as_array().context("no manifests")?;
    let manifest = manifests
        .iter()
        .find(|manifest| manifest["platform"]["architecture"] == cpu.debian())
        .with_context(|| format!("the image has nothing for {}", cpu.linux()))?;
    let manifest = document(blob(&manifest["digest"])?)?;
    let packed = blob(&manifest["layers"][0]["digest"])?;
    let mut archive = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut archive)?;
    Ok(archive)
}

fn find(archive: &[u8], name: &str) -> anyhow::Result<Vec<u8>> {
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        if entry.path()?.to_str() == Some(name) {
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            return Ok(data);
        }
    }
    anyhow::bail!("the archive has no {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_program() {
        let release = Release { version: "1.2.3".into(), revision: 1, epoch: 5 };
        let contents = |cpu, text: &str| {
            let files = vec![
                File::config("/etc/weir/weir.toml", "[store]"),
                File::plain("/usr/lib/systemd/system/weir-router.service", ""),
                File::doc("/usr/share/doc/weir/THIRD-PARTY", text),
                File::doc(format!("{BOOK}/index.html"), ""),
            ];
            Contents { cpu, program: text.into(), files }
        };
        let all = [contents(Cpu::X86_64, "one"), contents(Cpu::Aarch64, "two")];
        let image = write(&release, &all).expect("image");
        assert_eq!(image, write(&release, &all).expect("image"));
        for Contents { cpu, program, .. } in all {
            let layer = layer(&image, cpu).expect("layer");
            assert_eq!(find(&layer, "usr/bin/weir").expect("program"), program);
            assert_eq!(find(&layer, "etc/weir/weir.toml").expect("configuration"), b"[store]");
            let licences = find(&layer, "usr/share/doc/weir/THIRD-PARTY").expect("licences");
            assert_eq!(licences, program);
            assert!(find(&layer, "usr/share/doc/weir/book/index.html").is_err());
            assert!(find(&layer, "usr/lib/systemd/system/weir-router.service").is_err());
        }
    }

    const EMPTY: Contents = Contents { cpu: Cpu::X86_64, program: Vec::new(), files: Vec::new() };

    #[test]
    fn blobs_have_the_names_of_their_content() {
        let release = Release { version: "1.2.3".into(), revision: 1, epoch: 5 };
        let image = write(&release, &[EMPTY]).expect("image");
        let mut blobs = 0;
        for entry in tar::Archive::new(&image[..]).entries().expect("entries") {
            let mut entry = entry.expect("entry");
            let path = entry.path().expect("path").display().to_string();
            if let Some(name) = path.strip_prefix("blobs/sha256/").filter(|name| !name.is_empty()) {
                let mut data = Vec::new();
                entry.read_to_end(&mut data).expect("data");
                assert_eq!(digest(&data), name);
                blobs += 1;
            }
        }
        assert_eq!(blobs, 4, "layer, configuration, manifest and index");
    }
}
