//! What of a request's body nobody has read. It is received and thrown away before the answer goes
//! out: who sends a large body reads only once it is sent, and a connection that is closed before
//! that takes the answer with it.

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

/// How much is received, in bodies of the largest size that is taken, and for how long. Beyond
/// either the connection is closed. The first is for who has sent too much, and was let in; others
/// may be strangers, who are not to keep this busy.
const DRAIN_TOO_LARGE: (usize, Duration) = (16, Duration::from_secs(30));
const DRAIN_OTHERS: (usize, Duration) = (1, Duration::from_secs(5));

/// A body that is read in two places, one after the other.
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

    /// Receives so many octets more, or a little more than that.
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

/// Has a request answered, and receives what is left of its body.
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
    // Who waits for leave to send it reads the answer at once, and who was too slow would be again.
    let is_coming = !waits || body.lock().has_begun;
    if is_coming && response.status() != StatusCode::REQUEST_TIMEOUT {
        let (bodies_max, wait) = match response.status() {
            StatusCode::PAYLOAD_TOO_LARGE => DRAIN_TOO_LARGE,
            _ => DRAIN_OTHERS,
        };
        let octets_max = app.body_bytes_max.saturating_mul(bodies_max);
        let mut stopping = app.stopping.clone();
        // Nor does anybody hold up the end of the program.
        tokio::select! {
            _ = tokio::time::timeout(wait, body.receive(octets_max)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
    response
}
