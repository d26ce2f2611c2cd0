//! What the metrics of router, controller and gateway share.

mod process;
#[cfg(feature = "reference")]
pub mod reference;

use std::sync::OnceLock;

use prometheus_client::registry::Registry;

use process::ProcessCollector;

/// The commit that the program was built from.
static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Sets the label `commit` of `weir_build_info`. Only the first call counts. The program calls it
/// when it starts; without a call the label is `unknown`.
pub fn set_commit(commit: &'static str) {
    let _ = COMMIT.set(commit);
}

/// A registry without a prefix that reports the build and the process.
pub fn new_registry() -> Registry {
    let mut registry = Registry::default();
    let commit = COMMIT.get().copied().unwrap_or("unknown");
    registry.register_collector(Box::new(ProcessCollector { commit }));
    registry
}

/// All metrics in OpenMetrics 1.0. `weir_base::Exposition` converts them for clients that do not
/// accept it.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_reports_build_and_process() {
        let text = encode(&new_registry());
        let version = env!("CARGO_PKG_VERSION");
        let build = format!("weir_build_info{{version=\"{version}\",commit=\"unknown\"}} 1");
        assert!(text.lines().any(|line| line == build), "{text}");
        let value = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let found = found.unwrap_or_else(|| panic!("{name} is not in\n{text}"));
            found.parse::<f64>().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
        assert!(value("process_threads") >= 1.0, "{text}");
        assert!(value("process_open_fds") >= 3.0, "{text}");
        assert!(value("process_max_fds") >= value("process_open_fds"), "{text}");
        let since_1970 = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs_f64();
        let age_s = since_1970 - value("process_start_time_seconds");
        assert!((-2.0..600.0).contains(&age_s), "started {age_s} s ago\n{text}");
        assert!(value("process_cpu_seconds_total") >= 0.0, "{text}");
    }
}
