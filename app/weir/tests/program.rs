//! What all commands have in common: completions, manual pages, help pages, version and colours.
//! `weir doctor` is here, too.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).stdin(Stdio::null()).output().expect("weir starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Whether a program of this machine can be used. Otherwise prints what is not tested.
fn is_installed(program: &str, what: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("NOT tested: {what}, because {program} is not installed");
    }
    found
}

/// Runs a script with the completions of bash loaded, and returns the words that it offers.
fn bash_completions(line: &[&str]) -> BTreeSet<String> {
    let script = text(&weir(&["completions", "bash"]).stdout);
    let words = line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let ask = format!(
        "{script}\nCOMP_WORDS=({words})\nCOMP_CWORD={}\n_weir weir '{}' '{}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        line.len() - 1,
        line[line.len() - 1],
        line[line.len() - 2],
    );
    // The script is longer than an argument may be.
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), ask).expect("written");
    let output = Command::new("bash").arg("--norc").arg(file.path()).output().expect("bash starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    if !is_installed("bash", "completions of bash") {
        return;
    }
    let commands = bash_completions(&["weir", "r"]);
    assert!(commands.contains("router") && commands.contains("route"), "{commands:?}");
    assert!(bash_completions(&["weir", "face", ""]).contains("create"));
    assert!(bash_completions(&["weir", "get", "--life"]).contains("--lifetime"));
    let values = bash_completions(&["weir", "get", "--discovery", ""]);
    assert!(values.contains("metadata"), "{values:?}");
    for (option, word) in [
        (&["weir", "cs", "list", "--sort", ""][..], "last-use"),
        (&["weir", "get", "--pipeline", ""], "cubic"),
        (&["weir", "route", "add", "--origin", ""], "static"),
        (&["weir", "face", "create", "--mtu", ""], "auto"),
    ] {
        let values = bash_completions(option);
        assert!(values.contains(word), "{option:?}: {values:?}");
    }
}

#[test]
fn completions_offer_no_hidden_commands() {
    if !is_installed("bash", "completions of bash") {
        return;
    }
    let commands = bash_completions(&["weir", "m"]);
    assert!(!commands.contains("man"), "{commands:?}");
    assert!(bash_completions(&["weir", "-"]).contains("--version"));
}

#[test]
fn each_shell_has_completions() {
    for (shell, words) in
        [("bash", "complete -F"), ("zsh", "#compdef weir"), ("fish", "complete -c")]
    {
        let script = text(&weir(&["completions", shell]).stdout);
        assert!(script.contains(words), "{shell}");
        if is_installed(shell, "the syntax of completions") {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("script");
            fs::write(&path, script).expect("written");
            let status = Command::new(shell).arg("-n").arg(&path).status().expect("it starts");
            assert!(status.success(), "{shell}");
        }
    }
}

/// The names of all commands that help pages list, such as `face create`.
fn commands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut at = 0;
    while at < found.len() {
        let path: Vec<String> = found[at].clone();
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("-h");
        let help = text(&weir(&words).stdout);
        let list = help.split("Commands:\n").nth(1).unwrap_or_default();
        let lines = list.lines().take_while(|line| !line.is_empty());
        for line in lines.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let name = line.split_whitespace().next().expect("a name");
            if name != "help" {
                found.push([&path[..], &[name.to_owned()]].concat());
            }
        }
        at += 1;
    }
    found
}

