//! A transaction on one connection of the pool.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Executor as _, raw_sql};

/// A transaction. Its connection returns to the pool only after a successful COMMIT. In every other
/// case the connection is closed, and the database rolls back: after a failed statement or COMMIT,
/// when the caller stops waiting, or when the transaction is dropped.
///
/// `sqlx::Transaction` always returns its connection to the pool, and counts by itself how deeply
/// transactions are nested. SQLite rolls back on its own when the disk is full. Then sqlx's
/// ROLLBACK fails, and its count stays at one. From then on each BEGIN of that connection is a
/// SAVEPOINT, and each COMMIT a RELEASE. The first one that must be undone (ROLLBACK TO) leaves a
/// transaction open that no later COMMIT ends. All later changes of the connection look committed
/// but are lost with the process, and no other connection can write.
pub(super) struct Transaction {
    connection: PoolConnection<Any>,
    is_committed: bool,
}

impl Transaction {
    pub(super) async fn begin(pool: &AnyPool) -> Result<Self, sqlx::Error> {
        let mut this = Self { connection: pool.acquire().await?, is_committed: false };
        this.execute(raw_sql("BEGIN")).await?;
        Ok(this)
    }

    /// Commits. After an error it is unknown whether the change is in the database.
    ///
    /// No statement of the transaction may have failed: PostgreSQL answers such a COMMIT with a
    /// ROLLBACK, and reports no error.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.execute(raw_sql("COMMIT")).await?;
        self.is_committed = true;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_committed {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Transaction {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }
}
