//! The Python wheel over a real router. The tests themselves are in `bindings/python/tests`.

use weir_tests::{Client, Host, Library, Python, Router, interop_is_skipped, random_file};

fn test(file: &str) {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    Python::installed().test(&router.host, &router, file);
}

#[test]
fn get_put_consumers_and_producers() {
    test("test_sockets.py");
}

#[test]
fn growth_offers_answers_and_cancelled_binds() {
    test("test_live.py");
}

#[test]
fn processes_that_fork_spawn_stop_and_end() {
    test("test_processes.py");
}

#[test]
fn fsspec_libraries_open_files_by_name() {
    test("test_files.py");
}

#[test]
fn types_readme_and_options_are_accurate() {
    test("test_manual.py");
}

#[test]
fn objects_go_to_and_from_weir_and_python_ndn() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let router = Router::start(&host);
    let python = Python::installed();
    let file = host.path("file");
    let sum = random_file(&file, 300_000, 1);
    let file = file.to_str().unwrap();
    let client = Client::new(&host, Library::PythonNdn, &router.unix());
    let _theirs = client.serve(&router, &["put", "/theirs", file]);
    let (_weirs, _) = router.put(&[file, "/weirs"]);
    let script = "
import hashlib, sys, time, weir
for name in sys.argv[1:]:
    octets = weir.get(name, allow_unsigned=True, timeout=30)
    print(name, len(octets), hashlib.sha256(octets).hexdigest())
";
    let got = python.start(&host, &router.unix(), &["-c", script, "/theirs", "/weirs"]);
    let output = got.finish().success().output;
    for name in ["/theirs", "/weirs"] {
        assert!(output.contains(&format!("{name} 300000 {sum}")), "{output}");
    }
    let script = "
import sys, time, weir
with weir.put('/ours', sys.argv[1], sign='digest', segment_size=4096):
    print('{\"event\": \"ready\"}', flush=True)
    time.sleep(600)
";
    let ours = python.start(&host, &router.unix(), &["-c", script, file]);
    ours.event("ready");
    assert_eq!(client.run_to_json(&["get", "/ours"])["sha256"], sum);
}
