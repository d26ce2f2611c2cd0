//! Each rule is shown to pass what is right and to catch what is wrong.

use super::*;

fn findings(file: &str, text: &str) -> Vec<String> {
    check_text(file, text)
}

fn function_of(lines: usize) -> String {
    let body: String = (0..lines - 2).map(|i| format!("    let _x{i} = {i};\n")).collect();
    format!("/// Docs do not count.\nfn long() {{\n{body}}}\n")
}

#[test]
fn functions_up_to_the_limit_pass_and_longer_ones_do_not() {
    assert_eq!(findings("core/x/src/lib.rs", &function_of(70)), Vec::<String>::new());
    let found = findings("core/x/src/lib.rs", &function_of(71));
    assert_eq!(found, ["core/x/src/lib.rs:2: function `long` of 71 lines, at most 70"]);
    let explained = function_of(70).replace("    let _x1 ", "    // Why.\n    let _x1 ");
    assert_eq!(findings("core/x/src/lib.rs", &explained), Vec::<String>::new());
}

#[test]
fn methods_and_nested_functions_are_measured() {
    let method = format!("struct S;\nimpl S {{\n{}}}\n", function_of(80));
    assert_eq!(findings("a.rs", &method).len(), 1);
    let nested = format!("mod m {{\n{}}}\n", function_of(80));
    assert_eq!(findings("a.rs", &nested).len(), 1);
    let default = format!("trait T {{\n{}}}\n", function_of(80));
    assert_eq!(findings("a.rs", &default).len(), 1);
}

#[test]
fn long_files_are_found_and_comments_do_not_count() {
    let code = "const A: u8 = 1;\n".repeat(801);
    let found = findings("a.rs", &code);
    assert!(found[0].starts_with("a.rs:1: 801 lines of code"), "{found:?}");
    let commented = format!("{}{}", "const A: u8 = 1;\n".repeat(800), "// why\n\n".repeat(300));
    assert_eq!(findings("a.rs", &commented), Vec::<String>::new());
}

#[test]
fn long_lines_are_found_unless_they_cannot_be_broken() {
    let words = format!("// {}\n", "word ".repeat(25).trim_end());
    assert_eq!(findings("a.rs", &words), ["a.rs:1: 127 columns, at most 100"]);
    let hash = format!("// see {}\n", "f".repeat(120));
    assert_eq!(findings("a.rs", &hash), Vec::<String>::new());
}

#[test]
fn long_lines_of_markdown_are_found_outside_tables_links_and_code() {
    let words = "word ".repeat(25);
    let long = words.trim_end();
    assert_eq!(findings("a.md", long), ["a.md:1: 124 columns, at most 100"]);
    assert_eq!(findings("a.md", &format!("```\n{long}\n```\n\n- {long}\n")).len(), 1);
    let link = format!("see [{}](http://{})", "a".repeat(20), "b/".repeat(40));
    for passes in [format!("| {long} |"), format!("[a]: b \"{long}\""), link] {
        assert_eq!(findings("a.md", &passes), [""; 0], "{passes}");
    }
}

#[test]
fn dead_code_is_not_allowed() {
    for lint in [
        "#[allow(dead_code)]",
        "#[expect(dead_code, reason = \"x\")]",
        "#[cfg_attr(test, allow(dead_code))]",
        "#[allow(unused)]",
    ] {
        assert_eq!(findings("a.rs", &format!("{lint}\nfn f() {{}}\n")).len(), 1, "{lint}");
        assert_eq!(findings("a.rs", &format!("fn f() {{\n{lint}\nlet x = 1;\n}}\n")).len(), 1);
    }
    for other in ["#[allow(unused_mut)]", "#[warn(dead_code)]", "#[cfg(dead_code)]"] {
        assert_eq!(findings("a.rs", &format!("{other}\nfn f() {{}}\n")), [""; 0], "{other}");
    }
}

#[test]
fn leftovers_are_found_even_inside_macros() {
    let name = ["to", "do"].concat();
    let plain = format!("fn f() {{\n    {name}!()\n}}\n");
    assert_eq!(findings("a.rs", &plain), [format!("a.rs:2: {name}! left in the code")]);
    let inside = format!("fn f() {{\n    assert!({{\n        {name}!()\n    }});\n}}\n");
    assert_eq!(findings("a.rs", &inside), [format!("a.rs:3: {name}! left in the code")]);
    let negation = format!("fn f({name}: bool) -> bool {{\n    !{name}\n}}\n");
    assert_eq!(findings("a.rs", &negation), Vec::<String>::new());
}

