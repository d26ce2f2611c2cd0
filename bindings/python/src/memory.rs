//! The buffer protocol of Python, and large pages.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::{Bound, PyAny, PyResult, ffi};

/// Fills a view of bytes that `owner` keeps, unchanged and in place, while it lives.
///
/// # Safety
/// `view` must be the argument of `__getbuffer__`, and `octets` must belong to `owner`.
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
    // SAFETY: the caller vouches for `view`. Python holds a reference to `owner` during the view,
    // and does not write because the view is read-only.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, is_readonly, flags) } {
        0 => Ok(()),
        _ => Err(pyo3::PyErr::fetch(owner.py())),
    }
}

/// Asks the system for large pages behind a large vector. Page faults for tens of thousands of
/// small pages would take longer.
pub(crate) fn prefer_large_pages(room: &mut Vec<u8>) {
    const LARGE_PAGE: usize = 2 << 20;
    let start = room.as_mut_ptr().align_offset(LARGE_PAGE);
    let len = room.capacity().saturating_sub(start) / LARGE_PAGE * LARGE_PAGE;
    if len > 0 {
        // SAFETY: the range is within the allocation, and the advice changes no byte. If the system
        // refuses, the vector has small pages.
        unsafe { libc::madvise(room.as_mut_ptr().add(start).cast(), len, libc::MADV_HUGEPAGE) };
    }
}
