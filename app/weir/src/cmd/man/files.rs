//! Manual pages of the configuration files (section 5), made of the files that the program prints
//! with `--print-default-config`.

use std::fs;
use std::path::Path;

use clap_mangen::roff::{Roff, bold, roman};

use crate::config;

/// A page, and the command that reads the file.
struct FilePage {
    /// Name of the file.
    name: &'static str,
    summary: &'static str,
    /// Page of the command that reads the file, without its section.
    command: &'static str,
    /// The folders above `weir` with the file, in the order in which the command tries them.
    folders: &'static [&'static str],
    text: fn() -> String,
}

/// Those of [`config::default_paths`].
const DEFAULT_FOLDERS: &[&str] = &["$XDG_CONFIG_HOME", "~/.config", "/etc"];

const PAGES: &[FilePage] = &[
    FilePage {
        name: "weir.toml",
        summary: "configuration of the Weir router",
        command: "weir-router",
        folders: DEFAULT_FOLDERS,
        text: config::default_config,
    },
    #[cfg(feature = "controller")]
    FilePage {
        name: "weir-controller.toml",
        summary: "configuration of the Weir controller",
        command: "weir-controller",
        folders: DEFAULT_FOLDERS,
        text: || super::super::controller::DEFAULT_CONFIG.to_owned(),
    },
    #[cfg(feature = "gateway")]
    FilePage {
        name: "weir-gateway.toml",
        summary: "configuration of the Weir gateway",
        command: "weir-gateway-run",
        folders: &["/etc"],
        text: || super::super::gateway::DEFAULT_CONFIG.to_owned(),
    },
];

/// The page of the file that a command reads, such as `weir.toml` for `weir-router`.
pub(super) fn page_for(command: &str) -> Option<&'static str> {
    PAGES.iter().find(|page| page.command == command).map(|page| page.name)
}

/// Writes the pages of all files.
pub(super) fn write_pages(folder: &Path, source: &str) -> std::io::Result<()> {
    for page in PAGES {
        fs::write(folder.join(format!("{}.5", page.name)), render(page, source))?;
    }
    Ok(())
}

fn render(page: &FilePage, source: &str) -> String {
    let mut roff = Roff::default();
    roff.control("TH", [page.name, "5", "", source, "Weir"]);
    // Names and values must not be hyphenated or stretched.
    roff.control("nh", []);
    roff.control("ad", ["l"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{} - {}", page.name, page.summary))]);
    roff.control("SH", ["SYNOPSIS"]);
    for (at, folder) in page.folders.iter().enumerate() {
        if at > 0 {
            roff.control("br", []);
        }
        roff.text([bold(format!("{folder}/weir/{}", page.name))]);
    }
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "Each key is listed with its default. A key that begins with # is not set by default: \
         remove the # to set it. A table whose heading begins with # is off by default; remove \
         the # from the heading and from its keys.",
    )]);
    render_items(&items(&(page.text)()), &mut roff);
    roff.control("SH", ["SEE ALSO"]);
    let others = PAGES.iter().filter(|other| other.name != page.name);
    let commands = [(page.command, "(1)")].into_iter();
    let all: Vec<(&str, &str)> = commands.chain(others.map(|other| (other.name, "(5)"))).collect();
    references(&all, &mut roff);
    roff.render()
}

/// Adds names of pages with their sections, divided by commas.
pub(super) fn references(pages: &[(&str, &str)], roff: &mut Roff) {
    for (at, (name, section)) in pages.iter().enumerate() {
        let end = if at + 1 < pages.len() { "," } else { "" };
        roff.text([bold(*name), roman(format!("{section}{end}"))]);
    }
}

/// A piece of a configuration file.
#[derive(Debug, PartialEq)]
enum Item<'a> {
    /// The lines of a comment that belongs to no key.
    Text(Vec<&'a str>),
    /// A table, with the comment above it.
    Table(&'a str, Vec<&'a str>),
    /// Keys with their values, and the comment above the first one.
    Keys(Vec<&'a str>, Vec<&'a str>),
}

/// Splits a file. A comment begins with `#` and a space; a key or a table that is not there by
/// default has no space after the `#`.
fn items(text: &str) -> Vec<Item<'_>> {
    let (mut items, mut comment) = (Vec::new(), Vec::new());
    for line in text.lines().chain([""]) {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words);
        } else if line == "#" {
            comment.push("");
        } else if line.is_empty() {
            if !comment.is_empty() {
                items.push(Item::Text(std::mem::take(&mut comment)));
            }
        } else if line.trim_start_matches('#').starts_with('[') {
            items.push(Item::Table(line, std::mem::take(&mut comment)));
        } else if let (true, Some(Item::Keys(keys, _))) = (comment.is_empty(), items.last_mut()) {
            keys.push(line);
        } else {
            items.push(Item::Keys(vec![line], std::mem::take(&mut comment)));
        }
    }
    items
}

fn render_items(items: &[Item<'_>], roff: &mut Roff) {
    // Keys may precede the first table.
    let mut in_keys = false;
    for item in items {
        match item {
            Item::Text(lines) => {
                roff.control("PP", []);
                render_comment(lines, roff);
            }
            Item::Table(name, lines) => {
                in_keys = true;
                roff.control("SH", [*name]);
                render_comment(lines, roff);
            }
            Item::Keys(keys, lines) => {
                if !in_keys {
                    in_keys = true;
                    roff.control("SH", ["KEYS BEFORE THE FIRST TABLE"]);
                }
                for (at, key) in keys.iter().enumerate() {
                    roff.control(if at == 0 { "TP" } else { "TQ" }, []);
                    roff.text([bold(*key)]);
                }
                render_comment(lines, roff);
            }
        }
    }
}

/// Lines that are indented keep their breaks, and empty ones end a paragraph.
fn render_comment(lines: &[&str], roff: &mut Roff) {
    let mut is_verbatim = false;
    for line in lines {
        if line.starts_with(' ') != is_verbatim && !line.is_empty() {
            is_verbatim = !is_verbatim;
            roff.control(if is_verbatim { "nf" } else { "fi" }, []);
        }
        if line.is_empty() {
            roff.control("sp", []);
        } else {
            roff.text([roman(*line)]);
        }
    }
    if is_verbatim {
        roff.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_file_into_tables_and_keys() {
        let text = "# A file.\n#\n#   a = 1\n\n# Two.\nb = 2\n#c = 3\n\n# All disks.\n#[[disk]]\n\
                    # Its path.\n#path = \"/a b\"\n";
        let expected = [
            Item::Text(vec!["A file.", "", "  a = 1"]),
            Item::Keys(vec!["b = 2", "#c = 3"], vec!["Two."]),
            Item::Table("#[[disk]]", vec!["All disks."]),
            Item::Keys(vec!["#path = \"/a b\""], vec!["Its path."]),
        ];
        assert_eq!(items(text), expected);
    }

    #[test]
    fn places_are_listed_in_the_order_of_use() {
        let page = render(&PAGES[0], "Weir");
        let at = |place: &str| page.find(place).expect(place);
        let (home, machine) = (at("~/.config/weir/weir.toml"), at("/etc/weir/weir.toml"));
        assert!(at("$XDG_CONFIG_HOME/weir/weir.toml") < home && home < machine, "{page}");
    }

    #[test]
    fn indented_lines_keep_their_breaks() {
        let mut roff = Roff::default();
        render_comment(&["Text.", "", "  [[face]]", "  uri", ".end"], &mut roff);
        let page = roff.to_roff();
        assert_eq!(page, "Text.\n.sp\n.nf\n  [[face]]\n  uri\n.fi\n\\&.end\n");
    }
}
