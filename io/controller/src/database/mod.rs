//! The database: tokens, files, plans and the audit. All SQL is in this module. The statements work
//! with SQLite and with PostgreSQL; only the tables are created in each dialect.

mod file;
mod location;
mod prune;
mod rows;
mod servers;
mod sharing;
mod transaction;
mod unreadable;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sqlx::any::AnyPoolOptions;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{
    AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Executor as _, SqlSafeStr as _, raw_sql,
};
use weir_base::units::saturating_i64;
use weir_control::{File, FileStatus, Plan};
use weir_wire::Name;

pub use self::location::{DatabaseLocation, LocationError, ServerUrl};
use self::rows::json;
use self::servers::{Servers, is_primary};
pub(crate) use self::sharing::{Changes, ControllerRow, FileChange, NUMBER_STEP};
use self::transaction::Transaction;
use self::unreadable::Select;
pub(crate) use self::unreadable::{ReadRows, UnreadableRows};
use crate::token::Token;

/// Maximum number of connections: one writes while others read.
const CONNECTIONS_MAX: u32 = 4;
/// How long a statement waits for a lock of another program.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a statement waits for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a whole change may take. A server that has become unreachable never answers.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database is unavailable, full, locked or broken.
    #[error("the database failed: {0}")]
    Failed(#[from] sqlx::Error),
    /// The tables cannot be created or migrated.
    #[error("the tables of the database cannot be created or migrated: {0}")]
    Tables(#[from] sqlx::migrate::MigrateError),
    /// A row is essential and cannot be read. Another program wrote it, or the disk is faulty.
    #[error("the database contains {0} that cannot be read; restore a backup")]
    Unreadable(&'static str),
    /// The servers of a replicated database are down, or standbys.
    #[error("no server of the database accepts writes ({0}); promote a standby")]
    NoPrimary(String),
    /// The operation takes too long.
    #[error("the database does not answer in time; try again")]
    TimedOut,
    /// Another controller has written the same row at the same time.
    #[error("another controller has just registered one of these files; try again")]
    Conflict,
}

/// Why a database does not write, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
// The OpenAPI description keeps the name that its readers know.
#[schema(as = Away)]
pub(crate) enum OutageCause {
    /// It has no space.
    Full,
    /// Another program holds a lock.
    Locked,
    /// It, or its disk, is read-only.
    ReadOnly,
    /// It does not answer, or answers with another error.
    Silent,
}

/// Result codes of SQLite: no space, locked by another program, read-only (sqlite.org/rescode).
const SQLITE_FULL: i32 = 13;
const SQLITE_BUSY: i32 = 5;
const SQLITE_READONLY: i32 = 8;
/// The same as PostgreSQL error codes (its manual, appendix A).
const DISK_FULL: &str = "53100";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const READ_ONLY_TRANSACTION: &str = "25006";

/// Codes for data that is refused. SQLite: too big, constraint, type mismatch. PostgreSQL: classes
/// for data exceptions, integrity constraints, and program limits.
const SQLITE_DATA: [i32; 3] = [18, 19, 20];
const DATA_CLASSES: [&str; 3] = ["22", "23", "54"];

impl DatabaseError {
    /// Whether the data is refused, so that a retry would fail again.
    pub(crate) fn is_data_error(&self) -> bool {
        let Self::Failed(sqlx::Error::Database(error)) = self else { return false };
        let code = error.code().unwrap_or_default();
        // PostgreSQL's codes have five characters, SQLite's fewer.
        match code.parse::<i32>() {
            Ok(number) if code.len() < 5 => SQLITE_DATA.contains(&(number & 0xff)),
            _ => DATA_CLASSES.iter().any(|class| code.starts_with(class)),
        }
    }

    pub(crate) fn outage_cause(&self) -> OutageCause {
        let Self::Failed(sqlx::Error::Database(error)) = self else { return OutageCause::Silent };
        let Some(code) = error.code() else { return OutageCause::Silent };
        // The lowest byte of an extended SQLite code is the primary code.
        let plain = code.parse::<i32>().map(|code| code & 0xff);
        match (&*code, plain) {
            (DISK_FULL, _) | (_, Ok(SQLITE_FULL)) => OutageCause::Full,
            (LOCK_NOT_AVAILABLE, _) | (_, Ok(SQLITE_BUSY)) => OutageCause::Locked,
            (READ_ONLY_TRANSACTION, _) | (_, Ok(SQLITE_READONLY)) => OutageCause::ReadOnly,
            _ => OutageCause::Silent,
        }
    }
}

/// A line of the audit: who did what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct AuditRow {
    /// Rises with each line.
    pub(crate) id: u64,
    /// When it happened, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Role and name of a token, or `controller`.
    pub(crate) who: String,
    /// The action, as a word.
    pub(crate) action: String,
    /// The object of the action.
    pub(crate) detail: String,
}

/// A record to write.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// A plan. `follows` is the number of the plan of its object that it follows in the database:
    /// its parent, or an earlier one if the parent is never written; 0 for the first.
    Plan {
        plan: Plan,
        follows: u64,
        made_ms: u64,
    },
    Router {
        name: String,
        seen_ms: u64,
        body: String,
    },
    /// A router that is lost. `run` is the controller that it reported to, if that is not this one.
    /// `seen_ms` is the time of its last report, if known.
    RouterLost {
        name: String,
        run: Option<u64>,
        seen_ms: Option<u64>,
    },
    Audit {
        at_ms: u64,
        who: String,
        action: &'static str,
        detail: String,
    },
}

