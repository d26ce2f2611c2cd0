//! Octets behind Python's buffer protocol, and the memory that they take.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::{Bound, PyAny, PyResult, ffi};

/// Fills a view of octets that `owner` keeps, unchanged and where they are, as long as it lives.
///
/// # Safety
/// `view` must be what Python passed to `__getbuffer__`, and `octets` must be what `owner` keeps.
pub(crate) unsafe fn fill_view(
    owner: Bound<'_, PyAny>,
    octets: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let is_readonly = 1;
    let len = octets.len() as isize;
    let start = octets.as_ptr().cast_mut().cast();
    // SAFETY: the caller vouches for `view`. Python takes a reference to `owner` of its own for the
    // time of the view, and writes nothing because it is read-only.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, is_readonly, flags) } {
        0 => Ok(()),
        _ => Err(pyo3::PyErr::fetch(owner.py())),
    }
}

/// Has the system back the room of a large vector with large pages: to be given tens of thousands
/// of small ones takes time, too.
pub(crate) fn prefer_large_pages(room: &mut Vec<u8>) {
    const LARGE_PAGE: usize = 2 << 20;
    let start = room.as_mut_ptr().align_offset(LARGE_PAGE);
    let len = room.capacity().saturating_sub(start) / LARGE_PAGE * LARGE_PAGE;
    if len > 0 {
        // SAFETY: the range is within the allocation; the advice changes none of its octets.
        // Systems that do not take it go on with small pages.
        unsafe { libc::madvise(room.as_mut_ptr().add(start).cast(), len, libc::MADV_HUGEPAGE) };
    }
}
