use std::path::Path;

use super::{Crate, findings};

/// Writes the files of a crate, the first of them its root, and reads them.
pub(crate) fn read_files<T>(files: &[(&str, &str)], check: impl FnOnce(&Path, &Crate) -> T) -> T {
    let folder = std::env::temp_dir().join(format!("weir-circles-{:p}", files.as_ptr()));
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    let modules = Crate::read_from(&folder.join(files[0].0)).expect("good files");
    std::fs::remove_dir_all(&folder).expect("the folder");
    check(&folder, &modules)
}

/// The findings about a crate of these files.
fn of(files: &[(&str, &str)]) -> Vec<String> {
    read_files(files, findings)
}

#[test]
fn a_parent_that_declares_and_passes_on_is_no_circle() {
    let found = of(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::{B, self as bee};\n"),
        ("a.rs", "use crate::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B;\n"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn names_the_lines_of_two_files_that_use_each_other() {
    let found = of(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "\nuse crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B;\nimpl B { fn f(_: &crate::a::A) {} }\n"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a.rs:2 uses B of b.rs"), "{found:?}");
    assert!(found[0].contains("b.rs:2 uses A of a.rs"), "{found:?}");
}

#[test]
fn names_are_followed_through_imports_globs_and_macros() {
    let through = |b: &str| {
        of(&[
            ("lib.rs", "mod a;\nmod b;\nmod front;\n"),
            ("front.rs", "pub use crate::a::*;\n"),
            ("a.rs", "use super::b;\npub struct A(b::B);\npub fn made() {}\n"),
            ("b.rs", &format!("pub struct B;\n{b}")),
        ])
        .len()
    };
    assert_eq!(through("use crate::front::A as Other;\n"), 1);
    assert_eq!(through("use crate::front::*;\nfn f() { made() }\n"), 1);
    assert_eq!(through("fn f() { assert!(super::front::made() == ()); }\n"), 1);
    assert_eq!(through("use crate::front::*;\nfn f() { other() }\n"), 0);
    assert_eq!(through("fn f() { std::mem::drop(1); }\n"), 0);
}

#[test]
fn a_module_and_its_folder_are_one_and_the_rest_is_not() {
    let with = |deep: &str| {
        of(&[
            ("lib.rs", "mod other;\nmod part;\npub use part::Part;\nfn f(_: Part) {}\n"),
            ("part/mod.rs", "mod deep;\nmod low;\npub struct Part(deep::Deep);\n"),
            ("part/deep.rs", &format!("use super::Part;\npub struct Deep;\n{deep}")),
            ("part/low.rs", "use super::deep::Deep;\npub struct Low;\n"),
            ("other.rs", "use crate::part::Part;\npub struct Other;\n"),
        ])
        .len()
    };
    assert_eq!(with(""), 0);
    assert_eq!(with("use super::low::Low;\n"), 1);
    assert_eq!(with("use crate::other::Other;\n"), 0, "no way back to this file");
    assert_eq!(with("pub use crate::other::Other;\nfn f(_: Other) {}\n"), 0);
}

#[test]
fn tests_and_the_modules_of_one_file_do_not_count() {
    let found = of(&[
        (
            "lib.rs",
            "mod a;\nmod b;\nmod c { pub struct C; mod d { use super::C; } use self::d; }\n",
        ),
        ("a.rs", "use crate::b::B;\n#[cfg(test)]\nmod tests { use super::B; }\n"),
        ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a; }\n"),
    ]);
    assert_eq!(found, [""; 0]);
}
