//! A TOML file as a tree that remembers lines, so that everything that is wrong with a scenario is
//! told with its place.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml_edit::{Document, Item, Table, Value as TomlValue};

/// What is wrong with a scenario, a file of claims or a trace: the place, the problem, and what to
/// write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1, where there is one.
    pub line: Option<usize>,
    /// The problem; what to do about it follows a semicolon.
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

/// A value with the line it was written in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) line: usize,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Value {
    /// What it is, in a message.
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

impl Node {
    /// How the value is shown where it labels something.
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

    /// The value as a number, where it is one.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key of a table.
    pub(crate) fn at(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

/// Parses a file.
pub(crate) fn parse(file: &str, text: &str) -> Result<Node, ScenarioError> {
    let lines = Lines::new(text);
    let document = Document::parse(text).map_err(|error| ScenarioError {
        file: file.to_owned(),
        line: error.span().map(|span| lines.line(&span)),
        message: format!("{}; see https://toml.io for the syntax", error.message().trim()),
    })?;
    Ok(Node { value: Value::Table(lines.table(document.as_table())), line: 1 })
}

/// Where lines begin.
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.starts.partition_point(|start| *start <= span.start)
    }

    fn span_line(&self, span: Option<Range<usize>>, otherwise: usize) -> usize {
        span.map_or(otherwise, |span| self.line(&span))
    }

    fn table(&self, table: &Table) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (key, item) in table.iter() {
            let written = table.key(key).and_then(toml_edit::Key::span);
            let line = self.span_line(written.or_else(|| item.span()), 1);
            entries.extend(self.item(item, line).map(|node| Entry {
                key: key.to_owned(),
                line,
                node,
            }));
        }
        entries
    }

    fn item(&self, item: &Item, otherwise: usize) -> Option<Node> {
        let line = self.span_line(item.span(), otherwise);
        let value = match item {
            Item::None => return None,
            Item::Value(value) => return Some(self.value(value, otherwise)),
            Item::Table(table) => Value::Table(self.table(table)),
            Item::ArrayOfTables(tables) => Value::Array(
                tables
                    .iter()
                    .map(|table| Node {
                        value: Value::Table(self.table(table)),
                        line: self.span_line(table.span(), line),
                    })
                    .collect(),
            ),
        };
        Some(Node { value, line })
    }

    fn value(&self, value: &TomlValue, otherwise: usize) -> Node {
        let line = self.span_line(value.span(), otherwise);
        let value = match value {
            TomlValue::String(text) => Value::Text(text.value().clone()),
            TomlValue::Integer(number) => Value::Integer(*number.value()),
            TomlValue::Float(number) => Value::Float(*number.value()),
            TomlValue::Boolean(truth) => Value::Boolean(*truth.value()),
            TomlValue::Datetime(date) => Value::Text(date.value().to_string()),
            TomlValue::Array(values) => {
                Value::Array(values.iter().map(|value| self.value(value, line)).collect())
            }
            TomlValue::InlineTable(table) => Value::Table(
                table
                    .iter()
                    .map(|(key, value)| {
                        let written = table.key(key).and_then(toml_edit::Key::span);
                        let line = self.span_line(written, line);
                        Entry { key: key.to_owned(), line, node: self.value(value, line) }
                    })
                    .collect(),
            ),
        };
        Node { value, line }
    }
}

/// The known word nearest to `word`, when it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

/// `; did you mean "x"?` or the list of what there is.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("one of {}", known.join(", ")),
    }
}

/// Reads the keys of one table; a key that is not known is refused when the reader is made.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    file: Arc<str>,
    /// `[router.stages]`, for messages.
    place: String,
    node: &'a Node,
}

impl<'a> Reader<'a> {
    /// A reader of the table `node`, called `place`, whose keys are `known`.
    pub(crate) fn new(
        file: &Arc<str>,
        place: impl Into<String>,
        node: &'a Node,
        known: &[&str],
    ) -> Result<Self, ScenarioError> {
        let reader = Self { file: Arc::clone(file), place: place.into(), node };
        if !matches!(node.value, Value::Table(_)) {
            let (place, noun) = (&reader.place, node.value.noun());
            return Err(
                reader.error(node.line, format!("{place} is {noun}; write it as a table of keys"))
            );
        }
        for entry in node.entries() {
            if !known.contains(&entry.key.as_str()) {
                let message = format!(
                    "unknown key `{}` in {}; {}",
                    entry.key,
                    reader.place,
                    suggestion(&entry.key, known)
                );
                return Err(reader.error(entry.line, message));
            }
        }
        Ok(reader)
    }

