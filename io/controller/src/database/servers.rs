//! The servers of a replicated database. One of them, the primary, accepts writes; the others are
//! its standbys. When the primary fails, an operator or a program promotes a standby. The pool then
//! connects to that one.

use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AnyPool, Connection as _, query_scalar};
use tokio::sync::Notify;

/// Time between two searches for the primary.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long a search waits for a server.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeline of a primary in hexadecimal, or an empty text from a server that accepts no writes.
/// A promotion begins a new timeline, whose number is greater.
const TIMELINE: &str = "SELECT CASE WHEN pg_is_in_recovery() \
                        OR current_setting('default_transaction_read_only') = 'on' THEN '' \
                        ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END";

pub(super) struct Servers {
    options: Vec<AnyConnectOptions>,
    failed: Notify,
}

impl Servers {
    pub(super) fn new(options: Vec<AnyConnectOptions>) -> Arc<Self> {
        Arc::new(Self { options, failed: Notify::new() })
    }

    pub(super) fn has_several(&self) -> bool {
        self.options.len() > 1
    }

    /// The server that accepts writes. If several do, then the one that was promoted last: a
    /// primary that failed and came back does not know that it was replaced.
    ///
    /// # Errors
    /// What each server answers instead.
    pub(super) async fn primary(&self) -> Result<AnyConnectOptions, String> {
        if let [only] = &self.options[..] {
            return Ok(only.clone());
        }
        let mut newest: Option<(String, &AnyConnectOptions)> = None;
        let mut answers = Vec::new();
        for options in &self.options {
            let timeline = tokio::time::timeout(SEARCH_TIMEOUT, timeline(options)).await;
            let answer = match timeline {
                Ok(Ok(timeline)) if timeline.is_empty() => "accepts no writes".to_owned(),
                Ok(Ok(timeline)) => {
                    if newest.as_ref().is_none_or(|(newest, _)| timeline > *newest) {
                        newest = Some((timeline, options));
                    }
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            answers.push(format!("{}: {answer}", host(options)));
        }
        newest.map(|(_, options)| options.clone()).ok_or_else(|| answers.join("; "))
    }

    /// Reports that an operation failed, so that `follow` looks for the primary.
    pub(super) fn note_failure(&self) {
        self.failed.notify_one();
    }

    /// Points the pool to the primary after each failure, until the pool is closed.
    pub(super) async fn follow(self: Arc<Self>, pool: AnyPool) {
        let search = async {
            loop {
                self.failed.notified().await;
                while !self.connect_to_primary(&pool).await {
                    tokio::time::sleep(SEARCH_INTERVAL).await;
                }
                tokio::time::sleep(SEARCH_INTERVAL).await;
            }
        };
        let _ = pool.close_event().do_until(search).await;
    }

    /// Whether a primary exists. Connections to another server end by themselves.
    async fn connect_to_primary(&self, pool: &AnyPool) -> bool {
        let Ok(primary) = self.primary().await else { return false };
        if primary.database_url != pool.connect_options().database_url {
            tracing::warn!(server = host(&primary), "the database has another primary server");
            pool.set_connect_options(primary);
        }
        true
    }
}

/// Whether a connection leads to a server that accepts writes.
pub(super) async fn is_primary(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    let timeline: String = query_scalar(TIMELINE).fetch_one(connection).await?;
    Ok(!timeline.is_empty())
}

async fn timeline(options: &AnyConnectOptions) -> Result<String, sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    let timeline = query_scalar(TIMELINE).fetch_one(&mut connection).await;
    let _ = connection.close().await;
    timeline
}

/// Host and port, without the user and the password.
fn host(options: &AnyConnectOptions) -> String {
    let url = &options.database_url;
    let host = url.host_str().unwrap_or("localhost");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
