//! Words and names that the rules for plain English replace (CONTRIBUTING.md, rule 15).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use super::prose::{self, Word};
use super::repository_files;

/// Words of prose and what to write in their place. Words of two and more match over line ends.
const WORDS: &[(&[&str], &str)] = &[
    (&["nobody"], "name who, or write `no one`, `none`"),
    (&["somebody"], "name who"),
    (&["whoever"], "name who"),
    (&["whatever"], "name what"),
    (&["anew"], "again"),
    (&["so many"], "a number, or `as many as`"),
    (&["that many"], "a number, or `as many as`"),
    (&["beside"], "next to, compared with, alongside"),
    (&["is to", "are to"], "must, should, will"),
    (&["told", "tells"], "reports, says, notifies"),
    (&["heed", "heeds", "heeded", "heeding"], "follows, uses"),
    (&["mend", "mends", "mended", "mending"], "fix"),
    (&["in vain"], "without effect, fails"),
    (&["give way", "gives way", "gave way", "given way", "giving way"], "is evicted"),
    (&["go on", "goes on", "went on", "going on"], "continues"),
    (&["take room", "takes room", "took room", "taking room"], "uses memory"),
    (&["as long as it likes", "as long as they like"], "without a limit"),
    (&["of which"], "two sentences"),
    (&["what is there"], "name what"),
    (&["what came"], "name what"),
    (&["fall silent", "falls silent", "fell silent", "fallen silent"], "stops responding"),
    (&["ask for", "asks for", "asked for", "asking for"], "requests"),
    (&["take away", "takes away", "took away", "taken away"], "removes"),
    (&["everybody"], "name who"),
    (&["whom"], "name who, in a sentence of its own"),
    (&["none that"], "name what"),
    (&["is said", "are said"], "say who reports it"),
    (&["let go"], "releases"),
];

/// Names that no type and no function has.
const NAMES: &[(&str, &str)] = &[
    ("Gathered", "RateLimitedLog, or what it gathers"),
    ("Rooms", "FaceQuota, or whose quota it is"),
    ("Told", "HoldingsReply, or the reply it is"),
    ("Keeper", "FsyncThread, or what it does"),
    ("Tally", "RoundStats, or what it counts"),
    ("CrossPorts", "ShardRings"),
    ("Bed", "Fixture"),
    ("give_way", "evict"),
    ("send_on", "forward_pending"),
    ("heed", "on_sample"),
    ("turn", "enter_phase"),
];

/// The table of words itself.
const OWN_FILES: &str = "xtask/src/tidy/words";

/// One occurrence of a word or name to replace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    word: &'static str,
    instead: &'static str,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, word, instead } = self;
        write!(to, "{file}:{line}: `{word}`: {instead}")
    }
}

/// All findings in the repository, in the order of its files.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in repository_files(root)?.iter().filter(|file| !file.starts_with(OWN_FILES)) {
        if let Ok(text) = fs::read_to_string(root.join(file)) {
            findings.extend(findings_in(file, &text));
        }
    }
    Ok(findings)
}

/// How often each word occurs, then how many occur in each crate.
pub(crate) fn summary(findings: &[Finding]) -> String {
    let by_word = counts(findings.iter().map(|it| it.word));
    let by_crate = counts(findings.iter().map(|it| crate_of(&it.file)));
    format!("words to replace: {}\n  {by_word}\n  {by_crate}", findings.len())
}

/// Each name with its count, the most frequent first.
fn counts<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *by_name.entry(name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = by_name.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    counts.join(", ")
}

/// The folder of the crate, which is one or two levels deep; the file itself at the root.
fn crate_of(file: &str) -> &str {
    let is_deep = ["core/", "sim/", "io/", "bindings/", "lab/", "app/"];
    let levels = if is_deep.iter().any(|layer| file.starts_with(layer)) { 2 } else { 1 };
    file.match_indices('/').nth(levels - 1).map_or(file, |(end, _)| &file[..end])
}

fn findings_in(file: &str, text: &str) -> Vec<Finding> {
    let words = prose::words(file, text);
    let mut findings = Vec::new();
    for (index, first) in words.iter().enumerate() {
        for (forms, instead) in WORDS {
            if let Some(word) = forms.iter().find(|form| matches(&words[index..], form)) {
                findings.push(Finding { file: file.to_owned(), line: first.line, word, instead });
            }
        }
    }
    if file.ends_with(".rs")
        && let Ok(parsed) = syn::parse_file(text)
    {
        NameReader { file, findings: &mut findings }.visit_file(&parsed);
    }
    findings
}

/// Whether the words begin with this form.
fn matches(words: &[Word], form: &str) -> bool {
    let mut words = words.iter();
    form.split(' ').enumerate().all(|(index, wanted)| {
        words.next().is_some_and(|word| word.text == wanted && (index == 0 || word.continues))
    })
}

struct NameReader<'a> {
    file: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl NameReader<'_> {
    fn read(&mut self, name: &syn::Ident) {
        if let Some((word, instead)) = NAMES.iter().find(|(word, _)| name == word) {
            let line = name.span().start().line;
            self.findings.push(Finding { file: self.file.to_owned(), line, word, instead });
        }
    }
}

impl<'ast> Visit<'ast> for NameReader<'_> {
    fn visit_item_struct(&mut self, it: &'ast syn::ItemStruct) {
        self.read(&it.ident);
    }

    fn visit_item_enum(&mut self, it: &'ast syn::ItemEnum) {
        self.read(&it.ident);
    }

    fn visit_item_trait(&mut self, it: &'ast syn::ItemTrait) {
        self.read(&it.ident);
        visit::visit_item_trait(self, it);
    }

    fn visit_item_type(&mut self, it: &'ast syn::ItemType) {
        self.read(&it.ident);
    }

    fn visit_signature(&mut self, it: &'ast syn::Signature) {
        self.read(&it.ident);
    }
}
