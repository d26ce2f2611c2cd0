//! Answers to single Interests, and what is offered in Interests.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weir_base::Packet;
use weir_wire::DataView;

use crate::buffer::{Buffer, octets_of};
use crate::errors;

/// The Data that answers an Interest, as it came: whoever made it and whatever it says, nothing of
/// it is verified. `bytes(answer)` is its content.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Answer {
    name: String,
    content: Packet,
    packet: Packet,
}

impl Answer {
    /// # Errors
    /// It is no Data, which does not get here.
    pub(crate) fn of_packet(packet: Packet) -> PyResult<Self> {
        let data = DataView::decode(&packet)
            .map_err(|error| errors::raise("VerificationError", format!("no Data: {error}")))?;
        // Where Content begins in the packet: it is a part of it.
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

    /// The Data, a whole TLV, for whoever verifies it.
    #[getter]
    fn packet(&self) -> Buffer {
        Buffer::of_packet(self.packet.clone())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.content)
    }

    fn __repr__(&self) -> String {
        format!("<weir.Answer {} of {} octets, not verified>", self.name, self.content.len())
    }
}

/// What leads to something that somebody has published: `Producer.offer` makes it,
/// `Consumer.send` sends it in an Interest, and `Request.offer` has it there. Whoever receives it
/// gets the content by its `name` with a consumer, which verifies it; what the offer itself says is
/// not verified. `bytes(offer)` are its octets, of which `Offer(octets)` makes it again.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Offer(pub(crate) weir_socket::Offer);

#[pymethods]
impl Offer {
    #[new]
    fn new(py: Python<'_>, octets: &Bound<'_, PyAny>) -> PyResult<Self> {
        let octets = octets_of(py, octets)?;
        weir_socket::Offer::decode(octets).map(Self).map_err(errors::of_socket)
    }

    /// The name to get it by, with its version.
    #[getter]
    fn name(&self) -> String {
        self.0.name().to_string()
    }

    /// How many octets there are to get, or None if it does not say.
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
