//! Objects that grow while they are read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use weir_socket::{LiveWriter, SocketError};

use crate::buffer::octets_of;
use crate::errors;
use crate::process_local::ProcessLocal;
use crate::task::Task;

const WHAT: &str = "this growing object";

/// A growing object, until it ends or is abandoned.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Live {
    name: String,
    /// Locked while the writer signs. A thread that holds this lock never waits for the GIL.
    writer: ProcessLocal<Mutex<Option<LiveWriter>>>,
    /// Whether the producer was closed. The writer learns of it a little later.
    is_closed: Arc<AtomicBool>,
}

impl Live {
    pub(crate) fn new(writer: LiveWriter, is_closed: Arc<AtomicBool>) -> Self {
        let name = writer.versioned().to_string();
        Self { name, writer: ProcessLocal::new(Mutex::new(Some(writer))), is_closed }
    }

    /// Runs a function on the writer, if the object has not ended.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&mut Option<LiveWriter>) -> Option<Result<T, SocketError>> + Send,
    ) -> PyResult<T> {
        let writer = self.writer.get_or_raise(WHAT)?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(errors::closed("its producer"));
        }
        let done = py.detach(|| {
            let mut place: MutexGuard<'_, _> =
                writer.lock().unwrap_or_else(PoisonError::into_inner);
            then(&mut place)
        });
        match done {
            None | Some(Err(SocketError::Closed)) => Err(errors::closed(WHAT)),
            Some(result) => result.map_err(errors::of_socket),
        }
    }
}

#[pymethods]
impl Live {
    /// The name of the version.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The number of the next segment.
    fn next_segment(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |place| Some(Ok(place.as_ref()?.next_segment())))
    }

    /// Whether the object has ended or was abandoned.
    fn is_over(&self, py: Python<'_>) -> PyResult<bool> {
        let writer = self.writer.get_or_raise(WHAT)?;
        Ok(py.detach(|| writer.lock().unwrap_or_else(PoisonError::into_inner).is_none()))
    }

    /// Starts to publish new bytes.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Task> {
        let octets = octets_of(py, data)?;
        let taken = self.with(py, |place| Some(place.as_mut()?.append_async(&octets)))?;
        Ok(Task::of_done(WHAT, taken))
    }

    /// Starts to publish the end of the object.
    fn finish(&self, py: Python<'_>) -> PyResult<Task> {
        let taken = self.with(py, |place| Some(place.take()?.finish_async()))?;
        Ok(Task::of_done(WHAT, taken))
    }

    /// Abandons the object without an end, unless it has one. Does nothing in a child of `fork`.
    fn close(&self, py: Python<'_>) {
        if let Some(writer) = self.writer.get() {
            py.detach(|| writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
