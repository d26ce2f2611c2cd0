//! Extracts the text for people from a file: comments, documentation, strings, Markdown.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

/// Replaces a character of code. It separates words, and is not a space.
const CODE: char = '\0';

/// A word of the prose in lower case, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether only space separates it from the word before.
    pub(super) continues: bool,
}

/// The words of the prose in the file; none for files of unknown kinds.
///
/// Text in backticks is code.
pub(super) fn words(file: &str, text: &str) -> Vec<Word> {
    let extension = file.rsplit('.').next().unwrap_or_default();
    let prose = match extension {
        "rs" => rust_prose(text),
        "md" => Some(markdown_prose(text)),
        "html" => Some(html_prose(text)),
        "toml" | "py" | "sh" => Some(HASH.prose(text)),
        "js" | "mjs" | "c" | "h" => Some(SLASHES.prose(text)),
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
    // A backslash at the end continues the line. Escaped line feeds and tabs end a word.
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
                // A string of one word is a key or a name.
                let is_prose = is_string(source) && source.contains(char::is_whitespace);
                if !is_comment && !is_prose {
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

/// How a language other than Rust writes comments and strings.
struct Syntax {
    line_comment: &'static str,
    block_comment: Option<(&'static str, &'static str)>,
    /// The longest first.
    quotes: &'static [&'static str],
}

const HASH: Syntax =
    Syntax { line_comment: "#", block_comment: None, quotes: &["\"\"\"", "'''", "\"", "'"] };
const SLASHES: Syntax =
    Syntax { line_comment: "//", block_comment: Some(("/*", "*/")), quotes: &["`", "\"", "'"] };

impl Syntax {
    /// Comments, and strings with a space (others are keys and names), on the same lines.
    fn prose(&self, text: &str) -> String {
        let mut prose = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (content, is_prose) = self.token(rest);
            if is_prose && content.starts_with('`') {
                // Here a backtick quotes a string, and no code.
                prose.push_str(&content.replace('`', "'"));
            } else if is_prose {
                prose.push_str(content);
            } else {
                prose.extend(content.chars().map(|it| if it == '\n' { it } else { CODE }));
            }
            rest = &rest[content.len().max(first.len_utf8())..];
        }
        prose
    }

    /// The comment, string or single character that the text begins with, and whether people read
    /// it.
    fn token<'a>(&self, text: &'a str) -> (&'a str, bool) {
        if text.starts_with(self.line_comment) {
            return (text.split('\n').next().unwrap_or(text), true);
        }
        if let Some((open, close)) = self.block_comment
            && text.starts_with(open)
        {
            return (through(text, open, close), true);
        }
        if let Some(quote) = self.quotes.iter().find(|quote| text.starts_with(**quote)) {
            let string = through(text, quote, quote);
            // A lone quote, such as the apostrophe of a regular expression, ends with its line.
            let is_open_line = quote.len() == 1 && *quote != "`" && string.contains('\n');
            let string = if is_open_line { &text[..1] } else { string };
            return (string, string.contains(' '));
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        (&text[..length], false)
    }
}

/// The start of the text, which begins with `open`, up to and with the next `close` that no
/// backslash escapes.
fn through<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let mut from = open.len();
    while let Some(at) = text[from..].find(close) {
        let end = from + at;
        if !text[..end].ends_with('\\') {
            return &text[..end + close.len()];
        }
        from = end + close.len();
    }
    text
}

/// The text between tags, but for scripts and styles, on the same lines.
fn html_prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        prose.push_str(&rest[..start]);
        rest = &rest[start..];
        let close = ["script", "style"].iter().find(|tag| rest[1..].starts_with(**tag));
        let end = match close {
            Some(tag) => rest.find(&format!("</{tag}")),
            None => rest.find('>').map(|at| at + 1),
        };
        let (code, after) = rest.split_at(end.unwrap_or(rest.len()));
        prose.extend(code.chars().map(|it| if it == '\n' { it } else { CODE }));
        rest = after;
    }
    prose.push_str(rest);
    prose
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
