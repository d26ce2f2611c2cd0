//! The tests with PostgreSQL.

use std::path::Path;

use tempfile::TempDir;
use weir_controller::Config;

use crate::postgres::Postgres;

/// Whether the database is on a server.
pub(crate) const IS_SERVER: bool = true;

/// An empty database for one test.
pub(crate) fn database(_: &TempDir) -> String {
    let server = Postgres::common();
    server.url(&server.database(""))
}

/// A copy of a database in use.
pub(crate) fn backup(folder: &Path, url: &str) -> String {
    let (server, dump) = (Postgres::common(), folder.join("copy.dump"));
    let name = url.rsplit('/').next().unwrap();
    let dump = dump.to_str().unwrap();
    server.client("pg_dump", &["--format=custom", "--file", dump, name]);
    let copy = server.database("");
    server.client("pg_restore", &["--dbname", &copy, dump]);
    server.url(&copy)
}

/// A database with little space, if this machine can provide one.
pub(crate) struct SmallDisk {
    server: Postgres,
}

impl SmallDisk {
    pub(crate) fn start() -> Option<Self> {
        let server = Postgres::with_small_disk("24m")?;
        let at = server.small_disk();
        let sql = format!("CREATE TABLESPACE small LOCATION '{}'", at.display());
        server.sql("postgres", &sql);
        Some(Self { server })
    }

    pub(crate) fn database(&self) -> String {
        self.server.url(&self.server.database("TABLESPACE small"))
    }

    pub(crate) fn configure(_: &mut Config) {}

    /// Settings for another program that must not get more space.
    pub(crate) const SETTINGS: &str = "SELECT 1";
    pub(crate) const FILLER: &str = "CREATE TABLE filler (x TEXT); \
                                     ALTER TABLE filler ALTER COLUMN x SET STORAGE PLAIN";
    pub(crate) const MUCH: &str = "INSERT INTO filler \
                                   SELECT repeat('x', 7000) FROM generate_series(1, 64)";
    pub(crate) const LITTLE: &str = "INSERT INTO filler VALUES (repeat('x', 7000))";
}

/// Makes the database refuse some plans.
pub(crate) const REFUSES: &str =
    "ALTER TABLE plans ADD CONSTRAINT refuses CHECK (object NOT LIKE '%poison%')";

/// Damages the row of a file: truncated JSON, or invalid values. PostgreSQL accepts no invalid
/// UTF-8 and no other types.
pub(crate) const GARBLE_FILE: [&str; 2] = [
    "UPDATE files SET body = '{' WHERE name = '/bad/v=1'",
    "UPDATE files SET body = replace(body, '10', '0') WHERE name = '/bad/v=1'",
];
