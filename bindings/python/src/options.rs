//! Options as keyword arguments, according to the tables of the sockets.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use weir_socket::{ConsumerOptions, OptionInfo, OptionKind, ProducerOptions, SocketError};

use crate::errors;

/// A row of an option table: name, kind, default, bounds, text.
type Row = (String, String, String, Option<(String, String)>, String);

fn rows(table: &[OptionInfo]) -> Vec<Row> {
    let kind = |info: &OptionInfo| match info.kind {
        OptionKind::Flag => "flag".into(),
        OptionKind::Count => "count".into(),
        OptionKind::Size => "size".into(),
        OptionKind::Time => "time".into(),
        OptionKind::Path => "path".into(),
        OptionKind::Text => "text".into(),
        OptionKind::Words(words) => words.join("|"),
    };
    let row = |info: &OptionInfo| {
        let text: Vec<&str> = info.text.iter().map(|line| line.trim()).collect();
        (info.name.into(), kind(info), (info.default)(), (info.bounds)(), text.join(" "))
    };
    table.iter().map(row).collect()
}

/// The options of consumers: name, kind, default, bounds and text of each.
#[pyfunction]
pub(crate) fn consumer_options() -> Vec<Row> {
    rows(ConsumerOptions::TABLE)
}

/// The options of producers.
#[pyfunction]
pub(crate) fn producer_options() -> Vec<Row> {
    rows(ProducerOptions::TABLE)
}

/// Converts a Python value to text for the option tables. Times are seconds, or text with a unit.
fn text_of(kind: OptionKind, name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    // Check this before numbers: in Python, a bool is an int.
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    if kind == OptionKind::Path {
        let path = value
            .extract::<PathBuf>()
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok());
        return path.ok_or_else(|| wrong(name, value, "give a path in UTF-8"));
    }
    if kind == OptionKind::Time {
        // A `timedelta` has this method; other values are seconds.
        let seconds = match value.call_method0("total_seconds") {
            Ok(seconds) => seconds.extract::<f64>(),
            Err(_) => value.extract::<f64>(),
        };
        let ns = seconds.map(|seconds| (seconds * 1e9).round());
        return match ns {
            Ok(ns) if (0.0..1e19).contains(&ns) => Ok(format!("{}ns", ns as u64)),
            _ => Err(wrong(name, value, "give seconds, or text such as \"500ms\"")),
        };
    }
    match value.extract::<u64>() {
        Ok(number) => Ok(number.to_string()),
        Err(_) => Err(wrong(name, value, "give a whole number, or text such as \"16MiB\"")),
    }
}

fn wrong(name: &str, value: &Bound<'_, PyAny>, step: &str) -> PyErr {
    errors::raise("OptionError", format!("{name}: {value} is invalid; {step}"))
}

fn set_all(
    table: &[OptionInfo],
    given: Option<&Bound<'_, PyDict>>,
    mut set: impl FnMut(&str, &str) -> Result<(), SocketError>,
) -> PyResult<()> {
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let Some(info) = table.iter().find(|info| info.name == name) else {
            let names: Vec<&str> = table.iter().map(|info| info.name).collect();
            let all = names.join(", ");
            let message = format!("unknown option {name}; the options are {all}");
            return Err(errors::raise("OptionError", message));
        };
        let text = text_of(info.kind, &name, &value)?;
        set(&name, &text).map_err(errors::of_socket)?;
    }
    Ok(())
}

/// Parses a consumer's options.
///
/// # Errors
/// Unknown option, or invalid value.
pub(crate) fn for_consumer(given: Option<&Bound<'_, PyDict>>) -> PyResult<ConsumerOptions> {
    let mut options = ConsumerOptions::default();
    set_all(ConsumerOptions::TABLE, given, |name, value| options.set(name, value))?;
    Ok(options)
}

/// Parses a producer's options.
///
/// # Errors
/// As for [`for_consumer`].
pub(crate) fn for_producer(given: Option<&Bound<'_, PyDict>>) -> PyResult<ProducerOptions> {
    let mut options = ProducerOptions::default();
    set_all(ProducerOptions::TABLE, given, |name, value| options.set(name, value))?;
    Ok(options)
}