    /// The same for a table within this one, if it is there.
    pub(crate) fn table(
        &self,
        key: &str,
        known: &[&str],
    ) -> Result<Option<Reader<'a>>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        let place = match self.place.strip_prefix('[') {
            Some(place) => {
                format!("[{}.{key}]", place.trim_start_matches('[').trim_end_matches(']'))
            }
            None => format!("[{key}]"),
        };
        Reader::new(&self.file, place, node, known).map(Some)
    }

    /// The same for every table of a list (`[[key]]`).
    pub(crate) fn tables(
        &self,
        key: &str,
        known: &[&str],
    ) -> Result<Vec<Reader<'a>>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(Vec::new()) };
        let Value::Array(nodes) = &node.value else {
            return Err(
                self.error(node.line, format!("`{key}` must be a list of tables; write [[{key}]]"))
            );
        };
        let place = format!("[[{key}]]");
        nodes.iter().map(|node| Reader::new(&self.file, place.clone(), node, known)).collect()
    }

    pub(crate) fn error(&self, line: usize, message: impl Into<String>) -> ScenarioError {
        ScenarioError { file: self.file.to_string(), line: Some(line), message: message.into() }
    }

    /// An error at the line of a key, or of the table when the key is not there.
    pub(crate) fn error_at(&self, key: &str, message: impl Into<String>) -> ScenarioError {
        let line = self.node.at(key).map_or(self.node.line, |node| node.line);
        self.error(line, message)
    }

    pub(crate) fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn line(&self) -> usize {
        self.node.line
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.node.at(key).is_some()
    }

    pub(crate) fn node(&self, key: &str) -> Option<&'a Node> {
        self.node.at(key)
    }

    pub(crate) fn entries(&self) -> &'a [Entry] {
        self.node.entries()
    }

    fn missing(&self, key: &str, example: &str) -> ScenarioError {
        let message = format!("{} lacks `{key}`; write for example {key} = {example}", self.place);
        self.error(self.node.line, message)
    }

    fn wrong(&self, key: &str, node: &Node, wanted: &str) -> ScenarioError {
        let message = format!("`{key}` in {} is {}; write {wanted}", self.place, node.value.noun());
        self.error(node.line, message)
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, ScenarioError> {
        match self.node.at(key) {
            None => Ok(None),
            Some(Node { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(node) => Err(self.wrong(key, node, "a text in quotes")),
        }
    }

    /// A text that must be there.
    pub(crate) fn required_text(&self, key: &str) -> Result<&'a str, ScenarioError> {
        self.text(key)?.ok_or_else(|| self.missing(key, "\"...\""))
    }

    /// One of some words.
    pub(crate) fn word(&self, key: &str, known: &[&str]) -> Result<Option<&'a str>, ScenarioError> {
        let Some(word) = self.text(key)? else { return Ok(None) };
        if known.contains(&word) {
            return Ok(Some(word));
        }
        let message = format!("`{key}` cannot be \"{word}\"; {}", suggestion(word, known));
        Err(self.error_at(key, message))
    }

    /// A text or a list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        match &node.value {
            Value::Text(text) => Ok(Some(vec![text.clone()])),
            Value::Array(nodes) => nodes
                .iter()
                .map(|node| match &node.value {
                    Value::Text(text) => Ok(text.clone()),
                    _ => Err(self.wrong(key, node, "texts in quotes")),
                })
                .collect::<Result<_, _>>()
                .map(Some),
            _ => Err(self.wrong(key, node, "a text or a list of texts")),
        }
    }

    /// True or false.
    pub(crate) fn truth(&self, key: &str) -> Result<Option<bool>, ScenarioError> {
        match self.node.at(key) {
            None => Ok(None),
            Some(Node { value: Value::Boolean(truth), .. }) => Ok(Some(*truth)),
            Some(node) => Err(self.wrong(key, node, "true or false")),
        }
    }

    /// A whole number of at least `least`.
    pub(crate) fn count(&self, key: &str, least: u64) -> Result<Option<u64>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        match node.value {
            Value::Integer(number) if u64::try_from(number).is_ok_and(|n| n >= least) => {
                Ok(Some(number as u64))
            }
            Value::Integer(number) => Err(self.error(
                node.line,
                format!("`{key}` is {number}; write a whole number of at least {least}"),
            )),
            _ => Err(self.wrong(key, node, "a whole number without a unit")),
        }
    }

    /// A whole number that fits 32 bits.
    pub(crate) fn count_u32(&self, key: &str, least: u32) -> Result<Option<u32>, ScenarioError> {
        let Some(count) = self.count(key, u64::from(least))? else { return Ok(None) };
        u32::try_from(count).map(Some).map_err(|_| {
            self.error_at(key, format!("`{key}` is {count}; the most is {}", u32::MAX))
        })
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        match node.number() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(key, node, "a number without a unit")),
        }
    }

    /// A number from 0 to 1; `"25%"` is one, too.
    pub(crate) fn share(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        let number = match &node.value {
            Value::Text(text) => weir_base::units::parse_probability(text)
                .map_err(|error| self.error(node.line, format!("`{key}`: {error}")))?,
            _ => node.number().ok_or_else(|| self.wrong(key, node, "a number from 0 to 1"))?,
        };
        if (0.0..=1.0).contains(&number) {
            return Ok(Some(number));
        }
        Err(self.error(node.line, format!("`{key}` is {number}; write a number from 0 to 1")))
    }

    /// A text with a unit, read by `parse`.
    pub(crate) fn with_unit<T, E: fmt::Display>(
        &self,
        key: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ScenarioError> {
        let Some(node) = self.node.at(key) else { return Ok(None) };
        let message = match &node.value {
            Value::Text(text) => match parse(text) {
                Ok(value) => return Ok(Some(value)),
                Err(error) => format!("`{key}`: {error}"),
            },
            Value::Integer(_) | Value::Float(_) => {
                format!(
                    "`{key}` is {} without a unit; write for example {key} = \"{example}\"",
                    node.label()
                )
            }
            _ => return Err(self.wrong(key, node, &format!("a text such as \"{example}\""))),
        };
        Err(self.error(node.line, message))
    }

    /// A duration in ns.
    pub(crate) fn duration_ns(&self, key: &str) -> Result<Option<u64>, ScenarioError> {
        self.with_unit(key, "10ms", weir_base::units::parse_duration_ns)
    }

    /// A size in octets.
    pub(crate) fn bytes(&self, key: &str) -> Result<Option<u64>, ScenarioError> {
        self.with_unit(key, "64KiB", weir_base::units::parse_bytes)
    }

    /// A rate in bits a second.
    pub(crate) fn rate_bps(&self, key: &str) -> Result<Option<u64>, ScenarioError> {
        self.with_unit(key, "100Mbit/s", weir_base::units::parse_rate_bps)
    }

    /// A frequency, or packets a second.
    pub(crate) fn frequency_hz(&self, key: &str) -> Result<Option<f64>, ScenarioError> {
        self.with_unit(key, "4kpps", weir_base::units::parse_frequency_hz)
    }

    /// Turns `None` into an error that says what to write.
    pub(crate) fn required<T>(
        &self,
        key: &str,
        example: &str,
        value: Option<T>,
    ) -> Result<T, ScenarioError> {
        value.ok_or_else(|| self.missing(key, example))
    }
}

