//! What the programs say when something is wrong: every case is run, and the table of all in
//! `docs/messages.md` is what came out. `WEIR_WRITE_MESSAGES=1` writes it anew.

use std::collections::BTreeMap;
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

/// What there is when the command runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Environment {
    /// No router.
    NoRouter,
    /// A router, producers, and keys.
    Router,
    /// A router that takes connections and never answers.
    SilentRouter,
    /// Somebody else, to whom nothing belongs, and a router.
    OtherUser,
}

use Environment::{NoRouter, OtherUser, Router as Running, SilentRouter};

/// What is tried; which words of the message say what to do next.
struct Case {
    title: &'static str,
    with: Environment,
    /// Words of the command line. SITE stands for the folder of the test, PORT for the router's.
    command: &'static str,
    next_step: &'static str,
}

const fn case(
    what: &'static str,
    with: Environment,
    command: &'static str,
    next: &'static str,
) -> Case {
    Case { title: what, with, command, next_step: next }
}

const CASES: &[Case] = &[
    // What is typed.
    case("an unknown command", NoRouter, "fetch /a", "--help"),
    case("an option that does not exist", NoRouter, "get /a --fast", "--help"),
    case("an argument is missing", NoRouter, "put file", "Usage: weir put <PATH> <NAME>"),
    case("a name without a slash", NoRouter, "get a/b", "begins with a slash: /a/b"),
    case("a name of nothing", NoRouter, "get /", "such as /data/file"),
    case("too many threads", NoRouter, "get /a --threads 100000", "at most 256"),
    case("a window of nothing", NoRouter, "get /a --window 0", "must be at least 1"),
    case("a size without sense", NoRouter, "cs config --capacity 5zz", "use one of B, kB"),
    case("an address without a port", NoRouter, "router --udp here", "write IP:PORT"),
    case("a port beyond the last", NoRouter, "router --tcp 127.0.0.1:99999", "write IP:PORT"),
    case("a part that does not exist", NoRouter, "status stomach", "possible values"),
    case("a kind of key that does not exist", NoRouter, "key new /a --type xx", "possible values"),
    case("nothing to change", Running, "cs config", "--capacity SIZE"),
    // Which router.
    case("no router", NoRouter, "get /a", "start one with `weir router`"),
    case("no router for commands", NoRouter, "status", "start one with `weir router`"),
    case("no router at that port", NoRouter, "get /a --router tcp://127.0.0.1:1", "--router URI"),
    case("an unknown host", NoRouter, "get /a --router tcp://a.invalid", "or give its address"),
    case("no address", NoRouter, "get /a --router nonsense", "such as udp4://192.0.2.1:6363"),
    case("a port of no peer", NoRouter, "get /a --router udp://h:99999", "beyond 65535"),
    case("the address of no peer", NoRouter, "get /a --router udp://0.0.0.0", "give that of one"),
    case("commands over UDP", Running, "status --router udp://127.0.0.1:PORT", "tcp://127.0.0.1"),
    case("a router that does not answer", SilentRouter, "status", "may know no such command"),
    case(
        "no leave to use the router",
        OtherUser,
        "status --router SITE/closed.sock",
        "weir router",
    ),
    // put
    case("put: no such file", Running, "put nowhere /a", "check how the path is written"),
    case("put: no leave to read", OtherUser, "put SITE/secret /a", "ask its owner"),
    case("put: a device", Running, "put /dev/null /a", "to a file first"),
    case("put: a file of no size", Running, "put /proc/version /a", "to a file first"),
    case("put: a name of this machine", Running, "put file /localhost/a", "use another"),
    case("put: no such key", Running, "put file /a --key /none", "`weir key list`"),
    case("put: segments too large", Running, "put file /a --segment-size 9000", "--segment-size"),
    case("put: no repository", Running, "put file /a --repo SITE", "name an empty directory"),
    case("put: an empty repository", Running, "put --repo SITE/none", "name a file or directory"),
    // get
    case("get: nobody has it", Running, "get /nobody/has", "`weir put`"),
    case("get: no answer", SilentRouter, "get /a", "Is its producer running?"),
    case("get: not signed", Running, "get /unsigned", "--allow-unsigned"),
    case("get: signed by somebody else", Running, "get /signed --trust-anchor other", "--router"),
    case("get: no trust anchor there", Running, "get /a --trust-anchor none", "weir key export"),
    case("get: a trust anchor that is none", Running, "get /a --trust-anchor file", "key export"),
    case("get: no such directory", Running, "get /signed -o nowhere/a", "mkdir -p nowhere"),
    case("get: a directory to standard output", Running, "get /folder -o -", "with -o"),
    case(
        "get: a file where a directory is",
        Running,
        "get /folder -o mixed --json",
        "move it away",
    ),
    case("get: a name of downloads", Running, "get /signed -o .a.weir-part", "choose another"),
    case("get: a local file of that name", Running, "get /unsigned --allow-unsigned", "--force"),
    case("get: a symbolic link", Running, "get /signed -o link", "--follow-links"),
    case("get: a directory to a pipe", Running, "get /folder -o pipe", "with -o"),
    case("get: no leave to write", OtherUser, "get /signed -o SITE/closed/a", "with -o"),
    case(
        "get: no version of that number",
        Running,
        "get /signed --version 1",
        "written as it was published",
    ),
    case("ping: nobody answers", Running, "ping /nobody -c 1 -t 100", "weir ping --serve"),
    // A running router.
    case("a face to nobody", Running, "face create tcp://127.0.0.1:1", "is the other side up"),
    case("no such face", Running, "face destroy 99999", "`weir face list`"),
    case("a route to no face", Running, "route add /a 99999", "`weir face list`"),
    case("no such route", Running, "route remove /a udp4://127.0.0.1:9", "`weir route list`"),
    case("no such strategy", Running, "strategy set /a best", "best-route or multicast"),
    // Keys
    case("no key is the default", OtherUser, "key show", "`weir key new` makes one"),
    case("no such key", NoRouter, "key show /none", "`weir key list`"),
    case("nothing to import", NoRouter, "key import nowhere", "check how the path is written"),
    case("no key to import", NoRouter, "key import file", "`weir key export`"),
    case("no certificate to trust", NoRouter, "key trust file", "`weir key export`"),
    case("no signer to forget", NoRouter, "key trust forget /none", "`weir key trust list`"),
    case("a file that is there", NoRouter, "key export /other -o file", "name another"),
    // The router
    case(
        "another router has the socket",
        Running,
        "router --unix SITE/router.sock --udp 127.0.0.1:0 --tcp 127.0.0.1:0",
        "stop it",
    ),
    case(
        "another program has the port",
        Running,
        "router --unix SITE/b.sock --udp 127.0.0.1:PORT --tcp 127.0.0.1:PORT",
        "choose another port",
    ),
    case("no configuration there", NoRouter, "router --config nowhere", "--print-default-config"),
    case("an unknown key", NoRouter, "router --config key.toml", "expected one of"),
    case("a value of the wrong kind", NoRouter, "router --config kind.toml", "default-config"),
    case("a value out of bounds", NoRouter, "router --config bound.toml", "default-config"),
    case("a port beyond the last in a file", NoRouter, "router --config port.toml", "65535"),
    case("a prefix without a slash", NoRouter, "router --config slash.toml", "begins with a slash"),
    case("a route to a face of no name", NoRouter, "router --config route.toml", "add one"),
    case("remote commands, nobody believed", NoRouter, "router --config remote.toml", "add a"),
    case(
        "no place for the socket",
        OtherUser,
        "router --unix SITE/closed/a.sock --udp 127.0.0.1:0 --tcp 127.0.0.1:0",
        "--unix PATH",
    ),
    // Packets
    case("no packet", NoRouter, "packet file", "--help"),
    case("no file of packets", NoRouter, "packet nowhere", "check how the path is written"),
    case("no hexadecimal", NoRouter, "packet --hex xyz", "0 to 9 and a to f"),
];

