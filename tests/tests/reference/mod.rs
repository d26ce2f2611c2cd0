//! Pages of `docs/reference` that are generated from the program: `commands.md` from its help,
//! `configuration.md` from its printed defaults, and `rest.md` from the description that the
//! controller serves. `WEIR_WRITE_REFERENCE=1` writes them.

mod rest;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use weir_tests::{Host, weir_binary};

const COMMANDS_HEAD: &str = "\
# Commands

The help of every command, as `weir COMMAND --help` prints it, except that options which commands
share are listed once. `weir lab`, `weir link` and `weir model` exist only in a program with the
laboratory. A test compares this page with the program; `WEIR_WRITE_REFERENCE=1` writes it.
";

const CONFIGURATION_HEAD: &str = "\
# Configuration

Every key with its meaning and its default, as the program prints them. A file of your own needs
only the keys that differ. A test compares this page with the program; `WEIR_WRITE_REFERENCE=1`
writes it.

| program | file | in place of a file of the user in `~/.config/weir` |
|---|---|---|
| `weir router` | `weir.toml` | `/etc/weir/weir.toml` |
| `weir controller` | `weir-controller.toml` | `/etc/weir/weir-controller.toml` |
| `weir gateway run` | the one of `-c FILE` | |
";

#[test]
fn configuration_matches_the_reference() {
    let (host, mut page) = (Host::new(), CONFIGURATION_HEAD.to_owned());
    for (title, command) in [
        ("router", &["router"][..]),
        ("controller", &["controller"]),
        ("gateway", &["gateway", "run"]),
    ] {
        let mut run = host.command(weir_binary());
        let output = run.args(command).arg("--print-default-config").output();
        let file = String::from_utf8(output.expect("weir runs").stdout).expect("UTF-8");
        assert!(file.contains("# Configuration of"), "{command:?}: {file}");
        write!(page, "\n## The {title}\n\n```toml\n{}\n```\n", file.trim()).expect("a string");
    }
    compare("configuration.md", &page);
}

#[test]
fn commands_match_the_reference() {
    let (mut page, mut shared) = (COMMANDS_HEAD.to_owned(), BTreeMap::new());
    add_help(&Host::new(), &[], &mut page, &mut shared);
    compare("commands.md", &page);
}

/// Adds the help of a command, and of its subcommands. `shared` has the groups of options that are
/// on the page, with their commands.
fn add_help(
    host: &Host,
    command: &[String],
    page: &mut String,
    shared: &mut BTreeMap<String, String>,
) {
    let mut run = host.command(weir_binary());
    let output = run.args(command).arg("--help").env("COLUMNS", "100").output();
    let help = String::from_utf8(output.expect("weir runs").stdout).expect("UTF-8");
    assert!(help.contains("Usage: weir"), "weir {command:?} --help:\n{help}");
    let title = [&["weir".to_owned()], command].concat().join(" ");
    let lines: Vec<&str> = help.trim().lines().map(str::trim_end).collect();
    let text = without_shared(&lines.join("\n"), &title, shared);
    write!(page, "\n## {title}\n\n```text\n{text}\n```\n").expect("a string");
    for name in subcommands(&help) {
        add_help(host, &[command, &[name.to_owned()]].concat(), page, shared);
    }
}

/// Replaces each group of options, such as `Router options:`, that an earlier command has in the
/// same words.
fn without_shared(help: &str, title: &str, shared: &mut BTreeMap<String, String>) -> String {
    let mut groups: Vec<String> = Vec::new();
    for paragraph in help.split("\n\n") {
        match groups.last_mut() {
            Some(last) if paragraph.starts_with(' ') => *last += &format!("\n\n{paragraph}"),
            _ => groups.push(paragraph.to_owned()),
        }
    }
    for group in &mut groups {
        let Some((heading, _)) = group.split_once('\n') else { continue };
        if !heading.ends_with(" options:") {
            continue;
        }
        if let Some(first) = shared.get(group) {
            *group = format!("{heading} those of `{first}`");
        } else {
            shared.insert(group.clone(), title.to_owned());
        }
    }
    groups.join("\n\n")
}

#[test]
fn shared_options_are_listed_once() {
    let mut shared = BTreeMap::new();
    let help = |own: &str| {
        format!("Does it.\n\nOptions:\n  {own}\n\nRouter options:\n  --router\n\n          More")
    };
    assert_eq!(without_shared(&help("--a"), "weir a", &mut shared), help("--a"));
    let second = without_shared(&help("--b"), "weir b", &mut shared);
    assert_eq!(second, "Does it.\n\nOptions:\n  --b\n\nRouter options: those of `weir a`");
}

/// The names in the list of commands. A line of the list has an indent of two spaces, and a line
/// that continues one has more.
fn subcommands(help: &str) -> Vec<&str> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap_or_default();
    let entries = list.lines().filter(|line| !line.starts_with("   "));
    entries
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

fn compare(name: &str, page: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let path = root.join("docs/reference").join(name);
    if std::env::var_os("WEIR_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, page).expect("written");
        return;
    }
    let committed = std::fs::read_to_string(&path).expect("the page");
    let difference = committed.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        committed == page,
        "docs/reference/{name} is out of date; run this test with WEIR_WRITE_REFERENCE=1. The \
         first difference:\n{difference:#?}"
    );
}
