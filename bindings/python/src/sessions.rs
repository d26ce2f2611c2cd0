//! The sessions of the process, one for each router.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weir_binding::{WithoutSignals, router_of};
use weir_hicn::HicnName;
use weir_socket::{Session, SessionConfig};
use weir_wire::Name;

use crate::errors;
use crate::process_local::ProcessLocal;

/// Locked only while holding the GIL, which is not released meanwhile. So a forked child never
/// finds it locked.
static SESSIONS: Mutex<BTreeMap<String, ProcessLocal<Session>>> = Mutex::new(BTreeMap::new());

fn known(router: &str) -> Option<Session> {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|_, session| session.is_current_process());
    sessions.get(router).and_then(ProcessLocal::get).cloned()
}

/// The session with a router. Created if this process has none; it stays open.
///
/// # Errors
/// No router can be reached.
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
        // Another thread connected first. Dropping this session may wait for its threads.
        py.detach(|| drop(made));
        return Ok(session);
    }
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.insert(key, ProcessLocal::new(made.clone()));
    Ok(made)
}

/// Parses a name: `/a/b`, `ndn:/a/b` or `ndn:///a/b`, or an hICN address, `hicn:b001::1`.
///
/// # Errors
/// The text is not a name.
pub(crate) fn name_of(text: &str) -> PyResult<Name> {
    if let Some(name) = HicnName::parse_uri(text) {
        return name.map_err(|error| errors::name(error.to_string()));
    }
    let path = text.strip_prefix("ndn://").unwrap_or(text);
    if !path.starts_with('/') && !path.starts_with("ndn:") {
        let message = format!("{text:?} is not a name: names start with a slash, as /{path}");
        return Err(errors::name(message));
    }
    path.parse().map_err(|error| errors::name(format!("{text:?} is not a name: {error}")))
}

/// The name in the usual form, `/a/b`.
#[pyfunction]
pub(crate) fn check_name(name: &str) -> PyResult<String> {
    name_of(name).map(|name| name.to_string())
}