/// A plan with the time when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanRow {
    /// When it was made, in milliseconds since 1970.
    pub(crate) made_ms: u64,
    #[serde(flatten)]
    pub(crate) plan: Plan,
}

/// A file with its owner.
pub(crate) struct FileRow {
    pub(crate) file: File,
    pub(crate) owner: String,
}

/// The connection pool, and the rows that cannot be read.
#[derive(Clone)]
pub(crate) struct Database {
    pool: AnyPool,
    servers: Arc<Servers>,
    unreadable: Arc<UnreadableRows>,
}

/// Columns of a plan, and its key as text.
const PLAN: &str = "number, object, body, made_ms";
const PLAN_KEY: &str = "CAST(number AS TEXT)";

fn migrator(is_server: bool) -> Migrator {
    let step = |number: i64, name: &'static str, sql: &'static str| {
        let sql = sql.into_sql_str();
        Migration::new(number, Cow::Borrowed(name), MigrationType::Simple, sql, false)
    };
    let steps = match is_server {
        true => vec![step(3, "begin", include_str!("postgres/0003-begin.sql"))],
        false => vec![
            step(1, "begin", include_str!("sqlite/0001-begin.sql")),
            step(2, "prefixes", include_str!("sqlite/0002-prefixes.sql")),
            step(3, "shared", include_str!("sqlite/0003-shared.sql")),
        ],
    };
    Migrator { migrations: Cow::Owned(steps), ..Migrator::DEFAULT }
}

/// Statements that configure each new connection.
fn settings(is_server: bool, bytes_max: Option<u64>) -> String {
    let lock_ms = LOCK_TIMEOUT.as_millis();
    if is_server {
        // A controller that is suspended in the middle of a change must not block others for long.
        let idle_ms = CHANGE_TIMEOUT.as_millis();
        // A change that a controller has confirmed (201) must survive a kill of the server.
        return format!(
            "SET lock_timeout = {lock_ms}; SET idle_in_transaction_session_timeout = {idle_ms}; \
             SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'"
        );
    }
    let mut text = format!(
        "PRAGMA busy_timeout = {lock_ms}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         PRAGMA wal_autocheckpoint = {WAL_PAGES}"
    );
    if let Some(bytes_max) = bytes_max {
        let pages = saturating_i64(bytes_max / PAGE_BYTES).max(1);
        text += &format!("; PRAGMA max_page_count = {pages}");
    }
    text
}

/// Size of an SQLite page in bytes.
const PAGE_BYTES: u64 = 4096;
/// Size of the WAL at which SQLite writes it back into the database, in pages: 1 MiB. With the
/// default of 4 MiB the WAL could fill a disk with less space, and nothing would shrink it.
const WAL_PAGES: u32 = 256;

/// The cause of a missing connection. The pool reports only a timeout. If the server refuses
/// connections, one more attempt shows why.
async fn with_cause(pool: &AnyPool, error: sqlx::Error) -> sqlx::Error {
    if !matches!(error, sqlx::Error::PoolTimedOut) {
        return error;
    }
    let options = pool.connect_options();
    let attempt = AnyConnection::connect_with(&options);
    match tokio::time::timeout(CONNECTION_TIMEOUT, attempt).await {
        Ok(Err(cause)) => cause,
        Ok(Ok(_)) | Err(_) => error,
    }
}

/// Whether a connection may return to the pool. An unreachable server never answers a ping. Without
/// the timeout its connections would count as used until the system closes them, and there would be
/// no slots for new ones.
///
/// With several servers, a connection to one that has become a standby ends.
async fn is_reusable(
    connection: &mut AnyConnection,
    has_several: bool,
) -> Result<bool, sqlx::Error> {
    let check = async {
        if has_several {
            is_primary(connection).await
        } else {
            connection.ping().await.map(|()| true)
        }
    };
    tokio::time::timeout(CHANGE_TIMEOUT, check).await.unwrap_or(Ok(false))
}

