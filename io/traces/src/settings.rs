//! The environment variables of OpenTelemetry that say where traces go.
//!
//! The SDK reads the others itself: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_BSP_*`, limits, and the sampler, which is checked here because the SDK would ignore a
//! wrong one.

use std::time::Duration;

use ureq::http::Uri;
use weir_base::without_secrets;

/// The values of environment variables.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Below [`ENDPOINT`], as the specification of OTLP says.
const TRACES_PATH: &str = "/v1/traces";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const PROTOCOL: &str = "http/protobuf";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Samplers, and whether each has a ratio.
const SAMPLERS: [(&str, bool); 6] = [
    ("always_on", false),
    ("always_off", false),
    ("traceidratio", true),
    ("parentbased_always_on", false),
    ("parentbased_always_off", false),
    ("parentbased_traceidratio", true),
];

/// Why no traces are sent although the environment names a collector.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "{name} is `{value}`, which is no address of a collector; set it to one such as \
         http://127.0.0.1:4318, or unset it"
    )]
    Endpoint { name: &'static str, value: String },
    #[error(
        "{name} is `{value}`, but only http/protobuf is supported; set it to http/protobuf, and \
         the endpoint to the collector's port for OTLP over HTTP, usually 4318"
    )]
    Protocol { name: String, value: String },
    #[error("{name} is `{value}`, but compression is not supported; set it to none, or unset it")]
    Compression { name: String, value: String },
    #[error("{name} is `{value}`; set it to a number of milliseconds above 0")]
    Timeout { name: String, value: String },
    #[error("OTEL_TRACES_SAMPLER is `{0}`; set it to one of {names}", names = sampler_names())]
    Sampler(String),
    #[error("OTEL_TRACES_SAMPLER_ARG is `{0}`; set it to a share of traces, from 0.0 to 1.0")]
    SamplerArg(String),
    #[error("cannot use the certificates in {path}: {why}; correct {name}")]
    Certificates { name: String, path: String, why: String },
    #[error("this system has no root certificates; set OTEL_EXPORTER_OTLP_CERTIFICATE to a file")]
    NoCertificates,
    #[error("cannot start the exporter: {0}")]
    Exporter(String),
}

fn sampler_names() -> String {
    SAMPLERS.map(|(name, _)| name).join(", ")
}

#[derive(Debug)]
pub(crate) struct Settings {
    /// Where spans go, with the path.
    pub(crate) endpoint: String,
    /// For one request.
    pub(crate) timeout: Duration,
    /// The variable, and the file of the certificates that verify the collector.
    pub(crate) certificates: Option<(String, String)>,
}

impl Settings {
    /// `None` if no traces are wanted.
    pub(crate) fn read(environment: Environment<'_>) -> Result<Option<Self>, SettingsError> {
        let get = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let is_disabled = get("OTEL_SDK_DISABLED")
            .is_some_and(|it| it.eq_ignore_ascii_case("true"))
            || get("OTEL_TRACES_EXPORTER").is_some_and(|it| it.trim() == "none");
        let (name, value) = match (get(TRACES_ENDPOINT), get(ENDPOINT)) {
            _ if is_disabled => return Ok(None),
            (Some(value), _) => (TRACES_ENDPOINT, value),
            (None, Some(value)) => (ENDPOINT, value),
            (None, None) => return Ok(None),
        };
        if !is_http_address(value.trim()) {
            return Err(SettingsError::Endpoint { name, value: without_secrets(&value) });
        }
        let endpoint = match name {
            ENDPOINT => format!("{}{TRACES_PATH}", value.trim().trim_end_matches('/')),
            _ => value.trim().to_owned(),
        };
        if let Some((name, value)) = for_traces(&get, "PROTOCOL")
            && value != PROTOCOL
        {
            return Err(SettingsError::Protocol { name, value });
        }
        if let Some((name, value)) = for_traces(&get, "COMPRESSION")
            && value != "none"
        {
            return Err(SettingsError::Compression { name, value });
        }
        let timeout = match for_traces(&get, "TIMEOUT") {
            None => TIMEOUT_DEFAULT,
            Some((name, value)) => match value.parse().ok().filter(|ms| *ms > 0) {
                Some(ms) => Duration::from_millis(ms),
                None => return Err(SettingsError::Timeout { name, value }),
            },
        };
        check_sampler(get(SAMPLER), get(SAMPLER_ARG))?;
        let certificates = for_traces(&get, "CERTIFICATE");
        Ok(Some(Self { endpoint, timeout, certificates }))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.endpoint.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
    }
}

