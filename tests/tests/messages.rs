//! Error messages of `weir`. The test runs all cases, checks that each message says what to do
//! next, and compares them with the table in `docs/messages.md`. `WEIR_WRITE_MESSAGES=1` writes the
//! table.

mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use weir_tests::{Host, Process, Router, TEST_TIMEOUT, weir_binary};

/// The environment of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Environment {
    NoRouter,
    /// A router, producers, and keys.
    Router,
    /// A router that accepts connections and never answers.
    SilentRouter,
    /// A router, and an unprivileged user who runs the command.
    OtherUser,
}

use Environment::{NoRouter, OtherUser, Router as Running, SilentRouter};

/// One failing command.
struct Case {
    title: &'static str,
    with: Environment,
    /// The command line. SITE is the folder of the test, PORT the port of the router.
    command: &'static str,
    /// Words of the message that say what to do next.
    next_step: &'static str,
    exit_code: i32,
}

impl Case {
    const fn exits(self, exit_code: i32) -> Self {
        Self { exit_code, ..self }
    }
}

const fn case(
    title: &'static str,
    with: Environment,
    command: &'static str,
    next_step: &'static str,
) -> Case {
    Case { title, with, command, next_step, exit_code: 1 }
}

const CASES: &[Case] = &[
    // Arguments
    case("unknown command", NoRouter, "fetch /a", "--help"),
    case("unknown option", NoRouter, "get /a --fast", "--help"),
    case("missing argument", NoRouter, "put file", "Usage: weir put <PATH> <NAME>"),
    case("name without a slash", NoRouter, "get a/b", "starts with a slash, as in /a/b"),
    case("empty name", NoRouter, "get /", "such as /data/file"),
    case("too many threads", NoRouter, "get /a --threads 100000", "at most 256"),
    case("window of 0", NoRouter, "get /a --window 0", "must be at least 1"),
    case("invalid size", NoRouter, "cs config --capacity 5zz", "use one of B, kB"),
    case("address without a port", NoRouter, "router --udp here", "write IP:PORT"),
    case("port above 65535", NoRouter, "router --tcp 127.0.0.1:99999", "write IP:PORT"),
    case("unknown section", NoRouter, "status engine", "possible values"),
    case("unknown key type", NoRouter, "key new /a --type xx", "possible values"),
    case("nothing to change", Running, "cs config", "--capacity SIZE"),
    // Connection to the router
    case("no router", NoRouter, "get /a", "start one with `weir router`").exits(8),
    case("no router for a command", NoRouter, "status", "start one with `weir router`").exits(8),
    case("no router at the port", NoRouter, "get /a --router tcp://127.0.0.1:1", "--router URI")
        .exits(8),
    case("unknown host", NoRouter, "get /a --router tcp://a.invalid", "or give its address"),
    case("invalid address", NoRouter, "get /a --router nonsense", "such as udp4://192.0.2.1:6363"),
    case("port above 65535 in a URI", NoRouter, "get /a --router udp://h:99999", "beyond 65535"),
    case("wildcard address", NoRouter, "get /a --router udp://0.0.0.0", "give that of one"),
    case("command over UDP", Running, "status --router udp://127.0.0.1:PORT", "tcp://127.0.0.1"),
    case("router does not answer", SilentRouter, "status", "it may be starting").exits(8),
    case(
        "no permission for the router",
        OtherUser,
        "status --router SITE/closed.sock",
        "weir router",
    ),
    // put
    case("put: missing file", Running, "put nowhere /a", "check the path"),
    case("put: unreadable file", OtherUser, "put SITE/secret /a", "ask its owner"),
    case("put: device", Running, "put /dev/null /a", "to a file first"),
    case("put: file without a size", Running, "put /proc/version /a", "to a file first"),
    case("put: local name", Running, "put file /localhost/a", "choose another name"),
    case("put: unknown key", Running, "put file /a --key /none", "`weir key list`").exits(4),
    case("put: segments too large", Running, "put file /a --segment-size 9000B", "--segment-size"),
    case(
        "put: not a repository",
        Running,
        "put file /a --repo SITE",
        "choose an empty or new directory",
    ),
    case("put: empty repository", Running, "put --repo SITE/none", "add a file with `weir put"),
    // get
    case("get: no route", Running, "get /missing/file", "`weir put`").exits(5),
    case("get: no answer", SilentRouter, "get /a", "Check that its producer runs").exits(8),
    case("get: not signed", Running, "get /unsigned", "--allow-unsigned").exits(6),
    case("get: other signer", Running, "get /signed --trust-anchor other", "--router").exits(6),
    case("get: missing trust anchor", Running, "get /a --trust-anchor none", "weir key export"),
    case("get: invalid trust anchor", Running, "get /a --trust-anchor file", "key export"),
    case("get: missing directory", Running, "get /signed -o nowhere/a", "mkdir -p nowhere"),
    case("get: directory to standard output", Running, "get /folder -o -", "with -o"),
    case(
        "get: file, but a directory exists",
        Running,
        "get /folder -o mixed --json",
        "move it away",
    ),
    case("get: reserved name", Running, "get /signed -o .a.weir-part", "choose another"),
    case("get: existing file", Running, "get /unsigned --allow-unsigned", "--force"),
    case("get: symbolic link", Running, "get /signed -o link", "--follow-links"),
    case("get: full disk", Running, "get /signed -o /dev/full", "free some space").exits(7),
    case("get: directory to a pipe", Running, "get /folder -o pipe", "with -o"),
    case("get: no write permission", OtherUser, "get /signed -o SITE/closed/a", "with -o"),
    case(
        "get: unknown version",
        Running,
        "get /signed --version 1",
        "Check the name and the version",
    )
    .exits(4),
    // ls, stat and cs fetch
    case("ls: no route", Running, "ls /missing/file", "`weir put`").exits(5),
    case(
        "ls: no answer",
        SilentRouter,
        "ls /a --lifetime 100ms --retries 1",
        "that its producer runs",
    )
    .exits(8),
    case("ls: not signed", Running, "ls /unsigned", "--allow-unsigned").exits(6),
    case("ls: unknown version", Running, "ls /signed/v=1", "Check the name and the version")
        .exits(4),
    case("stat: no route", Running, "stat /missing/file", "`weir put`").exits(5),
    case("stat: not signed", Running, "stat /unsigned", "--allow-unsigned").exits(6),
    case("stat: other signer", Running, "stat /signed --trust-anchor other", "--router").exits(6),
    case("stat: unknown version", Running, "stat /signed/v=1", "Check the name and the version")
        .exits(4),
    case("stat: no router", NoRouter, "stat /a", "start one with `weir router`").exits(8),
    case("cs fetch: no route", Running, "cs fetch /missing/file", "`weir put`").exits(5),
    case("cs fetch: not signed", Running, "cs fetch /unsigned", "--allow-unsigned").exits(6),
    case(
        "cs fetch: unknown version",
        Running,
        "cs fetch /signed/v=1",
        "Check the name and the version",
    )
    .exits(4),
    case("cs list: no router", NoRouter, "cs list", "start one with `weir router`").exits(8),
    case("ping: no answer", Running, "ping /missing -c 1 -t 100ms", "weir ping --serve").exits(5),
    // Commands to a router
    case(
        "face to an unreachable router",
        Running,
        "face create tcp://127.0.0.1:1",
        "that the other router runs",
    )
    .exits(8),
    case("unknown face", Running, "face destroy 99999", "`weir face list`").exits(4),
    case("route to an unknown face", Running, "route add /a 99999", "`weir face list`").exits(4),
    case("unknown route", Running, "route remove /a udp4://127.0.0.1:9", "`weir route list`")
        .exits(4),
    case("unknown strategy", Running, "strategy set /a best", "best-route or multicast").exits(4),
    // Keys
    case("no default key", OtherUser, "key show", "create one with `weir key new`"),
    case("unknown key", NoRouter, "key show /none", "`weir key list`").exits(4),
    case("import of a missing file", NoRouter, "key import nowhere", "check the path"),
    case("import of another file", NoRouter, "key import file", "`weir key export`"),
    case("trust of another file", NoRouter, "key trust file", "`weir key export`"),
    case("forget an unknown signer", NoRouter, "key trust forget /none", "`weir key trust list`")
        .exits(4),
    case(
        "export to an existing file",
        NoRouter,
        "key export /other -o file",
        "choose another file",
    ),
    // The router
    case(
        "socket in use",
        Running,
        "router --unix SITE/router.sock --udp 127.0.0.1:0 --tcp 127.0.0.1:0",
        "stop it",
    ),
    case(
        "port in use",
        Running,
        "router --unix SITE/b.sock --udp 127.0.0.1:PORT --tcp 127.0.0.1:PORT",
        "choose another port",
    ),
    case("missing configuration", NoRouter, "router --config nowhere", "--print-default-config"),
    case("unknown key in a file", NoRouter, "router --config key.toml", "expected one of"),
    case("wrong type", NoRouter, "router --config kind.toml", "default-config"),
    case("value out of range", NoRouter, "router --config bound.toml", "default-config"),
    case("port above 65535 in a file", NoRouter, "router --config port.toml", "65535"),
    case("prefix without a slash", NoRouter, "router --config slash.toml", "starts with a slash"),
    case("route to an undeclared face", NoRouter, "router --config route.toml", "add one"),
    case("check: unknown key in a file", NoRouter, "router --check --config key.toml", "expected"),
    case("check: pins too large", NoRouter, "router --check --config pins.toml", "raise the size"),
    case(
        "reload: no router",
        NoRouter,
        "router --reload --unix SITE/none.sock",
        "start it with `weir router`",
    )
    .exits(8),
    case("reload: missing file", NoRouter, "router --reload --config nowhere", "check the path"),
    case("remote commands without anchors", NoRouter, "router --config remote.toml", "add a"),
    case(
        "socket path not writable",
        OtherUser,
        "router --unix SITE/closed/a.sock --udp 127.0.0.1:0 --tcp 127.0.0.1:0",
        "--unix PATH",
    ),
    // Packets
    case("invalid packet", NoRouter, "packet file", "--help"),
    case("missing packet file", NoRouter, "packet nowhere", "check the path"),
    case("not hexadecimal", NoRouter, "packet --hex xyz", "0 to 9, a to f"),
];

