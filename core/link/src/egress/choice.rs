//! Choices in text form: a name, then options as `key=value` pairs.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::order::OptionOrderError;

/// Why a text is not a valid choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no choice with this name.
    #[error("unknown {kind} `{name}`; choose one of {}", names.join(", "))]
    Unknown {
        /// What the text should choose, such as "queue discipline".
        kind: &'static str,
        /// As written.
        name: String,
        names: Vec<&'static str>,
    },
    /// There is no such option, or it cannot have this value.
    #[error(
        "invalid option `{option}` of the {kind} `{name}`: there is no such option, or it cannot \
         have this value"
    )]
    Option {
        /// What the text should choose.
        kind: &'static str,
        name: String,
        /// As written.
        option: String,
    },
    /// Two options contradict each other.
    #[error("invalid {kind} `{name}`: {order}")]
    Order {
        /// What the text should choose.
        kind: &'static str,
        name: &'static str,
        /// The two options.
        order: OptionOrderError,
    },
}

/// A kind that another crate implements, and the name by which text chooses it. `T` holds its
/// options, and creates an instance for each face.
#[derive(Debug)]
pub struct ExternalKind<T: ?Sized> {
    /// In kebab-case.
    pub name: &'static str,
    /// Parses its options, `key=value` separated by spaces; see [`read_options`].
    pub read: fn(options: &str) -> Result<Arc<T>, ChoiceError>,
}

/// A choice of a kind from another crate. Two choices are equal if their texts are, apart from
/// spaces.
#[derive(Debug)]
pub struct ExternalChoice<T: ?Sized> {
    name: &'static str,
    text: Arc<str>,
    options: Arc<T>,
}

impl<T: ?Sized> ExternalChoice<T> {
    /// Parses a text that chooses one of `kinds`. For the error, `choice` describes the kinds, and
    /// `builtin` has the names of the built-in ones.
    pub(crate) fn read(
        (choice, builtin): (&'static str, &[&'static str]),
        text: &str,
        kinds: &[ExternalKind<T>],
    ) -> Result<Self, ChoiceError> {
        let (name, options) = split(text);
        let Some(kind) = kinds.iter().find(|kind| kind.name == name) else {
            let (kind, name) = (choice, name.to_owned());
            let names = builtin.iter().copied().chain(kinds.iter().map(|kind| kind.name)).collect();
            return Err(ChoiceError::Unknown { kind, name, names });
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").into();
        Ok(Self { name: kind.name, text, options: (kind.read)(options)? })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn options(&self) -> &T {
        &self.options
    }
}

impl<T: ?Sized> Clone for ExternalChoice<T> {
    fn clone(&self) -> Self {
        let Self { name, text, options } = self;
        Self { name, text: Arc::clone(text), options: Arc::clone(options) }
    }
}

impl<T: ?Sized> PartialEq for ExternalChoice<T> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<T: ?Sized> Eq for ExternalChoice<T> {}

impl<T: ?Sized> fmt::Display for ExternalChoice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The name in `text`, and its options.
pub(crate) fn split(text: &str) -> (&str, &str) {
    text.trim().split_once(' ').unwrap_or((text.trim(), ""))
}

/// Passes the key and value of each option to `set`. It must return false for an unknown key or a
/// bad value. `of` is for the error message: what the text chooses, such as "queue discipline", and
/// its name.
///
/// # Errors
/// [`ChoiceError::Option`].
pub fn read_options(
    of: (&'static str, &str),
    options: &str,
    mut set: impl FnMut(&str, &str) -> bool,
) -> Result<(), ChoiceError> {
    for option in options.split_whitespace() {
        if !option.split_once('=').is_some_and(|(key, value)| set(key, value)) {
            let (kind, name, option) = (of.0, of.1.to_owned(), option.to_owned());
            return Err(ChoiceError::Option { kind, name, option });
        }
    }
    Ok(())
}
