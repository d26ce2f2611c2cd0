//! Where a database is: a file, or a server.

use std::fmt;
use std::fs::OpenOptions;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::any::AnyConnectOptions;

/// Parameters that a URL may contain. A misspelt one is refused, and its value is not shown.
const KEYS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Where a controller's database is. Its text never contains a password.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseLocation {
    /// An SQLite file; it is created if it does not exist.
    File(PathBuf),
    /// A PostgreSQL database, which several controllers may share: its server, or the primary and
    /// its standbys.
    Servers(Vec<ServerUrl>),
}

/// The URL of a database, such as `postgres://user:password@host/database`.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

/// Why a text is not a valid database location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Neither a file nor a PostgreSQL URL.
    #[error("the database must be a file, or postgres://USER@HOST/DATABASE")]
    Scheme,
    #[error("the URL of the database is invalid: {0}")]
    Url(String),
    /// An unknown parameter.
    #[error("the URL of the database has the unknown parameter `{0}`")]
    Key(String),
    /// A list with a file.
    #[error("a list of databases may name only servers, as postgres://USER@HOST/DATABASE")]
    List,
}

impl FromStr for DatabaseLocation {
    type Err = LocationError;

    /// A file, or a URL that begins with `postgres://`.
    fn from_str(text: &str) -> Result<Self, LocationError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return ServerUrl::new(text).map(|url| Self::Servers(vec![url]));
        }
        // A URL with a mistake is no file whose name messages may show.
        let is_server = text.starts_with("postgres:") || text.starts_with("postgresql:");
        if text.contains("://") || is_server || text.is_empty() {
            return Err(LocationError::Scheme);
        }
        Ok(Self::File(text.into()))
    }
}

impl ServerUrl {
    fn new(text: &str) -> Result<Self, LocationError> {
        let options: AnyConnectOptions =
            text.parse().map_err(|error: sqlx::Error| LocationError::Url(error.to_string()))?;
        let mut url = options.database_url;
        let mut has_mode = std::env::var_os("PGSSLMODE").is_some();
        let mut hosts: Vec<String> = url.host_str().map(str::to_owned).into_iter().collect();
        for (key, value) in url.query_pairs() {
            let is_options = key.starts_with("options[") && key.ends_with(']');
            if !is_options && !KEYS.contains(&&*key) {
                return Err(LocationError::Key(key.into_owned()));
            }
            has_mode |= key == "sslmode";
            if matches!(&*key, "host" | "hostaddr") {
                hosts.push(value.into_owned());
            }
        }
        hosts.retain(|host| !host.is_empty());
        if hosts.is_empty() {
            hosts.extend(std::env::var("PGHOST"));
        }
        if !has_mode && !hosts.iter().all(|host| is_this_machine(host)) {
            // To other machines the connection must use verified TLS, unless the URL says
            // otherwise.
            url.query_pairs_mut().append_pair("sslmode", "verify-full");
        }
        Ok(Self(url.into()))
    }
}

/// Whether a host, or the folder of a socket, is on this machine.
fn is_this_machine(host: &str) -> bool {
    let is_folder = host.starts_with('/') || host.starts_with("%2F");
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = bare.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_folder || is_loopback || host == "localhost"
}

impl DatabaseLocation {
    /// One text as above, or the URLs of servers that replicate one database.
    ///
    /// # Errors
    /// A text is invalid, or several texts are not all URLs of servers.
    pub fn of_list(texts: &[String]) -> Result<Self, LocationError> {
        let mut all = Vec::new();
        for text in texts {
            match text.parse()? {
                Self::Servers(urls) => all.extend(urls),
                file @ Self::File(_) if texts.len() == 1 => return Ok(file),
                Self::File(_) => return Err(LocationError::List),
            }
        }
        if all.is_empty() { Err(LocationError::Scheme) } else { Ok(Self::Servers(all)) }
    }

