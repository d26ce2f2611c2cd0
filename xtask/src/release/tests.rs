use serde_json::json;

use super::*;

fn package(name: &str, publish: Value, dependencies: Value) -> Value {
    json!({ "name": name, "version": "0.2.0", "publish": publish, "dependencies": dependencies })
}

#[test]
fn public_crates_need_public_dependencies() {
    let to = |name: &str, req: &str, kind: Value| {
        let path = format!("/{name}");
        json!({ "name": name, "req": req, "kind": kind, "path": path })
    };
    let depends = json!([
        to("b", "^0.2.0", Value::Null),
        to("c", "*", Value::Null),
        to("private", "^0.2.0", json!("build")),
        to("fixture", "*", json!("dev")),
        { "name": "libm", "req": "^0.2", "kind": null, "path": null },
    ]);
    let metadata = json!({ "packages": [
        package("c", Value::Null, json!([])),
        package("b", Value::Null, json!([])),
        package("private", json!([]), json!([])),
        package("fixture", json!([]), json!([])),
        package("a", Value::Null, depends),
    ]});
    let crates = public_crates(&metadata).expect("packages");
    let names: Vec<&str> = crates.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(crates[0].wrong, ["c", "private"]);
    assert_eq!(crates[1].wrong, [""; 0]);
}

#[test]
fn changelog_must_describe_the_version() {
    let root = tempfile::tempdir().expect("a folder");
    let one = |version: &str| PublicCrate {
        name: "a".into(),
        version: version.into(),
        wrong: Vec::new(),
    };
    fs::write(root.path().join("CHANGELOG.md"), "# Changelog\n\n## [0.2.0] - 2026-12-01\n")
        .expect("written");
    let chart = root.path().join(CHART);
    fs::create_dir_all(chart.parent().expect("a folder")).expect("created");
    fs::write(&chart, "version: 0.2.0\nappVersion: \"0.2.0\"\n").expect("written");
    assert!(check_version(root.path(), &[one("0.2.0")]).is_ok());
    let error = check_version(root.path(), &[one("0.3.0")]).expect_err("no section");
    assert!(error.to_string().contains("[0.3.0]"), "{error}");
    let error = check_version(root.path(), &[one("0.2.0"), one("0.1.0")]).expect_err("two");
    assert!(error.to_string().contains("0.1.0"), "{error}");
}

#[test]
fn chart_must_have_the_version() {
    let chart = |version: &str, app: &str| {
        format!("name: weir\nversion: {version}\nappVersion: \"{app}\"\nkubeVersion: \">=1.26\"\n")
    };
    assert!(check_chart(&chart("0.2.0", "0.2.0"), "0.2.0").is_ok());
    for (wrong, key) in
        [(chart("0.1.0", "0.2.0"), "version 0.1.0"), (chart("0.2.0", "0.1.0"), "app")]
    {
        let error = check_chart(&wrong, "0.2.0").expect_err("another version");
        assert!(error.to_string().contains(key), "{error}");
    }
    assert!(check_chart("name: weir\n", "0.2.0").is_err());
}

#[test]
fn baseline_is_the_last_release_before() {
    let tags = ["v0.10.0", "v0.2.0", "v0.9.1", "v0.11.0-rc1", "v", "vendor"];
    let before = |version: &str| baseline(tags.into_iter(), version).expect("a version");
    assert_eq!(before("0.2.0"), None);
    assert_eq!(before("0.3.0"), Some("v0.2.0"));
    assert_eq!(before("0.10.0"), Some("v0.9.1"));
    assert_eq!(before("1.0.0"), Some("v0.10.0"));
    let error = baseline(std::iter::empty(), "0.3.0").expect_err("a clone without tags");
    assert!(error.to_string().contains("git fetch --tags"), "{error}");
}

#[test]
fn options_of_release() {
    let parse = |words: &[&str]| ReleaseOptions::parse(words.iter().copied());
    let with = ReleaseOptions { advisories: Some("db".into()) };
    assert_eq!(parse(&["--advisories", "db"]).expect("good words"), with);
    assert!(parse(&["--advisories"]).is_err());
    assert!(parse(&["--fast"]).is_err());
}
