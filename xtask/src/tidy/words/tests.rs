use super::*;

fn found(file: &str, text: &str) -> Vec<(usize, &'static str)> {
    findings_in(file, text).into_iter().map(|it| (it.line, it.word)).collect()
}

#[test]
fn finds_words_in_comments_and_strings() {
    let text = "//! Nobody reads.\n\n/// A peer is told.\nfn f() {\n    // read anew\n    /* so\n\
                \u{20}      many */\n    print!(\"it goes on {}\", told);\n}\n";
    assert_eq!(
        found("a.rs", text),
        [(1, "nobody"), (3, "told"), (5, "anew"), (6, "so many"), (8, "goes on")]
    );
}

#[test]
fn phrases_cross_line_ends_but_not_punctuation() {
    assert_eq!(found("a.rs", "// those, so\n// many\n"), [(1, "so many")]);
    assert_eq!(found("a.rs", "/// so\n/// many\nfn f() {}\n"), [(1, "so many")]);
    assert_eq!(found("a.rs", "fn f() { g(\"so \\\n    many\") }\n"), [(1, "so many")]);
    assert_eq!(found("a.md", "so\nmany\n"), [(1, "so many")]);
    for text in ["// so, many\n", "// so\n//\n// many\n", "// so\nfn many() {}\n", "// so-many\n"] {
        assert_eq!(found("a.rs", text), [], "{text}");
    }
}

#[test]
fn code_is_no_prose() {
    let text = "/// Calls `told` and told_of; besides, retold.\nfn told(anew: u8) -> u8 { anew }\n";
    assert_eq!(found("a.rs", text), []);
    assert_eq!(found("a.rs", "const A: &str = \"told\";"), []);
    let text = "`beside`, ```\n\n```sh\nbeside\n```\n\nbeside\n";
    assert_eq!(found("a.md", text), [(7, "beside")]);
    assert_eq!(found("a.toml", "told = \"told\" # told\n"), [(1, "told")]);
    assert_eq!(found("a.toml", "told = \"is told\"\n"), [(1, "told")]);
    assert_eq!(found("a.csv", "told\n"), []);
}

#[test]
fn reads_comments_and_strings_of_other_languages() {
    let python = "\"\"\"Runs it\n\nanew.\"\"\"\ntold = f('told', \"is told\")  # beside\n";
    assert_eq!(found("a.py", python), [(3, "anew"), (4, "told"), (4, "beside")]);
    let script = "const told = /\"/; // beside\n/* so\n   many */ f(`is\n${told} anew`);\n";
    assert_eq!(found("a.js", script), [(1, "beside"), (2, "so many"), (4, "told"), (4, "anew")]);
    let page = "<p class=\"told\">beside</p>\n<script>told();\n</script>anew\n";
    assert_eq!(found("a.html", page), [(1, "beside"), (3, "anew")]);
}

#[test]
fn finds_names_of_types_and_functions() {
    let text = "struct Bed;\nimpl Bed { fn heed(&self) {} }\nfn send_on() {}\nstruct Bedrock;\n";
    assert_eq!(found("a.rs", text), [(1, "Bed"), (2, "heed"), (3, "send_on")]);
}

#[test]
fn the_summary_counts_by_word_and_crate() {
    let mut findings = findings_in("core/wire/src/a.rs", "// told anew\n");
    findings.extend(findings_in("README.md", "told\n"));
    findings.extend(findings_in("docs/a/b.md", "told\n"));
    let expected = "words to replace: 4\n  told 3, anew 1\n  core/wire 2, README.md 1, docs 1";
    assert_eq!(summary(&findings), expected);
}
