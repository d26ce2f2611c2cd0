//! Operations in progress that a task of an event loop, or a thread, can wait for.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use pyo3::prelude::*;
use weir_base::Packet;
use weir_socket::{Pending, SocketError};
use weir_wire::Name;

use crate::answer::Answer;
use crate::errors;
use crate::process_local::ProcessLocal;
use crate::wait::{Notifier, block_on, timeout_of};

/// What the operation returns.
enum Awaited {
    /// Completion only.
    Done(Pending<()>),
    /// The Data that answers an Interest.
    Data(Pending<Packet>),
    /// The name under which something is published.
    Name(Pending<Name>),
}

enum Outcome {
    Done,
    Name(Name),
    Data(Packet),
}

impl Awaited {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome, SocketError>> {
        match self {
            Self::Done(pending) => Pin::new(pending).poll(context).map_ok(|()| Outcome::Done),
            Self::Data(pending) => Pin::new(pending).poll(context).map_ok(Outcome::Data),
            Self::Name(pending) => Pin::new(pending).poll(context).map_ok(Outcome::Name),
        }
    }
}

/// An operation in progress. Dropping it does not stop the operation, except a publication that no
/// thread has started to sign.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Task {
    what: &'static str,
    /// Locked only briefly.
    awaited: ProcessLocal<Mutex<Awaited>>,
}

impl Task {
    pub(crate) fn of_done(what: &'static str, pending: Pending<()>) -> Self {
        Self { what, awaited: ProcessLocal::new(Mutex::new(Awaited::Done(pending))) }
    }

    pub(crate) fn of_data(what: &'static str, pending: Pending<Packet>) -> Self {
        Self { what, awaited: ProcessLocal::new(Mutex::new(Awaited::Data(pending))) }
    }

    pub(crate) fn of_name(what: &'static str, pending: Pending<Name>) -> Self {
        Self { what, awaited: ProcessLocal::new(Mutex::new(Awaited::Name(pending))) }
    }

    fn python_of(
        &self,
        py: Python<'_>,
        found: Result<Outcome, SocketError>,
    ) -> PyResult<Py<PyAny>> {
        match found {
            Ok(Outcome::Done) => Ok(py.None()),
            Ok(Outcome::Name(name)) => Ok(name.to_string().into_pyobject(py)?.into_any().unbind()),
            Ok(Outcome::Data(packet)) => Ok(Py::new(py, Answer::of_packet(packet)?)?.into_any()),
            Err(SocketError::Closed) => Err(errors::closed(self.what)),
            Err(error) => Err(errors::of_socket(error)),
        }
    }
}

#[pymethods]
impl Task {
    /// Waits for the operation.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let (timeout, awaited) = (timeout_of(timeout)?, self.awaited.get_or_raise(self.what)?);
        let found = block_on(py, timeout, |context| {
            awaited.lock().unwrap_or_else(PoisonError::into_inner).poll(context)
        })?;
        self.python_of(py, found)
    }

    /// Like `wait`, but returns None if it is not complete.
    fn poll(
        &self,
        py: Python<'_>,
        notifier: &Notifier,
        token: u64,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let (awaited, waker) = (self.awaited.get_or_raise(self.what)?, notifier.waker(token)?);
        let context = &mut Context::from_waker(&waker);
        let found = awaited.lock().unwrap_or_else(PoisonError::into_inner).poll(context);
        match found {
            Poll::Ready(found) => Ok(Some((self.python_of(py, found)?,))),
            Poll::Pending => Ok(None),
        }
    }
}
