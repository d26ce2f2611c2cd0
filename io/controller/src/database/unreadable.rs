//! Rows that this program did not write, or that a disk has spoilt: each is passed over and told,
//! and all others are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe, Row as _};

use super::rows::{Unreadable, signed};
use super::{Database, DatabaseError};

/// Rows that are remembered and counted, at most, and characters of what each is found by.
const ROWS_MAX: usize = 1000;
const KEY_MAX: usize = 200;

/// Rows that were passed over since the start. Each is told once, however often it is read, and
/// one of a file no longer when it is written anew or removed.
#[derive(Default)]
pub(crate) struct UnreadableRows(Mutex<BTreeMap<(&'static str, String), String>>);

impl UnreadableRows {
    /// How many there are, 1,000 at most.
    pub(crate) fn count(&self) -> u64 {
        self.rows().len() as u64
    }

    /// One of them, and what is wrong with it, for people.
    pub(crate) fn first(&self) -> Option<String> {
        let rows = self.rows();
        rows.first_key_value().map(|((what, key), why)| format!("{what} {key}: {why}"))
    }

    /// Takes note of one of these, which is found by this.
    pub(super) fn note(&self, what: &'static str, key: &str, why: &str) {
        let mut rows = self.rows();
        let row = (what, key.chars().take(KEY_MAX).collect());
        if rows.len() < ROWS_MAX && !rows.contains_key(&row) {
            tracing::error!(what, key, why, "a row of the database cannot be read; it is left out");
            rows.insert(row, why.to_owned());
        }
    }

    /// One of these is no longer there, or can be read.
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

/// A question for rows.
pub(super) struct Select {
    /// What one of them is, for people.
    pub(super) what: &'static str,
    /// What one is found by, as text.
    pub(super) key: &'static str,
    pub(super) columns: &'static str,
    /// The rest of the statement.
    pub(super) from: &'static str,
}

/// Rows as values, and what those are found by that cannot be read.
pub(crate) struct ReadRows<T> {
    pub(crate) read: Vec<T>,
    pub(crate) unreadable: Vec<String>,
}

impl Select {
    /// With all columns or only what rows are found by, and numbers in place of `$1` and so on.
    fn query(&self, is_whole: bool, numbers: &[u64]) -> Query<'static, Any, AnyArguments> {
        let Self { key, columns, from, .. } = self;
        let sql = match is_whole {
            true => format!("SELECT {key} AS row_key, {columns} FROM {from}"),
            false => format!("SELECT {key} AS row_key FROM {from}"),
        };
        let query = sqlx::query(AssertSqlSafe(sql));
        numbers.iter().fold(query, |query, number| query.bind(signed(*number)))
    }
}

/// Whether an error is of one row alone, after which others come.
pub(super) fn is_row_error(error: &sqlx::Error) -> bool {
    use sqlx::Error::{AnyDriverError, ColumnDecode, Decode};
    matches!(error, AnyDriverError(_) | ColumnDecode { .. } | Decode(_))
}

impl Database {
    /// All rows that can be read. The others are told.
    pub(super) async fn select<T>(
        &self,
        select: &Select,
        numbers: &[u64],
        read: fn(&AnyRow) -> Result<T, Unreadable>,
    ) -> Result<ReadRows<T>, DatabaseError> {
        let mut rows = ReadRows { read: Vec::new(), unreadable: Vec::new() };
        // Why rows cannot be had at all, not even what they are found by.
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
            // Rows come and go meanwhile: none is told that could be read before or after.
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

    /// What rows are found by, as far as it can be had: alone, or with all columns.
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
