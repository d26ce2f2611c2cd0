//! The tests with SQLite.

use std::path::Path;

use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use weir_controller::Config;

/// Whether the database is on a server.
pub(crate) const IS_SERVER: bool = false;

/// An empty database for one test.
pub(crate) fn database(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("controller.db").display())
}

/// A copy of a database in use.
pub(crate) fn backup(folder: &Path, url: &str) -> String {
    let copy = format!("sqlite://{}", folder.join("copy.db").display());
    let sql = format!("VACUUM INTO '{}'", folder.join("copy.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(url).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    });
    copy
}

/// A database with little space, if this machine can provide one.
pub(crate) struct SmallDisk {
    folder: TempDir,
}

const PAGES: u64 = 200;

impl SmallDisk {
    pub(crate) fn start() -> Option<Self> {
        Some(Self { folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn database(&self) -> String {
        database(&self.folder)
    }

    pub(crate) fn configure(config: &mut Config) {
        config.database_bytes_max = Some(PAGES * 4096);
    }

    /// Settings for another program that must not get more space.
    pub(crate) const SETTINGS: &str = "PRAGMA max_page_count = 200";
    pub(crate) const FILLER: &str = "CREATE TABLE filler (x TEXT)";
    pub(crate) const MUCH: &str = "INSERT INTO filler VALUES (hex(zeroblob(50000)))";
    pub(crate) const LITTLE: &str = "INSERT INTO filler VALUES (hex(zeroblob(1000)))";
}

/// Makes the database refuse some plans.
pub(crate) const REFUSES: &str = "CREATE TRIGGER refuses BEFORE INSERT ON plans \
                                  WHEN NEW.object LIKE '%poison%' \
                                  BEGIN SELECT RAISE(ABORT, 'refused'); END";

/// Damages the row of a file: truncated JSON, invalid values, a blob, invalid UTF-8.
pub(crate) const GARBLE_FILE: [&str; 4] = [
    "UPDATE files SET body = '{' WHERE name = '/bad/v=1'",
    "UPDATE files SET body = replace(body, '10', '0') WHERE name = '/bad/v=1'",
    "UPDATE files SET body = x'00ff' WHERE name = '/bad/v=1'",
    "UPDATE files SET body = CAST(x'7bff' AS TEXT) WHERE name = '/bad/v=1'",
];