    /// Whether controllers on other machines can use it as well.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::Servers(_))
    }

    /// The connection options, one for each server. A missing file is created, readable by its
    /// owner alone.
    pub(super) fn options(&self) -> Result<Vec<AnyConnectOptions>, sqlx::Error> {
        match self {
            Self::Servers(urls) => urls.iter().map(|ServerUrl(url)| url.parse()).collect(),
            Self::File(path) => {
                // SQLite gives its other files the same permissions.
                let created = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
                created.map_err(sqlx::Error::Io)?;
                let encoded: String = path
                    .as_os_str()
                    .as_encoded_bytes()
                    .iter()
                    .map(|octet| match octet {
                        octet if octet.is_ascii_alphanumeric() => char::from(*octet).to_string(),
                        octet => format!("%{octet:02X}"),
                    })
                    .collect();
                Ok(vec![format!("sqlite:{encoded}").parse()?])
            }
        }
    }
}

impl From<PathBuf> for DatabaseLocation {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl fmt::Display for DatabaseLocation {
    /// The file, or host and database of each URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Servers(urls) => {
                let texts: Vec<String> = urls.iter().map(ServerUrl::without_password).collect();
                f.write_str(&texts.join(", "))
            }
        }
    }
}

impl ServerUrl {
    fn without_password(&self) -> String {
        let Ok(mut url) = self.0.parse::<AnyConnectOptions>().map(|options| options.database_url)
        else {
            return "postgres".to_owned();
        };
        let _ = url.set_password(None);
        url.set_query(None);
        url.into()
    }
}

impl fmt::Debug for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<DatabaseLocation, LocationError> {
        text.parse()
    }

    fn url(text: &str) -> String {
        match place(text) {
            Ok(DatabaseLocation::Servers(urls)) if urls.len() == 1 => urls[0].0.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn parses_files_and_servers() {
        assert_eq!(place("a b/c.db"), Ok(DatabaseLocation::File("a b/c.db".into())));
        assert!(matches!(place("postgres://h/d"), Ok(DatabaseLocation::Servers(_))));
        assert!(matches!(place("postgresql:///d"), Ok(DatabaseLocation::Servers(_))));
        for other in ["mysql://h/d", "sqlite://x", "postgres:/me:secret@h/d", ""] {
            assert_eq!(place(other), Err(LocationError::Scheme), "{other}");
        }
        assert!(matches!(place("postgres://h:port/d"), Err(LocationError::Url(_))));
    }

    #[test]
    fn a_list_names_servers_alone() {
        let list = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            DatabaseLocation::of_list(&texts)
        };
        assert_eq!(list(&["a.db"]), Ok(DatabaseLocation::File("a.db".into())));
        let two = list(&["postgres://me:secret@a/d", "postgres://b/d"]).unwrap();
        assert_eq!(two.to_string(), "postgres://me@a/d, postgres://b/d");
        assert_eq!(two.options().unwrap().len(), 2);
        assert_eq!(list(&["postgres://a/d", "b.db"]), Err(LocationError::List));
        assert_eq!(list(&[]), Err(LocationError::Scheme));
    }

    #[test]
    fn display_hides_passwords() {
        let place = place("postgres://me:secret@db.example:5433/weir?password=secret").unwrap();
        for text in [place.to_string(), format!("{place:?}"), format!("{:?}", Some(&place))] {
            assert!(text.contains("me@db.example:5433/weir"), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
        let DatabaseLocation::Servers(url) = &place else { panic!("a server") };
        assert!(!format!("{url:?}").contains("secret"));
        let misspelt = "postgres://h/d?pasword=secret".parse::<DatabaseLocation>();
        let text = misspelt.unwrap_err().to_string();
        assert!(text.contains("pasword") && !text.contains("secret"), "{text}");
        let bad = "postgres://me:secret@h:port/d".parse::<DatabaseLocation>().unwrap_err();
        assert!(!bad.to_string().contains("secret"), "{bad}");
    }

    #[test]
    fn remote_servers_need_verified_tls() {
        for far in ["postgres://db.example/d", "postgres://192.0.2.1/d", "postgres:///d?host=db"] {
            assert!(url(far).ends_with("sslmode=verify-full"), "{far}");
        }
        for near in [
            "postgres:///d",
            "postgres://localhost/d",
            "postgres://127.0.0.1:5433/d",
            "postgres://[::1]/d",
            "postgres:///d?host=/run/postgresql",
            "postgres://me@%2Frun%2Fpostgresql/d",
        ] {
            assert!(!url(near).contains("sslmode"), "{near}");
        }
        let explicit = "postgres://db.example/d?sslmode=disable";
        assert_eq!(url(explicit), explicit);
    }
}
