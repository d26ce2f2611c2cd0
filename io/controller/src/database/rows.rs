//! Converts rows of both databases into values, and values into what both accept.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_control::{File, Plan};
use weir_wire::Name;

use super::{AuditRow, FileRow, PlanRow};
use crate::token::Token;

/// Why a row cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

impl From<sqlx::Error> for Unreadable {
    fn from(error: sqlx::Error) -> Self {
        Self(error.to_string())
    }
}

pub(super) fn unsigned(row: &AnyRow, column: &'static str) -> Result<u64, Unreadable> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn from_json<T: DeserializeOwned>(row: &AnyRow, column: &'static str) -> Result<T, Unreadable> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text).map_err(|error| Unreadable(format!("{column}: {error}")))
}

pub(super) fn token(row: &AnyRow) -> Result<Token, Unreadable> {
    let role: &str = row.try_get("role")?;
    let expires: Option<i64> = row.try_get("expires_ms")?;
    Ok(Token {
        id: row.try_get("id")?,
        hash: row.try_get("hash")?,
        role: role.parse().map_err(Unreadable)?,
        name: row.try_get("name")?,
        created_ms: unsigned(row, "created_ms")?,
        expires_ms: expires.map(|at| u64::try_from(at).unwrap_or(0)),
        prefixes: from_json(row, "prefixes")?,
    })
}

/// A column that contains a name.
fn name(row: &AnyRow, column: &'static str) -> Result<Name, Unreadable> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error| Unreadable(format!("{column}: {error}")))
}

pub(super) fn file(row: &AnyRow) -> Result<FileRow, Unreadable> {
    let file: File = from_json(row, "body")?;
    if !file.is_valid() || file.name != name(row, "name")? {
        return Err(Unreadable("body: the file is invalid".to_owned()));
    }
    Ok(FileRow { file, owner: row.try_get("owner")? })
}

pub(super) fn withdrawn(row: &AnyRow) -> Result<(u64, Name), Unreadable> {
    Ok((unsigned(row, "change")?, name(row, "name")?))
}

pub(super) fn plan(row: &AnyRow) -> Result<Plan, Unreadable> {
    let plan: Plan = from_json(row, "body")?;
    if plan.number != unsigned(row, "number")? || plan.object != name(row, "object")? {
        return Err(Unreadable("body: it belongs to another plan".to_owned()));
    }
    Ok(plan)
}

pub(super) fn plan_row(row: &AnyRow) -> Result<PlanRow, Unreadable> {
    Ok(PlanRow { made_ms: unsigned(row, "made_ms")?, plan: plan(row)? })
}

pub(super) fn line(row: &AnyRow) -> Result<AuditRow, Unreadable> {
    Ok(AuditRow {
        id: unsigned(row, "id")?,
        at_ms: unsigned(row, "at_ms")?,
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        detail: row.try_get("detail")?,
    })
}

/// When a router last reported, and whether it reports to no controller.
pub(super) fn seen(row: &AnyRow) -> Result<(String, u64, bool), Unreadable> {
    Ok((row.try_get("name")?, unsigned(row, "seen_ms")?, unsigned(row, "run")? == 0))
}

/// The run number of the controller that a router reports to.
pub(super) fn router(row: &AnyRow) -> Result<(String, u64), Unreadable> {
    Ok((row.try_get("name")?, unsigned(row, "run")?))
}

pub(super) fn number(row: &AnyRow) -> Result<(String, u64), Unreadable> {
    let value: i64 = row.try_get("value")?;
    let value = u64::try_from(value).map_err(|_| Unreadable("value: negative".to_owned()))?;
    Ok((row.try_get("name")?, value))
}