const FILES: &[(&str, &str)] = &[
    ("file", "not a packet\n"),
    ("key.toml", "[router]\nthraeds = 2\n"),
    ("kind.toml", "[router]\nthreads = \"many\"\n"),
    ("bound.toml", "[store]\nsize = -1\n"),
    ("port.toml", "[[face]]\nuri = \"udp://192.0.2.1:99999\"\n"),
    ("slash.toml", "[[strategy]]\nprefix = \"a\"\nstrategy = \"best-route\"\n"),
    ("route.toml", "[[route]]\nprefix = \"/a\"\nface = \"udp://192.0.2.1\"\n"),
    ("pins.toml", "[store]\nsize = \"1MiB\"\n[[pin]]\nprefix = \"/a\"\nsize = \"1MiB\"\n"),
    ("remote.toml", "[management]\nlocalhop = true\n"),
];

/// The folder, router and producers for all cases.
struct Fixture {
    host: Host,
    router: Router,
    other_user_program: PathBuf,
    _producers: Vec<Process>,
    _silent: UnixListener,
}

impl Fixture {
    fn new() -> Self {
        let host = Host::new();
        for (name, text) in FILES {
            host.write(name, text.as_bytes());
        }
        fs::create_dir_all(host.path("mixed/inner")).expect("a folder");
        fs::create_dir_all(host.path("folder")).expect("a folder");
        host.write("folder/inner", b"a file");
        symlink("/", host.path("folder/out")).expect("a link");
        host.write("unsigned", b"a file of the user");
        symlink("file", host.path("link")).expect("a link");
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&host.path("pipe"), mode).expect("a pipe");
        let router = Router::start(&host);
        let weir = |words: &[&str]| router.spawn(words);
        let exported = host.path("other");
        let exported = exported.to_str().expect("UTF-8");
        for words in [&["key", "new", "/other"][..], &["key", "export", "/other", "-o", exported]] {
            weir(words).finish().success();
        }
        weir(&["face", "create", "udp4://127.0.0.1:9"]).finish().success();
        let put = |path: &str, name: &str, more: &[&str]| {
            let path = host.path(path);
            let words = [&["put", path.to_str().expect("UTF-8"), name, "--json"], more].concat();
            let process = weir(&words);
            let _ = process.json_line();
            process
        };
        let producers = vec![
            put("file", "/unsigned", &["--sign", "digest"]),
            put("file", "/signed", &[]),
            put("folder", "/folder", &[]),
        ];
        let silent = UnixListener::bind(host.path("silent.sock")).expect("a socket");
        let other_user_program = Self::deny_access(&host);
        Self { host, router, other_user_program, _producers: producers, _silent: silent }
    }

    /// Creates files without permissions, and a copy of the program for the other user. If the test
    /// does not run as root, it uses its own user, who then has no permission either.
    fn deny_access(host: &Host) -> PathBuf {
        let close = |name: &str| {
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(host.path(name), closed).expect("mode");
        };
        host.write("secret", b"mine");
        fs::create_dir(host.path("closed")).expect("a folder");
        let _listener = UnixListener::bind(host.path("closed.sock")).expect("a socket");
        ["secret", "closed", "closed.sock"].iter().for_each(|name| close(name));
        let home = host.path("other-user");
        fs::create_dir(&home).expect("a folder");
        let open = fs::Permissions::from_mode(0o777);
        for path in [&home, &host.path(".")] {
            fs::set_permissions(path, open.clone()).expect("mode");
        }
        let program = home.join("weir");
        fs::copy(weir_binary(), &program).expect("a copy of weir");
        fs::set_permissions(&program, open).expect("mode");
        program
    }

    fn words(&self, command: &str) -> Vec<String> {
        let host = self.folder();
        let port = self.router.port().to_string();
        let words = command.split(' ');
        words.map(|word| word.replace("SITE", &host).replace("PORT", &port)).collect()
    }

    fn folder(&self) -> String {
        self.host.path("").to_str().expect("UTF-8").trim_end_matches('/').to_owned()
    }

    fn command(&self, with: Environment) -> Command {
        const OTHER_UID: u32 = 65534;
        let program = if with == OtherUser { &self.other_user_program } else { weir_binary() };
        let mut command = self.host.command(program);
        let transport = match with {
            NoRouter => format!("unix://{}", self.host.path("none.sock").display()),
            SilentRouter => format!("unix://{}", self.host.path("silent.sock").display()),
            Running => self.router.unix(),
            OtherUser => self.router.tcp(),
        };
        command.current_dir(self.host.path("")).env("NDN_CLIENT_TRANSPORT", transport);
        if with == OtherUser {
            let home = self.host.path("other-user");
            command.env("HOME", &home).env("WEIR_HOME", &home);
            if nix::unistd::geteuid().is_root() {
                command.uid(OTHER_UID).gid(OTHER_UID);
            }
        }
        command
    }

    /// Replaces the parts of a message that differ between runs.
    fn normalised(&self, log: &str) -> String {
        let port = format!(":{}", self.router.port());
        let mut text = log.replace(&self.folder(), "SITE").replace(&port, ":PORT");
        text = replace_after(&text, "failed to lookup address information: ", "REASON", |octet| {
            octet != ';'
        });
        text = replace_after(&text, "expected one of ", "KEYS", |_| true);
        text = replace_after(&text, " for ", "N", |octet| octet.is_ascii_digit());
        text = replace_after(&text, "face ", "N", |octet| octet.is_ascii_digit());
        text = replace_after(&text, "/v=", "VERSION", |octet| octet.is_ascii_digit());
        text = replace_after(&text, "/KEY/", "ID", |octet| octet.is_ascii_hexdigit());
        // The number of repeated lines depends on the time.
        let mut lines: Vec<&str> = text.lines().collect();
        lines.dedup();
        lines.join("\n")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Otherwise the folder could not be removed.
        let open = fs::Permissions::from_mode(0o700);
        let _ = fs::set_permissions(self.host.path("closed"), open);
    }
}

