//! House rules that neither rustfmt nor clippy checks: sizes, columns, leftovers, READMEs, words.

pub(crate) mod links;
mod markdown;
mod prose;
mod sentences;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::unused::collect_words;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_CODE_LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;

/// A line may be wider if it holds an unbroken run of characters (a URL, a hash) of this length.
const UNBROKEN_RUN_COLUMNS: usize = 80;

const README_LINES_MAX: usize = 90;

/// Macros that mark unfinished work or debugging.
const LEFTOVER_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Folders whose `src/` may hold unsafe code.
const UNSAFE_FOLDERS: &[&str] = &["core/base/", "io/", "bindings/"];

/// Test helpers that several programs share. Each program uses only some.
const DEAD_CODE_ALLOWED: &[&str] = &["fuzz/shared.rs", "io/face/tests/", "io/runtime/tests/"];

/// Findings over all files that git tracks or would track, one `file:line: message` each.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let files = repository_files(root)?;
    let mut findings = Vec::new();
    for file in &files {
        let path = root.join(file);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        findings.extend(check_text(file, &text));
    }
    findings.extend(links::findings(root)?);
    findings.extend(readme_findings(root, &files));
    findings.extend(forgotten_test_findings(root, &files));
    findings.extend(words::findings(root)?.iter().map(words::Finding::to_string));
    let long = long_sentences(root)?.len();
    println!("long sentences: {long} (`tidy --sentences` shows the places)");
    Ok(findings)
}

/// Sentences of comments and pages that are too long to be read once.
pub(crate) fn long_sentences(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in repository_files(root)? {
        if let Ok(text) = fs::read_to_string(root.join(&file)) {
            findings.extend(sentences::findings(&file, &text));
        }
    }
    Ok(findings)
}

pub(crate) fn repository_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<String> =
        names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// All findings about the text of one file.
fn check_text(file: &str, text: &str) -> Vec<String> {
    let mut findings = machine_path_findings(file, text);
    let extension = Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or_default();
    if matches!(extension, "rs" | "py" | "mjs" | "sh") {
        findings.extend(column_findings(file, text));
        findings.extend(file_length_finding(file, text, extension));
    }
    match extension {
        "rs" => findings.extend(syntax_findings(file, text)),
        "md" => findings.extend(markdown::column_findings(file, text)),
        _ => {}
    }
    findings
}

/// Finds paths of the machine on which a change was made.
fn machine_path_findings(file: &str, text: &str) -> Vec<String> {
    // Assembled from parts, so that this file has no finding.
    let needles = [["/wo", "rk/"], ["/ro", "ot/"], ["/tmp/", "t-"], ["/ho", "me/user"]];
    let mut findings = Vec::new();
    for (number, line) in numbered(text) {
        for needle in needles.map(|parts| parts.concat()) {
            let at_start_of_path = line.match_indices(&needle).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "._-/}".contains(c))
            });
            if at_start_of_path {
                findings.push(format!("{file}:{number}: a path of one machine: {needle}"));
            }
        }
    }
    findings
}

fn column_findings(file: &str, text: &str) -> Vec<String> {
    numbered(text).filter_map(|(number, line)| column_finding(file, number, line)).collect()
}

fn column_finding(file: &str, number: usize, line: &str) -> Option<String> {
    let columns = line.chars().count();
    let has_long_run =
        line.split_whitespace().any(|run| run.chars().count() >= UNBROKEN_RUN_COLUMNS);
    (columns > COLUMNS_MAX && !has_long_run)
        .then(|| format!("{file}:{number}: {columns} columns, at most {COLUMNS_MAX}"))
}

fn file_length_finding(file: &str, text: &str, extension: &str) -> Option<String> {
    let comment = if extension == "rs" || extension == "mjs" { "//" } else { "#" };
    let code_lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(comment))
        .count();
    (code_lines > FILE_CODE_LINES_MAX).then(|| {
        format!("{file}:1: {code_lines} lines of code, at most {FILE_CODE_LINES_MAX}; split it")
    })
}

fn syntax_findings(file: &str, text: &str) -> Vec<String> {
    match syn::parse_file(text) {
        Ok(parsed) => {
            let mut walk =
                Walk { file, text, findings: Vec::new(), unsafe_allowed: unsafe_allowed(file) };
            walk.visit_file(&parsed);
            if let Ok(tokens) = text.parse::<TokenStream>() {
                leftover_findings(file, tokens, &mut walk.findings);
            }
            walk.findings
        }
        Err(error) => {
            let line = error.span().start().line;
            vec![format!("{file}:{line}: not understood as Rust: {error}")]
        }
    }
}

