//! The folders of the files that scenarios name.

use std::path::PathBuf;

use include_dir::Dir;

/// A folder that file names are relative to.
#[derive(Clone, Debug)]
pub enum Folder {
    Disk(PathBuf),
    /// Embedded in the program: its name, and the folder within it.
    Embedded(&'static Dir<'static>, String),
}

/// Normalises `a/b/../c` to `a/c`; `None` if the path leaves the folder.
fn folded(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

impl Folder {
    /// Reads a file as text.
    ///
    /// # Errors
    /// A message with the file and what to do.
    pub fn read(&self, file: &str) -> Result<String, String> {
        match self {
            Self::Disk(folder) => {
                let path = folder.join(file);
                std::fs::read_to_string(&path).map_err(|error| {
                    format!(
                        "cannot read {}: {error}; paths are relative to the file that names them",
                        path.display()
                    )
                })
            }
            Self::Embedded(dir, within) => folded(&format!("{within}/{file}"))
                .and_then(|path| dir.get_file(path)?.contents_utf8().map(str::to_owned))
                .ok_or_else(|| {
                    format!(
                        "{file} is not part of the program; paths are relative to the file that \
                        names them"
                    )
                }),
        }
    }

    /// The `.toml` files directly in the folder, sorted.
    pub(crate) fn scenarios(&self) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Disk(folder) => std::fs::read_dir(folder.join("scenarios"))
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .collect(),
            Self::Embedded(dir, within) => {
                let folder = folded(&format!("{within}/scenarios")).unwrap_or_default();
                let files = dir.get_dir(&folder).into_iter().flat_map(Dir::files);
                files
                    .filter_map(|file| {
                        Some(file.path().file_name()?.to_string_lossy().into_owned())
                    })
                    .collect()
            }
        };
        names.retain(|name| name.ends_with(".toml"));
        names.sort();
        names
    }

    pub(crate) fn join(&self, folder: &str) -> Self {
        match self {
            Self::Disk(path) => Self::Disk(path.join(folder)),
            Self::Embedded(dir, within) => Self::Embedded(dir, format!("{within}/{folder}")),
        }
    }
}