async fn audit(to: &mut AnyConnection, record: &Record) -> Result<(), sqlx::Error> {
    let Record::Audit { at_ms, who, action, detail } = record else { return Ok(()) };
    let sql = "INSERT INTO audit (at_ms, who, action, detail) VALUES ($1, $2, $3, $4)";
    let query = sqlx::query(sql).bind(saturating_i64(*at_ms)).bind(who).bind(*action).bind(detail);
    query.execute(to).await.map(drop)
}

impl Database {
    /// Opens the database. An SQLite file is created if it does not exist, and may take `bytes_max`
    /// bytes. A PostgreSQL database must exist.
    pub(crate) async fn open(
        place: &DatabaseLocation,
        bytes_max: Option<u64>,
    ) -> Result<Self, DatabaseError> {
        sqlx::any::install_default_drivers();
        let settings = settings(place.is_server(), bytes_max);
        let servers = Servers::new(place.options()?);
        let has_several = servers.has_several();
        let primary = servers.primary().await.map_err(DatabaseError::NoPrimary)?;
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECTION_TIMEOUT)
            .after_connect(move |connection, _| {
                let settings = AssertSqlSafe(settings.clone());
                Box::pin(async move { connection.execute(raw_sql(settings)).await.map(drop) })
            })
            .after_release(move |connection, _| Box::pin(is_reusable(connection, has_several)))
            .connect_lazy_with(primary);
        // Connect now, so that an unreachable database is noticed at the start.
        let connected = pool.acquire().await.map(drop);
        if let Err(error) = connected {
            return Err(with_cause(&pool, error).await.into());
        }
        migrator(place.is_server()).run(&pool).await?;
        if has_several {
            tokio::spawn(Arc::clone(&servers).follow(pool.clone()));
        }
        Ok(Self { pool, servers, unreadable: Arc::default() })
    }

    /// Runs an operation with a timeout.
    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        let result = tokio::time::timeout(CHANGE_TIMEOUT, work).await;
        if matches!(result, Ok(Err(DatabaseError::Failed(_))) | Err(_)) {
            self.servers.note_failure();
        }
        match result {
            Ok(Err(DatabaseError::Failed(error))) => {
                Err(with_cause(&self.pool, error).await.into())
            }
            Ok(result) => result,
            Err(_) => Err(DatabaseError::TimedOut),
        }
    }

    /// The rows that cannot be read.
    pub(crate) fn unreadable(&self) -> &UnreadableRows {
        &self.unreadable
    }

    pub(crate) async fn close(&self) {
        // Do not wait longer for a server that does not answer.
        let _ = tokio::time::timeout(CHANGE_TIMEOUT, self.pool.close()).await;
    }

    /// Checks that the database answers.
    pub(crate) async fn answers(&self) -> Result<(), DatabaseError> {
        let query = sqlx::query("SELECT COUNT(*) FROM numbers").fetch_one(&self.pool);
        self.with_timeout(async { Ok(query.await.map(drop)?) }).await
    }

    pub(crate) async fn add_token(&self, token: &Token, who: Record) -> Result<(), DatabaseError> {
        let sql = "INSERT INTO tokens (id, hash, role, name, created_ms, expires_ms, prefixes) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = sqlx::query(sql)
            .bind(&token.id)
            .bind(&token.hash)
            .bind(token.role.to_string())
            .bind(&token.name)
            .bind(saturating_i64(token.created_ms))
            .bind(token.expires_ms.map(saturating_i64))
            .bind(json(&token.prefixes));
        self.with_timeout(async {
            let mut transaction = Transaction::begin(&self.pool).await?;
            query.execute(&mut *transaction).await?;
            audit(&mut transaction, &who).await?;
            Ok(transaction.commit().await?)
        })
        .await
    }

    pub(crate) async fn remove_token(&self, id: &str, who: Record) -> Result<bool, DatabaseError> {
        self.with_timeout(async {
            let mut transaction = Transaction::begin(&self.pool).await?;
            let sql = "DELETE FROM tokens WHERE id = $1";
            let done = sqlx::query(sql).bind(id).execute(&mut *transaction).await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            audit(&mut transaction, &who).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    pub(crate) async fn tokens(&self) -> Result<ReadRows<Token>, DatabaseError> {
        let select = Select {
            what: "token",
            key: "id",
            columns: "id, hash, role, name, created_ms, expires_ms, prefixes",
            from: "tokens ORDER BY created_ms, id",
        };
        self.with_timeout(self.select(&select, &[], rows::token)).await
    }

    /// Adds files, or their manifests, with audit lines: all or none. It leaves out, and returns,
    /// files whose row exists, cannot be read and belongs to someone else; with `may_replace` it
    /// replaces them.
    pub(crate) async fn add_files(
        &self,
        files: &[(File, FileStatus)],
        who: &str,
        may_replace: bool,
        at_ms: u64,
    ) -> Result<BTreeSet<Name>, DatabaseError> {
        let mut left_out = BTreeSet::new();
        if files.is_empty() {
            return Ok(left_out);
        }
        self.with_timeout(async {
            let (mut transaction, change) = self.begin_change().await?;
            let to = &mut transaction;
            for (file, status) in files {
                let (is_written, action) = match status {
                    FileStatus::Unchanged => continue,
                    FileStatus::AddsManifest => {
                        (file::update_manifest(to, file, change).await?, "manifest added")
                    }
                    FileStatus::New => {
                        (file::insert(to, file, who, at_ms, change).await?, "file added")
                    }
                };
                if !is_written {
                    // Another controller was first, or the row cannot be read and so was not
                    // loaded.
                    if *status != FileStatus::New
                        || !file::is_unreadable(to, &file.name, change).await?
                    {
                        return Err(DatabaseError::Conflict);
                    }
                    if !file::remove(to, &file.name, (!may_replace).then_some(who)).await? {
                        left_out.insert(file.name.clone());
                        continue;
                    }
                    file::insert(to, file, who, at_ms, change).await?;
                }
                let detail = format!("{}: {} segments", file.name, file.segments);
                let line = Record::Audit { at_ms, who: who.to_owned(), action, detail };
                audit(to, &line).await?;
            }
            transaction.commit().await?;
            Ok(left_out)
        })
        .await
    }

    /// Removes a file. With `owner`, only a row of this owner is removed. Returns false if the file
    /// is neither known nor in the database.
    pub(crate) async fn remove_file(
        &self,
        name: &Name,
        is_known: bool,
        owner: Option<&str>,
        who: Record,
    ) -> Result<bool, DatabaseError> {
        self.with_timeout(async {
            let (mut transaction, change) = self.begin_change().await?;
            if !file::remove(&mut transaction, name, owner).await? && !is_known {
                return Ok(false);
            }
            let sql = "INSERT INTO withdrawn (change, name) VALUES ($1, $2)";
            let query = sqlx::query(sql).bind(change).bind(name.to_string());
            query.execute(&mut *transaction).await?;
            audit(&mut transaction, &who).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// The newest plans with numbers below `before`, the newest first.
    pub(crate) async fn plans(
        &self,
        before: u64,
        count: u64,
    ) -> Result<Vec<PlanRow>, DatabaseError> {
        let from = "plans WHERE number < $1 ORDER BY number DESC LIMIT $2";
        let select = Select { what: "plan", key: PLAN_KEY, columns: PLAN, from };
        Ok(self.with_timeout(self.select(&select, &[before, count], rows::plan_row)).await?.read)
    }

    pub(crate) async fn plan(&self, number: u64) -> Result<Option<PlanRow>, DatabaseError> {
        let from = "plans WHERE number = $1";
        let select = Select { what: "plan", key: PLAN_KEY, columns: PLAN, from };
        let rows = self.with_timeout(self.select(&select, &[number], rows::plan_row)).await?;
        if !rows.unreadable.is_empty() {
            return Err(DatabaseError::Unreadable("a plan"));
        }
        Ok(rows.read.into_iter().next())
    }

    /// The newest lines of the audit with ids below `before`, the newest first.
    pub(crate) async fn audit(
        &self,
        before: u64,
        count: u64,
    ) -> Result<Vec<AuditRow>, DatabaseError> {
        let select = Select {
            what: "line of the audit",
            key: "CAST(id AS TEXT)",
            columns: "id, at_ms, who, action, detail",
            from: "audit WHERE id < $1 ORDER BY id DESC LIMIT $2",
        };
        Ok(self.with_timeout(self.select(&select, &[before, count], rows::line)).await?.read)
    }

    /// For each router: when it last reported or was found, and whether it is lost since.
    pub(crate) async fn routers(&self) -> Result<Vec<(String, u64, bool)>, DatabaseError> {
        let (key, columns, from) = ("name", "name, seen_ms, run", "routers ORDER BY name");
        let select = Select { what: "router", key, columns, from };
        Ok(self.with_timeout(self.select(&select, &[], rows::seen)).await?.read)
    }

    /// Begins a change of shared data. Changes of all controllers are serialized: a reader that
    /// sees the number of a change sees all of it and all earlier changes.
    async fn begin_change(&self) -> Result<(Transaction, i64), DatabaseError> {
        let mut transaction = Transaction::begin(&self.pool).await?;
        let change = sharing::next_value(&mut transaction, "change").await?;
        Ok((transaction, change))
    }
}

#[cfg(test)]
mod tests;
