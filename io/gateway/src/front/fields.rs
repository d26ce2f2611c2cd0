//! Header fields.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Sets a field that the front makes itself.
pub(super) fn set(fields: &mut HeaderMap, name: HeaderName, value: impl Into<String>) {
    if let Ok(value) = HeaderValue::from_str(&value.into()) {
        fields.insert(name, value);
    }
}

/// The values of a field that lists words, in lower case.
pub(super) fn words(fields: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let words = values.flat_map(|value| value.split(',')).map(|word| word.trim().to_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}