const FILES: &[(&str, &str)] = &[
    ("file", "octets that are no packet\n"),
    ("key.toml", "[router]\nthraeds = 2\n"),
    ("kind.toml", "[router]\nthreads = \"many\"\n"),
    ("bound.toml", "[store]\nsize = -1\n"),
    ("port.toml", "[[face]]\nuri = \"udp://192.0.2.1:99999\"\n"),
    ("slash.toml", "[[strategy]]\nprefix = \"a\"\nstrategy = \"best-route\"\n"),
    ("route.toml", "[[route]]\nprefix = \"/a\"\nface = \"udp://192.0.2.1\"\n"),
    ("remote.toml", "[management]\nlocalhop = true\n"),
];

/// The place in which all cases are run.
struct Fixture {
    host: Host,
    router: Router,
    stranger: PathBuf,
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
        let stranger = Self::make_stranger(&host);
        Self { host, router, stranger, _producers: producers, _silent: silent }
    }

    /// Everything that is closed to a stranger, and a copy of the program that is not. The
    /// superuser becomes somebody else; another user closes it to itself.
    fn make_stranger(host: &Host) -> PathBuf {
        let close = |name: &str| {
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(host.path(name), closed).expect("mode");
        };
        host.write("secret", b"mine");
        fs::create_dir(host.path("closed")).expect("a folder");
        let _listener = UnixListener::bind(host.path("closed.sock")).expect("a socket");
        ["secret", "closed", "closed.sock"].iter().for_each(|name| close(name));
        let home = host.path("stranger");
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
        const NOBODY: u32 = 65534;
        let program = if with == OtherUser { &self.stranger } else { weir_binary() };
        let mut command = self.host.command(program);
        let transport = match with {
            NoRouter => format!("unix://{}", self.host.path("none.sock").display()),
            SilentRouter => format!("unix://{}", self.host.path("silent.sock").display()),
            Running => self.router.unix(),
            OtherUser => self.router.tcp(),
        };
        command.current_dir(self.host.path("")).env("NDN_CLIENT_TRANSPORT", transport);
        if with == OtherUser {
            let home = self.host.path("stranger");
            command.env("HOME", &home).env("WEIR_HOME", &home);
            if nix::unistd::geteuid().is_root() {
                command.uid(NOBODY).gid(NOBODY);
            }
        }
        command
    }

    /// The message without what differs from one run to the next.
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
        // How often it is said depends on how long it takes.
        let mut lines: Vec<&str> = text.lines().collect();
        lines.dedup();
        lines.join("\n")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Else it could not be removed.
        let open = fs::Permissions::from_mode(0o700);
        let _ = fs::set_permissions(self.host.path("closed"), open);
    }
}

