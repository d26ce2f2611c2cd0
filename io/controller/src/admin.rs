//! Changes that an operator makes directly in the database, also while controllers run.

use tokio::runtime::Builder;
use weir_wire::Name;

use crate::clock::WallClock;
use crate::config::StartError;
use crate::database::{Database, DatabaseError, DatabaseLocation, Record};
use crate::token::{Role, Token};

/// The actor of audit lines for changes from the command line.
const SHELL: &str = "command line";

async fn with<T>(
    place: &DatabaseLocation,
    act: impl AsyncFnOnce(&Database) -> Result<T, DatabaseError>,
) -> Result<T, StartError> {
    let of_database = |error| StartError::Database { place: place.clone(), error };
    let database = Database::open(place, None).await.map_err(of_database)?;
    let done = act(&database).await;
    database.close().await;
    done.map_err(of_database)
}

fn block_on<T>(work: impl Future<Output = Result<T, StartError>>) -> Result<T, StartError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(StartError::Threads)?.block_on(work)
}

fn record(action: &'static str, detail: String) -> Record {
    Record::Audit { at_ms: WallClock::default().now_ms(), who: SHELL.to_owned(), action, detail }
}

/// Creates a token and returns its text, which cannot be read again later. It is valid for
/// `expires_after_ms` milliseconds, or without limit.
///
/// A producer may register files below `prefixes`. A router gets routes for prefixes below them.
/// They have no effect for other roles.
pub fn add_token(
    database: &DatabaseLocation,
    role: Role,
    name: &str,
    expires_after_ms: Option<u64>,
    prefixes: &[Name],
) -> Result<String, StartError> {
    let now_ms = WallClock::default().now_ms();
    let expires_ms = expires_after_ms.map(|after| now_ms.saturating_add(after));
    let issued = Token::issue(role, name, now_ms, expires_ms, prefixes);
    let (token, text) =
        issued.map_err(|error| StartError::Threads(std::io::Error::other(error)))?;
    let below: String = prefixes.iter().map(|prefix| format!(" {prefix}")).collect();
    let below = if below.is_empty() { below } else { format!(", names below{below}") };
    let record = record("token added", format!("{} for {role} {name}{below}", token.id));
    block_on(with(database, async |database| database.add_token(&token, record).await))?;
    Ok(text)
}

/// All tokens, the oldest first. Rows that cannot be read are logged.
pub fn tokens(database: &DatabaseLocation) -> Result<Vec<Token>, StartError> {
    block_on(with(database, async |database| Ok(database.tokens().await?.read)))
}

/// Removes a token by its id. Returns whether it existed. Running controllers accept it for a few
/// more seconds.
pub fn remove_token(database: &DatabaseLocation, id: &str) -> Result<bool, StartError> {
    let record = record("token removed", id.to_owned());
    block_on(with(database, async |database| database.remove_token(id, record).await))
}
