use super::{Source, findings};

fn source(folder: &str, text: &str) -> Source {
    let is_library = folder.starts_with("core/");
    Source { folder: folder.into(), file: format!("{folder}/a.rs"), text: text.into(), is_library }
}

fn unused(library: &str, user: &str) -> Vec<String> {
    findings(&[source("core/a", library), source("app/weir", user)]).expect("good sources")
}

#[test]
fn what_nobody_names_is_told_with_its_line() {
    let found = unused("\npub fn idle() {}\nfn private() {}\npub(crate) struct Own;\n", "");
    assert_eq!(found, ["core/a/a.rs:2: nothing uses public `idle`"]);
    assert!(unused("pub fn idle() {}", "fn f() { weir_a::idle() }").is_empty());
    assert!(unused("pub fn idle() {}", "mac!(idle);").is_empty());
    assert!(
        unused("pub fn idle() {}", "#[serde(with = \"weir_a::idle\")] struct A(u8);").is_empty()
    );
}

#[test]
fn its_own_crate_and_its_own_tests_are_no_users() {
    let library = "pub fn idle() {}\nfn f() { idle() }\n#[cfg(test)]\nmod tests { pub fn x() {} }";
    assert_eq!(unused(library, "").len(), 1);
    let tests = Source { is_library: false, ..source("core/a", "fn t() { weir_a::idle() }") };
    let found = findings(&[source("core/a", library), tests]).expect("good sources");
    assert_eq!(found.len(), 1);
}

#[test]
fn what_a_used_item_shows_is_used() {
    let library = "pub struct Shown;\npub struct Deep;\npub struct Hidden;\n\
                   pub struct Made { pub shown: Shown, hidden: Hidden }\n\
                   impl Iterator for Shown { type Item = Deep; }\n\
                   impl Made { pub fn make() -> Self { f() } pub fn more(&self) {} }\n";
    let found = unused(library, "fn f() { weir_a::Made::make(); }");
    let all = [
        "core/a/a.rs:3: nothing uses public `Hidden`",
        "core/a/a.rs:6: nothing uses public `more`",
    ];
    assert_eq!(found, all);
}
