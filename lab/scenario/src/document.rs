//! A TOML file as a tree with line numbers, so that every error names its line.

mod de;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in a scenario, a claims file or a trace: the location, the problem, and what to write
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, counted from 1, if there is one.
    pub line: Option<usize>,
    /// The problem, then a semicolon and what to do about it.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.file, self.message),
            None => write!(formatter, "{}: {}", self.file, self.message),
        }
    }
}

/// A value with its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueNode {
    pub(crate) value: Value,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<ValueNode>),
    Table(Vec<KeyEntry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyEntry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: ValueNode,
}

impl Value {
    /// The kind of value, for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl ValueNode {
    /// The value as text, for labels.
    pub(crate) fn label(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            Value::Array(nodes) => nodes.iter().map(Self::label).collect::<Vec<_>>().join(" "),
            Value::Table(entries) => entries
                .iter()
                .map(|entry| format!("{} {}", entry.key, entry.node.label()))
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// The value as a number, if it is one.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn entries(&self) -> &[KeyEntry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key in a table.
    pub(crate) fn at(&self, key: &str) -> Option<&ValueNode> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

pub fn parse(file: &str, text: &str) -> Result<Tree, ScenarioError> {
    let source = SourceText { file, text };
    let document = DeTable::parse(text).map_err(|error| {
        let message = format!("{}; see https://toml.io for the syntax", error.message().trim());
        ScenarioError { line: error.span().map(|span| source.line(span)), ..source.error(message) }
    })?;
    let root = ValueNode { value: source.table(document.get_ref())?, line: 1 };
    Ok(Tree { file: file.into(), root })
}

/// The file being parsed.
struct SourceText<'a> {
    file: &'a str,
    text: &'a str,
}

impl SourceText<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        1 + self.text[..span.start].matches('\n').count()
    }

    fn error(&self, message: String) -> ScenarioError {
        ScenarioError { file: self.file.to_owned(), line: None, message }
    }

    fn table(&self, table: &DeTable<'_>) -> Result<Value, ScenarioError> {
        let mut in_order: Vec<_> = table.iter().collect();
        in_order.sort_by_key(|(key, _)| key.span().start);
        let entries = in_order.into_iter().map(|(key, value)| {
            let line = self.line(key.span());
            Ok(KeyEntry { key: key.get_ref().to_string(), line, node: self.node(value)? })
        });
        Ok(Value::Table(entries.collect::<Result<_, _>>()?))
    }

    fn node(&self, spanned: &Spanned<DeValue<'_>>) -> Result<ValueNode, ScenarioError> {
        let line = self.line(spanned.span());
        let too_large = |text: &str| ScenarioError {
            line: Some(line),
            ..self.error(format!("{text} is too large; write a smaller number"))
        };
        let value = match spanned.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let read = i64::from_str_radix(number.as_str(), number.radix());
                Value::Integer(read.map_err(|_| too_large(number.as_str()))?)
            }
            DeValue::Float(number) => {
                Value::Float(number.as_str().parse().map_err(|_| too_large(number.as_str()))?)
            }
            DeValue::Boolean(truth) => Value::Boolean(*truth),
            DeValue::Datetime(date) => Value::Text(date.to_string()),
            DeValue::Array(values) => {
                Value::Array(values.iter().map(|value| self.node(value)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.table(table)?,
        };
        Ok(ValueNode { value, line })
    }
}

/// The known word closest to `word`, if it is close enough.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean "x"?`, or the list of known words.
pub fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("one of {}", known.join(", ")),
    }
}

/// A file as a tree, with its name for errors.
#[derive(Clone, Debug)]
pub struct Tree {
    pub file: Arc<str>,
    pub(crate) root: ValueNode,
}

