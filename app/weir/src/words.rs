//! Arguments with known words, which shell completions offer.

use std::ffi::OsStr;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser of an enum whose words are all valid values.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).map(|word| word.parse().ok().expect("one of the words"))
}

/// A parser that also accepts other values than the words that completions offer. The argument
/// needs `hide_possible_values`, because its help text says what else is valid.
#[derive(Clone)]
pub(crate) struct Suggesting<P> {
    words: &'static [&'static str],
    parser: P,
}

impl<P> Suggesting<P> {
    pub(crate) const fn new(words: &'static [&'static str], parser: P) -> Self {
        Self { words, parser }
    }
}

impl<P: TypedValueParser> TypedValueParser for Suggesting<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
