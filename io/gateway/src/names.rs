//! URL paths as names, and back. One path segment is one generic component.
//!
//! | URL | name below the prefix of the host |
//! |---|---|
//! | `/a/b` | `/a/b` |
//! | `/a/` | `/a/...`: the last component is empty |
//! | `/a/v=5` | `/a`, version 5: it never changes |
//! | `/a?x=1` | `/a/32=?x=1`, where the host passes queries on; else `/a` |
//!
//! A response that varies with request headers has one more keyword component: `@` and the headers.
//! Names that would reach outside the prefix in a file system, or that different servers read
//! differently, are refused: `.`, `..`, an encoded slash, a NUL, an empty segment in the middle.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use weir_wire::{NAME_COMPONENTS_MAX, Name, NameView};

/// Components that the transport adds to an object's name.
const COMPONENTS_ADDED: usize = 4;
/// Upper bound of bytes of a name. The metadata have the name twice, a certificate and a head.
const NAME_BYTES_MAX: usize = 2000;
/// The type of keyword components.
const KEYWORD: u16 = 32;
/// The type of generic components.
const GENERIC: u16 = 8;
/// What a path segment must encode (RFC 3986, pchar).
const SEGMENT_SET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What a URL requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: Name,
    /// The version in the URL, which never changes.
    pub(crate) version: Option<u64>,
    /// The path ends in a slash, and so the name in an empty component.
    pub(crate) is_folder: bool,
}

/// Why a path has no name, or a name no path.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path has a segment `.` or `..`, an empty one, an encoded slash or a NUL")]
    Segment,
    #[error("the path is too long or has too many segments for a name")]
    TooLong,
    /// A component is neither a path segment, a query nor request headers.
    #[error("the name has a component that no URL has")]
    Component,
}

/// The name that a URL path denotes below `prefix`. `query` is given where it is part of the name.
///
/// # Errors
/// [`PathError::Segment`], [`PathError::TooLong`].
pub(crate) fn name_of_path(
    prefix: &Name,
    path: &str,
    query: Option<&str>,
) -> Result<Target, PathError> {
    let mut name = prefix.clone();
    let path = path.strip_prefix('/').ok_or(PathError::Segment)?;
    let segments: Vec<&str> = path.split('/').collect();
    let (mut version, last) = (None, segments.len() - 1);
    if prefix.as_view().component_count() + segments.len() + COMPONENTS_ADDED > NAME_COMPONENTS_MAX
    {
        return Err(PathError::TooLong);
    }
    for (at, segment) in segments.iter().enumerate() {
        let number = segment.strip_prefix("v=").filter(|_| at == last && at > 0);
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            version = Some(number);
            break;
        }
        let octets: Vec<u8> = percent_decode_str(segment).collect();
        let is_empty_inside = octets.is_empty() && at != last;
        if is_empty_inside || is_forbidden(&octets) {
            return Err(PathError::Segment);
        }
        name.append_generic(&octets);
    }
    if let Some(query) = query {
        name.append_keyword(format!("?{query}").as_bytes());
    }
    match name.value().len() {
        0..=NAME_BYTES_MAX => {
            let is_folder = version.is_none() && segments[last].is_empty();
            Ok(Target { name, version, is_folder })
        }
        _ => Err(PathError::TooLong),
    }
}

fn is_forbidden(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..") || segment.iter().any(|octet| matches!(octet, b'/' | 0))
}

/// A URL path with query, and request headers, as a name denotes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Path and query, as they stand in a request.
    pub(crate) path: String,
    /// Names and values of request headers on which the response depends.
    pub(crate) headers: Vec<(String, String)>,
}

/// The URL path that a name denotes below a prefix of `prefix_components` components.
///
/// # Errors
/// [`PathError::Segment`], [`PathError::Component`].
pub(crate) fn resource_of_name(
    name: NameView<'_>,
    prefix_components: usize,
) -> Result<Resource, PathError> {
    let mut resource = Resource::default();
    let mut components = name.components().skip(prefix_components).peekable();
    while let Some(component) = components.next() {
        let value = component.value;
        match component.typ {
            GENERIC => {
                let is_inside = components.peek().is_some_and(|next| next.typ == GENERIC);
                if is_forbidden(value) || value.is_empty() && is_inside {
                    return Err(PathError::Segment);
                }
                let _ = write!(resource.path, "/{}", percent_encode(value, SEGMENT_SET));
            }
            KEYWORD if value.starts_with(b"?") => {
                let query = str::from_utf8(value).map_err(|_| PathError::Component)?;
                if query.bytes().any(|octet| octet <= b' ' || octet == b'#' || octet >= 127) {
                    return Err(PathError::Component);
                }
                resource.path.push_str(query);
            }
            KEYWORD if value.starts_with(b"@") => {
                resource.headers = decode_headers(&value[1..]).ok_or(PathError::Component)?;
            }
            _ => return Err(PathError::Component),
        }
    }
    if resource.path.is_empty() || resource.path.starts_with('?') {
        resource.path.insert(0, '/');
    }
    Ok(resource)
}

