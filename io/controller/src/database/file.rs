//! The row of a file, within a change.

use sqlx::{AnyConnection, Row as _};
use weir_base::units::saturating_i64;
use weir_control::File;
use weir_wire::Name;

use super::rows::{self, json};
use super::unreadable::is_row_error;

/// Inserts a file unless a row with its name exists. Returns whether it was inserted.
pub(super) async fn insert(
    to: &mut AnyConnection,
    file: &File,
    owner: &str,
    added_ms: u64,
    change: i64,
) -> Result<bool, sqlx::Error> {
    let sql = "INSERT INTO files (name, owner, added_ms, body, change) \
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO NOTHING";
    let query =
        sqlx::query(sql).bind(file.name.to_string()).bind(owner).bind(saturating_i64(added_ms));
    let done = query.bind(json(file)).bind(change).execute(to).await?;
    Ok(done.rows_affected() > 0)
}

/// Writes the manifest of a registered file. Returns whether the row exists.
pub(super) async fn update_manifest(
    to: &mut AnyConnection,
    file: &File,
    change: i64,
) -> Result<bool, sqlx::Error> {
    let sql = "UPDATE files SET body = $2, change = $3 WHERE name = $1";
    let query = sqlx::query(sql).bind(file.name.to_string()).bind(json(file)).bind(change);
    Ok(query.execute(to).await?.rows_affected() > 0)
}

/// Removes a file; with `owner`, only if it belongs to this owner. Returns whether it was removed.
pub(super) async fn remove(
    to: &mut AnyConnection,
    name: &Name,
    owner: Option<&str>,
) -> Result<bool, sqlx::Error> {
    let query = match owner {
        None => sqlx::query("DELETE FROM files WHERE name = $1").bind(name.to_string()),
        Some(owner) => sqlx::query("DELETE FROM files WHERE name = $1 AND owner = $2")
            .bind(name.to_string())
            .bind(owner),
    };
    Ok(query.execute(to).await?.rows_affected() > 0)
}

/// Whether the row of a file exists but no controller can load it: it cannot be read, or its change
/// number is higher than this change.
pub(super) async fn is_unreadable(
    to: &mut AnyConnection,
    name: &Name,
    change: i64,
) -> Result<bool, sqlx::Error> {
    let sql = "SELECT name, owner, body, change FROM files WHERE name = $1";
    match sqlx::query(sql).bind(name.to_string()).fetch_optional(to).await {
        Ok(None) => Ok(false),
        Ok(Some(row)) => Ok(rows::file(&row).is_err()
            || !row.try_get("change").is_ok_and(|at: i64| (0..=change).contains(&at))),
        Err(error) if is_row_error(&error) => Ok(true),
        Err(error) => Err(error),
    }
}
