//! Scenarios and claims embedded in the program, and those on disk.

use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use crate::document::{ScenarioError, suggestion};
use crate::folder::Folder;
use crate::scenario::Scenario;

static NB_CACHE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../nb-cache");
static CCNX_MEASUREMENT: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../ccnx-measurement");
static CHOPCOP: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../chopcop");
static MULTIPATH: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../multipath-cache-management");
static SOCKET_API: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../socket-api");
static EXAMPLES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../examples");

/// Embedded folders: papers, and `examples`, which belong to none.
const FOLDERS: [(&str, &Dir<'static>); 6] = [
    ("ccnx-measurement", &CCNX_MEASUREMENT),
    ("chopcop", &CHOPCOP),
    ("multipath-cache-management", &MULTIPATH),
    ("nb-cache", &NB_CACHE),
    ("socket-api", &SOCKET_API),
    ("examples", &EXAMPLES),
];

/// The folder of a paper or of the examples.
#[derive(Clone, Debug)]
pub struct Paper {
    pub id: String,
    pub folder: Folder,
}

/// All embedded folders.
pub fn papers() -> Vec<Paper> {
    FOLDERS
        .iter()
        .map(|(id, dir)| Paper {
            id: (*id).to_owned(),
            folder: Folder::Embedded(dir, String::new()),
        })
        .collect()
}

/// The paper with a name, or the folder of a path that contains `claims.toml`.
///
/// # Errors
/// There is none; the message lists the known ones.
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
    pub fn scenario_names(&self) -> Vec<String> {
        let files = self.folder.scenarios();
        files.iter().map(|file| file.trim_end_matches(".toml").to_owned()).collect()
    }

    /// One of its scenarios.
    ///
    /// # Errors
    /// No scenario has that name, or its file is invalid.
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

/// A scenario by its path on disk, by `paper/name`, or by a name that only one paper has.
///
/// # Errors
/// There is none, several have the name, or its file is invalid.
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
