//! `docs/reference/rest.md`: requests, roles and objects of the controller's interface.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use weir_tests::{Host, Process, weir_binary};

use super::compare;

const HEAD: &str = "\
# REST interface of the controller

The controller serves JSON at its address (`listen`, port 8636). Requests carry a token as
`Authorization: Bearer TOKEN`; [tokens](../operate.md#tokens-and-tls) have roles. 401 means no
valid token, 403 a token of another role. A refused request has a `Refusal` as its body. Times are
in milliseconds since 1970 (`_ms`), sizes in bytes. `/openapi.json` has the same description for
programs, and `/` is the dashboard.

A test compares this page with the controller, whose code it is generated from;
`WEIR_WRITE_REFERENCE=1` writes it. [metrics.md](../metrics.md) describes `/metrics` of routers,
controllers and gateways.

## Requests

| request | roles | parameters | body | answer | purpose |
|---|---|---|---|---|---|
";

const ROLES: [&str; 4] = ["router", "producer", "operator", "reader"];

/// A running controller, and a token of each role.
struct Controller {
    url: String,
    tokens: Vec<(&'static str, String)>,
    _process: Process,
    _host: Host,
}

impl Controller {
    fn start() -> Self {
        let host = Host::new();
        let weir = |words: &[&str]| {
            let mut command = host.command(weir_binary());
            command.args(["controller", "--database", "controller.db"]).args(words);
            command
        };
        let add = |role| {
            let words = ["token", "add", "--role", role, "--name", "r1"];
            let prefix: &[&str] = if role == "producer" { &["--prefix", "/"] } else { &[] };
            let output = weir(&[&words, prefix].concat()).output().expect("weir runs");
            (role, String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned())
        };
        let tokens = ROLES.map(add).into();
        let address = format!("127.0.0.1:{}", host.free_port());
        let process = Process::start("controller", weir(&["--listen", &address]));
        let _ = process.line_with("ready");
        Self { url: format!("http://{address}"), tokens, _process: process, _host: host }
    }

    /// The status and the body of the answer.
    fn request(&self, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent: ureq::Agent = config.allow_non_standard_methods(true).build().into();
        let answer = agent.run(request.body(()).expect("a request"));
        let mut answer = answer.expect("an answer");
        let body = answer.body_mut().read_to_string().expect("text");
        (answer.status().as_u16(), body)
    }

    /// The roles that may send the request. Others are refused before the request is examined.
    fn roles(&self, method: &str, path: &str) -> String {
        let path = path.replace("{router}", "r1").replace("{number}", "1");
        let status = |token| self.request(method, &path, token).0;
        if status(None) != 401 {
            return "all, also without a token".into();
        }
        let allowed = self.tokens.iter().filter(|(_, token)| status(Some(token)) != 403);
        allowed.map(|(role, _)| *role).collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn controller_matches_the_rest_reference() {
    let controller = Controller::start();
    let (status, api) = controller.request("GET", "/openapi.json", None);
    assert_eq!(status, 200);
    let api: Value = serde_json::from_str(&api).expect("JSON");
    let mut page = HEAD.to_owned();
    for (path, methods) in api["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let method = method.to_uppercase();
            let roles = controller.roles(&method, path);
            page += &request_row(&method, path, &roles, operation);
        }
    }
    page += "\n## Objects\n";
    for (name, schema) in api["components"]["schemas"].as_object().expect("schemas") {
        page += &object(name, schema);
    }
    compare("rest.md", &page);
}

fn request_row(method: &str, path: &str, roles: &str, operation: &Value) -> String {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters: Vec<String> = parameters
        .filter(|parameter| parameter["in"] == "query")
        .map(|parameter| format!("`{}`: {}", text(&parameter["name"]), text_of(parameter)))
        .collect();
    let body = content_type(&operation["requestBody"]);
    let answers = operation["responses"].as_object().expect("answers");
    let answers: BTreeMap<&String, String> = answers
        .iter()
        .filter(|(status, _)| status.starts_with('2'))
        .map(|(status, answer)| (status, content_type(answer)))
        .collect();
    let answers: Vec<String> =
        answers.iter().map(|(status, shape)| format!("{status} {shape}").trim().into()).collect();
    let (parameters, answers) = (parameters.join("<br>"), answers.join("<br>"));
    let purpose = [text(&operation["summary"]), text(&operation["description"])].join(" ");
    format!(
        "| `{method} {path}` | {roles} | {parameters} | {body} | {answers} | {} |\n",
        purpose.trim()
    )
}

/// The type of the JSON in a body, or the media type of another one.
fn content_type(body: &Value) -> String {
    let Some(content) = body["content"].as_object() else { return String::new() };
    match content.get("application/json") {
        Some(json) => type_of(&json["schema"]),
        None => content.keys().cloned().collect::<Vec<_>>().join(", "),
    }
}

/// A link for the type of a schema, or words for a type without a name.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    for key in ["oneOf", "allOf"] {
        if let Some(choices) = schema[key].as_array() {
            let known = choices.iter().filter(|choice| choice["type"] != "null");
            return known.map(type_of).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(items) = schema["prefixItems"].as_array() {
        return format!("[{}]", items.iter().map(type_of).collect::<Vec<_>>().join(", "));
    }
    let name = match &schema["type"] {
        Value::Array(names) => text(&names[0]),
        name => text(name),
    };
    match &*name {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("by name: {}", type_of(&schema["additionalProperties"]))
        }
        "object" => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields.map(|(field, shape)| format!("`{field}`: {}", type_of(shape)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        "string" if schema["enum"].is_array() => values(schema),
        _ => name,
    }
}

fn values(schema: &Value) -> String {
    let values = schema["enum"].as_array().into_iter().flatten();
    values.map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}

/// The section of a named type.
fn object(name: &str, schema: &Value) -> String {
    let mut section = format!("\n### {name}\n\n{}\n", prose(&schema["description"]));
    if let Some(alternatives) = schema["oneOf"].as_array() {
        section += "\n| value | meaning |\n|---|---|\n";
        for alternative in alternatives {
            let meaning = text_of(alternative);
            writeln!(section, "| {} | {meaning} |", type_of(alternative)).expect("a string");
        }
    }
    if schema["enum"].is_array() {
        write!(section, "\nOne of {}.\n", values(schema)).expect("a string");
    }
    let mut rows = String::new();
    let parts = schema["allOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
    for part in parts {
        if part["$ref"].is_string() {
            write!(section, "\nAll fields of {}, and:\n", type_of(part)).expect("a string");
        }
        rows += &field_rows(part);
    }
    if !rows.is_empty() {
        write!(section, "\n| field | type | meaning |\n|---|---|---|\n{rows}").expect("a string");
    }
    section
}

fn field_rows(schema: &Value) -> String {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    fields.fold(String::new(), |mut rows, (name, field)| {
        let optional = if is_required(name) { "" } else { "optional " };
        writeln!(rows, "| `{name}` | {optional}{} | {} |", type_of(field), text_of(field))
            .expect("a string");
        rows
    })
}

/// The description of a schema, which may be that of its first choice.
fn text_of(schema: &Value) -> String {
    let own = text(&schema["description"]);
    let choices = ["oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    let mut texts = std::iter::once(own).chain(choices.map(|choice| text(&choice["description"])));
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

/// A string of the description on one line, for a cell of a table.
fn text(value: &Value) -> String {
    prose(value).replace('\n', " ").replace('|', "\\|")
}

/// A string of the description with its lines, without the links of rustdoc.
fn prose(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace("[`", "`").replace("`]", "`")
}
