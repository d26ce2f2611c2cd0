//! The two text formats of metrics that Prometheus reads, and the choice between them.
//!
//! Metrics are written as OpenMetrics 1.0. Clients that do not request it, such as older versions
//! of Prometheus, get the text format 0.0.4.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// The text format 0.0.4 of Prometheus.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The format that a request with this `Accept` header wants. An empty header means text.
    pub fn wanted(accept: &str) -> Self {
        let weight = |kind: &str| {
            let mut ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
            ranges.find_map(|mut range| {
                let is_kind = range.next()?.eq_ignore_ascii_case(kind);
                let weight = range.find_map(|parameter| parameter.strip_prefix("q="));
                is_kind.then(|| weight.and_then(|text| text.parse().ok()).unwrap_or(1.0_f32))
            })
        };
        match (weight("application/openmetrics-text"), weight("text/plain")) {
            (Some(open), plain) if open > 0.0 && open >= plain.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts metrics in OpenMetrics to this format.
    #[must_use]
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => to_text(&open_metrics),
        }
    }
}

/// Converts OpenMetrics to the text format. That has no units and no end marker, and the name of a
/// counter is the name of its samples, with `_total`.
fn to_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help line precedes the type line, which determines the name for both.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(of_metric) = line.strip_prefix("# HELP ") {
            help = of_metric.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|of_metric| of_metric.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(&(line.to_owned() + "\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_get_what_they_accept() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, expected) in [
            ("", Exposition::Text),
            ("*/*", Exposition::Text),
            ("text/plain;version=0.0.4", Exposition::Text),
            ("application/openmetrics-text; version=1.0.0", Exposition::OpenMetrics),
            (prometheus, Exposition::OpenMetrics),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.9", Exposition::Text),
            ("application/openmetrics-text;q=0", Exposition::Text),
        ] {
            assert_eq!(Exposition::wanted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn text_names_counters_as_their_samples() {
        let open_metrics = "# HELP weir_drops Packets dropped.\n# TYPE weir_drops counter\n\
                            weir_drops_total{reason=\"x\"} 3\n# HELP weir_faces Faces.\n\
                            # TYPE weir_faces gauge\nweir_faces 2\n# TYPE t histogram\n\
                            # UNIT t seconds\nt_sum 0.5\n# EOF\n";
        let text = "# HELP weir_drops_total Packets dropped.\n# TYPE weir_drops_total counter\n\
                    weir_drops_total{reason=\"x\"} 3\n# HELP weir_faces Faces.\n\
                    # TYPE weir_faces gauge\nweir_faces 2\n# TYPE t histogram\nt_sum 0.5\n";
        assert_eq!(Exposition::Text.of(open_metrics.into()), text);
        assert_eq!(Exposition::OpenMetrics.of(open_metrics.into()), open_metrics);
    }
}
