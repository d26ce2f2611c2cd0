//! Sentences that are too long to be understood at the first reading (CONTRIBUTING.md, rule 15).

use super::prose::markdown_prose;

/// Most words of a sentence in comments and pages. A code span counts as one word.
const SENTENCE_WORDS_MAX: usize = 35;

/// The sentences that are too long, one `file:line: message` each, with the line they begin in.
pub(super) fn findings(file: &str, text: &str) -> Vec<String> {
    let prose = if file.ends_with(".rs") {
        comments(text)
    } else if file.ends_with(".md") {
        markdown_prose(text)
    } else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut sentence = Sentence::default();
    for (index, line) in prose.lines().enumerate() {
        let line = line.trim();
        if begins_paragraph(line) {
            findings.extend(sentence.end(file));
        }
        if line.starts_with(['|', '#']) {
            continue;
        }
        for word in line.split_whitespace() {
            sentence.add(word, index + 1);
            // The end may lie inside emphasis, quotes or parentheses.
            let word = word.trim_end_matches(['*', '_', '"', ')']);
            if word.ends_with(['.', '!', '?', ':']) && !sentence.is_in_code {
                findings.extend(sentence.end(file));
            }
        }
    }
    findings.extend(sentence.end(file));
    findings
}

/// The text of the comments, on the same lines.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//").unwrap_or_default();
        text.trim_start_matches(['/', '!']).to_owned() + "\n"
    };
    text.lines().map(comment).collect()
}

/// Whether a line of prose, without the space around it, begins a paragraph or ends one.
fn begins_paragraph(line: &str) -> bool {
    let number = line.trim_start_matches(|it: char| it.is_ascii_digit());
    let is_numbered = number.len() < line.len() && number.starts_with(". ");
    line.is_empty() || is_numbered || line.starts_with(['|', '#', '>', '-', '*'])
}

/// The words read so far of one sentence.
#[derive(Default)]
struct Sentence {
    words: usize,
    line: usize,
    is_in_code: bool,
}

impl Sentence {
    fn add(&mut self, word: &str, line: usize) {
        if self.words == 0 {
            self.line = line;
        }
        let continues_code = self.is_in_code;
        self.is_in_code ^= word.matches('`').count() % 2 == 1;
        self.words += usize::from(!continues_code);
    }

    /// Begins the next sentence.
    fn end(&mut self, file: &str) -> Option<String> {
        let Self { words, line, .. } = std::mem::take(self);
        (words > SENTENCE_WORDS_MAX).then(|| {
            format!("{file}:{line}: a sentence of {words} words, at most {SENTENCE_WORDS_MAX}")
        })
    }
}
