//! Spans that a collector has received.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::TEST_TIMEOUT;
use crate::collector::Received;

/// All spans of some requests.
#[derive(Default)]
pub(crate) struct Spans {
    pub(crate) heads: Vec<String>,
    pub(crate) resource: Vec<KeyValue>,
    spans: Vec<Span>,
}

impl Spans {
    /// Receives spans until there are enough.
    pub(crate) fn receive(
        received: &Receiver<Received>,
        is_enough: impl Fn(&Self) -> bool,
    ) -> Self {
        let mut all = Self::default();
        let end = Instant::now() + TEST_TIMEOUT;
        while !is_enough(&all) {
            let rest = end.saturating_duration_since(Instant::now());
            let Ok(Received { head, message }) = received.recv_timeout(rest) else {
                panic!("not all spans arrived: {:#?}", all.spans);
            };
            all.heads.push(head);
            for of_program in message.resource_spans {
                all.resource = of_program.resource.unwrap_or_default().attributes;
                let scopes = of_program.scope_spans.into_iter();
                all.spans.extend(scopes.flat_map(|scope| scope.spans));
            }
        }
        all
    }

    /// All spans of a name.
    pub(crate) fn all(&self, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| span.name == name).collect()
    }

    /// The only span of a name.
    pub(crate) fn one(&self, name: &str) -> &Span {
        match self.all(name)[..] {
            [span] => span,
            ref found => panic!("{} spans `{name}`: {:#?}", found.len(), self.spans),
        }
    }

    /// Names of the children of a span, in the order of their ends.
    pub(crate) fn children(&self, parent: &Span) -> Vec<&str> {
        let is_child = |span: &&Span| span.parent_span_id == parent.span_id;
        self.spans.iter().filter(is_child).map(|span| &span.name[..]).collect()
    }

    pub(crate) fn all_of_trace(&self, trace_id: &[u8]) -> bool {
        self.spans.iter().all(|span| span.trace_id == trace_id)
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    // Each attribute occurs once.
    assert!(attributes.iter().filter(|found| found.key == key).count() < 2, "{attributes:#?}");
    let found = attributes.iter().find(|found| found.key == key)?;
    let AnyValue { value } = found.value.as_ref()?;
    value.as_ref()
}

pub(crate) fn has(attributes: &[KeyValue], key: &str) -> bool {
    value(attributes, key).is_some()
}

pub(crate) fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text,
        found => panic!("{key} is {found:?}: {attributes:#?}"),
    }
}

pub(crate) fn integer(span: &Span, key: &str) -> i64 {
    match value(&span.attributes, key) {
        Some(Value::IntValue(number)) => *number,
        found => panic!("{key} is {found:?}: {span:#?}"),
    }
}

pub(crate) fn float(span: &Span, key: &str) -> f64 {
    match value(&span.attributes, key) {
        Some(Value::DoubleValue(number)) => *number,
        found => panic!("{key} is {found:?}: {span:#?}"),
    }
}

pub(crate) fn boolean(span: &Span, key: &str) -> bool {
    match value(&span.attributes, key) {
        Some(Value::BoolValue(flag)) => *flag,
        found => panic!("{key} is {found:?}: {span:#?}"),
    }
}