/// Replaces the characters after each `mark`, while they `belong`, by another text.
fn replace_after(text: &str, mark: &str, by: &str, belong: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|one| belong(one) && one != '\n');
        replaced.extend([mark, if rest.len() < part.len() { by } else { "" }, rest]);
    }
    replaced
}

/// The message as the table shows it, or what is wrong with it.
fn shown(case: &Case, code: i32, message: &str) -> Result<String, String> {
    let expected_code = if message.starts_with("error:") { 2 } else { case.exit_code };
    if code != expected_code {
        return Err(format!("{}: exit code {code}, not {expected_code}", case.title));
    }
    for (is_wrong, why) in [
        (message.is_empty(), "no message"),
        (message.contains("panicked at"), "a panic"),
        (!message.contains(case.next_step), "no advice"),
    ] {
        if is_wrong {
            return Err(format!("{}: {why} ({:?}):\n{message}", case.title, case.next_step));
        }
    }
    // Omit what is the same for all errors about arguments or configuration files, and the quoted
    // lines of a configuration file.
    let is_shown = |line: &&str| {
        let is_reference = line.starts_with("For more information") || line.starts_with("For all");
        let is_usage = line.starts_with("Usage:") || line.starts_with("weir put --repo");
        let is_quote = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let is_quote = is_quote.starts_with("\\|");
        !line.is_empty() && !is_usage && !is_quote && !is_reference
    };
    let text = message.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_shown).collect();
    Ok(lines.join("<br>"))
}

