//! Which changes of a configuration file need a restart.

use toml::{Table, Value};

use super::FileConfig;

/// What a reload applies: tables, and single keys of tables.
const RELOADED: [&str; 14] = [
    "store.size",
    "store.policy",
    "store.admit",
    "store.serve",
    "management.trust_anchors",
    "management.announcement_anchors",
    "management.local_registration",
    "management.loopback_commands",
    "metrics.address",
    "metrics.prefixes",
    "log.level",
    "face",
    "route",
    "strategy",
];

/// Returns the keys that differ between two valid configuration files and take effect only after a
/// restart, such as "[router] threads". `apply_flags`: the command line, which overrides a file.
///
/// A key counts only if its change alone makes another configuration: writing a default down
/// changes nothing.
pub(crate) fn keys_for_restart(
    old: &str,
    new: &str,
    apply_flags: impl Fn(&mut FileConfig),
) -> Vec<String> {
    let parse = |table: &Table| {
        let text = toml::to_string(table).ok()?;
        let mut config = FileConfig::parse(&text, "").ok()?;
        apply_flags(&mut config);
        Some(config)
    };
    let (Ok(old), Ok(new)) = (old.parse::<Table>(), new.parse::<Table>()) else {
        return Vec::new();
    };
    let before = parse(&old);
    let mut keys = Vec::new();
    let empty = Value::Table(Table::new());
    for (section, key) in changed_keys(&old, &new, &empty) {
        let name = key.map_or_else(|| section.to_owned(), |key| format!("{section}.{key}"));
        if RELOADED.contains(&&*name) {
            continue;
        }
        if parse(&with_change(&old, &new, section, key)) == before {
            continue;
        }
        keys.push(match key {
            Some(key) => format!("[{section}] {key}"),
            None => format!("[[{section}]]"),
        });
    }
    keys
}

/// Keys with different values. Arrays of tables count as a whole.
fn changed_keys<'a>(
    old: &'a Table,
    new: &'a Table,
    empty: &'a Value,
) -> Vec<(&'a str, Option<&'a str>)> {
    let mut changed = Vec::new();
    for section in union(old, new) {
        let values = [old, new].map(|table| table.get(section).unwrap_or(empty));
        match values.map(Value::as_table) {
            [Some(before), Some(after)] => changed.extend(
                union(before, after)
                    .into_iter()
                    .filter(|&key| before.get(key) != after.get(key))
                    .map(|key| (section, Some(key))),
            ),
            _ if values[0] != values[1] => changed.push((section, None)),
            _ => {}
        }
    }
    changed
}

fn union<'a>(one: &'a Table, other: &'a Table) -> Vec<&'a str> {
    let more = other.keys().filter(|key| !one.contains_key(*key));
    one.keys().chain(more).map(String::as_str).collect()
}

/// `old` with one value of `new`.
fn with_change(old: &Table, new: &Table, section: &str, key: Option<&str>) -> Table {
    let mut table = old.clone();
    let Some(key) = key else {
        set(&mut table, section, new.get(section));
        return table;
    };
    let value = new.get(section).and_then(|section| section.get(key)).cloned();
    let entry = table.entry(section.to_owned()).or_insert_with(|| Value::Table(Table::new()));
    if let Some(section) = entry.as_table_mut() {
        set(section, key, value.as_ref());
    }
    table
}

fn set(table: &mut Table, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            table.insert(key.to_owned(), value.clone());
        }
        None => {
            table.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Threads, default_config};

    fn keys(old: &str, new: &str) -> Vec<String> {
        keys_for_restart(old, new, |_| ())
    }

    #[test]
    fn names_keys_that_need_a_restart() {
        let old = "[router]\nthreads = 1\n[[disk]]\npath = '/a'\nsize = '1GiB'\n";
        let new = "[router]\nthreads = 2\n[faces]\nudp = []\nunix_group = 'x'\n[store]\nsize = \
                   '1MiB'\nunsolicited = 'admit-all'\n[log]\nlevel = 'debug'\n[metrics]\naddress \
                   = '127.0.0.1:1'\nprefixes = ['/a']\n[[face]]\nuri = \
                   'udp://127.0.0.1'\n[[strategy]]\nprefix = '/a'\nstrategy = 'asf'\n";
        let found = keys(old, new);
        for key in ["[router] threads", "[faces] udp", "[faces] unix_group", "[store] unsolicited"]
        {
            assert!(found.contains(&key.to_owned()), "{key}: {found:?}");
        }
        assert!(found.contains(&"[[disk]]".to_owned()), "{found:?}");
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn written_defaults_are_no_change() {
        assert_eq!(keys("", &default_config()), [""; 0]);
        assert_eq!(keys(&default_config(), ""), [""; 0]);
        assert_eq!(
            keys("[router]\nmemory_max = '1GiB'", "[router]\nmemory_max = '1024MiB'"),
            [""; 0]
        );
    }

    #[test]
    fn overridden_keys_are_no_change() {
        let flags = |config: &mut FileConfig| config.router.threads = Threads::Count(3);
        let found = keys_for_restart("", "[router]\nthreads = 2", flags);
        assert_eq!(found, [""; 0]);
    }
}
