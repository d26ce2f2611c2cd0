//! Rows of both databases as values, and values as what both take.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::{AuditRow, DatabaseError, FileRow, PlanRow};
use crate::token::Token;

/// Integers of SQL have a sign.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(row: &AnyRow, column: &'static str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

pub(super) fn body<T: DeserializeOwned>(
    row: &AnyRow,
    what: &'static str,
) -> Result<T, DatabaseError> {
    from_json(row, "body", what)
}

pub(super) fn from_json<T: DeserializeOwned>(
    row: &AnyRow,
    column: &'static str,
    what: &'static str,
) -> Result<T, DatabaseError> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text)
        .map_err(|error| DatabaseError::Garbled { what, why: error.to_string() })
}

pub(super) fn token(row: &AnyRow) -> Result<Token, DatabaseError> {
    let role: &str = row.try_get("role")?;
    let role = role.parse().map_err(|why| DatabaseError::Garbled { what: "a token", why })?;
    let expires: Option<i64> = row.try_get("expires_ms")?;
    Ok(Token {
        id: row.try_get("id")?,
        hash: row.try_get("hash")?,
        role,
        name: row.try_get("name")?,
        created_ms: unsigned(row, "created_ms")?,
        expires_ms: expires.map(|at| u64::try_from(at).unwrap_or(0)),
        prefixes: from_json(row, "prefixes", "prefixes of a token")?,
    })
}

pub(super) fn file(row: &AnyRow) -> Result<FileRow, DatabaseError> {
    Ok(FileRow { file: body(row, "a file")?, owner: row.try_get("owner")? })
}

pub(super) fn plan_row(row: &AnyRow) -> Result<PlanRow, DatabaseError> {
    Ok(PlanRow { made_ms: unsigned(row, "made_ms")?, plan: body(row, "a plan")? })
}

pub(super) fn line(row: &AnyRow) -> Result<AuditRow, DatabaseError> {
    Ok(AuditRow {
        id: unsigned(row, "id")?,
        at_ms: unsigned(row, "at_ms")?,
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        detail: row.try_get("detail")?,
    })
}