/// Puts the value for `size` (`"smoke"` or `"full"`) in the place of every `{ smoke, full }`.
pub(crate) fn choose_size(file: &str, node: &Node, size: &str) -> Result<Node, ScenarioError> {
    let value = match &node.value {
        Value::Array(nodes) => Value::Array(
            nodes.iter().map(|node| choose_size(file, node, size)).collect::<Result<_, _>>()?,
        ),
        Value::Table(entries) => {
            let sized = |key: &str| entries.iter().find(|entry| entry.key == key);
            match (sized("smoke"), sized("full")) {
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
                            Ok(Entry { key: entry.key.clone(), line: entry.line, node })
                        })
                        .collect::<Result<_, ScenarioError>>()?,
                ),
            }
        }
        plain => plain.clone(),
    };
    Ok(Node { value, line: node.line })
}

/// Sets the value at a dotted path. An element of a list is named by its `id` or by its number from
/// 0. Tables on the way are made where they are missing: whoever reads them refuses unknown keys.
pub(crate) fn set_path(
    file: &str,
    root: &mut Node,
    path: &str,
    value: &Node,
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
                        entries.push(Entry {
                            key: step.to_owned(),
                            line: value.line,
                            node: Node { value: Value::Table(Vec::new()), line: value.line },
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
                        .map(|(at, node)| node.at("id").map_or(at.to_string(), Node::label))
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

fn element(nodes: &[Node], step: &str) -> Option<usize> {
    nodes
        .iter()
        .position(|node| node.at("id").is_some_and(|id| id.label() == step))
        .or_else(|| step.parse().ok().filter(|at| *at < nodes.len()))
}