#[test]
fn manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = weir(&["man", folder.path().to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let folder = folder.path().join("man1");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    let expected: BTreeSet<String> = commands()
        .iter()
        .map(|path| ["weir"].into_iter().chain(path.iter().map(String::as_str)).collect::<Vec<_>>())
        .map(|words| format!("{}.1", words.join("-")))
        .collect();
    assert!(expected.len() > 20, "{expected:?}");
    assert_eq!(pages, expected);
    let page = fs::read_to_string(folder.join("weir-get.1")).expect("a page");
    for words in [".SH EXAMPLES\n.nf\n", ".SH \"TRANSFER OPTIONS\"", "\\-\\-lifetime"] {
        assert!(page.contains(words), "{words} is missing:\n{page}");
    }
    if is_installed("groff", "the syntax of manual pages") {
        for page in pages {
            check_page(&folder.join(page));
        }
    }
}

/// The words of a configuration file, without the marks of comments.
fn words_of_file(file: &str) -> Vec<String> {
    let lines = file.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    lines.filter(|line| *line != "#").flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// The words of a page, without its requests and escapes.
fn words_of_page(page: &str) -> Vec<String> {
    let heading = |line: &str| Some(line.strip_prefix(".SH ")?.trim_matches('"').to_owned());
    let lines = page.lines().filter_map(|line| {
        heading(line).or_else(|| {
            let is_text = !line.starts_with('.') && !line.starts_with('\'');
            is_text.then(|| line.to_owned())
        })
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.replace("\\fB", "").replace("\\fR", "").replace("\\&", "");
    let text = text.replace("\\-", "-").replace("\\*(Aq", "'");
    text.split_whitespace().map(str::to_owned).collect()
}

/// The pages of section 5 have every key and every word of the files.
#[test]
fn manual_describes_configuration_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = weir(&["man", folder.path().to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (name, command, reader) in [
        ("weir.toml", &["router"][..], "weir-router"),
        ("weir-controller.toml", &["controller"], "weir-controller"),
        ("weir-gateway.toml", &["gateway", "run"], "weir-gateway-run"),
    ] {
        let file = text(&weir(&[command, &["--print-default-config"]].concat()).stdout);
        let path = folder.path().join(format!("man5/{name}.5"));
        let page = fs::read_to_string(&path).expect("a page");
        let (mut of_file, mut of_page) = (words_of_file(&file), words_of_page(&page));
        of_page.sort_unstable();
        of_file.retain(|word| of_page.binary_search(word).is_err());
        assert_eq!(of_file, [""; 0], "words that {name}.5 lacks");
        for key in file.lines().filter(|line| line.contains(" = ") && !line.starts_with("# ")) {
            let shown = format!("\\fB{}\\fR", key.replace('\\', "\\\\").replace('-', "\\-"));
            assert!(page.contains(&shown), "{name} has no {shown}");
        }
        let command = fs::read_to_string(folder.path().join(format!("man1/{reader}.1")));
        let reference = format!(".SH \"SEE ALSO\"\n\\fB{name}\\fR(5)\n").replace('-', "\\-");
        assert!(command.expect("a page").contains(&reference), "{reader} has no {reference}");
        if is_installed("groff", "the syntax of manual pages") {
            check_page(&path);
        }
    }
}

/// groff formats the page without a warning.
fn check_page(path: &Path) {
    let mut command = Command::new("groff");
    command.args(["-man", "-Tutf8", "-ww", "-Kutf8"]).arg(path).env("GROFF_NO_SGR", "1");
    let output = command.output().expect("groff starts");
    let warnings = text(&output.stderr);
    assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", path.display());
}

#[test]
fn help_fits_narrow_terminals() {
    for path in commands() {
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("--help");
        for columns in ["20", "80"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            let output = command.args(&words).env("COLUMNS", columns).output().expect("it starts");
            assert!(output.status.success(), "{words:?} {}", text(&output.stderr));
        }
        // Own options come before those that commands share.
        let help = text(&weir(&words).stdout);
        let shared = help.find("Router options:").unwrap_or(usize::MAX);
        assert!(help.find("\nOptions:").is_none_or(|own| own < shared), "{help}");
    }
}

#[test]
fn version_names_the_commit() {
    let version = text(&weir(&["-V"]).stdout);
    let rest = version.trim_end().strip_prefix(concat!("weir ", env!("CARGO_PKG_VERSION")));
    let rest = rest.expect(&version);
    // Outside of a git repository there may be no commit.
    if let Some(inner) = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')')) {
        let commit = inner.split([' ', '-']).next().expect("a word");
        assert!(commit.len() >= 8 && commit.bytes().all(|it| it.is_ascii_hexdigit()), "{version}");
    } else {
        assert_eq!(rest, "");
    }
}

/// `script` gives the program a terminal.
#[test]
fn log_has_colours_only_on_terminals_without_no_color() {
    if !is_installed("script", "colours of the log") {
        return;
    }
    let log = |no_color: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let command = format!(
            "timeout 2 {} router --unix none --udp 127.0.0.1:0 --tcp none -c /dev/null",
            env!("CARGO_BIN_EXE_weir")
        );
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", no_color);
        script.env("HOME", folder.path()).env_remove("RUST_LOG").stdin(Stdio::null());
        text(&script.output().expect("script starts").stdout)
    };
    let (plain, colored) = (log("1"), log(""));
    assert!(colored.contains("\u{1b}["), "{colored}");
    assert!(plain.contains("INFO") && !plain.contains("\u{1b}["), "{plain}");
}

#[test]
fn number_without_unit_warns_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = format!("unix://{}/none.sock", folder.path().display());
    let ping = |interval: &str| {
        let output = weir(&["ping", "/a", "-c", "1", "-i", interval, "--router", &socket]);
        assert_eq!(output.status.code(), Some(8));
        text(&output.stderr)
    };
    let warned = ping("500");
    let warning = "500 without a unit is read as 500 ms; write 500ms";
    assert_eq!(warned.matches(warning).count(), 1, "{warned}");
    assert!(!ping("500ms").contains("unit"));
    let file = folder.path().join("weir.toml");
    fs::write(&file, "[store]\nsize = 1048576\n").expect("written");
    let output = weir(&["doctor", "-c", file.to_str().expect("UTF-8")]);
    let warning = "[store] size = 1048576 without a unit is read as 1048576 B; write \"1MiB\"";
    assert_eq!(text(&output.stderr).matches(warning).count(), 1, "{output:?}");
}

/// A configuration that uses nothing of this machine.
const QUIET: &str = "[faces]\nunix = \"none\"\nudp = [\"127.0.0.1:0\"]\ntcp = []\n";

fn doctor(config: &str) -> (Output, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weir.toml");
    fs::write(&file, config).expect("written");
    doctor_of(&file, Path::new("/none"), Path::new("/none"))
}

/// Runs `weir doctor` next to the router at a socket, with the `systemctl` in a folder.
fn doctor_of(config: &Path, socket: &Path, programs: &Path) -> (Output, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["doctor", "--json", "-c"]).arg(config).stdin(Stdio::null());
    command.env("NDN_CLIENT_TRANSPORT", format!("unix://{}", socket.display()));
    command.env("PATH", programs);
    let output = command.output().expect("weir starts");
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (output, findings.as_array().expect("an array").clone())
}

