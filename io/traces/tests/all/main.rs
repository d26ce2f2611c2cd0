//! The exporter with collectors that work, are absent, do not answer or refuse spans.

mod collector;

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use tracing::trace_span;
use tracing_subscriber::layer::SubscriberExt;
use weir_traces::{Exporter, Undelivered};

use self::collector::{Answer, collector};

/// Makes `spans` spans, and returns the result and the time of the end.
fn export(url: &str, spans: usize) -> (Result<(), Undelivered>, Duration) {
    let environment = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.to_owned());
    let exporter = Exporter::start("weir-test", "1.2.3", &environment).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(exporter.layer());
    tracing::subscriber::with_default(subscriber, || {
        for number in 0..spans {
            trace_span!(target: "weir", "work", number = number as i64);
        }
    });
    let begin = Instant::now();
    (exporter.finish(), begin.elapsed())
}

#[test]
fn collector_receives_all_spans() {
    let (url, received) = collector(Answer::ACCEPT);
    let (result, _) = export(&url, 3);
    result.unwrap();
    let request = received.try_recv().unwrap();
    assert!(request.head.starts_with("post /v1/traces "), "{}", request.head);
    assert!(request.head.contains("content-type: application/x-protobuf"), "{}", request.head);
    let of_program = &request.message.resource_spans[0];
    let attributes = &of_program.resource.as_ref().unwrap().attributes;
    let has = |key: &str, value: &str| {
        attributes.iter().any(|found| {
            found.key == key && format!("{:?}", found.value).contains(&format!("{value:?}"))
        })
    };
    assert!(has("service.name", "weir-test") && has("service.version", "1.2.3"), "{attributes:?}");
    assert_eq!(of_program.scope_spans[0].spans.len(), 3);
    assert!(received.try_recv().is_err(), "one batch");
}

#[test]
fn takes_only_spans_of_weir() {
    let (url, received) = collector(Answer::ACCEPT);
    let environment = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
    let exporter = Exporter::start("weir-test", "1", &environment).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(exporter.layer());
    tracing::subscriber::with_default(subscriber, || {
        trace_span!(target: "weir_socket::fetch", "ours");
        trace_span!(target: "weirdo", "other");
        trace_span!(target: "hyper", "other");
        trace_span!(target: "weir", "empty", weir.discard = true);
    });
    exporter.finish().unwrap();
    let request = received.try_recv().unwrap();
    let spans = &request.message.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.iter().map(|span| &span.name[..]).collect::<Vec<_>>(), ["ours"]);
}

#[test]
fn stalled_collector_ends_within_limit() {
    let (url, _) = collector(Answer::Never);
    let (result, took) = export(&url, 7);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("7 of 7 spans") && text.contains("does not answer"), "{text}");
    assert!(text.contains(&url) && text.contains("OTEL_SDK_DISABLED"), "{text}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn absent_collector_is_named_with_the_cause() {
    let (result, took) = export("http://127.0.0.1:9", 1);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("1 of 1 spans") && text.contains("127.0.0.1:9"), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn refusals_are_reported_with_their_reason() {
    let (url, _received) = collector(Answer::With("403 Forbidden", b"no such tenant".to_vec()));
    let text = export(&url, 2).0.unwrap_err().to_string();
    assert!(text.contains("2 of 2 spans"), "{text}");
    assert!(text.contains("403 Forbidden: no such tenant"), "{text}");
    let error_message = "the trace is too large".to_owned();
    let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message };
    let response = ExportTraceServiceResponse { partial_success: Some(partial) };
    let (url, _received) = collector(Answer::With("200 OK", response.encode_to_vec()));
    let text = export(&url, 5).0.unwrap_err().to_string();
    assert!(text.contains("2 of 5 spans") && text.contains("too large"), "{text}");
}

/// The queue has 2,048 spans, and the thread takes a batch of 512 at a time.
#[test]
fn full_queue_drops_and_counts() {
    let (url, _) = collector(Answer::Never);
    let begin = Instant::now();
    let (result, took) = export(&url, 50_000);
    assert!(begin.elapsed() - took < Duration::from_secs(8), "no span waits for the collector");
    let undelivered = result.unwrap_err();
    assert_eq!((undelivered.lost, undelivered.ended), (50_000, 50_000));
}