#[test]
fn an_ignored_test_gives_its_reason() {
    let silent = "#[test]\n#[ignore]\nfn t() {}\n";
    assert_eq!(findings("a.rs", silent).len(), 1);
    assert!(findings("a.rs", silent)[0].starts_with("a.rs:2: #[ignore] without a reason"));
    let reasoned = "#[test]\n#[ignore = \"takes minutes\"]\nfn t() {}\n";
    assert_eq!(findings("a.rs", reasoned), Vec::<String>::new());
}

#[test]
fn unsafe_code_stays_where_it_may_be() {
    let code = "fn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(findings("core/base/src/packet.rs", code), Vec::<String>::new());
    assert_eq!(findings("io/face/src/lib.rs", code), Vec::<String>::new());
    assert_eq!(findings("core/forward/tests/no_alloc.rs", code), Vec::<String>::new());
    assert_eq!(findings("app/weir/src/main.rs", code).len(), 1);
    assert_eq!(findings("core/wire/src/lib.rs", "unsafe impl Send for S {}\n").len(), 1);
    assert_eq!(findings("core/wire/src/lib.rs", "unsafe fn f() {}\n").len(), 1);
}

#[test]
fn paths_of_one_machine_are_found() {
    let path = ["see ", "/wo", "rk/main/x\n"].concat();
    assert_eq!(findings("README.md", &path).len(), 1);
    let part_of_another = ["see target", "/wo", "rk/x\n"].concat();
    assert_eq!(findings("README.md", &part_of_another), Vec::<String>::new());
}

#[test]
fn what_is_not_rust_is_reported_with_its_line() {
    let found = findings("a.rs", "fn f() {}\nfn (\n");
    assert!(found[0].starts_with("a.rs:2: not understood as Rust"), "{found:?}");
}

#[test]
fn readmes_say_something_and_fit_a_screen() {
    assert!(readme_finding("x/README.md", "# x\n\nTitle only.\n").is_some());
    assert!(readme_finding("x/README.md", "# x\n\nPurpose.\n\nTypes.\n").is_none());
    assert!(readme_finding("x/README.md", &"line\n".repeat(README_LINES_MAX + 1)).is_some());
}

#[test]
fn a_crate_without_a_readme_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = readme_findings(root, &["no-such-crate/Cargo.toml".to_owned()]);
    assert_eq!(found, ["no-such-crate/README.md:1: the crate has no README"]);
}

#[test]
fn a_test_file_that_no_program_declares_is_found() {
    let folder = std::env::temp_dir().join(format!("weir-tidy-{}", std::process::id()));
    fs::create_dir_all(folder.join("a/tests")).expect("a folder");
    fs::write(folder.join("a/Cargo.toml"), "[package]\nautotests = false\n").expect("a file");
    fs::write(folder.join("a/tests/all.rs"), "mod one;\n").expect("a file");
    let files = ["a/Cargo.toml", "a/tests/all.rs", "a/tests/one.rs", "a/tests/two.rs"];
    let found = forgotten_test_findings(&folder, &files.map(str::to_owned));
    fs::remove_dir_all(&folder).expect("the folder");
    assert_eq!(found, ["a/tests/two.rs:1: a/tests/all.rs does not declare it"]);
}

#[test]
fn long_sentences_are_found_in_comments_and_pages() {
    let words = |count: usize| "word ".repeat(count).trim_end().to_owned();
    let found = |file: &str, text: &str| sentences::findings(file, text);
    let long = format!("{}.", words(36));
    assert_eq!(found("a.md", &long), ["a.md:1: a sentence of 36 words, at most 35"]);
    assert_eq!(
        found("a.rs", &format!("fn f() {{}}\n// {}\n// {}.", words(20), words(16))).len(),
        1
    );
    let code = format!("{} `a b c d` {}.", words(17), words(17));
    let table = format!("| {long} |");
    let items = format!("- {}\n- {}", words(30), words(30));
    let short = format!("**{}.** {}.", words(35), words(35));
    for passes in [code, table, items, short, format!("```\n{long}\n```\n")] {
        assert_eq!(found("a.md", &passes), [""; 0], "{passes}");
    }
    assert_eq!(found("a.rs", &format!("const A: &str = \"{long}\";")), [""; 0]);
}
