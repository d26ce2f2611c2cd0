//! Times and sizes on the command line and in configuration files, with their units.
//!
//! For one release, a number without a unit is read as before, with a warning.

use std::collections::BTreeSet;

use toml::Value;
use weir_base::units::{Size, Time};
use weir_base::{NS_PER_MS, NS_PER_S};

use crate::table::{errln, printable};

/// Appends `unit` to a number that has none, and returns whether it did. 0 needs no unit.
fn with_unit(text: &str, unit: &str) -> (String, bool) {
    let text = text.trim();
    let is_bare = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    let is_zero = text.bytes().all(|octet| octet == b'0');
    if is_bare { (format!("{text}{unit}"), !is_zero) } else { (text.to_owned(), false) }
}

/// Like [`with_unit`], with a warning.
fn read_bare(text: &str, unit: &str) -> String {
    let (whole, was_bare) = with_unit(text, unit);
    if was_bare {
        errln!(
            "weir: {0} without a unit is read as {0} {unit}; write {whole}. The next release \
             requires the unit",
            printable(text)
        );
    }
    whole
}

/// A time in whole units.
fn time_in(text: &str, unit: &str, unit_ns: u64) -> Result<u64, String> {
    let time: Time = read_bare(text, unit).parse().map_err(|error| format!("{error}"))?;
    if !time.ns.is_multiple_of(unit_ns) {
        return Err(format!("must be a whole number of {unit}"));
    }
    Ok(time.ns / unit_ns)
}

fn at_most_32_bits(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("must be at most {}", u32::MAX))
}

fn at_least_1(number: u32, unit: &str) -> Result<u32, String> {
    if number == 0 { Err(format!("must be at least 1{unit}")) } else { Ok(number) }
}

/// A time in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    time_in(text, "ms", NS_PER_MS)
}

/// A time in milliseconds, at least 1.
pub(crate) fn positive_milliseconds(text: &str) -> Result<u32, String> {
    milliseconds(text).and_then(at_most_32_bits).and_then(|time| at_least_1(time, "ms"))
}

/// A time in seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    time_in(text, "s", NS_PER_S).and_then(at_most_32_bits)
}

/// A size.
pub(crate) fn size(text: &str) -> Result<Size, String> {
    read_bare(text, "B").parse().map_err(|error| format!("{error}"))
}

/// A size in bytes.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    size(text).map(|size| size.bytes).and_then(at_most_32_bits)
}

/// A size in bytes, at least 1.
pub(crate) fn positive_bytes(text: &str) -> Result<u32, String> {
    bytes(text).and_then(|number| at_least_1(number, "B"))
}

/// Prints a warning for each size in a configuration file that has no unit. `defaults` is the
/// commented default configuration, which has units.
pub(crate) fn warn_about_bare_sizes(text: &str, origin: &str, defaults: &str) {
    for (place, number) in bare_sizes(text, defaults) {
        errln!(
            "weir: {}: {place} = {number} without a unit is read as {number} B; write \"{}\". The \
             next release requires the unit",
            printable(origin),
            Size { bytes: number }
        );
    }
}

/// The sizes without a unit: their places, such as `[store] size`, and their numbers.
fn bare_sizes(text: &str, defaults: &str) -> Vec<(String, u64)> {
    let sizes = size_keys(defaults);
    let Ok(file) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in &file {
        find_bare_sizes("", name, value, &sizes, &mut found);
    }
    found
}

fn find_bare_sizes(
    table: &str,
    key: &str,
    value: &Value,
    sizes: &BTreeSet<(String, String)>,
    found: &mut Vec<(String, u64)>,
) {
    let number = match value {
        Value::Table(fields) => {
            let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            for (key, value) in fields {
                find_bare_sizes(&path, key, value, sizes, found);
            }
            return;
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| item.is_table()) {
                find_bare_sizes(table, key, item, sizes, found);
            }
            return;
        }
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    if let Some(number @ 1..) = number
        && sizes.contains(&(table.to_owned(), key.to_owned()))
    {
        let table = if table.is_empty() { String::new() } else { format!("[{table}] ") };
        found.push((format!("{table}{key}"), number));
    }
}

/// Tables and keys whose default is a size with a unit. Lines such as `#size = "100GiB"` count.
fn size_keys(defaults: &str) -> BTreeSet<(String, String)> {
    let mut keys = BTreeSet::new();
    let mut table = String::new();
    for line in defaults.lines().map(|line| line.trim_start_matches('#')) {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ") {
            let value = value.trim_matches('"');
            let has_unit = value.ends_with(|letter: char| letter.is_ascii_alphabetic());
            if has_unit && value.parse::<Size>().is_ok() {
                keys.insert((table.clone(), key.to_owned()));
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_without_unit_is_read_as_before() {
        assert_eq!(with_unit("500", "ms"), ("500ms".into(), true));
        assert_eq!(with_unit("0", "ms"), ("0ms".into(), false));
        assert_eq!(with_unit("2s", "ms"), ("2s".into(), false));
        assert_eq!(positive_milliseconds("500"), Ok(500));
        assert_eq!(positive_milliseconds("2s"), Ok(2000));
        assert_eq!(seconds("2min"), Ok(120));
        assert_eq!(positive_bytes("8KiB"), Ok(8192));
    }

    #[test]
    fn times_finer_than_the_unit_are_errors() {
        assert_eq!(milliseconds("500us"), Err("must be a whole number of ms".into()));
        assert_eq!(positive_milliseconds("0"), Err("must be at least 1ms".into()));
        assert!(seconds("soon").unwrap_err().contains("write a number and its unit"));
        assert!(positive_milliseconds("9999999999s").is_err());
    }

    #[test]
    fn finds_sizes_without_unit_in_files() {
        let text = "[store]\nsize = 1048576\n[router]\nthreads = 2\nmemory_max = \"256MiB\"\n\
                    memory_ahead = 0\n[[disk]]\npath = \"a\"\nsize = \"4096\"\n";
        let defaults = "[store]\nsize = \"256MiB\"\n[router]\nthreads = \"auto\"\n\
                        memory_max = \"256MiB\"\nmemory_ahead = \"128MiB\"\n#[[disk]]\n\
                        #path = \"/a\"\n#size = \"100GiB\"\n";
        let expected = [("[disk] size".into(), 4096), ("[store] size".into(), 1 << 20)];
        let mut found = bare_sizes(text, defaults);
        found.sort();
        assert_eq!(found, expected);
    }
}
