//! Links of Markdown pages: that each leads to a file and a section, and that the book has each
//! page of `docs/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::repository_files;

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages for developers, which the book leaves out.
const DECISIONS: &str = "docs/decisions/";

/// A link in the text of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    pub(crate) line: usize,
    pub(crate) target: &'a str,
    /// Where the target is in the text.
    pub(crate) range: Range<usize>,
}

/// All links of a page, without those in code.
pub(crate) fn links(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let targets = targets_in(line).into_iter();
            found.extend(targets.map(|range| Link {
                line: index + 1,
                target: &line[range.clone()],
                range: start + range.start..start + range.end,
            }));
        }
        start += line.len();
    }
    found
}

/// Targets of `[text](target)` and `[name]: target` in a line.
fn targets_in(line: &str) -> Vec<Range<usize>> {
    let mut targets = Vec::new();
    if line.starts_with('[')
        && let Some(at) = line.find("]: ")
    {
        targets.push(at + 3..line.trim_end().len());
        return targets;
    }
    let mut at = 0;
    while let Some(next) = line[at..].find(['`', ']']) {
        at += next + 1;
        if line.as_bytes()[at - 1] == b'`' {
            // Inline code ends at the next backtick, or on another line.
            at = line[at..].find('`').map_or(line.len(), |end| at + end + 1);
        } else if line[at..].starts_with('(') {
            let end = line[at..].find(')').map_or(line.len(), |end| at + end);
            targets.push(at + 1..end);
            at = end;
        }
    }
    targets
}

/// The file in the repository that a link in `file` leads to, and its section. `None` for other
/// sites.
pub(crate) fn resolve<'a>(file: &str, target: &'a str) -> Option<(String, &'a str)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, section) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() {
        return Some((file.to_owned(), section));
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Some((parts.join("/"), section))
}

/// Links that lead nowhere, and pages that the book lacks.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let files = repository_files(root)?;
    let pages: BTreeMap<&str, String> = files
        .iter()
        .filter(|file| file.ends_with(".md"))
        .filter_map(|file| Some((&**file, fs::read_to_string(root.join(file)).ok()?)))
        .collect();
    let mut findings = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let Some((file, section)) = resolve(page, link.target) else { continue };
            let problem = if !root.join(&file).exists() {
                "leads to no file"
            } else if !section.is_empty()
                && pages.get(&*file).is_some_and(|text| !sections(text).contains(section))
            {
                "leads to no section"
            } else {
                continue;
            };
            findings.push(format!("{page}:{}: the link {} {problem}", link.line, link.target));
        }
    }
    let summary = pages.get(SUMMARY).map(String::as_str).unwrap_or_default();
    findings.extend(missing_chapters(summary, pages.keys().copied()));
    Ok(findings)
}

fn missing_chapters<'a>(summary: &str, pages: impl Iterator<Item = &'a str>) -> Vec<String> {
    let chapters = links(summary).into_iter().filter_map(|link| resolve(SUMMARY, link.target));
    let chapters: BTreeSet<String> = chapters.map(|(file, _)| file).collect();
    let is_chapter = |page: &str| page.starts_with("docs/") && !page.starts_with(DECISIONS);
    pages
        .filter(|page| is_chapter(page) && *page != SUMMARY && !chapters.contains(*page))
        .map(|page| format!("{SUMMARY}:1: lacks {page}"))
        .collect()
}

/// The sections of a page as GitHub and mdBook name them in links.
fn sections(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name = section_name(title.trim());
        let again = (1..).map(|number| format!("{name}-{number}"));
        let mut free = std::iter::once(name.clone()).chain(again);
        names.extend(free.find(|name| !names.contains(name)));
    }
    names
}

fn section_name(title: &str) -> String {
    // Only the text of a link counts.
    let mut plain = title.to_owned();
    for range in targets_in(title).into_iter().rev() {
        plain.replace_range(range, "");
    }
    plain
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(usize, &str)> {
        links(text).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn finds_links_but_not_in_code() {
        let text = "[a](b.md), ![c](d.svg)\n```\n[e](f)\n```\n`[g](h)` [i\nj](k#l)\n[m]: n.md\n";
        assert_eq!(targets(text), [(1, "b.md"), (1, "d.svg"), (6, "k#l"), (7, "n.md")]);
        for link in links(text) {
            assert_eq!(&text[link.range], link.target);
        }
    }

    #[test]
    fn resolves_paths_within_the_repository() {
        let resolve =
            |file, target| resolve(file, target).map(|(path, section)| format!("{path} {section}"));
        assert_eq!(resolve("docs/a/b.md", "../c.md#d").as_deref(), Some("docs/c.md d"));
        assert_eq!(resolve("docs/a.md", "../io/b").as_deref(), Some("io/b "));
        assert_eq!(resolve("README.md", "#try-it").as_deref(), Some("README.md try-it"));
        assert_eq!(resolve("README.md", "https://example.net/a"), None);
    }

    #[test]
    fn names_sections_as_github_does() {
        let text = "# A\n## `B`, c: d!\n```\n# no\n```\n## A\n### [e](f) 1.2\n";
        let names: Vec<String> = sections(text).into_iter().collect();
        assert_eq!(names, ["a", "a-1", "b-c-d", "e-12"]);
    }

    #[test]
    fn names_pages_that_the_book_lacks() {
        let pages = ["README.md", SUMMARY, "docs/a.md", "docs/b/c.md", "docs/decisions/1.md"];
        let missing = missing_chapters("- [A](a.md)\n", pages.into_iter());
        assert_eq!(missing, ["docs/SUMMARY.md:1: lacks docs/b/c.md"]);
    }
}
