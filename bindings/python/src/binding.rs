//! Producers while they are being bound.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir_binding::WithoutSignals;
use weir_socket::{Binder, Producer, ProducerOptions, SocketError};
use weir_wire::Name;

use crate::process_local::ProcessLocal;
use crate::producer::{Outlet, identity_of};
use crate::wait::{Notifier, block_on, timeout_of};
use crate::{errors, options, sessions};

const WHAT: &str = "the producer";

enum BindingState {
    /// The router has not been contacted.
    Idle,
    /// The router was asked to register the prefix.
    Asked(Box<Binder>),
    /// Bound, or cancelled.
    Over,
}

/// A producer that is being bound. If it is closed first, it is not bound and the prefix is free.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Binding {
    prefix: Name,
    router: Option<String>,
    sign: String,
    options: ProducerOptions,
    /// Locked only briefly. A thread that holds this lock never waits for the GIL.
    state: ProcessLocal<Mutex<BindingState>>,
}

fn lock(state: &Mutex<BindingState>) -> MutexGuard<'_, BindingState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn poll(
    state: &Mutex<BindingState>,
    context: &mut Context<'_>,
) -> Poll<Result<Producer, SocketError>> {
    let mut state = lock(state);
    let BindingState::Asked(binder) = &mut *state else {
        return Poll::Ready(Err(SocketError::Closed));
    };
    let found = Pin::new(&mut **binder).poll(context);
    if found.is_ready() {
        *state = BindingState::Over;
    }
    found
}

#[pymethods]
impl Binding {
    #[new]
    #[pyo3(signature = (prefix, router, sign, options))]
    fn new(
        prefix: &str,
        router: Option<String>,
        sign: String,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            prefix: sessions::name_of(prefix)?,
            router,
            sign,
            options: options::for_producer(options)?,
            state: ProcessLocal::new(Mutex::new(BindingState::Idle)),
        })
    }

    /// Connects to the router and asks it to register the prefix. Waits for the connection, the
    /// user's key and the disk, but not for the router's answer.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state.get_or_raise(WHAT)?;
        let session = sessions::session(py, self.router.as_deref())?;
        let identity = identity_of(py, &self.sign)?;
        let is_idle = || matches!(*lock(state), BindingState::Idle);
        let begun = py.detach(|| {
            let _guard = WithoutSignals::new();
            session.connect_producers()?;
            if !is_idle() {
                return Err(SocketError::Closed);
            }
            let (prefix, options) = (self.prefix.clone(), self.options.clone());
            let binder = Producer::begin_bind(&session, prefix, identity, options)?;
            let mut place = lock(state);
            match &*place {
                BindingState::Idle => *place = BindingState::Asked(Box::new(binder)),
                // Another thread has closed the binding: dropping the binder frees the prefix.
                _ => return Err(SocketError::Closed),
            }
            Ok(())
        });
        begun.map_err(errors::of_socket)
    }

    /// Waits for the router's answer.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Outlet> {
        let (timeout, state) = (timeout_of(timeout)?, self.state.get_or_raise(WHAT)?);
        let bound = block_on(py, timeout, |context| poll(state, context))?;
        bound.map(Outlet::new).map_err(errors::of_socket)
    }

    /// Like `wait`, but returns None if there is no answer yet.
    fn poll(&self, py: Python<'_>, notifier: &Notifier, token: u64) -> PyResult<Option<(Outlet,)>> {
        let (state, waker) = (self.state.get_or_raise(WHAT)?, notifier.waker(token)?);
        match py.detach(|| poll(state, &mut Context::from_waker(&waker))) {
            Poll::Ready(bound) => {
                bound.map(|producer| Some((Outlet::new(producer),))).map_err(errors::of_socket)
            }
            Poll::Pending => Ok(None),
        }
    }

    /// Cancels the binding, unless it is complete. Does nothing in a child of `fork`.
    fn close(&self, py: Python<'_>) {
        if let Some(state) = self.state.get() {
            py.detach(|| {
                let state = std::mem::replace(&mut *lock(state), BindingState::Over);
                drop(state);
            });
        }
    }
}
