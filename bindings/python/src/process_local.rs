//! What belongs to the process that made it: threads drive it, and `fork` leaves them behind.

use std::mem::ManuallyDrop;

use pyo3::PyResult;

use crate::errors;

/// A value of this process. A child of `fork` has a copy without the threads that drive it: there
/// it is never touched, not even dropped, since its locks may be held and its threads be waited
/// for.
pub(crate) struct ProcessLocal<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_current_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// The value, if this is the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_current_process().then_some(&*self.value)
    }

    /// The value.
    ///
    /// # Errors
    /// It was made before a fork. To say so takes the interpreter, which may let other threads run:
    /// not for whoever has locked something that they lock.
    pub(crate) fn get_or_raise(&self, what: &str) -> PyResult<&T> {
        match self.is_current_process() {
            true => Ok(&self.value),
            false => Err(errors::forked(what)),
        }
    }

    /// The value, unless it was made before a fork.
    pub(crate) fn into_value(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: neither this nor `this` is dropped or seen afterwards.
        this.is_current_process().then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if self.is_current_process() {
            // SAFETY: it is dropped once, here, and nobody sees it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
