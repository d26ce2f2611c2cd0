use super::super::tests::read_files;
use super::find;

const ROOT: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub struct T;\n");

/// The lines of all circles of a crate with these bodies of `impl T` in two files.
fn circles(a: &str, b: &str) -> Vec<String> {
    let text = |body: &str| format!("use crate::T;\nimpl T {{\n{body}\n}}\n");
    lines(&[ROOT, ("a.rs", &text(a)), ("b.rs", &text(b))])
}

fn lines(files: &[(&str, &str)]) -> Vec<String> {
    read_files(files, |root, modules| {
        find(root, modules).iter().flat_map(|it| it.lines()).collect()
    })
}

#[test]
fn calls_in_one_direction_are_no_circle() {
    let found = circles("fn f(&self) { self.g(); Self::h() }", "fn g(&self) {}\nfn h() {}");
    assert_eq!(found, [""; 0]);
}

#[test]
fn calls_in_both_directions_are_listed() {
    let found =
        circles("fn f(&self) { self.g(); self.k() }", "fn g(&self) { self.f() }\nfn k(&self) {}");
    assert_eq!(found, ["a.rs -> b.rs: g k", "b.rs -> a.rs: f"]);
}

#[test]
fn each_way_to_write_a_call_counts() {
    let with =
        |back: &str| circles("fn f(&self) { self.g() }", &format!("fn g(&self) {{ {back} }}"));
    for back in [
        "(&*self).f()",
        "Self::f(self)",
        "T::f(self)",
        "[self].iter().for_each(Self::f)",
        "assert!(self.f() == ())",
        "assert!(Self::f(self) == ())",
        "|| { self.f() };",
    ] {
        assert_eq!(with(back).len(), 2, "{back}");
    }
    for other in ["self.field.f()", "other.f()", "U::f(self)", "print!(\"{}\", self.f)", "f()"] {
        assert_eq!(with(other), [""; 0], "{other}");
    }
}

#[test]
fn a_method_of_the_same_file_comes_first() {
    let found = circles(
        "fn f(&self) { self.g() }\nfn new() {}",
        "fn g(&self) { Self::new() }\nfn new() {}",
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn types_of_one_name_differ_by_module() {
    let a = "pub struct S;\nimpl S { fn f(&self) { self.g() } fn k(&self) {} }\n";
    let b = "pub struct S;\nimpl S { fn g(&self) { self.k() } }\n";
    assert_eq!(lines(&[ROOT, ("a.rs", a), ("b.rs", b)]), [""; 0]);
    let b = "use crate::a::S;\nimpl S { fn g(&self) { self.k() } }\n";
    assert_eq!(lines(&[ROOT, ("a.rs", a), ("b.rs", b)]).len(), 2);
}

#[test]
fn implementations_of_traits_count() {
    let a = "impl Iterator for crate::T { fn next(&mut self) -> Option<()> { self.g() } }\n";
    let b = "impl crate::T { fn g(&mut self) -> Option<()> { self.next() } }\n";
    assert_eq!(lines(&[ROOT, ("a.rs", a), ("b.rs", b)]).len(), 2);
}

#[test]
fn tests_do_not_count() {
    let found = circles(
        "fn f(&self) { self.g() }",
        "fn g(&self) {}\n#[cfg(test)]\nfn t(&self) { self.f() }",
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_summary_counts_files() {
    let files = [
        ROOT,
        ("a.rs", "impl crate::T { fn f(&self) { self.g() } }\n"),
        ("b.rs", "impl crate::T { fn g(&self) { self.f() } }\n"),
    ];
    let root = ("lib.rs", "mod a;\nmod b;\npub struct T;\nimpl T { fn h(&self) { self.f() } }\n");
    let summary =
        read_files(&[root, files[1], files[2]], |at, modules| find(at, modules)[0].to_string());
    assert_eq!(summary, "`T`: 2 of its 3 files call each other");
}