const HEAD: &str = "\
# Messages

Errors of `weir`. Each says what to do next, and is listed once. The test `messages` runs the
commands and compares the messages. `WEIR_WRITE_MESSAGES=1` writes this page.

[exit-codes.md](exit-codes.md) explains the exit codes. Errors in a configuration file also refer to
`weir router --print-default-config`. SITE is a folder, PORT a port.

| exit code | command | message |
|---|---|---|
";

#[test]
fn messages_match_the_table() {
    let fixture = Fixture::new();
    let commands = CASES.iter().map(|case| {
        let mut command = fixture.command(case.with);
        command.args(fixture.words(case.command));
        (case, command)
    });
    let results = run_all(commands.collect());
    let mut table = HEAD.to_owned();
    let (mut messages, mut wrong) = (BTreeSet::new(), Vec::new());
    for case in CASES {
        let (code, log) = &results[case.title];
        match shown(case, *code, &fixture.normalised(log)) {
            Ok(message) if messages.contains(&message) => {}
            Ok(message) => {
                writeln!(table, "| {code} | `weir {}` | {message} |", case.command)
                    .expect("a string");
                messages.insert(message);
            }
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    compare(&table);
}

/// Runs all commands. Returns exit codes and messages by the title of the case.
fn run_all(commands: Vec<(&Case, Command)>) -> BTreeMap<&str, (i32, String)> {
    let (commands, results) = (Mutex::new(commands), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        // Run several at a time, as some only wait.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let next = commands.lock().expect("commands").pop();
                    let Some((case, command)) = next else { return };
                    let finished = Process::start(case.title, command).finish_within(TEST_TIMEOUT);
                    let code = finished.status.code().expect("an exit code");
                    let before = (code, finished.errors);
                    let before = results.lock().expect("results").insert(case.title, before);
                    assert!(before.is_none(), "two cases have the title {:?}", case.title);
                }
            });
        }
    });
    results.into_inner().expect("results")
}

fn compare(table: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let path = root.join("docs/messages.md");
    if std::env::var_os("WEIR_WRITE_MESSAGES").is_some() {
        fs::write(&path, table).expect("written");
        return;
    }
    let committed = fs::read_to_string(&path).expect("docs/messages.md");
    let pairs = committed.lines().zip(table.lines()).find(|(old, new)| old != new);
    assert!(
        committed == table,
        "messages differ from docs/messages.md; check that the new ones are clear, then write the \
         table with WEIR_WRITE_MESSAGES=1. The first difference:\n{pairs:#?}"
    );
}