/// Replaces what follows each `mark` as long as characters `belong`.
fn replace_after(text: &str, mark: &str, by: &str, belong: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|one| belong(one) && one != '\n');
        replaced.extend([mark, if rest.len() < part.len() { by } else { "" }, rest]);
    }
    replaced
}

/// A row of the table, or what is wrong with the case.
fn row(case: &Case, code: i32, message: &str) -> Result<String, String> {
    if code == 0 {
        return Err(format!("{}: it succeeds", case.title));
    }
    for (is_wrong, why) in [
        (message.is_empty(), "it says nothing"),
        (message.contains("panicked at"), "it panics"),
        (!message.contains(case.next_step), "it does not say what to do next"),
    ] {
        if is_wrong {
            return Err(format!("{}: {why} ({:?}):\n{message}", case.title, case.next_step));
        }
    }
    let cell = |text: &str| {
        let text = text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;");
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("<br>")
    };
    Ok(format!(
        "| {} | `weir {}` | {code} | {} | {} |",
        case.title,
        case.command,
        cell(message),
        cell(case.next_step)
    ))
}

const HEAD: &str = "\
# Messages

What `weir` says when something is wrong, and what it says to do next. SITE is a folder, PORT a
port. The test `messages` runs every line of this table and compares; `WEIR_WRITE_MESSAGES=1` has it
write the table anew. Exit codes: 1 for what failed, 2 for what was typed wrongly, 128 + N after
signal N (130 after Ctrl-C); 0 where Ctrl-C is how it ends: `weir router`, `weir put` that serves,
`weir ping --serve`.

| case | command | exit code | message | next step |
|---|---|---|---|---|
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
    let mut wrong = Vec::new();
    for case in CASES {
        let (code, log) = &results[case.title];
        match row(case, *code, &fixture.normalised(log)) {
            Ok(row) => writeln!(table, "{row}").expect("a string"),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    compare(&table);
}

/// Exit codes and messages by what was tried.
fn run_all(commands: Vec<(&Case, Command)>) -> BTreeMap<&str, (i32, String)> {
    let (commands, results) = (Mutex::new(commands), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        // Some only wait.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let next = commands.lock().expect("commands").pop();
                    let Some((case, command)) = next else { return };
                    let finished = Process::start(case.title, command).finish_within(TEST_TIMEOUT);
                    let code = finished.status.code().expect("an exit code");
                    let before = (code, finished.errors);
                    let before = results.lock().expect("results").insert(case.title, before);
                    assert!(before.is_none(), "two cases are called {:?}", case.title);
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
        "messages differ from docs/messages.md; read the new ones as somebody new would, then \
         write the table anew with WEIR_WRITE_MESSAGES=1. The first that differs:\n{pairs:#?}"
    );
}