#[test]
fn doctor_fails_only_if_something_needed_is_missing() {
    let (output, findings) = doctor(QUIET);
    assert!(output.status.success(), "{findings:#?}");
    let names: BTreeSet<&str> = findings.iter().filter_map(|row| row["check"].as_str()).collect();
    for name in ["configuration", "io_uring", "receive buffers", "open files", "clock"] {
        assert!(names.contains(name), "{name} is not checked");
    }
    for row in &findings {
        assert_eq!(row["effect"].is_null(), row["found"] == true, "{row}");
    }
    let missing = format!("{QUIET}[[disk]]\npath = \"/none/disk\"\nsize = \"1GiB\"\n");
    let (output, findings) = doctor(&missing);
    assert_eq!(output.status.code(), Some(1));
    let row = findings.iter().find(|row| row["check"] == "disk /none/disk").expect("the disk");
    assert_eq!((&row["found"], &row["needed"]), (&false.into(), &true.into()));
    assert!(row["fix"].as_str().expect("a command").contains("mkdir -p"), "{row}");
}

/// A router, which ends when this is dropped.
struct RunningRouter(Child);

/// Neither a user nor a group of a system has this number.
const OTHER_USER: u32 = 64_321;
const OTHER_GROUP: u32 = 64_322;

impl RunningRouter {
    fn of_other_user(socket: &Path) -> Self {
        let (user, groups) = (OTHER_USER.to_string(), OTHER_GROUP.to_string());
        let ids = ["--reuid", &user, "--regid", &user, "--groups", &groups, "--inh-caps=-all"];
        let mut command = Command::new("setpriv");
        command.args(ids);
        Self::start(command, socket)
    }

    /// Starts a router with a command that runs another one.
    fn start(mut command: Command, socket: &Path) -> Self {
        command.arg(env!("CARGO_BIN_EXE_weir")).args(["router", "--unix"]).arg(socket);
        command.args(["--udp", "127.0.0.1:0", "--tcp", "none", "--json"]);
        command.env("XDG_CONFIG_HOME", "/none").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut router = Self(command.spawn().expect("it starts"));
        let mut line = String::new();
        let output = router.0.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("read");
        assert!(line.contains("\"ready\":true"), "{line}");
        router
    }
}

impl Drop for RunningRouter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_disk(folder: &Path) -> String {
    let path = folder.join("disk");
    format!("{QUIET}[[disk]]\npath = {path:?}\nsize = \"64MiB\"\ndirect = false\n")
}

/// The row of a check whose name starts with `check`.
fn found(findings: &[Value], check: &str) -> Value {
    let is_it = |row: &&Value| row["check"].as_str().expect("a name").starts_with(check);
    findings.iter().find(is_it).expect(check).clone()
}

