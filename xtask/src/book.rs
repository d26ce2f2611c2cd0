//! The book: `docs/` as HTML in `target/book`, made by mdBook, which is installed into
//! `target/tools`.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::tidy::links::{links, resolve};
use xtask::tools::{self, run, target_folder};

const MDBOOK_VERSION: &str = "0.5.4";

/// Where files of the repository are that the book does not contain.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// Builds the book.
pub(crate) fn build(root: &Path) -> anyhow::Result<()> {
    let features = ["--no-default-features", "--features", "search"];
    let mdbook = tools::install(root, "mdbook", MDBOOK_VERSION, &features)?;
    let book = target_folder(root).join("book");
    let mut build = Command::new(&mdbook);
    run(build.arg("build").arg("--dest-dir").arg(&book).arg(root).current_dir(root))?;
    eprintln!("==> {}", book.join("index.html").display());
    Ok(())
}

/// The preprocessor that `book.toml` names: links to pages and folders that are no chapters lead to
/// the repository.
/// mdBook runs it with `supports RENDERER` first, then with the book on standard input.
pub(crate) fn preprocess<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    if words.next() == Some("supports") {
        return Ok(());
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).context("cannot read the book")?;
    let mut input: Value = serde_json::from_str(&input).context("the book is not JSON")?;
    let mut book = input.get_mut(1).map(Value::take).context("the input has no book")?;
    let mut chapters = BTreeSet::new();
    collect_chapters(&book, &mut chapters);
    rewrite_chapters(&mut book, &chapters);
    let output = book.to_string();
    std::io::stdout().write_all(output.as_bytes()).context("cannot write the book")
}

/// Adds the files of all chapters: objects with text and a source file.
fn collect_chapters(value: &Value, files: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_chapters(value, files)),
        Value::Object(fields) => {
            files.extend(fields.get("source_path").and_then(Value::as_str).map(in_repository));
            fields.values().for_each(|value| collect_chapters(value, files));
        }
        _ => {}
    }
}

fn rewrite_chapters(value: &mut Value, chapters: &BTreeSet<String>) {
    match value {
        Value::Array(values) => {
            values.iter_mut().for_each(|value| rewrite_chapters(value, chapters));
        }
        Value::Object(fields) => {
            if let (Some(Value::String(text)), Some(Value::String(file))) =
                (fields.get("content"), fields.get("source_path"))
            {
                let text = rewrite(text, &in_repository(file), chapters);
                fields.insert("content".into(), text.into());
            }
            fields.values_mut().for_each(|value| rewrite_chapters(value, chapters));
        }
        _ => {}
    }
}

fn in_repository(chapter: &str) -> String {
    format!("docs/{chapter}")
}

fn rewrite(text: &str, file: &str, chapters: &BTreeSet<String>) -> String {
    let mut rewritten = text.to_owned();
    for link in links(text).into_iter().rev() {
        let Some((path, section)) = resolve(file, link.target) else { continue };
        if chapters.contains(&path) {
            // mdBook renames these chapters, but not the links to them.
            let target = link.target.replace("README.md", "index.md");
            rewritten.replace_range(link.range, &target);
            continue;
        }
        // mdBook copies files of docs/ that are no pages, such as pictures.
        let extension = Path::new(&path).extension();
        let is_copied = path.starts_with("docs/") && extension.is_some_and(|it| it != "md");
        if !is_copied {
            let section = if section.is_empty() { String::new() } else { format!("#{section}") };
            rewritten.replace_range(link.range, &format!("{REPOSITORY}{path}{section}"));
        }
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let mut book: Value = serde_json::json!({"items": [{"Chapter": {
            "content": "[a](j/README.md) [c](../io/d.md#e) ![f](f.svg) [g](https://example.net)",
            "source_path": "a.md",
            "sub_items": [{"Chapter": {
                "content": "[h](../../i.md) [k](../no-chapter.md)",
                "source_path": "j/README.md",
            }}],
        }}]});
        let mut chapters = BTreeSet::new();
        collect_chapters(&book, &mut chapters);
        assert_eq!(Vec::from_iter(&chapters), ["docs/a.md", "docs/j/README.md"]);
        rewrite_chapters(&mut book, &chapters);
        let chapter = &book["items"][0]["Chapter"];
        let expected = format!(
            "[a](j/index.md) [c]({REPOSITORY}io/d.md#e) ![f](f.svg) [g](https://example.net)"
        );
        assert_eq!(chapter["content"], expected);
        let inner = &chapter["sub_items"][0]["Chapter"]["content"];
        let expected = format!("[h]({REPOSITORY}i.md) [k]({REPOSITORY}docs/no-chapter.md)");
        assert_eq!(*inner, expected);
    }
}
