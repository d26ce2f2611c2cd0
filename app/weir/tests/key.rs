//! `weir key` from the command line.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// `weir key` with a temporary home directory.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .arg("key")
            .args(arguments)
            .env("WEIR_HOME", self.0.path().join("home"))
            .env_remove("WEIR_PASSPHRASE")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a run that must succeed.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", error_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Standard error of a run that must fail and print nothing to standard output.
    fn error(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(matches!(output.status.code(), Some(1 | 4)), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        error_text(&output)
    }
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn closed_pipe_causes_no_panic() {
    let keys = Keys::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = keys.command(&["list"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(error_text(&output), "", "`weir key list | head` prints no error");
}

#[test]
fn first_key_becomes_the_default() {
    let keys = Keys::new();
    assert!(keys.text(&["list"]).contains("weir key new"));
    assert!(keys.error(&["show"]).contains("weir key new"));
    let made = keys.json(&["new"]);
    assert_eq!((made["type"].as_str(), made["default"].as_bool()), (Some("ecdsa"), Some(true)));
    assert!(made["identity"].as_str().unwrap().starts_with("/local/"));
    let listed = keys.json(&["list"]);
    assert_eq!(listed["keys"], Value::Array(vec![made.clone()]));
    let listed = keys.text(&["list"]);
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["DEFAULT", "TYPE", "ENCRYPTED", "NAME"]);
    assert_eq!(lines[1][..3], ["yes", "ecdsa", "no"]);
    let shown = keys.json(&["show"]);
    assert_eq!(shown["name"], made["name"]);
    assert_eq!(shown["certificates"][0]["self_issued"], true);
    assert!(keys.text(&["show"]).contains("issued by   itself"));
}

#[test]
fn default_follows_set_and_delete() {
    let keys = Keys::new();
    keys.text(&["new", "/alice"]);
    let bob = keys.json(&["new", "/bob", "--type", "ed25519"]);
    assert_eq!(bob["default"], false);
    assert_eq!(keys.json(&["default", "/bob"])["name"], bob["name"]);
    assert_eq!(keys.text(&["default"]).trim(), bob["name"].as_str().unwrap());
    assert!(keys.error(&["delete", "/bob"]).contains("--yes"));
    keys.text(&["delete", "/bob", "--yes"]);
    assert!(keys.error(&["default"]).contains("weir key default NAME"));
    assert!(keys.error(&["show", "/bob"]).contains("weir key list"));
    let carol = keys.json(&["new", "/carol", "--type", "rsa", "--default"]);
    assert_eq!(keys.json(&["default"])["name"], carol["name"]);
}

#[test]
fn safe_bag_moves_a_private_key() {
    let (here, there) = (Keys::new(), Keys::new());
    let key = here.json(&["new", "/alice"]);
    let file = here.path("alice.bag");
    assert!(here.error(&["export", "--private", "-o", &file]).contains("--passphrase-file"));
    assert!(!Path::new(&file).exists(), "nothing half-written");
    let passphrase = here.path("passphrase");
    std::fs::write(&passphrase, "open sesame\n").unwrap();
    here.text(&["export", "--private", "-o", &file, "--passphrase-file", &passphrase]);
    let again = here.error(&["export", "--private", "-o", &file, "--passphrase-file", &passphrase]);
    assert!(again.contains("cannot create"), "{again}");
    assert!(there.error(&["import", &file]).contains("WEIR_PASSPHRASE"));
    let wrong = there.command(&["import", &file]).env("WEIR_PASSPHRASE", "wrong").output().unwrap();
    assert!(!wrong.status.success() && error_text(&wrong).contains("wrong passphrase"));
    let imported = there.json(&["import", &file, "--passphrase-file", &passphrase]);
    assert_eq!(imported["name"], key["name"]);
    assert_eq!(imported["encrypted"], true);
    let export = ["export", "/alice"];
    assert_eq!(there.text(&export), here.text(&export), "the same certificate");
}

#[test]
fn refuses_key_file_readable_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let keys = Keys::new();
    let key = keys.json(&["new", "/alice"]);
    let path = key["path"].as_str().unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let export = ["export", "--private", "--form", "pem", "--unencrypted"];
    assert!(keys.error(&export).contains(&format!("chmod 600 {path}")));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(keys.text(&export).contains("BEGIN PRIVATE KEY"));
}

#[test]
fn issued_certificate_is_trusted() {
    let (site, user) = (Keys::new(), Keys::new());
    site.text(&["new", "/site"]);
    user.text(&["new", "/site/alice"]);
    user.text(&["new", "/elsewhere/bob"]);
    let (request, foreign) = (user.path("alice.cert"), user.path("bob.cert"));
    user.text(&["export", "/site/alice", "-o", &request]);
    user.text(&["export", "/elsewhere/bob", "-o", &foreign]);
    let issued = site.path("issued.cert");
    site.text(&["sign", &request, "--days", "30", "-o", &issued]);
    assert!(site.error(&["sign", &foreign]).contains("not below the issuer's identity /site"));
    user.text(&["import", &issued]);
    let certificates = user.json(&["show", "/site/alice"])["certificates"].clone();
    let self_issued = certificates.as_array().unwrap().iter().filter(|c| c["self_issued"] == true);
    assert_eq!((certificates.as_array().unwrap().len(), self_issued.count()), (2, 1));
    assert_eq!(user.text(&["export", "/site/alice"]), std::fs::read_to_string(&issued).unwrap());

    let anchor = site.path("site.cert");
    site.text(&["export", "-o", &anchor]);
    let trusted = user.json(&["trust", &anchor]);
    assert_eq!(trusted["identity"], "/site");
    assert_eq!(user.json(&["trust", "list"])["anchors"][0]["name"], trusted["name"]);
    user.text(&["trust", "remove", "/site"]);
    assert_eq!(user.json(&["trust", "list"])["anchors"], Value::Array(Vec::new()));
    assert!(user.error(&["trust", "remove", "/site"]).contains("no certificate /site"));
    assert!(user.error(&["trust", "forget", "/site"]).contains("weir key trust list"));
}

#[test]
fn refuses_to_import_other_files() {
    let keys = Keys::new();
    let file = keys.path("note.txt");
    std::fs::write(&file, "hello").unwrap();
    assert!(keys.error(&["import", &file]).contains("neither a certificate"));
    assert!(keys.error(&["trust", &file]).contains("is not a certificate"));
    assert!(keys.error(&["import", "/nonexistent"]).contains("cannot read /nonexistent"));
    assert!(!keys.0.path().join("home").exists(), "nothing was made");
}

/// Text of ndnd is a certificate wherever one is read, and also a key for `weir key import`.
#[test]
fn accepts_text_of_ndnd() {
    let keys = Keys::new();
    let vectors =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../io/crypto/src/tests/vectors/ndnd.pem");
    let trusted = keys.json(&["trust", vectors]);
    assert_eq!(trusted["identity"], "/ndnd/ecc");
    let imported = keys.json(&["import", vectors]);
    let imported = imported["imported"].as_array().unwrap();
    assert_eq!(imported.iter().filter(|it| it["certificate"].is_string()).count(), 3);
    assert_eq!(imported.iter().filter(|it| it["type"].is_string()).count(), 3);
    keys.text(&["export", "/ndnd/ed25519"]);
}