/// The name of a response that varies with these request headers.
pub(crate) fn name_with_headers(name: &Name, headers: &[(String, String)]) -> Name {
    let part = |text: &str| percent_encode(text.as_bytes(), SEGMENT_SET).to_string();
    let pairs = headers.iter().map(|(name, value)| {
        format!("{}={}", part(name), part(value).replace('&', "%26").replace('=', "%3D"))
    });
    let mut name = name.clone();
    name.append_keyword(format!("@{}", pairs.collect::<Vec<_>>().join("&")).as_bytes());
    name
}

fn decode_headers(octets: &[u8]) -> Option<Vec<(String, String)>> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
    let pairs = str::from_utf8(octets).ok()?.split('&').map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((decode(name)?, decode(value)?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str, query: Option<&str>) -> Result<String, PathError> {
        let prefix = "/p".parse().unwrap();
        name_of_path(&prefix, path, query).map(|target| target.name.to_string())
    }

    #[test]
    fn segments_are_components() {
        for (path, query, name) in [
            ("/a/b", None, "/p/a/b"),
            ("/a%20b/c%25", None, "/p/a%20b/c%25"),
            ("/a/", None, "/p/a/..."),
            ("/", None, "/p/..."),
            ("/a", Some("x=1&y"), "/p/a/32=%3Fx%3D1%26y"),
        ] {
            assert_eq!(target(path, query).as_deref(), Ok(name), "{path}");
        }
    }

    #[test]
    fn path_and_name_are_inverse() {
        for path in ["/a/b", "/a%20b/c%25d", "/a/", "/", "/%FF/x;y=1,2", "/a?x=1&y=%2F"] {
            let (path_only, query) = path.split_once('?').unzip();
            let prefix = "/p/q".parse().unwrap();
            let target = name_of_path(&prefix, path_only.unwrap_or(path), query).unwrap();
            let resource = resource_of_name(target.name.as_view(), 2).unwrap();
            assert_eq!(resource, Resource { path: path.into(), headers: vec![] });
        }
    }

    #[test]
    fn version_ends_path() {
        let prefix = Name::new();
        let found = name_of_path(&prefix, "/a/v=17", None).unwrap();
        assert_eq!((found.name.to_string(), found.version), ("/a".into(), Some(17)));
        assert_eq!(name_of_path(&prefix, "/a/v=x", None).unwrap().version, None);
        assert_eq!(name_of_path(&prefix, "/v=1/a", None).unwrap().version, None);
    }

    #[test]
    fn refuses_paths_that_servers_read_differently() {
        for path in ["/../a", "/a/%2e%2E/b", "/a/.", "/a%2Fb", "/a%00b", "/a//b", "//a"] {
            assert_eq!(target(path, None), Err(PathError::Segment), "{path}");
        }
        assert_eq!(target(&format!("/{}", "a".repeat(2001)), None), Err(PathError::TooLong));
        assert_eq!(target(&"/a".repeat(64), None), Err(PathError::TooLong));
    }

    #[test]
    fn refuses_names_of_no_url() {
        for (name, error) in [
            ("/p/50=%01", PathError::Component),
            ("/p/32=other", PathError::Component),
            ("/p/a%2Fb", PathError::Segment),
            ("/p/.../b", PathError::Segment),
            ("/p/32=%3Fa%20b", PathError::Component),
            ("/p/32=%40nothing", PathError::Component),
        ] {
            let name: Name = name.parse().unwrap();
            assert_eq!(resource_of_name(name.as_view(), 1), Err(error), "{name}");
        }
    }

    #[test]
    fn headers_are_a_component() {
        let headers =
            vec![("accept-language".into(), "de, en;q=0.5".into()), ("x".into(), "a=b&c%".into())];
        let name = name_with_headers(&"/p/a".parse().unwrap(), &headers);
        let resource = resource_of_name(name.as_view(), 1).unwrap();
        assert_eq!(resource, Resource { path: "/a".into(), headers });
    }
}
