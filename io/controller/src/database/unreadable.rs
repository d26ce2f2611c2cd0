//! Rows that cannot be read, because another program wrote them or a disk is faulty. Each is
//! skipped and reported, and all others are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe, Row as _};
use weir_base::units::saturating_i64;

use super::rows::Unreadable;
use super::{Database, DatabaseError};

/// Maximum number of remembered rows, and maximum length of a key in characters.
const ROWS_MAX: usize = 1000;
const KEY_MAX: usize = 200;

/// Rows that were skipped since the start. Each is logged once. A row of a file is removed from
/// here when it is written again or deleted.
#[derive(Default)]
pub(crate) struct UnreadableRows(Mutex<BTreeMap<(&'static str, String), String>>);

impl UnreadableRows {
    /// The number of such rows, at most 1,000.
    pub(crate) fn count(&self) -> u64 {
        self.rows().len() as u64
    }

    /// One of them with its error, to display.
    pub(crate) fn first(&self) -> Option<String> {
        let rows = self.rows();
        rows.first_key_value().map(|((what, key), why)| format!("{what} {key}: {why}"))
    }

    /// Records a row of kind `what` with key `key`.
    pub(super) fn note(&self, what: &'static str, key: &str, why: &str) {
        let mut rows = self.rows();
        let row = (what, key.chars().take(KEY_MAX).collect());
        if rows.len() < ROWS_MAX && !rows.contains_key(&row) {
            tracing::error!(
                what,
                key,
                why,
                "a database row cannot be read and is skipped; repair or remove it"
            );
            rows.insert(row, why.to_owned());
        }
    }

    /// Removes a row that no longer exists, or that can be read again.
    pub(super) fn forget(&self, what: &'static str, key: &str) {
        let mut rows = self.rows();
        if !rows.is_empty() {
            rows.remove(&(what, key.chars().take(KEY_MAX).collect::<String>()));
        }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A query for rows of one kind.
pub(super) struct Select {
    /// The kind of the rows, to display.
    pub(super) what: &'static str,
    /// The SQL expression of the key, as text.
    pub(super) key: &'static str,
    pub(super) columns: &'static str,
    /// The rest of the statement.
    pub(super) from: &'static str,
}

/// Values, and the keys of the rows that cannot be read.
pub(crate) struct ReadRows<T> {
    pub(crate) read: Vec<T>,
    pub(crate) unreadable: Vec<String>,
}

impl Select {
    /// The query with all columns or only with keys. `numbers` replace `$1` and so on.
    fn query(&self, is_whole: bool, numbers: &[u64]) -> Query<'static, Any, AnyArguments> {
        let Self { key, columns, from, .. } = self;
        let sql = match is_whole {
            true => format!("SELECT {key} AS row_key, {columns} FROM {from}"),
            false => format!("SELECT {key} AS row_key FROM {from}"),
        };
        let query = sqlx::query(AssertSqlSafe(sql));
        numbers.iter().fold(query, |query, number| query.bind(saturating_i64(*number)))
    }
}

/// Whether an error concerns one row, so that further rows can be read.
pub(super) fn is_row_error(error: &sqlx::Error) -> bool {
    use sqlx::Error::{AnyDriverError, ColumnDecode, Decode};
    matches!(error, AnyDriverError(_) | ColumnDecode { .. } | Decode(_))
}

impl Database {
    /// Reads all rows that can be read, and records the others.
    pub(super) async fn select<T>(
        &self,
        select: &Select,
        numbers: &[u64],
        read: fn(&AnyRow) -> Result<T, Unreadable>,
    ) -> Result<ReadRows<T>, DatabaseError> {
        let mut rows = ReadRows { read: Vec::new(), unreadable: Vec::new() };
        // Rows for which not even the key can be read with all columns.
        let (mut broken, mut broken_count) = (None, 0);
        let mut connection = self.pool.acquire().await?;
        let mut stream = select.query(true, numbers).fetch(&mut *connection);
        while let Some(row) = stream.next().await {
            let row = match row {
                Ok(row) => row,
                Err(error) if is_row_error(&error) => {
                    broken.get_or_insert_with(|| error.to_string());
                    broken_count += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match read(&row) {
                Ok(value) => rows.read.push(value),
                Err(Unreadable(why)) => {
                    let key = row.try_get("row_key").unwrap_or_else(|_| "of no name".to_owned());
                    self.unreadable.note(select.what, &key, &why);
                    rows.unreadable.push(key);
                }
            }
        }
        drop(stream);
        drop(connection);
        if let Some(why) = broken {
            // Find their keys by a second query. Rows may be added or removed in between, so a row
            // counts as unreadable only if it is missing in the reads before and after.
            let before = self.keys(select, true, numbers).await?;
            let mut found = self.keys(select, false, numbers).await?;
            found.retain(|key| !before.contains(key));
            if !found.is_empty() {
                let after = self.keys(select, true, numbers).await?;
                found.retain(|key| !after.contains(key));
            }
            if found.len() < broken_count {
                self.unreadable.note(select.what, "of no name", &why);
            }
            found.iter().for_each(|key| self.unreadable.note(select.what, key, &why));
            rows.unreadable.extend(found);
        }
        Ok(rows)
    }

    /// The keys that can be read, with only the key or with all columns selected.
    async fn keys(
        &self,
        select: &Select,
        is_whole: bool,
        numbers: &[u64],
    ) -> Result<BTreeSet<String>, DatabaseError> {
        let mut keys = BTreeSet::new();
        let mut connection = self.pool.acquire().await?;
        let mut stream = select.query(is_whole, numbers).fetch(&mut *connection);
        while let Some(row) = stream.next().await {
            match row.and_then(|row| row.try_get("row_key")) {
                Ok(key) => drop(keys.insert(key)),
                Err(error) if is_row_error(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(keys)
    }
}