/// Root passes each permission check, and the user of the router does not.
#[test]
fn doctor_checks_files_for_the_routers_user() {
    let program = Path::new(env!("CARGO_BIN_EXE_weir"));
    let is_open = |folder: &Path| {
        fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 1 == 1)
    };
    let is_reachable = program.ancestors().all(is_open);
    if !nix::unistd::geteuid().is_root() || !is_reachable || !is_installed("setpriv", "users") {
        eprintln!("NOT tested: permissions of another user, as it needs root and an open folder");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let make = |name: &str, group: u32, mode: u32| {
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("made");
        chown(&path, None, Some(group)).expect("changed");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
        path
    };
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("changed");
    let (run, secret) = (make("run", OTHER_GROUP, 0o770), make("secret", 0, 0o700));
    let shared = make("shared", OTHER_GROUP, 0o770);
    let socket = run.join("a.sock");
    let _router = RunningRouter::of_other_user(&socket);

    let config = |name: &str, disk: &Path| {
        let path = folder.path().join(name);
        fs::write(&path, with_disk(disk)).expect("written");
        path
    };
    let doctor_of = |config: &Path| doctor_of(config, &socket, Path::new("/none"));
    let open = config("open.toml", &shared);
    let (output, findings) = doctor_of(&open);
    assert!(output.status.success(), "{findings:#?}");
    let user = found(&findings, "user");
    assert!(user["detail"].as_str().expect("a text").contains("64321"), "{user}");

    let (output, findings) = doctor_of(&config("closed.toml", &secret));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(found(&findings, "disk ")["found"], false, "{findings:#?}");
    assert_eq!(found(&findings, "configuration")["found"], true, "{findings:#?}");

    // What the router cannot read, root still uses for the other checks.
    fs::set_permissions(&open, Permissions::from_mode(0o600)).expect("changed");
    let (output, findings) = doctor_of(&open);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(found(&findings, "configuration")["found"], false, "{findings:#?}");
    assert_eq!(found(&findings, "disk ")["found"], true, "{findings:#?}");
}

/// What a container has replaced must not run as root of this machine.
#[test]
fn doctor_does_not_enter_a_container() {
    let container = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let can_start = container().arg("true").status().is_ok_and(|status| status.success());
    if !nix::unistd::geteuid().is_root() || !can_start {
        eprintln!("NOT tested: routers in containers, as it needs root and unshare(1)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (config, socket) = (folder.path().join("weir.toml"), folder.path().join("a.sock"));
    fs::write(&config, QUIET).expect("written");
    let _router = RunningRouter::start(container(), &socket);
    let (_, findings) = doctor_of(&config, &socket, Path::new("/none"));
    let user = found(&findings, "user");
    assert_eq!(user["found"], false, "{user}");
    assert!(user["fix"].as_str().expect("a text").contains("in the container"), "{user}");
    assert_has_no_capabilities(&findings);
}

/// Root of these tests has all capabilities.
fn assert_has_no_capabilities(findings: &[Value]) {
    for check in ["locked memory", "receive buffers"] {
        let row = found(findings, check);
        assert!(!row["detail"].as_str().expect("a text").contains("CAP_"), "{row}");
    }
}

/// The service of a package has a user while it runs, and a folder for its disks.
#[test]
fn doctor_checks_files_for_the_stopped_service() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("NOT tested: permissions of the service, as it needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("changed");
    let systemctl = path("systemctl");
    let properties = format!(
        "User=no-such-user\nDynamicUser=yes\nStateDirectory={}\nMemoryMax=infinity\n\
         ProtectSystem=strict\nLoadState=loaded",
        path("state").display()
    );
    fs::write(&systemctl, format!("#!/bin/sh\necho '{properties}'\n")).expect("written");
    fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).expect("changed");
    let config = path("weir.toml");
    // systemd creates the first folder. The service may not write to the second one.
    for (disk, is_found) in [("state", true), ("", false)] {
        fs::write(&config, with_disk(&path(disk))).expect("written");
        let (output, findings) = doctor_of(&config, Path::new("/none"), folder.path());
        assert_eq!(output.status.success(), is_found, "{findings:#?}");
        assert_eq!(found(&findings, "disk ")["found"], is_found, "{findings:#?}");
        assert_eq!(found(&findings, "configuration")["found"], true, "{findings:#?}");
        let user = found(&findings, "user");
        assert!(user["detail"].as_str().expect("a text").starts_with("no-such-user"), "{user}");
        assert_has_no_capabilities(&findings);
    }
}
