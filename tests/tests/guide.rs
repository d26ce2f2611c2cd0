//! The guide "Write an application": it shows the example programs, and they work as described.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use weir_tests::{
    CLibrary, Client, Finished, Host, Library, Process, Python, Router, interop_is_skipped,
    sha256_hex, socket_example,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("repository").to_path_buf()
}

/// The examples in the guide, each with the language of its code block.
const PROGRAMS: [(&str, &str); 6] = [
    ("rust", "io/ndn/examples/guide_publish.rs"),
    ("rust", "io/ndn/examples/guide_get.rs"),
    ("c", "bindings/c/examples/guide_publish.c"),
    ("c", "bindings/c/examples/guide_get.c"),
    ("python", "bindings/python/examples/guide_publish.py"),
    ("python", "bindings/python/examples/guide_get.py"),
];

#[test]
fn guide_shows_the_tested_programs() {
    let guide = std::fs::read_to_string(repository().join("docs/write-an-application.md")).unwrap();
    for (language, path) in PROGRAMS {
        let program = std::fs::read_to_string(repository().join(path)).unwrap();
        let block = format!("```{language}\n{program}```\n");
        assert!(guide.contains(&block), "the guide does not show the current {path}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Language {
    Rust,
    C,
    Python,
}

impl Language {
    /// The languages that can be tested. Python needs the test clients.
    fn all() -> impl Iterator<Item = Self> {
        let all = [Self::Rust, Self::C, Self::Python].into_iter();
        all.filter(|&one| one != Self::Python || !interop_is_skipped())
    }

    fn start(self, host: &Host, router: &str, program: &str, arguments: &[&str]) -> Process {
        let mut command = match self {
            Self::Rust => host.command(&socket_example(program)),
            Self::C => {
                let source = format!("examples/{program}.c");
                host.command(&CLibrary::installed().program(&source))
            }
            Self::Python => {
                let path = repository().join(format!("bindings/python/examples/{program}.py"));
                let words = [&[path.to_str().expect("UTF-8")], arguments].concat();
                return Python::installed().start(host, router, &words);
            }
        };
        command.args(arguments).env("NDN_CLIENT_TRANSPORT", router);
        Process::start(program, command)
    }
}

/// Checks that a program failed with a readable message of one line.
fn assert_says(finished: Finished, words: &str, language: Language) {
    assert_eq!(finished.output, "", "{language:?}");
    let errors = finished.errors.clone();
    let _ = finished.failure();
    assert!(errors.contains(words) && !errors.contains('{'), "{language:?}: {errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{language:?}: {errors}");
}

/// The first error that a new user sees.
#[test]
fn examples_report_missing_router() {
    let host = Host::new();
    let router = format!("unix://{}", host.path("none").display());
    for language in Language::all() {
        let words = if language == Language::C { "refused" } else { "no router" };
        let get = language.start(&host, &router, "guide_get", &["/home/kitchen"]);
        assert_says(get.finish(), words, language);
        assert_says(language.start(&host, &router, "guide_publish", &[]).finish(), words, language);
    }
}

/// The longer examples also report errors in one line.
#[test]
fn examples_report_errors_in_one_line() {
    let host = Host::new();
    let router = format!("unix://{}", host.path("none").display());
    for (program, arguments) in [
        ("file_server", &[".", "/files"][..]),
        ("file_client", &["/files/one"]),
        ("live_source", &["/live"]),
        ("live_watch", &["/live"]),
    ] {
        for (arguments, words) in [(arguments, "no router"), (&[], "give ")] {
            let finished = Language::Rust.start(&host, &router, program, arguments).finish();
            assert_says(finished, &format!("{program}: {words}"), Language::Rust);
        }
    }
}

#[test]
fn ctrl_c_ends_python_publisher_silently() {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    let mut server = Language::Python.start(&router.host, &router.unix(), "guide_publish", &[]);
    let _ = server.line_with("published /home/kitchen");
    server.signal(Signal::SIGINT);
    assert_eq!(server.finish().success().errors, "");
}

fn publishes(publisher: Language) {
    let router = Router::on_new_host();
    let unix = router.unix();
    let server = publisher.start(&router.host, &unix, "guide_publish", &[]);
    let _ = server.line_with("published /home/kitchen");
    for getter in Language::all() {
        let get = |name: &str| getter.start(&router.host, &unix, "guide_get", &[name]).finish();
        assert_eq!(get("/home/kitchen").success().output, "21.5", "{getter:?}");
        assert_eq!(get("/home/attic").success().output, "31.0", "{getter:?}");
        assert_says(get("/home/cellar"), "/home/cellar", getter);
    }
}

#[test]
fn every_language_reads_rust_objects() {
    publishes(Language::Rust);
}

#[test]
fn every_language_reads_c_objects() {
    publishes(Language::C);
}

#[test]
fn every_language_reads_python_objects() {
    if !interop_is_skipped() {
        publishes(Language::Python);
    }
}

/// The libraries know each other's keys, and trust each other's signatures.
#[test]
fn exchanges_objects_with_other_libraries() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let router = Router::start(&host);
    let file = |name: &str| host.path(name).to_str().expect("UTF-8").to_owned();
    let (own_key, reading) = (file("own.key"), file("reading"));
    for words in [
        &["key", "new", "/home", "--type", "ecdsa", "--default"][..],
        &["key", "export", "/home", "--output", &own_key],
    ] {
        router.weir(words).success();
    }
    host.write("reading", b"21.5\n");
    let expected = sha256_hex(&host.path("reading"));
    for library in Library::ALL {
        let client = Client::new(&host, library, &router.unix());
        let (name, key) = (format!("/{}/kitchen", library.label()), file(library.label()));
        let put = ["put", &name, &reading, "--sign", "ecdsa", "--key-out", &key];
        let producer = client.start(&put);
        assert_eq!(producer.event("ready")["registered"], true);
        router.weir(&["key", "trust", &key]).success();
        for language in Language::all() {
            let got =
                language.start(&host, &router.unix(), "guide_get", &[&name]).finish().success();
            assert_eq!(got.output, "21.5", "{language:?} of {}", library.label());

            let server = language.start(&host, &router.unix(), "guide_publish", &[]);
            let _ = server.line_with("published /home/kitchen");
            // Each answer is a new version, so it is in no store.
            let object = client.run_to_json(&["get", "/home/kitchen", "--key", &own_key]);
            assert_eq!(object["sha256"], expected, "{language:?} to {object}");
            assert_eq!(object["verified"], true, "{language:?} to {object}");
        }
    }
}
