//! Producers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir_base::Counters;
use weir_binding::{Signing, identity};
use weir_socket::{Identity, Producer, SocketError};

use crate::answer::Offer;
use crate::buffer::octets_of;
use crate::live::Live;
use crate::process_local::ProcessLocal;
use crate::task::Task;
use crate::wait::{Notifier, block_on, timeout_of};
use crate::{errors, sessions};

const WHAT: &str = "the producer";

/// The identity for the argument `sign`.
///
/// # Errors
/// The key cannot be read or created.
pub(crate) fn identity_of(py: Python<'_>, sign: &str) -> PyResult<Identity> {
    let signing = match sign {
        "default" => Signing::Default,
        "digest" => Signing::Digest,
        key if key.starts_with('/') => Signing::Key(sessions::name_of(key)?),
        other => {
            let message =
                format!("sign: {other:?} is invalid; give default, digest or the name of a key");
            return Err(errors::raise("OptionError", message));
        }
    };
    py.detach(|| identity(&signing)).map_err(errors::of_keys)
}

/// Adds the counters of a table to `to`, with `before` as prefix of their names.
fn add_counters<T: Counters>(to: &Bound<'_, PyDict>, before: &str, table: &T) -> PyResult<()> {
    let named = T::TABLE.iter().zip(table.numbers());
    named.map(|(counter, number)| (format!("{before}{}", counter.name), number)).try_for_each(
        |(name, number)| {
            debug_assert!(!to.contains(&name)?, "two counters are called {name}");
            to.set_item(name, number)
        },
    )
}

/// A bound producer.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Outlet {
    producer: Mutex<Option<ProcessLocal<Arc<Producer>>>>,
    is_closed: Arc<AtomicBool>,
}

impl Outlet {
    fn slot(&self) -> MutexGuard<'_, Option<ProcessLocal<Arc<Producer>>>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(producer: Producer) -> Self {
        let producer = ProcessLocal::new(Arc::new(producer));
        Self { producer: Mutex::new(Some(producer)), is_closed: Arc::default() }
    }

    fn producer(&self) -> PyResult<Arc<Producer>> {
        let found = self.slot().as_ref().map(|producer| producer.get().cloned());
        match found {
            Some(Some(producer)) => Ok(producer),
            Some(None) => Err(errors::forked(WHAT)),
            None => Err(errors::closed(WHAT)),
        }
    }
}