impl Tree {
    /// Deserializes the whole file.
    ///
    /// # Errors
    /// The content has another form. The message says where, and what to write.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ScenarioError> {
        self.read_at("", &self.root)
    }

    /// Deserializes `node`, which is at `path` in the file or was merged from there.
    pub(crate) fn read_at<T: DeserializeOwned>(
        &self,
        path: &str,
        node: &ValueNode,
    ) -> Result<T, ScenarioError> {
        serde_path_to_error::deserialize(node).map_err(|error| {
            let mut steps: Vec<&Segment> = error.path().iter().collect();
            let line = steps.iter().try_fold(node, |node, step| node.child(step));
            let line = line.map_or_else(|last| last.line, |node| node.line);
            let problem = error.inner();
            // The message names an unknown key itself, so the path ends at its table.
            if let (Some(key), Some(Segment::Map { key: last })) = (&problem.key, steps.last())
                && key == last
            {
                steps.pop();
            }
            let mut place = path.to_owned();
            for step in steps {
                match step {
                    Segment::Seq { index } => place.push_str(&format!("[{index}]")),
                    Segment::Map { key } if place.is_empty() => place.push_str(key),
                    Segment::Map { key } => place.push_str(&format!(".{key}")),
                    Segment::Enum { .. } | Segment::Unknown => {}
                }
            }
            self.error_on(line, &place, &problem.message)
        })
    }

    /// The tree with the values for `size` (`"smoke"` or `"full"`).
    pub(crate) fn of_size(&self, size: &str) -> Result<Self, ScenarioError> {
        let root = choose_size(&self.file, &self.root, size)?;
        Ok(Self { file: Arc::clone(&self.file), root })
    }

    /// Sets the value at a dotted path.
    pub(crate) fn set(&mut self, path: &str, value: &ValueNode) -> Result<(), ScenarioError> {
        set_path(&self.file, &mut self.root, path, value)
    }

    /// The node at a path such as `sweep[0].values`.
    pub(crate) fn at(&self, path: &str) -> Option<&ValueNode> {
        let (node, is_there) = self.resolve(path);
        is_there.then_some(node)
    }

    /// An error about `place`, on a given line.
    pub(crate) fn error_on(&self, line: usize, place: &str, message: &str) -> ScenarioError {
        let message = match place {
            "" => message.to_owned(),
            place => format!("{place}: {message}"),
        };
        ScenarioError { file: self.file.to_string(), line: Some(line), message }
    }

    /// The line of the value at a path such as `consumer[1].of`, or of the table that lacks it.
    pub fn line(&self, path: &str) -> usize {
        self.resolve(path).0.line
    }

    /// Follows a path as far as it exists. Returns the last node, and whether the path is complete.
    fn resolve(&self, path: &str) -> (&ValueNode, bool) {
        let mut node = &self.root;
        let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        for step in steps.filter(|step| !step.is_empty()) {
            let next = match &node.value {
                Value::Array(nodes) => step.parse().ok().and_then(|at: usize| nodes.get(at)),
                _ => node.at(step),
            };
            match next {
                Some(next) => node = next,
                None => return (node, false),
            }
        }
        (node, true)
    }

    /// An error about the value at a path.
    pub fn error(&self, path: &str, message: impl AsRef<str>) -> ScenarioError {
        self.error_on(self.line(path), path, message.as_ref())
    }
}

impl ValueNode {
    /// The child for one step of a path; the error is this node if it has none.
    fn child(&self, step: &Segment) -> Result<&Self, &Self> {
        let next = match step {
            Segment::Seq { index } => self.items().get(*index),
            Segment::Map { key } | Segment::Enum { variant: key } => self.at(key),
            Segment::Unknown => None,
        };
        next.ok_or(self)
    }

    pub(crate) fn empty_table() -> ValueNode {
        ValueNode { value: Value::Table(Vec::new()), line: 1 }
    }

    /// An enum variant with its content.
    pub(crate) fn choice(variant: &str, node: ValueNode, line: usize) -> ValueNode {
        let entry = KeyEntry { key: variant.to_owned(), line, node };
        ValueNode { value: Value::Table(vec![entry]), line }
    }

    pub(crate) fn items(&self) -> &[ValueNode] {
        match &self.value {
            Value::Array(nodes) => nodes,
            _ => &[],
        }
    }

    /// Splits a table into the keys that `T` has and the others.
    pub(crate) fn split<T: DeserializeOwned>(&self) -> (ValueNode, ValueNode) {
        let keys = de::keys_of::<T>();
        let (own, others) =
            self.entries().iter().cloned().partition(|entry| keys.contains(&entry.key.as_str()));
        let table = |entries| ValueNode { value: Value::Table(entries), line: self.line };
        (table(own), table(others))
    }

    /// The table with some keys renamed.
    pub(crate) fn renamed(&self, names: &[(&str, &str)]) -> ValueNode {
        let mut node = self.clone();
        if let Value::Table(entries) = &mut node.value {
            for entry in entries {
                if let Some((_, name)) = names.iter().find(|(old, _)| *old == entry.key) {
                    (*name).clone_into(&mut entry.key);
                }
            }
        }
        node
    }

    /// The table, with the values of `over` replacing its own.
    pub(crate) fn merged(&self, over: &ValueNode) -> ValueNode {
        let (Value::Table(entries), Value::Table(over_entries)) = (&self.value, &over.value) else {
            return over.clone();
        };
        let excluded = |key: &str| {
            let mut groups = EXCLUSIVE.iter().filter(|group| group.contains(&key));
            groups.any(|group| group.iter().any(|other| over.at(other).is_some()))
        };
        // `none = true` means that the table is absent, so none of its keys stay.
        let is_none = self.at("none").is_some_and(|none| none.value == Value::Boolean(true));
        let mut merged: Vec<KeyEntry> = entries.clone();
        merged.retain(|entry| !is_none && (over.at(&entry.key).is_some() || !excluded(&entry.key)));
        for entry in over_entries {
            match merged.iter_mut().find(|other| other.key == entry.key) {
                Some(other) => other.node = other.node.merged(&entry.node),
                None => merged.push(entry.clone()),
            }
        }
        ValueNode { value: Value::Table(merged), line: over.line }
    }
}

