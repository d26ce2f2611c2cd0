//! A thing with options, chosen by text: its name, then `key=value` pairs.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::order::OutOfOrder;

/// Why a text chooses nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is none of this name.
    #[error("there is no {kind} `{name}`; choose one of {}", names.join(", "))]
    Unknown {
        /// What was to be chosen, such as "queue discipline".
        kind: &'static str,
        /// As given.
        name: String,
        names: &'static [&'static str],
    },
    /// It has no such option, or not with this value.
    #[error("`{option}` is no option of the {kind} `{name}`, or cannot have this value")]
    Option {
        /// What was to be chosen.
        kind: &'static str,
        name: String,
        /// As given.
        option: String,
    },
    /// Two of its options contradict each other.
    #[error("the {kind} `{name}` cannot be so: {order}")]
    Order {
        /// What was to be chosen.
        kind: &'static str,
        name: &'static str,
        /// Which two.
        order: OutOfOrder,
    },
}

/// The name in `text`, and its options.
pub(crate) fn split(text: &str) -> (&str, &str) {
    text.trim().split_once(' ').unwrap_or((text.trim(), ""))
}

/// The options of `name` as `set` takes them, key and value; it answers false for one that it does
/// not know or that cannot have this value.
pub(crate) fn read_options(
    kind: &'static str,
    name: &str,
    options: &str,
    mut set: impl FnMut(&str, &str) -> bool,
) -> Result<(), ChoiceError> {
    for option in options.split_whitespace() {
        if !option.split_once('=').is_some_and(|(key, value)| set(key, value)) {
            let (name, option) = (name.to_owned(), option.to_owned());
            return Err(ChoiceError::Option { kind, name, option });
        }
    }
    Ok(())
}
