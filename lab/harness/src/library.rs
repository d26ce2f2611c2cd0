//! Scenarios and claims that come with the program, and those on disk.

use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use crate::document::{ScenarioError, suggestion};
use crate::scenario::Scenario;

static NB_CACHE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../nb-cache");
static CCNX_MEASUREMENT: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../ccnx-measurement");
static EXAMPLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../examples");

/// The folders of the program: papers, and `examples` of no paper.
const FOLDERS: [(&str, &Dir<'static>); 3] =
    [("ccnx-measurement", &CCNX_MEASUREMENT), ("nb-cache", &NB_CACHE), ("examples", &EXAMPLES)];

/// A folder to which files are relative.
#[derive(Clone, Debug)]
pub enum Folder {
    /// On disk.
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

    fn join(&self, folder: &str) -> Self {
        match self {
            Self::Disk(path) => Self::Disk(path.join(folder)),
            Self::Embedded(dir, within) => Self::Embedded(dir, format!("{within}/{folder}")),
        }
    }
}

/// A paper's folder, or that of the examples.
#[derive(Clone, Debug)]
pub struct Paper {
    /// Its name.
    pub id: String,
    /// Where its files are.
    pub folder: Folder,
}

/// All folders of the program.
#[must_use]
pub fn papers() -> Vec<Paper> {
    FOLDERS
        .iter()
        .map(|(id, dir)| Paper {
            id: (*id).to_owned(),
            folder: Folder::Embedded(dir, String::new()),
        })
        .collect()
}

/// The paper of a name, or the folder of a path that holds `claims.toml`.
///
/// # Errors
/// There is none; the message names those that there are.
pub fn paper(reference: &str) -> Result<Paper, ScenarioError> {
    let path = Path::new(reference);
    if path.join("claims.toml").is_file() {
        let id = path
            .canonicalize()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let id = id.unwrap_or_else(|| reference.to_owned());
        return Ok(Paper { id, folder: Folder::Disk(path.to_path_buf()) });
    }
    papers().into_iter().find(|paper| paper.id == reference).ok_or_else(|| {
        let names: Vec<&str> = FOLDERS.iter().map(|(id, _)| *id).collect();
        let remedy = suggestion(reference, &names);
        let message = format!("no such paper, and no folder with claims.toml; {remedy}");
        ScenarioError { file: reference.to_owned(), line: None, message }
    })
}

impl Paper {
    /// The names of its scenarios.
    #[must_use]
    pub fn scenario_names(&self) -> Vec<String> {
        let files = self.folder.scenarios();
        files.iter().map(|file| file.trim_end_matches(".toml").to_owned()).collect()
    }

    /// A scenario of it.
    ///
    /// # Errors
    /// There is none of that name, or its file is wrong.
    pub fn scenario(&self, name: &str) -> Result<Scenario, ScenarioError> {
        let file = format!("{}/scenarios/{name}.toml", self.id);
        let text = self.folder.read(&format!("scenarios/{name}.toml")).map_err(|_| {
            let names = self.scenario_names();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let message = format!("no such scenario; {}", suggestion(name, &names));
            ScenarioError { file: file.clone(), line: None, message }
        })?;
        Scenario::parse(&file, &text, self.folder.join("scenarios"))
    }
}

/// The scenario of a path on disk, of `paper/name`, or of a name that only one paper has.
///
/// # Errors
/// There is none, several have the name, or its file is wrong.
pub fn scenario(reference: &str) -> Result<Scenario, ScenarioError> {
    let path = Path::new(reference);
    if path.is_file() {
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: reference.to_owned(),
            line: None,
            message: format!("cannot read: {error}"),
        })?;
        return Scenario::parse(reference, &text, Folder::Disk(folder));
    }
    let mut all = Vec::new();
    for paper in papers() {
        for name in paper.scenario_names() {
            all.push((format!("{}/{name}", paper.id), paper.clone(), name));
        }
    }
    let found: Vec<_> =
        all.iter().filter(|(whole, _, name)| whole == reference || name == reference).collect();
    match found.as_slice() {
        [(_, paper, name)] => paper.scenario(name),
        [] => {
            let names: Vec<&str> = all.iter().map(|(whole, ..)| whole.as_str()).collect();
            let message = format!(
                "no such file, and no scenario of that name; {} (weir lab list shows all)",
                suggestion(reference, &names)
            );
            Err(ScenarioError { file: reference.to_owned(), line: None, message })
        }
        several => {
            let names: Vec<&str> = several.iter().map(|(whole, ..)| whole.as_str()).collect();
            let message = format!("several scenarios have this name; write {}", names.join(" or "));
            Err(ScenarioError { file: reference.to_owned(), line: None, message })
        }
    }
}
