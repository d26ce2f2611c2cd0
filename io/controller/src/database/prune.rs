//! Removes old rows, so that the database stays small.

use weir_base::units::saturating_i64;

use super::transaction::Transaction;
use super::{Database, DatabaseError, NUMBER_STEP};

/// The names of withdrawn files are kept for this many changes. A controller that was disconnected
/// for longer reads all files again.
const WITHDRAWN_KEPT: u64 = 100_000;

impl Database {
    /// Removes the oldest audit lines, superseded and ending plans beyond these counts, and the
    /// names of files that were withdrawn long ago.
    pub(crate) async fn prune(&self, audit: u64, plans: u64) -> Result<(), DatabaseError> {
        self.with_timeout(self.remove_old(audit, plans)).await
    }

    async fn remove_old(&self, audit: u64, plans: u64) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - $1";
        sqlx::query(sql).bind(saturating_i64(audit)).execute(&self.pool).await?;
        let sql = "DELETE FROM plans WHERE number <= (SELECT MAX(number) FROM plans) - $1 \
                   AND (ends = 1 OR number NOT IN (SELECT MAX(number) FROM plans GROUP BY object))";
        // Successive numbers of one controller are at most this step apart.
        let numbers = saturating_i64(plans.saturating_mul(NUMBER_STEP));
        sqlx::query(sql).bind(numbers).execute(&self.pool).await?;
        self.forget_withdrawn().await
    }

    /// Removes the names of files withdrawn more than [`WITHDRAWN_KEPT`] changes ago.
    async fn forget_withdrawn(&self) -> Result<(), DatabaseError> {
        // Only after another eighth of the limit, so that most calls delete nothing.
        let mut transaction = Transaction::begin(&self.pool).await?;
        let sql = "UPDATE numbers SET value = (SELECT value FROM numbers WHERE name = 'change') \
                   - $1 WHERE name = 'forgotten' AND value + $1 + $1 / 8 < \
                   (SELECT value FROM numbers WHERE name = 'change')";
        let query = sqlx::query(sql).bind(saturating_i64(WITHDRAWN_KEPT));
        if query.execute(&mut *transaction).await?.rows_affected() > 0 {
            let sql = "DELETE FROM withdrawn WHERE change <= \
                       (SELECT value FROM numbers WHERE name = 'forgotten')";
            sqlx::query(sql).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}
