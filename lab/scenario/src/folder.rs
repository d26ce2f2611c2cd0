//! Where the files that a scenario names lie.

use std::path::PathBuf;

use include_dir::Dir;

/// A folder to which files are relative.
#[derive(Clone, Debug)]
pub enum Folder {
    Disk(PathBuf),
    /// In the program: its name, and the folder within it.
    Embedded(&'static Dir<'static>, String),
}

/// Folds `a/b/../c` into `a/c`; `None` where it leads out.
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
    /// The text of a file in it.
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
                        "{file} does not come with the program; paths are relative to the \
                        file that names them"
                    )
                }),
        }
    }

    /// The files directly in `folder` of it that end in `.toml`, sorted.
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