/// Tests and benchmarks may hold unsafe code too: a counting allocator needs it.
fn unsafe_allowed(file: &str) -> bool {
    let test_code = file.starts_with("tests/")
        || file.starts_with("benches/")
        || file.contains("/tests/")
        || file.contains("/benches/")
        || file.ends_with("/tests.rs");
    test_code || UNSAFE_FOLDERS.iter().any(|folder| file.starts_with(folder))
}

struct Walk<'a> {
    file: &'a str,
    text: &'a str,
    findings: Vec<String>,
    unsafe_allowed: bool,
}

impl Walk<'_> {
    fn find(&mut self, span: Span, message: &str) {
        self.findings.push(format!("{}:{}: {message}", self.file, span.start().line));
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        // Comments do not count, or a long function would go unexplained.
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let lines = self.text.lines().take(last).skip(first - 1).filter(is_code).count();
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            self.find(
                signature.span(),
                &format!("function `{name}` of {lines} lines, at most {FUNCTION_LINES_MAX}"),
            );
        }
        if signature.unsafety.is_some() {
            self.unsafe_code(signature.span());
        }
    }

    fn unsafe_code(&mut self, span: Span) {
        if !self.unsafe_allowed {
            self.find(span, "unsafe code outside core/base and io/");
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_code(block.span());
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.unsafety.is_some() {
            self.unsafe_code(item.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if matches!(&attribute.meta, syn::Meta::Path(path) if path.is_ident("ignore")) {
            self.find(attribute.span(), "#[ignore] without a reason: #[ignore = \"why\"]");
        }
        if let syn::Meta::List(list) = &attribute.meta
            && allows_dead_code(&list.path, list.tokens.clone())
            && !DEAD_CODE_ALLOWED.iter().any(|place| self.file.starts_with(place))
        {
            self.find(attribute.span(), "dead code is allowed here: remove it");
        }
        visit::visit_attribute(self, attribute);
    }
}

/// Whether an attribute permits unused code, alone or within `cfg_attr`.
fn allows_dead_code(path: &syn::Path, tokens: TokenStream) -> bool {
    let mut words = BTreeSet::new();
    collect_words(tokens, &mut words);
    let names_lint = ["dead_code", "unused"].iter().any(|lint| words.contains(*lint));
    let permits = |level: &str| path.is_ident(level) || words.contains(level);
    names_lint && (permits("allow") || permits("expect"))
}

/// Walks the tokens, so that macros inside macros are seen as well.
fn leftover_findings(file: &str, tokens: TokenStream, findings: &mut Vec<String>) {
    let mut previous: Option<proc_macro2::Ident> = None;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                leftover_findings(file, group.stream(), findings);
                previous = None;
            }
            TokenTree::Punct(punct) if punct.as_char() == '!' => {
                if let Some(name) = previous.take()
                    && LEFTOVER_MACROS.iter().any(|leftover| name == leftover)
                {
                    let line = name.span().start().line;
                    findings.push(format!("{file}:{line}: {name}! left in the code"));
                }
            }
            TokenTree::Ident(ident) => previous = Some(ident),
            TokenTree::Punct(_) | TokenTree::Literal(_) => previous = None,
        }
    }
}

/// Every crate has a README of one screen.
fn readme_findings(root: &Path, files: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        let readme = format!("{folder}/README.md");
        match fs::read_to_string(root.join(&readme)) {
            Ok(text) => findings.extend(readme_finding(&readme, &text)),
            Err(_) => findings.push(format!("{readme}:1: the crate has no README")),
        }
    }
    findings
}

fn readme_finding(readme: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let said = text.lines().filter(|line| !line.trim().is_empty()).count();
    if said < 3 {
        return Some(format!("{readme}:1: says too little: purpose, main types, limits, tests"));
    }
    (lines > README_LINES_MAX)
        .then(|| format!("{readme}:1: {lines} lines, one screen is at most {README_LINES_MAX}"))
}

/// Finds test files that never run. If one program holds all tests of a crate (`autotests =
/// false`), it must declare each file.
fn forgotten_test_findings(root: &Path, files: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("/Cargo.toml")) {
        let folder = format!("{}/tests/", manifest.trim_end_matches("/Cargo.toml"));
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        if !read(manifest).lines().any(|line| line == "autotests = false") {
            continue;
        }
        let program = read(&format!("{folder}all.rs"));
        let names = files.iter().filter_map(|file| {
            file.strip_prefix(&folder)?.strip_suffix(".rs").filter(|name| !name.contains('/'))
        });
        for name in names.filter(|name| *name != "all") {
            if !program.lines().any(|line| line == format!("mod {name};")) {
                findings.push(format!("{folder}{name}.rs:1: {folder}all.rs does not declare it"));
            }
        }
    }
    findings
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}
