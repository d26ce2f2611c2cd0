//! Texts of URLs for messages and logs.

use alloc::format;
use alloc::string::String;

/// In place of a query, and of user and password.
const HIDDEN: &str = "***";
const HIDDEN_USER: &str = "***@";

/// A URL without its user, password and query, which may be secrets: `http://***@host/path?***`.
/// Accepts any text, because messages also show URLs that are refused.
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password with such a character ends the host early. Its first part then looks like a port.
    let end = if has_port_of_digits(&rest[..end]) { end } else { rest.len() };
    let (user, rest) = match rest[..end].rfind('@') {
        Some(at) => (HIDDEN_USER, &rest[at + 1..]),
        None => ("", rest),
    };
    match rest.find(['?', '#']) {
        Some(at) => format!("{scheme}{user}{}{HIDDEN}", &rest[..=at]),
        None => format!("{scheme}{user}{rest}"),
    }
}

/// Whether the text after the last colon of `[user@]host[:port]` is a port, if there is a colon
/// outside of an IPv6 address.
fn has_port_of_digits(authority: &str) -> bool {
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = host.rsplit(']').next().unwrap_or(host);
    host.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_user_password_and_query() {
        for (url, shown) in [
            ("http://h:4318/v1/traces", "http://h:4318/v1/traces"),
            ("https://h", "https://h"),
            ("http://h/@scope/x", "http://h/@scope/x"),
            ("http://[::1]:80/@x", "http://[::1]:80/@x"),
            ("http://me:secret@h:1/p", "http://***@h:1/p"),
            ("http://me:secret@[::1]/p", "http://***@[::1]/p"),
            ("http://token@h", "http://***@h"),
            ("https://h/p?key=secret", "https://h/p?***"),
            ("https://h?key=secret#x", "https://h?***"),
            ("https://h/p#secret", "https://h/p#***"),
            ("me:secret@h:80", "***@h:80"),
            ("http://me:sec@ret@h", "http://***@h"),
            ("http://me:secr/et@h/p", "http://***@h/p"),
            ("http://me:se?cr#et@h", "http://***@h"),
            ("127.0.0.1:4318", "127.0.0.1:4318"),
            ("collector", "collector"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), shown, "{url}");
        }
    }
}
