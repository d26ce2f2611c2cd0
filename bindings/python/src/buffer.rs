//! Buffers that Python reads without a copy.

use std::ffi::c_int;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyIndexError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyMemoryView, PySlice};
use std::ops::Range;
use std::sync::Arc;
use weir_base::Packet;

use crate::{errors, memory};

/// Copies bytes from Python: signed content must not change.
///
/// # Errors
/// The object has no bytes, or too many.
pub(crate) fn octets_of(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Packet> {
    let fits = |len: usize| match u32::try_from(len) {
        Ok(0..0xFFFF_0000) => Ok(()),
        _ => Err(errors::raise("TooLong", "bytes in memory are below 4 GiB; put a file instead")),
    };
    if let Ok(bytes) = data.cast::<PyBytes>() {
        let octets = bytes.as_bytes();
        fits(octets.len())?;
        // A `bytes` object never changes, so the GIL is not needed.
        return Ok(py.detach(|| Packet::from(octets)));
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    fits(buffer.len_bytes())?;
    Ok(buffer.to_vec(py)?.into())
}

enum Octets {
    /// All bytes of an object.
    Whole(Arc<Vec<u8>>),
    /// Bytes within the packet that they arrived in.
    Packet(Packet),
}

/// Received bytes, read-only. `memoryview(b)`, `numpy.frombuffer(b, ...)` and other users of the
/// buffer protocol read them without a copy. `bytes(b)` copies. A slice shares the memory. The
/// bytes stay valid while a view exists, even if everything else is closed.
#[pyclass(frozen, module = "weir")]
pub(crate) struct Buffer {
    octets: Octets,
    range: Range<usize>,
}

impl Buffer {
    pub(crate) fn of_vec(octets: Vec<u8>) -> Self {
        let range = 0..octets.len();
        Self { octets: Octets::Whole(Arc::new(octets)), range }
    }

    pub(crate) fn of_packet(packet: Packet) -> Self {
        let range = 0..packet.len();
        Self { octets: Octets::Packet(packet), range }
    }

    fn octets(&self) -> &[u8] {
        let all: &[u8] = match &self.octets {
            Octets::Whole(octets) => octets,
            Octets::Packet(packet) => packet,
        };
        &all[self.range.clone()]
    }

    /// Whether `other` holds the same bytes. `None` if it is no buffer type.
    fn is_same(&self, other: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let octets = self.octets();
        if let Ok(other) = other.cast::<Self>() {
            return Ok(Some(octets == other.get().octets()));
        }
        if let Ok(other) = other.cast::<PyBytes>() {
            return Ok(Some(octets == other.as_bytes()));
        }
        if !other.is_instance_of::<PyByteArray>() && !other.is_instance_of::<PyMemoryView>() {
            return Ok(None);
        }
        let Ok(other_octets) = PyBuffer::<u8>::get(other) else { return Ok(Some(false)) };
        let is_as_long = other_octets.len_bytes() == octets.len();
        Ok(Some(is_as_long && other_octets.to_vec(other.py())? == octets))
    }

    fn part(&self, range: Range<usize>) -> Self {
        let octets = match &self.octets {
            Octets::Whole(octets) => Octets::Whole(octets.clone()),
            Octets::Packet(packet) => Octets::Packet(packet.clone()),
        };
        let start = self.range.start;
        Self { octets, range: start + range.start..start + range.end }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.range.len()
    }

    fn __repr__(&self) -> String {
        format!("<weir.Buffer of {} bytes>", self.range.len())
    }

    /// Equal to bytes-like objects with the same content.
    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match self.is_same(other)? {
            Some(is_same) => Ok(PyBool::new(py, is_same).to_owned().into_any()),
            None => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.octets())
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let octets = self.octets();
        let Ok(slice) = index.cast::<PySlice>() else {
            let index: isize = index.extract()?;
            let from_end = if index < 0 { octets.len() as isize } else { 0 };
            let found = usize::try_from(index + from_end).ok().and_then(|at| octets.get(at));
            let octet = found.ok_or_else(|| PyIndexError::new_err("beyond the bytes"))?;
            return Ok(octet.into_pyobject(py)?.into_any());
        };
        let indices = slice.indices(octets.len() as isize)?;
        if indices.step == 1 {
            let start = indices.start as usize;
            let part = self.part(start..start + indices.slicelength);
            return Ok(Bound::new(py, part)?.into_any());
        }
        let at = |count: usize| octets[(indices.start + count as isize * indices.step) as usize];
        let picked: Vec<u8> = (0..indices.slicelength).map(at).collect();
        Ok(Bound::new(py, Self::of_vec(picked))?.into_any())
    }

    /// Decodes the bytes as text.
    #[pyo3(signature = (encoding = "utf-8", errors = "strict"))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        encoding: &str,
        errors: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.__bytes__(py).call_method1("decode", (encoding, errors))
    }

    /// # Safety
    /// Called by Python, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: Python passes the view. The bytes are in an allocation that this frozen object
        // keeps and that never changes.
        unsafe { memory::fill_view(slf.clone().into_any(), this.octets(), view, flags) }
    }
}
