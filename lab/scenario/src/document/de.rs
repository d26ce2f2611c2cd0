//! Serde over the tree of a file. What is wrong with a value is told with its line and its key.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Entry, Node, Value, suggestion};

/// What is wrong, as it comes up from the value to the file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(super) message: String,
    pub(super) line: Option<usize>,
    /// Keys and indices of lists, the innermost first.
    pub(super) path: Vec<String>,
}

impl Problem {
    fn new(message: String) -> Self {
        Self { message, line: None, path: Vec::new() }
    }

    /// The problem is one of the value at `key`, unless a value within is nearer.
    fn within(mut self, key: String, line: usize) -> Self {
        self.line.get_or_insert(line);
        self.path.push(key);
        self
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// What is expected, in the words of people who write files.
fn wanted(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number".into(),
        "f64" => "a number".into(),
        "a string" => "a text in quotes".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list".into(),
        _ if text.starts_with("a nonzero") => "a whole number of at least 1".into(),
        _ if text.starts_with("struct") => "a table of keys".into(),
        _ => text,
    }
}

impl de::Error for Problem {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_value(unexpected, expected)
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match unexpected {
            Unexpected::Bool(truth) => truth.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Seq => "a list".into(),
            Unexpected::Map => "a table".into(),
            other => other.to_string(),
        };
        Self::new(format!("is {found}; write {}", wanted(expected)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("cannot be {variant:?}; {}", suggestion(variant, expected)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key `{field}`; {}", suggestion(field, expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("lacks `{field}`"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is given twice, by two names; keep one"))
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Array(nodes) => visitor.visit_seq(Items(nodes, 0)),
            Value::Table(entries) => visitor.visit_map(Keys(entries, 0)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match &self.value {
            Value::Text(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Value::Table(entries) if entries.len() == 1 => visitor.visit_enum(Choice(&entries[0])),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The items of a list, and how many of them have been read.
struct Items<'de>(&'de [Node], usize);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Problem;

    fn next_element_seed<T>(&mut self, seed: T) -> Result<Option<T::Value>, Problem>
    where
        T: DeserializeSeed<'de>,
    {
        let Some(node) = self.0.get(self.1) else { return Ok(None) };
        self.1 += 1;
        let place = |problem: Problem| problem.within(format!("[{}]", self.1 - 1), node.line);
        seed.deserialize(node).map(Some).map_err(place)
    }
}

/// The entries of a table, and how many keys have been read.
struct Keys<'de>(&'de [Entry], usize);

impl<'de> MapAccess<'de> for Keys<'de> {
    type Error = Problem;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, Problem>
    where
        K: DeserializeSeed<'de>,
    {
        let Some(entry) = self.0.get(self.1) else { return Ok(None) };
        self.1 += 1;
        let key: StrDeserializer<'de, Problem> = entry.key.as_str().into_deserializer();
        let place = |problem: Problem| Problem { line: Some(entry.line), ..problem };
        seed.deserialize(key).map(Some).map_err(place)
    }

    fn next_value_seed<T>(&mut self, seed: T) -> Result<T::Value, Problem>
    where
        T: DeserializeSeed<'de>,
    {
        let entry = &self.0[self.1 - 1];
        let place = |problem: Problem| problem.within(entry.key.clone(), entry.node.line);
        seed.deserialize(&entry.node).map_err(place)
    }
}

/// A table of one key: the name of a variant, and what it holds.
struct Choice<'de>(&'de Entry);

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<T>(self, seed: T) -> Result<(T::Value, Self), Problem>
    where
        T: DeserializeSeed<'de>,
    {
        let name: StrDeserializer<'de, Problem> = self.0.key.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'de> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        Err(de::Error::custom(format!("`{}` holds nothing; write it as a word", self.0.key)))
    }

    fn newtype_variant_seed<T>(self, seed: T) -> Result<T::Value, Problem>
    where
        T: DeserializeSeed<'de>,
    {
        seed.deserialize(&self.0.node)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Problem> {
        self.0.node.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        self.0.node.deserialize_any(visitor)
    }
}

/// The keys that a struct has in files.
pub(super) fn keys_of<'de, T: de::Deserialize<'de>>() -> &'static [&'static str] {
    struct Probe<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Probe<'_> {
        type Error = Problem;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Problem> {
            Err(Problem::new(String::new()))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Problem> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }

    let mut keys: &'static [&'static str] = &[];
    // It always fails: what is wanted is in `keys` by then.
    let _ = T::deserialize(Probe(&mut keys));
    keys
}
