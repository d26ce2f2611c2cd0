//! Producers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir_base::Packet;
use weir_binding::{Signing, WithoutSignals, identity};
use weir_socket::{Identity, Producer, SocketError};

use crate::here::Here;
use crate::wait::{Bell, block_on, timeout_of};
use crate::{errors, options, sessions};

const WHAT: &str = "the producer";

/// Who signs.
///
/// # Errors
/// The key cannot be had.
pub(crate) fn identity_of(py: Python<'_>, sign: &str) -> PyResult<Identity> {
    let signing = match sign {
        "default" => Signing::Default,
        "digest" => Signing::Digest,
        key if key.starts_with('/') => Signing::Key(sessions::name_of(key)?),
        other => {
            let message =
                format!("sign: {other:?} cannot be; give default, digest or the name of a key");
            return Err(errors::raise("OptionError", message));
        }
    };
    py.detach(|| identity(&signing)).map_err(errors::of_keys)
}

/// Octets of Python's, copied: what is signed must not change.
///
/// # Errors
/// They are none, or too many.
pub(crate) fn octets_of(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Packet> {
    let fits = |len: usize| match u32::try_from(len) {
        Ok(0..0xFFFF_0000) => Ok(()),
        _ => Err(errors::raise("TooLong", "octets in memory are below 4 GiB; put a file instead")),
    };
    if let Ok(bytes) = data.cast::<PyBytes>() {
        let octets = bytes.as_bytes();
        fits(octets.len())?;
        // Bytes never change.
        return Ok(py.detach(|| Packet::from(octets)));
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    fits(buffer.len_bytes())?;
    Ok(buffer.to_vec(py)?.into())
}

/// A bound producer.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Outlet {
    producer: Mutex<Option<Here<Arc<Producer>>>>,
    is_closed: Arc<AtomicBool>,
}

impl Outlet {
    fn slot(&self) -> MutexGuard<'_, Option<Here<Arc<Producer>>>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn producer(&self) -> PyResult<Arc<Producer>> {
        match &*self.slot() {
            Some(producer) => producer.value(WHAT).cloned(),
            None => Err(errors::closed(WHAT)),
        }
    }
}

#[pymethods]
impl Outlet {
    /// Binds a producer to a prefix; waits for the router.
    #[new]
    #[pyo3(signature = (prefix, router, sign, options))]
    fn new(
        py: Python<'_>,
        prefix: &str,
        router: Option<&str>,
        sign: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let prefix = sessions::name_of(prefix)?;
        let options = options::for_producer(options)?;
        let session = sessions::session(py, router)?;
        let identity = identity_of(py, sign)?;
        let bound = py.detach(|| {
            let _guard = WithoutSignals::new();
            Producer::bind_with(&session, prefix, identity, options)
        });
        let producer = Here::new(Arc::new(bound.map_err(errors::of_socket)?));
        Ok(Self { producer: Mutex::new(Some(producer)), is_closed: Arc::default() })
    }

    /// Publishes a version of an object; its name.
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

    /// Publishes a Data packet as it is.
    fn publish_packet(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (producer, octets) = (self.producer()?, octets_of(py, data)?);
        py.detach(|| producer.publish_packet(octets)).map_err(errors::of_socket)
    }

    /// Waits for an Interest for what is not published.
    #[pyo3(signature = (timeout = None))]
    fn request(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Request> {
        let (timeout, producer) = (timeout_of(timeout)?, self.producer()?);
        let is_closed = self.is_closed.clone();
        let found = block_on(py, timeout, |context| match is_closed.load(Ordering::Relaxed) {
            true => Poll::Ready(Err(SocketError::Closed)),
            false => producer.poll_recv(context),
        })?;
        let producer = Here::new(Arc::downgrade(&producer));
        found.map(|request| Request { request, producer }).map_err(errors::of_socket)
    }

    /// As `request`, or nothing now.
    fn poll_request(&self, bell: &Bell, token: u64) -> PyResult<Option<(Request,)>> {
        let (producer, waker) = (self.producer()?, bell.waker(token)?);
        match producer.poll_recv(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(error)) => Err(errors::of_socket(error)),
            Poll::Ready(Ok(request)) => {
                let producer = Here::new(Arc::downgrade(&producer));
                Ok(Some((Request { request, producer },)))
            }
        }
    }

    /// Gives the prefix back and forgets what was published.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        let producer = self.slot().take();
        py.detach(|| drop(producer));
    }
}

/// An Interest for what is not published yet, which waits for it.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Request {
    request: weir_socket::Request,
    producer: Here<Weak<Producer>>,
}

#[pymethods]
impl Request {
    /// The name that is to be published: without version, segment and what else is the transport's.
    #[getter]
    fn name(&self) -> String {
        self.request.name().to_string()
    }

    /// The Interest, a whole TLV.
    #[getter]
    fn interest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.request.interest())
    }

    /// The Interest's application parameters, or None.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.request.parameters().map(|parameters| PyBytes::new(py, parameters))
    }

    /// Says that it will not be published: whoever asks is told so at once.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        // If it is closed, whoever asks is told so anyway.
        let Some(producer) = self.producer.value(WHAT)?.upgrade() else { return Ok(()) };
        py.detach(|| producer.refuse(&self.request)).map_err(errors::of_socket)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Request for {}>", self.request.name())
    }
}
