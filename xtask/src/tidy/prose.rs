//! What people read of a file: comments, documentation, string literals, Markdown.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

/// Stands for code. It is no part of a word and no space.
const CODE: char = '\0';

/// A word of the prose in lower case, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether only space lies between the word before and this one.
    pub(super) continues: bool,
}

/// The words of the prose in the file; none for files of other kinds.
///
/// What stands in backticks is code.
pub(super) fn words(file: &str, text: &str) -> Vec<Word> {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let prose = match extension {
        "rs" => rust_prose(text),
        "md" => Some(markdown_prose(text)),
        "toml" | "py" | "sh" => Some(hash_comments(text)),
        _ => None,
    };
    prose.map(|prose| split(&prose)).unwrap_or_default()
}

/// The text with names and numbers of the code blanked out, on the same lines.
fn rust_prose(text: &str) -> Option<String> {
    let mut names = Vec::new();
    collect_names(text.parse().ok()?, text, &mut names);
    let mut prose = String::with_capacity(text.len());
    let mut at = 0;
    for name in names {
        prose.push_str(text.get(at..name.start)?);
        prose.push(CODE);
        at = name.end;
    }
    prose.push_str(text.get(at..)?);
    // A line that ends so goes on; a line feed or tab that is written as an escape ends a word.
    Some(prose.replace("\\\n", " \n").replace("\\n", "  ").replace("\\t", "  "))
}

fn collect_names(tokens: TokenStream, text: &str, names: &mut Vec<Range<usize>>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_names(group.stream(), text, names),
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                let range = token.span().byte_range();
                // The tokens of a documentation comment span all of it.
                let source = text.get(range.clone()).unwrap_or_default();
                let is_comment = source.starts_with("//") || source.starts_with("/*");
                if !is_comment && !is_string(source) {
                    names.push(range);
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

fn is_string(source: &str) -> bool {
    let before_hashes = source.trim_start_matches(['b', 'c', 'r']);
    before_hashes.trim_start_matches('#').starts_with('"')
}

/// The text without its blocks of code, on the same lines.
pub(super) fn markdown_prose(text: &str) -> String {
    let mut fence = None;
    let mut prose = String::with_capacity(text.len());
    for line in text.lines() {
        let marker = ["```", "~~~"].into_iter().find(|it| line.trim_start().starts_with(it));
        match (fence, marker) {
            (None, None) => prose.push_str(line),
            (None, Some(_)) => fence = marker,
            (Some(open), Some(it)) if open == it => fence = None,
            (Some(_), _) => {}
        }
        prose.push('\n');
    }
    prose
}

fn hash_comments(text: &str) -> String {
    let comment = |line: &str| line.split_once('#').map_or(String::new(), |(_, it)| it.to_owned());
    text.lines().map(|line| comment(line) + "\n").collect()
}

fn split(prose: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut is_code, mut continues) = (false, false);
    for (index, line) in prose.lines().enumerate() {
        let mut rest = line.trim_start().trim_start_matches(['/', '!', '*', '#', '>']);
        if rest.trim().is_empty() {
            // A paragraph ends the code that a stray backtick begins.
            (is_code, continues) = (false, false);
        }
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|it| !is_of_word(it)).unwrap_or(rest.len());
            if length > 0 {
                if !is_code {
                    let text = rest[..length].to_lowercase();
                    words.push(Word { text, line: index + 1, continues });
                }
                continues = !is_code;
            } else if first == '`' {
                is_code = !is_code;
                continues = false;
            } else if !first.is_whitespace() {
                continues = false;
            }
            rest = &rest[length.max(first.len_utf8())..];
        }
    }
    words
}

fn is_of_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}
