//! Sockets of this process, connected to a router under test.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, Read as _};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use weir_base::Rng;
use weir_face::FaceUri;
use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{Consumer, Identity, Producer, ProducerOptions, Session, SocketError};
use weir_wire::Name;

use crate::Router;

#[must_use]
pub fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

/// Random bytes that depend only on the length.
#[must_use]
pub fn content(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(len as u64).fill(&mut bytes);
    bytes
}

#[must_use]
pub fn session(router: &Router) -> Session {
    Session::connect(&FaceUri::Unix(router.socket().clone())).expect("a session")
}

/// A verifier that accepts all signers and checks only digests.
#[must_use]
pub fn digest_verifier() -> Arc<dyn Verifier> {
    Arc::new(DigestVerifier)
}

#[must_use]
pub fn consumer(session: &Session, prefix: &str) -> Consumer {
    Consumer::bind(session, name(prefix), digest_verifier())
}

#[must_use]
pub fn producer(session: &Session, prefix: &str) -> Producer {
    producer_with(session, prefix, &[])
}

#[must_use]
pub fn producer_with(session: &Session, prefix: &str, options: &[(&str, &str)]) -> Producer {
    let identity = Identity::new(DigestSigner);
    let options = producer_options(options);
    Producer::bind_with(session, name(prefix), identity, options).expect("a free prefix")
}

#[must_use]
pub fn producer_options(values: &[(&str, &str)]) -> ProducerOptions {
    let mut options = ProducerOptions::default();
    for (option, value) in values {
        options.set(option, value).expect("an option");
    }
    options
}

/// Fetches a whole object.
///
/// # Errors
/// Those of [`Consumer::fetch`] and of its reader.
pub fn read_all(consumer: &Consumer, uri: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    consumer.fetch(&name(uri))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn error_of<T: Debug>(result: io::Result<T>) -> SocketError {
    let error = result.unwrap_err();
    let socket = error.get_ref().and_then(|inner| inner.downcast_ref::<SocketError>());
    socket.unwrap_or_else(|| panic!("{error}")).clone()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
