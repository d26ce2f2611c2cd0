//! Values that belong to one process. Threads drive them, and `fork` does not copy threads.

use std::mem::ManuallyDrop;

use pyo3::PyResult;

use crate::errors;

/// A value of the process that created it. A child of `fork` has a copy, but not the threads that
/// drive it. The child never touches the copy, not even to drop it: its locks may be held, and
/// dropping it may wait for its threads.
pub(crate) struct ProcessLocal<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// Whether this is the process that created the value.
    pub(crate) fn is_current_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The value, in the process that created it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_current_process().then_some(&*self.value)
    }

    /// The value.
    ///
    /// # Errors
    /// The value was created before a fork. Creating the exception may let other Python threads
    /// run, so the caller must not hold a lock that they take.
    pub(crate) fn get_or_raise(&self, what: &str) -> PyResult<&T> {
        match self.is_current_process() {
            true => Ok(&self.value),
            false => Err(errors::forked(what)),
        }
    }

    /// The value, unless it was created before a fork.
    pub(crate) fn into_value(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither `self` nor `this` is dropped or used afterwards.
        this.is_current_process().then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if self.is_current_process() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
