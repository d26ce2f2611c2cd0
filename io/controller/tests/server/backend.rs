//! With SQLite.

use tempfile::TempDir;
use weir_controller::Config;

/// Whether the database is on a server.
pub(crate) const IS_SERVER: bool = false;

/// A database without tables, for a test of its own.
pub(crate) fn database(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("controller.db").display())
}

/// A database with little room, if this machine has such.
pub(crate) struct Small {
    folder: TempDir,
}

const PAGES: u64 = 200;

impl Small {
    pub(crate) fn start() -> Option<Self> {
        Some(Self { folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn database(&self) -> String {
        database(&self.folder)
    }

    pub(crate) fn configure(config: &mut Config) {
        config.database_bytes_max = Some(PAGES * 4096);
    }

    /// What another program says first that has no more room.
    pub(crate) const SETTINGS: &str = "PRAGMA max_page_count = 200";
    pub(crate) const FILLER: &str = "CREATE TABLE filler (x TEXT)";
    pub(crate) const MUCH: &str = "INSERT INTO filler VALUES (hex(zeroblob(50000)))";
    pub(crate) const LITTLE: &str = "INSERT INTO filler VALUES (hex(zeroblob(1000)))";
}
