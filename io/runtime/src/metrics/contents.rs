//! `/contents`: the objects in the store as JSON. The query selects them, such as
//! `/contents?prefix=/data&sort=size&limit=10`.

use std::time::Duration;

use weir_store::ObjectQuery;

use super::http::Answer;
use crate::mailbox::ControlSender;
use crate::objects_json;

/// A router that does not answer within this time is reported as unavailable.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The answer unless the configuration allows the page.
pub(super) const OFF: &str = "/contents is off, because it shows all names in the store: set \
                              `contents = true` in [metrics], or use `weir cs list`\n";

pub(super) fn answer(query: &str, control: &ControlSender) -> Answer {
    let plain = |status, body: String| {
        let content_type = "text/plain; charset=utf-8";
        Answer { status, content_type, body }
    };
    let query = match parse(query) {
        Ok(query) => query,
        Err(reason) => return plain("400 Bad Request", format!("{reason}\n")),
    };
    match control.objects(query, LIST_TIMEOUT) {
        Ok(list) => {
            let body = format!("{}\n", objects_json(&list));
            Answer { status: "200 OK", content_type: "application/json", body }
        }
        Err(error) => plain("503 Service Unavailable", format!("{error}\n")),
    }
}

/// Parses `prefix=/a&sort=size&limit=10`. All parts are optional.
fn parse(text: &str) -> Result<ObjectQuery, String> {
    let mut query = ObjectQuery::default();
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        // The URI form of a name has its own escapes; only a slash may be escaped once more.
        let value = value.replace("%2F", "/").replace("%2f", "/");
        match key {
            "prefix" => {
                query.prefix = value.parse().map_err(|error| format!("prefix: {error}"))?;
            }
            "sort" => query.order = value.parse().map_err(|error| format!("sort: {error}"))?,
            "limit" => {
                let limit: u64 = value.parse().map_err(|error| format!("limit: {error}"))?;
                query.limit = limit.min(ObjectQuery::LIMIT_MAX);
            }
            other => return Err(format!("unknown key {other}; use prefix, sort and limit")),
        }
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::ObjectOrder;

    #[test]
    fn query_of_a_page_is_checked() {
        let query = parse("prefix=%2Fa/b&sort=last-use&limit=7").unwrap();
        assert_eq!(query.prefix.to_string(), "/a/b");
        assert_eq!((query.order, query.limit), (ObjectOrder::LastUse, 7));
        assert_eq!(parse("").unwrap(), ObjectQuery::default());
        assert_eq!(parse("limit=999999999").unwrap().limit, ObjectQuery::LIMIT_MAX);
        for bad in ["sort=big", "limit=x", "what=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
