//! Tokens in memory. Requests are authorized without the database, so also during its outages.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::Mutex;
use weir_wire::Name;

use crate::clock::{WallClock, WallTime};
use crate::database::{Database, DatabaseError, ReadRows};
use crate::token::{Role, Token, split};

/// Minimum time between two reads of the database because of an unknown token. So callers with
/// false tokens cause no more reads, and one read serves all waiting requests.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// A token may have been created by another machine, whose clock may be ahead by this much.
const CLOCKS_DIFFER_MS: u64 = 300_000;

/// The holder of the token of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    pub(crate) name: String,
    prefixes: Arc<[Name]>,
}

impl Caller {
    /// Whether it may register this name.
    pub(crate) fn may_register(&self, name: &Name) -> bool {
        let is_above = |prefix: &Name| prefix.as_view().is_prefix_of(name.as_view());
        self.role == Role::Operator || self.prefixes.iter().any(is_above)
    }

    /// The prefixes that it may register names below, to display.
    pub(crate) fn prefixes(&self) -> String {
        let prefixes: Vec<String> = self.prefixes.iter().map(Name::to_string).collect();
        if prefixes.is_empty() { "no prefix".to_owned() } else { prefixes.join(" and ") }
    }

    /// The caller's name in the audit.
    pub(crate) fn audit_name(&self) -> String {
        format!("{} {}", self.role, self.name)
    }
}

/// Why a token is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is unknown; `weir controller token list` shows the known ones")]
    Unknown,
    #[error(
        "the token has expired: it was valid until {0}, and the controller's clock says {1}; if \
         that clock is right, make a new token with `weir controller token add`"
    )]
    Expired(WallTime, WallTime),
    /// It was created in the future. So it is unknown whether it has expired.
    #[error(
        "the token was made at {0}, but the controller's clock says {1}; set that clock, or make a \
         new token if the clock of the machine that made it was wrong"
    )]
    NotYetValid(WallTime, WallTime),
    #[error("the token exceeds its limit of {0} requests per second; retry later")]
    RateLimited(NonZeroU32),
}

struct ActiveToken {
    token: Token,
    prefixes: Arc<[Name]>,
    limit: Arc<DefaultDirectRateLimiter>,
}

pub(crate) struct Tokens {
    by_id: RwLock<HashMap<String, ActiveToken>>,
    per_second: NonZeroU32,
    wall_clock: WallClock,
    /// When the database was read last because of an unknown token.
    refreshed_at: Mutex<Option<Instant>>,
}

impl Tokens {
    pub(crate) fn new(per_second: NonZeroU32, wall_clock: WallClock) -> Self {
        let by_id = RwLock::new(HashMap::new());
        Self { by_id, per_second, wall_clock, refreshed_at: Mutex::new(None) }
    }

    /// Replaces the known tokens by those of the database. Tokens whose row cannot be read stay as
    /// they were.
    pub(crate) async fn refresh(&self, database: &Database) -> Result<(), DatabaseError> {
        let ReadRows { read: tokens, unreadable: unread } = database.tokens().await?;
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        let mut former = std::mem::take(&mut *by_id);
        by_id.extend(unread.iter().filter_map(|id| former.remove_entry(id)));
        by_id.extend(tokens.into_iter().map(|token| {
            // Keep the rate limiter of a known token, or each refresh would reset its limit.
            let limit = former.remove(&token.id).map(|held| held.limit);
            let fresh = || Arc::new(RateLimiter::direct(Quota::per_second(self.per_second)));
            let prefixes = token.prefixes.as_slice().into();
            (token.id.clone(), ActiveToken { limit: limit.unwrap_or_else(fresh), token, prefixes })
        }));
        Ok(())
    }

    /// The holder of a token. A token that was added a moment ago is found in the database.
    pub(crate) async fn caller(
        &self,
        text: &str,
        database: &Database,
    ) -> Result<Caller, TokenError> {
        let (id, secret) = split(text).ok_or(TokenError::Unknown)?;
        match self.find(id, &secret) {
            Err(TokenError::Unknown) => {
                self.refresh_after(Instant::now(), database).await;
                self.find(id, &secret)
            }
            found => found,
        }
    }

    /// Returns when the database has been read after `since`.
    async fn refresh_after(&self, since: Instant, database: &Database) {
        let mut looked_at = self.refreshed_at.lock().await;
        // Another request has read the database while this one waited for the lock.
        if looked_at.is_some_and(|at| at >= since) {
            return;
        }
        if let Some(at) = *looked_at {
            tokio::time::sleep_until((at + REFRESH_INTERVAL).into()).await;
        }
        *looked_at = Some(Instant::now());
        if let Err(error) = self.refresh(database).await {
            tracing::warn!(%error, "tokens cannot be read from the database; the known ones stay");
        }
    }

    fn find(&self, id: &str, secret: &[u8]) -> Result<Caller, TokenError> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let held = by_id.get(id).filter(|held| held.token.is_of(secret));
        let ActiveToken { token, limit, prefixes } = held.ok_or(TokenError::Unknown)?;
        // A token without expiry does not depend on the clock.
        if let Some(expires_ms) = token.expires_ms {
            let now_ms = self.wall_clock.now_ms();
            if expires_ms <= now_ms {
                return Err(TokenError::Expired(WallTime(expires_ms), WallTime(now_ms)));
            }
            if token.created_ms > now_ms.saturating_add(CLOCKS_DIFFER_MS) {
                return Err(TokenError::NotYetValid(WallTime(token.created_ms), WallTime(now_ms)));
            }
        }
        limit.check().map_err(|_| TokenError::RateLimited(self.per_second))?;
        let (name, prefixes) = (token.name.clone(), Arc::clone(prefixes));
        Ok(Caller { role: token.role, name, prefixes })
    }
}
