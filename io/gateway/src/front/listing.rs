//! Directories of named data, as pages.

use std::sync::Arc;

use http::Response;
use http::header::{self, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_socket::SocketError;
use weir_wire::Name;

use super::Shared;
use super::body::{Body, full};
use super::heads::FoundVersion;

/// Upper bound of bytes of a listing.
const LISTING_BYTES_MAX: usize = 16 << 20;

/// The entries of a directory. Names of directories end in a slash.
pub(super) async fn fetch(
    shared: &Arc<Shared>,
    found: &FoundVersion,
) -> Result<Vec<String>, SocketError> {
    let mut cursor = shared.pieces.cursor(found.metadata.clone(), 0, u64::MAX);
    let mut octets = Vec::new();
    while let Some(chunk) = cursor.next().await {
        octets.extend_from_slice(&chunk?);
        if octets.len() > LISTING_BYTES_MAX {
            return Err(SocketError::TooLong { max_bytes: LISTING_BYTES_MAX as u64 });
        }
    }
    let entries = octets.split(|octet| *octet == 0).filter(|entry| !entry.is_empty());
    Ok(entries.map(|entry| String::from_utf8_lossy(entry).into_owned()).collect())
}

/// A page with links to the entries.
pub(super) fn page(directory: &Name, prefix: &Name, entries: &[String]) -> String {
    let title = escape(&directory.to_string());
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body><h1>{title}</h1><ul>\n"
    );
    if directory != prefix {
        page.push_str("<li><a href=\"../\">../</a></li>\n");
    }
    for entry in entries {
        let (name, slash) = match entry.strip_suffix('/') {
            Some(name) => (name, "/"),
            None => (&entry[..], ""),
        };
        let link = utf8_percent_encode(name, NON_ALPHANUMERIC);
        page.push_str(&format!("<li><a href=\"{link}{slash}\">{}</a></li>\n", escape(entry)));
    }
    page.push_str("</ul></body></html>\n");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn response(page: String) -> Response<Body> {
    let mut response = Response::new(full(page));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_escapes_entries() {
        let (directory, prefix) = ("/p/a%3Cb".parse().unwrap(), "/p".parse().unwrap());
        let page = page(&directory, &prefix, &["<x> &\".txt".into(), "sub dir/".into()]);
        assert!(page.contains("<a href=\"%3Cx%3E%20%26%22%2Etxt\">&lt;x&gt; &amp;&quot;.txt</a>"));
        assert!(page.contains("<a href=\"sub%20dir/\">sub dir/</a>"));
        assert!(page.contains("<a href=\"../\">"));
    }
}
