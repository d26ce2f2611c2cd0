//! The exporter with collectors that work, are absent, do not answer or refuse spans.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use tracing::trace_span;
use tracing_subscriber::layer::SubscriberExt;
use weir_traces::{Exporter, Undelivered};

/// What a collector does with a request.
#[derive(Clone, Copy)]
enum Answer {
    Accept,
    Reject(i64),
    Status(&'static str),
    /// It reads nothing and never answers.
    Never,
}

/// Serves requests on a thread until the test ends. Returns its address, and what it receives.
fn collector(answer: Answer) -> (String, Receiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            if matches!(answer, Answer::Never) {
                kept.push(connection);
                continue;
            }
            while let Some(request) = serve(&connection, answer) {
                let _ = sender.send(request);
            }
        }
    });
    (url, received)
}

/// Serves one request; `None` at the end of the connection.
fn serve(mut connection: &TcpStream, answer: Answer) -> Option<ExportTraceServiceRequest> {
    let mut reader = BufReader::new(connection);
    let mut len = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().unwrap();
        }
        line.clear();
    }
    if line.is_empty() {
        return None;
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    let (status, response) = match answer {
        Answer::Status(status) => (status, b"no such tenant".to_vec()),
        Answer::Reject(rejected_spans) => {
            let error_message = "the trace is too large".to_owned();
            let partial = ExportTracePartialSuccess { rejected_spans, error_message };
            let response = ExportTraceServiceResponse { partial_success: Some(partial) };
            ("200 OK", response.encode_to_vec())
        }
        Answer::Accept | Answer::Never => ("200 OK", Vec::new()),
    };
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", response.len()).ok()?;
    connection.write_all(&response).ok()?;
    Some(ExportTraceServiceRequest::decode(&body[..]).unwrap())
}

/// Makes `spans` spans, and returns the result and the time of the end.
fn export(url: &str, spans: usize) -> (Result<(), Undelivered>, Duration) {
    let environment = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.to_owned());
    let exporter = Exporter::start_with("weir-test", "1.2.3", &environment).unwrap().unwrap();
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
    let (url, received) = collector(Answer::Accept);
    let (result, _) = export(&url, 3);
    result.unwrap();
    let request = received.try_recv().unwrap();
    let of_program = &request.resource_spans[0];
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
    let (url, received) = collector(Answer::Accept);
    let environment = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
    let exporter = Exporter::start_with("weir-test", "1", &environment).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(exporter.layer());
    tracing::subscriber::with_default(subscriber, || {
        trace_span!(target: "weir_socket::fetch", "ours");
        trace_span!(target: "weirdo", "other");
        trace_span!(target: "hyper", "other");
        trace_span!(target: "weir", "empty", weir.discard = true);
    });
    exporter.finish().unwrap();
    let request = received.try_recv().unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.iter().map(|span| &span.name[..]).collect::<Vec<_>>(), ["ours"]);
}

#[test]
fn stalled_collector_ends_within_limit() {
    let (url, _) = collector(Answer::Never);
    let (result, took) = export(&url, 7);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("7 of 7 spans") && text.contains("does not answer"), "{text}");
    assert!(text.contains(&url) && text.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{text}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn absent_collector_is_named_with_the_cause() {
    let (result, took) = export("http://127.0.0.1:9", 1);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("1 of 1 spans") && text.contains("127.0.0.1:9"), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn refusals_are_reported_with_their_reason() {
    let (url, _received) = collector(Answer::Status("403 Forbidden"));
    let text = export(&url, 2).0.unwrap_err().to_string();
    assert!(text.contains("2 of 2 spans"), "{text}");
    assert!(text.contains("403 Forbidden: no such tenant"), "{text}");
    let (url, _received) = collector(Answer::Reject(2));
    let text = export(&url, 5).0.unwrap_err().to_string();
    assert!(text.contains("2 of 5 spans") && text.contains("too large"), "{text}");
}

/// The queue has 2,048 spans, and the thread takes a batch of 512 at a time.
#[test]
fn full_queue_drops_and_counts() {
    let (url, _) = collector(Answer::Never);
    let begin = Instant::now();
    let (result, took) = export(&url, 50_000);
    assert!(begin.elapsed() - took < Duration::from_secs(2), "no span waits for the collector");
    let undelivered = result.unwrap_err();
    assert_eq!((undelivered.lost, undelivered.ended), (50_000, 50_000));
}
