//! The sessions of the process, one for each router.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weir_binding::{WithoutSignals, router_of};
use weir_socket::{Session, SessionConfig};
use weir_wire::Name;

use crate::errors;
use crate::process_local::ProcessLocal;

/// Only locked by whoever has the GIL, and not while that is given away: a child never finds it
/// locked after a fork.
static SESSIONS: Mutex<BTreeMap<String, ProcessLocal<Session>>> = Mutex::new(BTreeMap::new());

fn known(router: &str) -> Option<Session> {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|_, session| session.is_current_process());
    sessions.get(router).and_then(ProcessLocal::get).cloned()
}

/// The session with a router; it is made if this process has none, and stays.
///
/// # Errors
/// There is no router.
pub(crate) fn session(py: Python<'_>, router: Option<&str>) -> PyResult<Session> {
    let uri = py.detach(|| router_of(router)).map_err(errors::of_socket)?;
    let key = uri.to_string();
    if let Some(session) = known(&key) {
        return Ok(session);
    }
    let config = SessionConfig { router: Some(uri), ..SessionConfig::default() };
    let made = py.detach(|| {
        let _guard = WithoutSignals::new();
        Session::with(config)
    });
    let made = made.map_err(errors::of_socket)?;
    if let Some(session) = known(&key) {
        // Another thread was faster. To end this one's threads may take a moment.
        py.detach(|| drop(made));
        return Ok(session);
    }
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.insert(key, ProcessLocal::new(made.clone()));
    Ok(made)
}

/// A name: `/a/b`, `ndn:/a/b` or `ndn:///a/b`.
///
/// # Errors
/// It is none.
pub(crate) fn name_of(text: &str) -> PyResult<Name> {
    let path = text.strip_prefix("ndn://").unwrap_or(text);
    if !path.starts_with('/') && !path.starts_with("ndn:") {
        let message = format!("{text:?} is no name: a name begins with a slash, as /{path} does");
        return Err(errors::name(message));
    }
    path.parse().map_err(|error| errors::name(format!("{text:?} is no name: {error}")))
}

/// The name as it is written by all: `/a/b`.
#[pyfunction]
pub(crate) fn check_name(name: &str) -> PyResult<String> {
    name_of(name).map(|name| name.to_string())
}
