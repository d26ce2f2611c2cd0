//! Receives the rest of a request's body before the answer goes out.
//!
//! Many clients send all of a large body before they read the answer. If the connection were closed
//! before that, the client would lose the answer. So unread bytes are received and discarded.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::app::App;

/// How much is received, in multiples of the maximum body size, and for how long. Beyond either
/// limit the connection is closed. The first is for authorized clients that have sent too much. The
/// second is for others, who may be anonymous and must not keep the server busy.
const DRAIN_TOO_LARGE: (usize, Duration) = (16, Duration::from_secs(30));
const DRAIN_OTHERS: (usize, Duration) = (1, Duration::from_secs(5));

/// A body that two places read, one after the other.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<BodyState>>);

struct BodyState {
    body: Body,
    has_begun: bool,
}

impl SharedBody {
    fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(BodyState { body, has_begun: false })))
    }

    fn lock(&self) -> MutexGuard<'_, BodyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives about `octets_max` more bytes.
    async fn receive(&mut self, octets_max: usize) {
        let mut octets = 0;
        while octets <= octets_max {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            let Some(Ok(frame)) = frame else { return };
            octets += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut read = self.lock();
        read.has_begun = true;
        Pin::new(&mut read.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

/// Answers a request, and receives the rest of its body.
pub(crate) async fn drain_request(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let waits = parts.headers.contains_key(EXPECT);
    let mut body = SharedBody::new(body);
    let response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    // A client that waits for `100 Continue` reads the answer at once. One whose body timed out
    // would time out again.
    let is_coming = !waits || body.lock().has_begun;
    if is_coming && response.status() != StatusCode::REQUEST_TIMEOUT {
        let (bodies_max, wait) = match response.status() {
            StatusCode::PAYLOAD_TOO_LARGE => DRAIN_TOO_LARGE,
            _ => DRAIN_OTHERS,
        };
        let octets_max = app.body_bytes_max.saturating_mul(bodies_max);
        let mut stopping = app.stopping.clone();
        // Shutdown must not wait for it.
        tokio::select! {
            _ = tokio::time::timeout(wait, body.receive(octets_max)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
    response
}
