//! A scenario file: its header, and its experiments at both sizes.

use std::sync::Arc;

use crate::Size;
use crate::document::{self, ScenarioError, Tree};
use crate::experiment::Experiment;
use crate::file::{Header, header};
use crate::folder::Folder;

/// A scenario as written in its file.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name and purpose.
    pub header: Header,
    pub text: String,
    /// The folder for relative paths of traces and topologies.
    pub folder: Folder,
    /// The file, as the user named it.
    pub file: Arc<str>,
    tree: Tree,
}

impl Scenario {
    /// Parses a file. This checks only its syntax and header; [`Scenario::experiment`] checks the
    /// rest.
    pub fn parse(file: &str, text: &str, folder: Folder) -> Result<Self, ScenarioError> {
        let tree = document::parse(file, text)?;
        let header = header(&tree)?;
        Ok(Self { header, text: text.to_owned(), folder, file: Arc::clone(&tree.file), tree })
    }

    /// The scenario at one size, checked as far as possible without running.
    ///
    /// # Errors
    /// The first problem, with its line and a remedy.
    pub fn experiment(&self, size: Size) -> Result<Experiment, ScenarioError> {
        let tree = self.tree.of_size(size.as_str())?;
        Experiment::new(self.header.clone(), self.folder.clone(), tree, size)
    }
}