/// Groups of exclusive keys: a later key of a group replaces the others.
const EXCLUSIVE: &[&[&str]] =
    &[&["size", "bytes", "packets"], &["rate", "time", "bins"], &["write_rate", "write_time"]];

/// A text or a list of texts.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged, expecting = "write a text in quotes or a list of texts")]
enum TextOrTexts {
    Text(String),
    Texts(Vec<String>),
}

/// For `#[serde(deserialize_with)]`: a text or a list of texts.
pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match TextOrTexts::deserialize(from)? {
        TextOrTexts::Text(text) => vec![text],
        TextOrTexts::Texts(texts) => texts,
    })
}

/// The same for an optional key.
pub(crate) fn texts_if_any<'de, D>(from: D) -> Result<Option<Vec<String>>, D::Error>
where
    D: Deserializer<'de>,
{
    texts(from).map(Some)
}

/// Replaces every `{ smoke, full }` by its value for `size` (`"smoke"` or `"full"`).
fn choose_size(file: &str, node: &ValueNode, size: &str) -> Result<ValueNode, ScenarioError> {
    let value = match &node.value {
        Value::Array(nodes) => Value::Array(
            nodes.iter().map(|node| choose_size(file, node, size)).collect::<Result<_, _>>()?,
        ),
        Value::Table(entries) => {
            let sized = |key: &str| entries.iter().find(|entry| entry.key == key);
            match (sized("smoke"), sized("full")) {
                // The chosen value may contain further values by size.
                (Some(_), Some(_)) if entries.len() == 2 => {
                    let chosen = node.at(size).unwrap_or(node);
                    return choose_size(file, chosen, size);
                }
                (Some(entry), _) | (_, Some(entry)) => {
                    return Err(ScenarioError {
                        file: file.to_owned(),
                        line: Some(entry.line),
                        message: "a value by size has both sizes and nothing else; write { smoke \
                                  = ..., full = ... }"
                            .to_owned(),
                    });
                }
                _ => Value::Table(
                    entries
                        .iter()
                        .map(|entry| {
                            let node = choose_size(file, &entry.node, size)?;
                            Ok(KeyEntry { key: entry.key.clone(), line: entry.line, node })
                        })
                        .collect::<Result<_, ScenarioError>>()?,
                ),
            }
        }
        plain => plain.clone(),
    };
    Ok(ValueNode { value, line: node.line })
}

/// Sets the value at a dotted path. A list element is named by its `id`, or by its number from 0.
/// Missing tables are created; later checks reject unknown keys.
fn set_path(
    file: &str,
    root: &mut ValueNode,
    path: &str,
    value: &ValueNode,
) -> Result<(), ScenarioError> {
    let fail =
        |message: String| ScenarioError { file: file.to_owned(), line: Some(value.line), message };
    let mut node = root;
    let mut walked = String::new();
    for step in path.split('.') {
        if step.is_empty() {
            return Err(fail(format!(
                "the path `{path}` has an empty part; write for example `router.store.bytes`"
            )));
        }
        let place =
            if walked.is_empty() { "the scenario".to_owned() } else { format!("`{walked}`") };
        node = match &mut node.value {
            Value::Table(entries) => {
                let at = match entries.iter().position(|entry| entry.key == step) {
                    Some(at) => at,
                    None => {
                        // The line of the value that sets the path stands in for the missing
                        // table's line.
                        entries.push(KeyEntry {
                            key: step.to_owned(),
                            line: value.line,
                            node: ValueNode { value: Value::Table(Vec::new()), line: value.line },
                        });
                        entries.len() - 1
                    }
                };
                &mut entries[at].node
            }
            Value::Array(nodes) => {
                let at = element(nodes, step).ok_or_else(|| {
                    let ids: Vec<String> = nodes
                        .iter()
                        .enumerate()
                        .map(|(at, node)| node.at("id").map_or(at.to_string(), ValueNode::label))
                        .collect();
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    fail(format!(
                        "the path `{path}` does not exist: {place} has no `{step}`; {}",
                        suggestion(step, &ids)
                    ))
                })?;
                &mut nodes[at]
            }
            other => {
                let noun = other.noun();
                return Err(fail(format!(
                    "the path `{path}` does not exist: {place} is {noun}, not a table"
                )));
            }
        };
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(step);
    }
    *node = value.clone();
    Ok(())
}

fn element(nodes: &[ValueNode], step: &str) -> Option<usize> {
    nodes
        .iter()
        .position(|node| node.at("id").is_some_and(|id| id.label() == step))
        .or_else(|| step.parse().ok().filter(|at| *at < nodes.len()))
}
