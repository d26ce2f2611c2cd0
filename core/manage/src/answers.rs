//! Answers of the manager: the content of datasets, and the response to router/reload.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::InterestView;

use crate::commands::Scope;
use crate::element::{Element, Writer};
use crate::parameters::ControlResponse;
use crate::transactions::Task;

/// The longest text of an answer. Names and signature need the rest of the packet.
const RELOAD_TEXT_MAX: usize = 4096;

/// The answer to router/reload.
pub(crate) fn reloaded(result: Result<String, String>) -> ControlResponse {
    let (code, mut text) = match result {
        Ok(summary) => (200, summary),
        Err(refusal) => (409, refusal),
    };
    let end = (0..=RELOAD_TEXT_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or(0));
    ControlResponse::new(code, text)
}

/// Whether the names of all datasets begin with the Interest's name.
pub(crate) fn is_for_any_dataset(interest: &InterestView<'_>) -> bool {
    let prefix = Scope::Localhost.prefix();
    let is_prefix = interest.name.is_prefix_of(prefix.as_view());
    interest.can_be_prefix && is_prefix && interest.name.component_count() > 0
}

/// The result of an Interest for a dataset.
pub(crate) enum Dataset {
    Content(Vec<u8>),
    /// The driver must provide the content.
    Task(Task),
    /// The Interest is malformed, with a description.
    Malformed(&'static str),
}

pub(crate) fn items<E: Element>(items: impl Iterator<Item = E>) -> Dataset {
    Dataset::Content(encode_items(items))
}

pub(crate) fn encode_items<E: Element>(items: impl Iterator<Item = E>) -> Vec<u8> {
    let mut writer = Writer::default();
    for item in items {
        writer.element(&item);
    }
    writer.into_octets()
}
