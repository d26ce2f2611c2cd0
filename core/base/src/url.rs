//! Texts of URLs for messages and logs.

use alloc::format;
use alloc::string::String;
use core::net::Ipv6Addr;

/// In place of a query, and of user and password.
const HIDDEN: &str = "***";

/// A URL without its user, password and query, which may be secrets: `http://***@host/path?***`.
/// Accepts any text, because messages also show URLs that are refused. Of a text that can be read
/// in two ways, hides what is secret in either.
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = split_scheme(url);
    let query = rest.find(['?', '#']);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let is_known_host = !scheme.is_empty() && is_host(&rest[..end]);
    // A password may contain any of these characters.
    let user_end = if is_known_host { None } else { rest.rfind('@') };
    match (user_end, query) {
        // The last `@` is in the password, or in the query.
        (Some(user_end), Some(query)) if query < user_end => format!("{scheme}{HIDDEN}"),
        (Some(user_end), Some(query)) => {
            format!("{scheme}{HIDDEN}{}{HIDDEN}", &rest[user_end..=query])
        }
        (Some(user_end), None) => format!("{scheme}{HIDDEN}{}", &rest[user_end..]),
        (None, Some(query)) => format!("{scheme}{}{HIDDEN}", &rest[..=query]),
        (None, None) => String::from(url),
    }
}

/// The scheme with `://`, or an empty text, and the rest.
fn split_scheme(url: &str) -> (&str, &str) {
    let Some(at) = url.find("://") else { return ("", url) };
    let is_letter = |octet: u8| octet.is_ascii_alphanumeric() || b"+.-".contains(&octet);
    let scheme = &url.as_bytes()[..at];
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|&octet| is_letter(octet));
    url.split_at(if is_scheme { at + 3 } else { 0 })
}

/// Whether this is a host without a user. The start of `me:1/secret@h` looks like a port, so only
/// an IPv6 address may have one.
fn is_host(authority: &str) -> bool {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_port = port.bytes().all(|octet| octet == b':' || octet.is_ascii_digit());
            is_port && address.parse::<Ipv6Addr>().is_ok()
        }
        None => !authority.is_empty() && !authority.contains(['@', ':']),
    }
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
            ("https://h:1/p?key=secret", "https://h:1/p?***"),
            ("https://h?key=secret#x", "https://h?***"),
            ("https://h/p#secret", "https://h/p#***"),
            ("http://me:secret@h/p?key=secret", "http://***@h/p?***"),
            ("hicn+udp://h:1", "hicn+udp://h:1"),
            ("127.0.0.1:4318", "127.0.0.1:4318"),
            ("collector", "collector"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), shown, "{url}");
        }
    }

    #[test]
    fn hides_secrets_of_unusual_texts() {
        for (url, shown) in [
            // Without a scheme, or without an authority.
            ("me:secret@h:80", "***@h:80"),
            ("me:secret@h:80?u=http://x", "***@h:80?***"),
            ("//me:secret@h", "***@h"),
            ("http:/me:secret@h/p", "***@h/p"),
            ("http:/me:secret@h/?r=https://x", "***@h/?***"),
            ("http:///me:secret@h/p", "http://***@h/p"),
            ("://me:secret@h", "***@h"),
            ("a b://me:secret@h", "***@h"),
            ("1://me:secret@h", "***@h"),
            // Passwords with characters that end an authority.
            ("http://me:sec@ret@h", "http://***@h"),
            ("http://me:secr/et@h/p", "http://***@h/p"),
            ("http://me:123/secret@h/p", "http://***@h/p"),
            ("http://me:a@b/secret@h/p", "http://***@h/p"),
            ("http://[me:1]:2/secret@h/p", "http://***@h/p"),
            // The `@` may be in the query.
            ("http://me:se?cr#et@h", "http://***"),
            ("http://h:1/p?mail=me@secret", "http://***"),
        ] {
            assert_eq!(without_secrets(url), shown, "{url}");
        }
    }
}