/// A setting of the exporter with the name of its variable: the one for traces, or the one for all
/// signals.
fn for_traces(get: &dyn Fn(&str) -> Option<String>, setting: &str) -> Option<(String, String)> {
    ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].iter().find_map(|prefix| {
        let name = format!("{prefix}{setting}");
        let value = get(&name)?.trim().to_owned();
        Some((name, value))
    })
}

fn is_http_address(value: &str) -> bool {
    value.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
    })
}

fn check_sampler(sampler: Option<String>, ratio: Option<String>) -> Result<(), SettingsError> {
    let Some(sampler) = sampler else { return Ok(()) };
    let Some((_, has_ratio)) = SAMPLERS.iter().find(|(name, _)| *name == sampler) else {
        return Err(SettingsError::Sampler(sampler));
    };
    let share = ratio.as_deref().and_then(|ratio| ratio.parse::<f64>().ok());
    if *has_ratio && !share.is_some_and(|share| (0.0..=1.0).contains(&share)) {
        return Err(SettingsError::SamplerArg(ratio.unwrap_or_default()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let get = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&get)
    }

    fn endpoint(variables: &[(&str, &str)]) -> Option<String> {
        read(variables).unwrap().map(|settings| settings.endpoint)
    }

    #[test]
    fn sends_nothing_without_an_endpoint() {
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[(ENDPOINT, " ")]), None);
        let url = (ENDPOINT, "http://h:4318");
        assert_eq!(endpoint(&[url, ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(endpoint(&[url, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert!(endpoint(&[url, ("OTEL_TRACES_EXPORTER", "otlp")]).is_some());
    }

    #[test]
    fn path_follows_the_specification() {
        let with_path = Some("http://h:4318/base/v1/traces".to_owned());
        assert_eq!(endpoint(&[(ENDPOINT, "http://h:4318/base")]), with_path);
        assert_eq!(endpoint(&[(ENDPOINT, "http://h:4318/base/")]), with_path);
        let own = [(ENDPOINT, "http://other"), (TRACES_ENDPOINT, "https://h/spans")];
        assert_eq!(endpoint(&own), Some("https://h/spans".to_owned()));
        assert!(read(&own).unwrap().unwrap().is_encrypted());
    }

    #[test]
    fn bad_values_name_variable_and_remedy() {
        for (name, value, remedy) in [
            (ENDPOINT, "127.0.0.1:4318", "http://127.0.0.1:4318"),
            (ENDPOINT, "collector", "http://127.0.0.1:4318"),
            (TRACES_ENDPOINT, "grpc://h", "http://127.0.0.1:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip", "none"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"),
            (SAMPLER, "sometimes", "always_on, always_off"),
        ] {
            let error = read(&[(name, value), (ENDPOINT, "http://h")]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert!(error.contains(&format!("`{value}`")) && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn bad_endpoint_is_shown_without_secrets() {
        let error = read(&[(ENDPOINT, "ftp://me:secret@h/p?key=secret")]).unwrap_err().to_string();
        assert!(error.contains("ftp://***@h/p?***") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn ratio_of_sampler_is_checked() {
        let with = |ratio| {
            let url = (ENDPOINT, "http://h");
            read(&[url, (SAMPLER, "parentbased_traceidratio"), (SAMPLER_ARG, ratio)])
        };
        assert!(with("0.25").is_ok());
        for ratio in ["", "2", "-1", "half"] {
            let error = with(ratio).unwrap_err().to_string();
            assert!(error.contains(SAMPLER_ARG) && error.contains("0.0 to 1.0"), "{error}");
        }
    }
}
