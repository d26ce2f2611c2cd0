//! Traces of `weir get`, from a router with a producer.

use std::process::Output;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::collector::{Answer, collector};
use crate::spans::{Spans, boolean, float, integer, text};
use crate::{Running, start, weir};

const SIZE: usize = 1_000_000;

/// A router, and a producer of `/demo/file`.
struct Site {
    folder: tempfile::TempDir,
    _router: Running,
    _producer: Running,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("file"), vec![7; SIZE]).unwrap();
        let router =
            ["router", "--unix", "router.sock", "--udp", "none", "--tcp", "none", "--json"];
        let router = start(weir(path, &router));
        let producer = start(weir(path, &["put", "file", "/demo/file", "--json"]));
        Self { folder, _router: router, _producer: producer }
    }

    fn get(&self, words: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = weir(self.folder.path(), &["get"]);
        command.args(words).envs(environment.iter().copied()).output().unwrap()
    }
}

fn is_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

#[test]
fn get_sends_a_tree_of_spans() {
    let site = Site::new();
    let (url, received) = collector(Answer::ACCEPT);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let output = site.get(
        &["/demo/file", "-o", "copy", "--pipeline", "aimd"],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret"),
            ("OTEL_RESOURCE_ATTRIBUTES", "site.name=north"),
            ("TRACEPARENT", parent),
        ],
    );
    assert!(output.status.success(), "{output:?}");
    let spans = Spans::receive(&received, |spans| !spans.all("get").is_empty());
    assert!(spans.heads[0].contains("authorization: bearer secret"), "{}", spans.heads[0]);
    assert_eq!(text(&spans.resource, "service.name"), "weir-get");
    assert_eq!(text(&spans.resource, "site.name"), "north");

    let get = spans.one("get");
    assert_eq!(hex::encode(&get.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex::encode(&get.parent_span_id), "b7ad6b7169203331");
    assert!(spans.all_of_trace(&get.trace_id));
    assert_eq!(text(&get.attributes, "weir.name"), "/demo/file");
    assert_eq!(integer(get, "weir.bytes"), SIZE as i64);
    assert_eq!(integer(get, "weir.files"), 1);
    assert_eq!(integer(get, "process.exit.code"), 0);
    assert!(integer(get, "weir.retransmissions") >= 0);
    let segments = integer(get, "weir.segments");
    assert!(text(&get.attributes, "weir.sources").contains("face="), "{get:#?}");

    assert_eq!(spans.children(get), ["download"]);
    let download = spans.one("download");
    assert_eq!(spans.children(download), ["discovery", "verification", "fetch", "write"]);
    assert!(text(&download.attributes, "weir.version").starts_with("/demo/file/v="));
    assert_eq!(integer(download, "weir.segments"), segments);
    assert!(!boolean(download, "weir.unchanged"));
    let discovery = spans.one("discovery");
    assert!(!boolean(discovery, "weir.stored"));
    let fetch = spans.one("fetch");
    assert_eq!(text(&fetch.attributes, "weir.controller"), "aimd");
    assert!(float(fetch, "weir.window") > 1.0 && float(fetch, "weir.rtt_median_ms") > 0.0);
    assert!(integer(fetch, "weir.interests") >= segments);
    assert!(text(&fetch.attributes, "weir.sources").contains("face-"), "{fetch:#?}");
    let verification = spans.one("verification");
    assert!(integer(verification, "weir.packets") >= segments);
    assert_eq!(integer(verification, "weir.rejected"), 0);
    assert!(integer(verification, "weir.busy_us") > 0);
    assert!(integer(spans.one("write"), "weir.busy_us") > 0);

    // Each phase lies within the download, and the download within the command.
    for (inner, outer) in
        [(discovery, download), (fetch, download), (verification, download), (download, get)]
    {
        assert!(outer.start_time_unix_nano <= inner.start_time_unix_nano, "{inner:#?}");
        assert!(inner.start_time_unix_nano < inner.end_time_unix_nano, "{inner:#?}");
        assert!(inner.end_time_unix_nano <= outer.end_time_unix_nano, "{inner:#?}");
        assert!(!is_failed(inner));
    }
}

#[test]
fn failed_get_has_cause_and_exit_code() {
    let site = Site::new();
    let (url, received) = collector(Answer::ACCEPT);
    let output = site.get(&["/nowhere/file"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    let spans = Spans::receive(&received, |spans| !spans.all("get").is_empty());
    let code = output.status.code().unwrap();
    let get = spans.one("get");
    assert_eq!(integer(get, "process.exit.code"), i64::from(code));
    assert!(code > 0 && is_failed(get));
    let message = &get.status.as_ref().unwrap().message;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains(&message[..]) && message.contains("/nowhere/file"), "{message}");
    assert_eq!(spans.children(spans.one("download")), ["discovery"]);
    assert!(is_failed(spans.one("discovery")) && is_failed(spans.one("download")));
}

#[test]
fn bad_collectors_do_not_fail_or_delay_get() {
    let site = Site::new();
    let (stalled, _received) = collector(Answer::Never);
    for (url, words) in [
        (&stalled[..], "does not answer. Check that a collector accepts"),
        ("http://127.0.0.1:9", "refused"),
        ("127.0.0.1:4318", "set it to one such as http://127.0.0.1:4318"),
        ("http://", "set it to one such as http://127.0.0.1:4318"),
    ] {
        let begin = Instant::now();
        let words_of_get = ["/demo/file", "-o", "copy", "--force"];
        let output = site.get(&words_of_get, &[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]);
        let took = begin.elapsed();
        assert!(output.status.success(), "{url}: {output:?}");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(printed.matches(words).count(), 1, "{url}: {printed}");
        // 1.5 s for the collector, and the rest for the transfer.
        assert!(took < Duration::from_secs(10), "{url}: {took:?}");
        assert_eq!(std::fs::read(site.folder.path().join("copy")).unwrap().len(), SIZE);
    }
}