#[pymethods]
impl Outlet {
    /// Publishes a version of an object and returns its name.
    #[pyo3(signature = (name, data, version = None))]
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        version: Option<u64>,
    ) -> PyResult<String> {
        let producer = self.producer()?;
        let name = sessions::name_of(name)?;
        let octets = octets_of(py, data)?;
        let published = py.detach(|| match version {
            Some(version) => producer.publish_version(&name, version, octets),
            None => producer.publish(&name, octets),
        });
        published.map(|name| name.to_string()).map_err(errors::of_socket)
    }

    /// Lets threads of the session publish it. Returns a task that ends when it is published, or
    /// None if too much already waits for these threads.
    fn begin_publish(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        version: Option<u64>,
    ) -> PyResult<Option<Task>> {
        let (producer, name) = (self.producer()?, sessions::name_of(name)?);
        let octets = octets_of(py, data)?;
        let begun = py.detach(|| match version {
            Some(version) => producer.publish_version_async(&name, version, octets),
            None => producer.publish_async(&name, octets),
        });
        match begun {
            Ok(begun) => Ok(Some(Task::of_name(WHAT, begun))),
            Err(SocketError::Refused(_)) => Ok(None),
            Err(error) => Err(errors::of_socket(error)),
        }
    }

    /// The number of the next version, for a name without a version.
    fn next_version(&self, name: &str) -> PyResult<Option<u64>> {
        let (producer, name) = (self.producer()?, sessions::name_of(name)?);
        let has_one = name.as_view().last().is_some_and(|last| last.as_version().is_some());
        Ok((!has_one).then(|| producer.next_version()))
    }

    /// The producer's counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let producer = self.producer()?;
        let stats = py.detach(|| producer.stats()).map_err(errors::of_socket)?;
        let found = PyDict::new(py);
        add_counters(&found, "", &stats)?;
        add_counters(&found, "disk_", &stats.disk)?;
        Ok(found)
    }

    /// Publishes a Data packet unchanged.
    fn publish_packet(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (producer, octets) = (self.producer()?, octets_of(py, data)?);
        py.detach(|| producer.publish_packet(octets)).map_err(errors::of_socket)
    }

    /// Starts a growing object. Returns the object, and a task that ends when it can be appended
    /// to.
    fn publish_live(&self, py: Python<'_>, name: &str) -> PyResult<(Live, Task)> {
        let (producer, name) = (self.producer()?, sessions::name_of(name)?);
        let begun = py.detach(|| producer.publish_live_async(&name));
        let (writer, begun) = begun.map_err(errors::of_socket)?;
        let live = Live::new(writer, self.is_closed.clone());
        Ok((live, Task::of_done(WHAT, begun)))
    }

    /// Publishes a version of an object and returns an offer of it.
    fn offer(&self, py: Python<'_>, name: &str, data: &Bound<'_, PyAny>) -> PyResult<Offer> {
        let (producer, name) = (self.producer()?, sessions::name_of(name)?);
        let octets = octets_of(py, data)?;
        py.detach(|| producer.offer(&name, octets)).map(Offer).map_err(errors::of_socket)
    }

    /// An offer of the latest version published under a name, or None.
    fn offer_of(&self, py: Python<'_>, name: &str) -> PyResult<Option<Offer>> {
        let (producer, name) = (self.producer()?, sessions::name_of(name)?);
        let found = py.detach(|| producer.offer_of(&name)).map_err(errors::of_socket)?;
        Ok(found.map(Offer))
    }

    /// Answers an Interest with one signed Data of the same name.
    fn answer(&self, py: Python<'_>, request: &Request, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (producer, octets) = (self.producer()?, octets_of(py, data)?);
        let answered = py.detach(|| producer.answer(&request.request, &octets));
        answered.map_err(errors::of_socket)
    }

    /// Waits for an Interest for a name that is not published.
    #[pyo3(signature = (timeout = None))]
    fn request(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Request> {
        let (timeout, producer) = (timeout_of(timeout)?, self.producer()?);
        let is_closed = self.is_closed.clone();
        let found = block_on(py, timeout, |context| match is_closed.load(Ordering::Relaxed) {
            true => Poll::Ready(Err(SocketError::Closed)),
            false => producer.poll_recv(context),
        })?;
        let producer = ProcessLocal::new(Arc::downgrade(&producer));
        found.map(|request| Request { request, producer }).map_err(errors::of_socket)
    }

    /// Like `request`, but returns None if there is none yet.
    fn poll_request(&self, notifier: &Notifier, token: u64) -> PyResult<Option<(Request,)>> {
        let (producer, waker) = (self.producer()?, notifier.waker(token)?);
        match producer.poll_recv(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(error)) => Err(errors::of_socket(error)),
            Poll::Ready(Ok(request)) => {
                let producer = ProcessLocal::new(Arc::downgrade(&producer));
                Ok(Some((Request { request, producer },)))
            }
        }
    }

    /// Frees the prefix, and stops serving what was published.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        let producer = self.slot().take();
        py.detach(|| drop(producer));
    }
}

/// A pending Interest for a name that is not published yet.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Request {
    request: weir_socket::Request,
    producer: ProcessLocal<Weak<Producer>>,
}

#[pymethods]
impl Request {
    /// The requested name, without version, segment and other transport components. The name of an
    /// Interest with parameters ends with their digest.
    #[getter]
    fn name(&self) -> String {
        self.request.name().to_string()
    }

    /// The whole Interest packet.
    #[getter]
    fn interest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.request.interest())
    }

    /// The Interest's application parameters, or None.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.request.parameters().map(|parameters| PyBytes::new(py, parameters))
    }

    /// The offer in the Interest's parameters, or None if it has no parameters. WeirError: the
    /// parameters are not an offer, or offer content under this producer's own prefix.
    fn offer(&self) -> PyResult<Option<Offer>> {
        let offer = self.request.offer().transpose().map_err(errors::of_socket)?;
        Ok(offer.map(Offer))
    }

    /// Rejects the Interest. The consumer is notified at once.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        // A closed producer rejects all Interests anyway.
        let Some(producer) = self.producer.get_or_raise(WHAT)?.upgrade() else { return Ok(()) };
        py.detach(|| producer.refuse(&self.request)).map_err(errors::of_socket)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Request for {}>", self.request.name())
    }
}
