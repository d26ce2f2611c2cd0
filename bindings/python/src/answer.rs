//! Answers to single Interests, and offers.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weir_base::Packet;
use weir_wire::DataView;

use crate::buffer::{Buffer, octets_of};
use crate::errors;

/// The Data that answers an Interest. Nothing in it is verified. `bytes(answer)` is its content.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Answer {
    name: String,
    content: Packet,
    packet: Packet,
}

impl Answer {
    /// # Errors
    /// The packet is not a Data, which cannot happen here.
    pub(crate) fn of_packet(packet: Packet) -> PyResult<Self> {
        let data = DataView::decode(&packet)
            .map_err(|error| errors::raise("VerificationError", format!("no Data: {error}")))?;
        // Content is a slice of the packet; find where it starts.
        let start = match data.content {
            [] => 0,
            content => content.as_ptr() as usize - packet.as_ptr() as usize,
        };
        let content = packet.slice(start..start + data.content.len());
        Ok(Self { name: data.name.to_name().to_string(), content, packet })
    }
}

#[pymethods]
impl Answer {
    /// The name of the Data.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Its content, not verified.
    #[getter]
    fn content(&self) -> Buffer {
        Buffer::of_packet(self.content.clone())
    }

    /// The whole Data packet, for callers that verify it themselves.
    #[getter]
    fn packet(&self) -> Buffer {
        Buffer::of_packet(self.packet.clone())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.content)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Answer {} of {} bytes, not verified>", self.name, self.content.len())
    }
}

/// An offer of published content. `Producer.offer` creates it, `Consumer.send` sends it in an
/// Interest, and `Request.offer` returns it at the receiver. The receiver fetches the content by
/// `name` with a consumer, which verifies it. The offer itself is not verified. `bytes(offer)` is
/// its encoding, and `Offer(octets)` decodes it.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Offer(pub(crate) weir_socket::Offer);

#[pymethods]
impl Offer {
    #[new]
    fn new(py: Python<'_>, octets: &Bound<'_, PyAny>) -> PyResult<Self> {
        let octets = octets_of(py, octets)?;
        weir_socket::Offer::decode(octets).map(Self).map_err(errors::of_socket)
    }

    /// The versioned name of the content.
    #[getter]
    fn name(&self) -> String {
        self.0.name().to_string()
    }

    /// The size of the content in bytes, or None if the offer does not state it.
    #[getter]
    fn size(&self) -> Option<u64> {
        self.0.metadata().size_bytes
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.packet())
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>,) {
        (self.__bytes__(py),)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Offer of {}>", self.0.name())
    }
}
