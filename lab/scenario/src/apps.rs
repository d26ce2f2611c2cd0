//! `[[producer]]` and `[[consumer]]`: groups of equal applications.

mod consumers;
mod producers;

use crate::document::{ScenarioError, Tree};
use crate::folder::Folder;
use crate::links::{LinkSettings, LinkTable};

pub(crate) use consumers::{ConsumerGroup, ConsumerTable, consumers};
pub(crate) use producers::{ProducerGroup, ProducerTable, producers};

/// The context for reading a group: its path in the file, and the files it refers to.
struct GroupContext<'a> {
    tree: &'a Tree,
    folder: &'a Folder,
    path: String,
}

impl GroupContext<'_> {
    fn error(&self, key: &str, message: impl AsRef<str>) -> ScenarioError {
        self.tree.error(&format!("{}.{key}", self.path), message)
    }

    /// An error about the whole table.
    fn refuse(&self, message: &str) -> ScenarioError {
        self.tree.error(&self.path, message)
    }

    fn check_id(&self, id: &str) -> Result<(), ScenarioError> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if !id.is_empty() && id.bytes().all(is_plain) {
            return Ok(());
        }
        Err(self.error("id", format!("is \"{id}\"; write letters, digits, '-' and '_' only")))
    }

    fn check_at(&self, at: &[String]) -> Result<(), ScenarioError> {
        match at {
            [] => Err(self.error("at", "selects no node; write for example [\"leaves\"]")),
            _ => Ok(()),
        }
    }

    fn link(
        &self,
        access: &LinkSettings,
        table: Option<&LinkTable>,
    ) -> Result<LinkSettings, ScenarioError> {
        let Some(table) = table else { return Ok(access.clone()) };
        access.with(table).map_err(|message| self.error("link", message))
    }
}
