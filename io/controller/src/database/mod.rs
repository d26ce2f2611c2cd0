//! What outlives the program: tokens, files, plans, the audit. All SQL is here, in words that
//! PostgreSQL has too.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Row as _, SqlSafeStr as _, SqliteConnection};
use weir_control::{File, Plan};
use weir_wire::Name;

use crate::token::Token;

/// Connections at most: one writes, others read beside it.
const CONNECTIONS_MAX: u32 = 4;
/// How long a statement waits for another program that holds the lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long a statement waits for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(3);

/// Why the database did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It is away, full, locked or broken.
    #[error("the database does not answer: {0}")]
    Away(#[from] sqlx::Error),
    /// Its tables cannot be made or brought up to date.
    #[error("the tables of the database cannot be set up: {0}")]
    Tables(#[from] sqlx::migrate::MigrateError),
    /// A row that this program did not write.
    #[error("the database holds {what} that cannot be read: {why}")]
    Garbled {
        /// Of which kind.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// A line of the audit: who did what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct AuditRow {
    /// Counts up.
    pub(crate) id: u64,
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Role and name of a token, or `controller`.
    pub(crate) who: String,
    /// What was done, as a word.
    pub(crate) action: String,
    /// To what.
    pub(crate) detail: String,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Plan { plan: Plan, made_ms: u64 },
    Router { name: String, seen_ms: u64, body: String },
    Audit { at_ms: u64, who: String, action: &'static str, detail: String },
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

/// The database.
#[derive(Clone)]
pub(crate) struct Database {
    pool: SqlitePool,
}

fn migrator() -> Migrator {
    let step = |number: i64, name: &'static str, sql: &'static str| {
        let sql = sql.into_sql_str();
        Migration::new(number, Cow::Borrowed(name), MigrationType::Simple, sql, false)
    };
    let steps = vec![
        step(1, "begin", include_str!("sqlite/0001-begin.sql")),
        step(2, "prefixes", include_str!("sqlite/0002-prefixes.sql")),
    ];
    Migrator { migrations: Cow::Owned(steps), ..Migrator::DEFAULT }
}

/// Integers of SQL have a sign.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &SqliteRow, column: &'static str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

fn body<T: serde::de::DeserializeOwned>(
    row: &SqliteRow,
    what: &'static str,
) -> Result<T, DatabaseError> {
    from_json(row, "body", what)
}

fn from_json<T: serde::de::DeserializeOwned>(
    row: &SqliteRow,
    column: &'static str,
    what: &'static str,
) -> Result<T, DatabaseError> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text)
        .map_err(|error| DatabaseError::Garbled { what, why: error.to_string() })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

async fn write(to: &mut SqliteConnection, record: &Record) -> Result<(), sqlx::Error> {
    match record {
        Record::Plan { plan, made_ms } => {
            let sql = "INSERT INTO plans (number, parent, object, made_ms, body) \
                       VALUES ($1, $2, $3, $4, $5) ON CONFLICT (number) DO NOTHING";
            sqlx::query(sql)
                .bind(signed(plan.number))
                .bind(signed(plan.parent))
                .bind(plan.object.to_string())
                .bind(signed(*made_ms))
                .bind(json(plan))
                .execute(to)
                .await?;
        }
        Record::Router { name, seen_ms, body } => {
            let sql = "INSERT INTO routers (name, seen_ms, body) VALUES ($1, $2, $3) \
                       ON CONFLICT (name) DO UPDATE SET seen_ms = $2, body = $3";
            sqlx::query(sql).bind(name).bind(signed(*seen_ms)).bind(body).execute(to).await?;
        }
        Record::Audit { at_ms, who, action, detail } => {
            let sql = "INSERT INTO audit (at_ms, who, action, detail) VALUES ($1, $2, $3, $4)";
            sqlx::query(sql)
                .bind(signed(*at_ms))
                .bind(who)
                .bind(*action)
                .bind(detail)
                .execute(to)
                .await?;
        }
    }
    Ok(())
}

impl Database {
    /// Opens the database in a file, which is made if there is none.
    pub(crate) async fn open(path: &Path) -> Result<Self, DatabaseError> {
        // For its owner alone; SQLite gives its other files the same rights.
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        made.map_err(sqlx::Error::Io)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(LOCK_WAIT);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECTION_WAIT)
            .connect_with(options)
            .await?;
        migrator().run(&pool).await?;
        Ok(Self { pool })
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// Whether it answers.
    pub(crate) async fn is_there(&self) -> bool {
        sqlx::query("SELECT COUNT(*) FROM tokens").fetch_one(&self.pool).await.is_ok()
    }

    /// Writes all of them or none.
    pub(crate) async fn write(&self, records: &[Record]) -> Result<(), DatabaseError> {
        let mut transaction = self.pool.begin().await?;
        for record in records {
            write(&mut transaction, record).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Removes the oldest lines of the audit, and plans that others have followed, so that as many
    /// stay.
    pub(crate) async fn prune(&self, audit: u64, plans: u64) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - $1";
        sqlx::query(sql).bind(signed(audit)).execute(&self.pool).await?;
        let sql = "DELETE FROM plans WHERE number <= (SELECT MAX(number) FROM plans) - $1 \
                   AND number NOT IN (SELECT MAX(number) FROM plans GROUP BY object)";
        sqlx::query(sql).bind(signed(plans)).execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn add_token(&self, token: &Token, who: Record) -> Result<(), DatabaseError> {
        let mut transaction = self.pool.begin().await?;
        let sql = "INSERT INTO tokens (id, hash, role, name, created_ms, expires_ms, prefixes) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)";
        sqlx::query(sql)
            .bind(&token.id)
            .bind(&token.hash)
            .bind(token.role.to_string())
            .bind(&token.name)
            .bind(signed(token.created_ms))
            .bind(token.expires_ms.map(signed))
            .bind(json(&token.prefixes))
            .execute(&mut *transaction)
            .await?;
        write(&mut transaction, &who).await?;
        Ok(transaction.commit().await?)
    }

    pub(crate) async fn remove_token(&self, id: &str, who: Record) -> Result<bool, DatabaseError> {
        let mut transaction = self.pool.begin().await?;
        let sql = "DELETE FROM tokens WHERE id = $1";
        let done = sqlx::query(sql).bind(id).execute(&mut *transaction).await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        write(&mut transaction, &who).await?;
        transaction.commit().await?;
        Ok(true)
    }

    pub(crate) async fn tokens(&self) -> Result<Vec<Token>, DatabaseError> {
        let sql = "SELECT id, hash, role, name, created_ms, expires_ms, prefixes FROM tokens \
                   ORDER BY created_ms, id";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await?;
        let token = |row: &SqliteRow| -> Result<Token, DatabaseError> {
            let role: &str = row.try_get("role")?;
            let role =
                role.parse().map_err(|why| DatabaseError::Garbled { what: "a token", why })?;
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
        };
        rows.iter().map(token).collect()
    }

    /// Adds files with their lines of the audit: all or none.
    pub(crate) async fn add_files(
        &self,
        files: &[File],
        owner: &str,
        at_ms: u64,
    ) -> Result<(), DatabaseError> {
        let mut transaction = self.pool.begin().await?;
        for file in files {
            let sql = "INSERT INTO files (name, owner, added_ms, body) VALUES ($1, $2, $3, $4)";
            sqlx::query(sql)
                .bind(file.name.to_string())
                .bind(owner)
                .bind(signed(at_ms))
                .bind(json(file))
                .execute(&mut *transaction)
                .await?;
            let detail = format!("{}: {} segments", file.name, file.segments);
            let (who, action) = (owner.to_owned(), "file added");
            write(&mut transaction, &Record::Audit { at_ms, who, action, detail }).await?;
        }
        Ok(transaction.commit().await?)
    }

    pub(crate) async fn remove_file(&self, name: &Name, who: Record) -> Result<(), DatabaseError> {
        let mut transaction = self.pool.begin().await?;
        let sql = "DELETE FROM files WHERE name = $1";
        sqlx::query(sql).bind(name.to_string()).execute(&mut *transaction).await?;
        write(&mut transaction, &who).await?;
        Ok(transaction.commit().await?)
    }

    pub(crate) async fn files(&self) -> Result<Vec<FileRow>, DatabaseError> {
        let rows = sqlx::query("SELECT owner, body FROM files").fetch_all(&self.pool).await?;
        let file = |row: &SqliteRow| {
            Ok(FileRow { file: body(row, "a file")?, owner: row.try_get("owner")? })
        };
        rows.iter().map(file).collect()
    }

    /// The newest plan of each object, by number.
    pub(crate) async fn newest_plans(&self) -> Result<Vec<Plan>, DatabaseError> {
        let sql = "SELECT body FROM plans WHERE number IN \
                   (SELECT MAX(number) FROM plans GROUP BY object) ORDER BY number";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await?;
        rows.iter().map(|row| body(row, "a plan")).collect()
    }

    /// The newest plans before `before`, newest first.
    pub(crate) async fn plans(
        &self,
        before: u64,
        count: u64,
    ) -> Result<Vec<PlanRow>, DatabaseError> {
        let sql = "SELECT made_ms, body FROM plans WHERE number < $1 \
                   ORDER BY number DESC LIMIT $2";
        let query = sqlx::query(sql).bind(signed(before)).bind(signed(count));
        query.fetch_all(&self.pool).await?.iter().map(plan_row).collect()
    }

    pub(crate) async fn plan(&self, number: u64) -> Result<Option<PlanRow>, DatabaseError> {
        let sql = "SELECT made_ms, body FROM plans WHERE number = $1";
        let row = sqlx::query(sql).bind(signed(number)).fetch_optional(&self.pool).await?;
        row.as_ref().map(plan_row).transpose()
    }

    /// The newest lines of the audit before `before`, newest first.
    pub(crate) async fn audit(
        &self,
        before: u64,
        count: u64,
    ) -> Result<Vec<AuditRow>, DatabaseError> {
        let sql = "SELECT id, at_ms, who, action, detail FROM audit WHERE id < $1 \
                   ORDER BY id DESC LIMIT $2";
        let query = sqlx::query(sql).bind(signed(before)).bind(signed(count));
        let rows = query.fetch_all(&self.pool).await?;
        let line = |row: &SqliteRow| -> Result<AuditRow, DatabaseError> {
            Ok(AuditRow {
                id: unsigned(row, "id")?,
                at_ms: unsigned(row, "at_ms")?,
                who: row.try_get("who")?,
                action: row.try_get("action")?,
                detail: row.try_get("detail")?,
            })
        };
        rows.iter().map(line).collect()
    }

    /// When each router was heard of last.
    pub(crate) async fn routers(&self) -> Result<Vec<(String, u64)>, DatabaseError> {
        let sql = "SELECT name, seen_ms FROM routers ORDER BY name";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await?;
        let router = |row: &SqliteRow| Ok((row.try_get("name")?, unsigned(row, "seen_ms")?));
        rows.iter().map(router).collect()
    }
}

fn plan_row(row: &SqliteRow) -> Result<PlanRow, DatabaseError> {
    Ok(PlanRow { made_ms: unsigned(row, "made_ms")?, plan: body(row, "a plan")? })
}
