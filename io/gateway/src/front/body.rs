//! Bodies of responses.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use weir_socket::SocketError;

use super::log::Access;
use super::pieces::Cursor;

/// An error ends a response as broken: the connection or the stream is reset.
pub(super) type Body = UnsyncBoxBody<Bytes, SocketError>;

pub(super) fn full(octets: impl Into<Bytes>) -> Body {
    Full::new(octets.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub(super) fn empty() -> Body {
    full(Bytes::new())
}

/// Bytes that stand between parts of a multipart body, or a part of the object.
pub(super) enum Part {
    Text(Bytes),
    Content(Cursor),
}

/// A body of these parts, sent as they are verified.
pub(super) fn parts(parts: Vec<Part>, access: Arc<Access>) -> Body {
    let stream = stream::iter(parts).flat_map(|part| match part {
        Part::Text(text) => stream::iter([Ok(text)]).left_stream(),
        Part::Content(cursor) => content(cursor).right_stream(),
    });
    let frames = stream.map(move |chunk| {
        match &chunk {
            Ok(chunk) => access.add_bytes(chunk.len()),
            Err(error) => access.fail(error),
        }
        chunk.map(Frame::data)
    });
    StreamBody::new(frames).boxed_unsync()
}

fn content(cursor: Cursor) -> impl Stream<Item = Result<Bytes, SocketError>> {
    stream::unfold(cursor, |mut cursor| async { Some((cursor.next().await?, cursor)) })
}
