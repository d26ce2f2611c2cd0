//! Answers that report an error: a status and a body with the cause.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use weir_control::ControlError;
use weir_control::message::Refusal;

use crate::database::DatabaseError;

/// The value of `Retry-After` in seconds.
const RETRY_AFTER_S: u16 = 2;

/// Why a request fails.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    status: StatusCode,
    refusal: Refusal,
}

impl ErrorResponse {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, refusal: Refusal { error: error.into(), expected: None } }
    }

    pub(crate) fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }
}

impl From<ControlError> for ErrorResponse {
    fn from(refused: ControlError) -> Self {
        let (status, expected) = match &refused {
            ControlError::UnknownRouter(_) => (StatusCode::NOT_FOUND, None),
            ControlError::OutOfOrder { expected } => (StatusCode::CONFLICT, Some(*expected)),
            ControlError::TooMany { .. } => (StatusCode::INSUFFICIENT_STORAGE, None),
            ControlError::InvalidFile | ControlError::UnknownGeneration(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, None)
            }
            ControlError::FileConflict(_) | ControlError::NameTaken(_) => {
                (StatusCode::CONFLICT, None)
            }
        };
        Self { status, refusal: Refusal { error: refused.to_string(), expected } }
    }
}

impl From<DatabaseError> for ErrorResponse {
    fn from(error: DatabaseError) -> Self {
        tracing::error!(%error, "a request fails because of the database");
        let status = match &error {
            // An unreadable row stays unreadable, so a retry does not help.
            DatabaseError::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(self.refusal)).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// Rejections of axum's own extractors.
macro_rules! from_rejection {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for ErrorResponse {
            fn from(rejection: $rejection) -> Self {
                Self::new(rejection.status(), rejection.body_text())
            }
        }
    )*};
}

from_rejection!(QueryRejection, PathRejection);
