//! `weir top` in a pseudo terminal, which `script` of util-linux makes.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::served::{Killed, Site, TEST_TIMEOUT, error_of, random_file, serve, wait_until};

const ROWS: NonZero<u16> = NonZero::new(30).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();
/// Saves the settings of the terminal before and after.
const SCRIPT: &str = "stty rows 30 cols 100; tty >tty; stty -g >before
sh -c 'echo $$ >pid; exec \"$WEIR\" top'; code=$?
stty -g >after; exit $code";

/// A terminal with `weir top` in it.
struct Terminal<'a> {
    site: &'a Site,
    script: Killed,
    keyboard: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl<'a> Terminal<'a> {
    fn start(site: &'a Site) -> Self {
        let weir = site.weir(&[]);
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", SCRIPT, "/dev/null"]);
        command.envs(weir.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env("WEIR", weir.get_program()).env("TERM", "xterm").env("SHELL", "/bin/sh");
        command.current_dir(site.path(".")).env_remove("NO_COLOR");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let keyboard = child.stdin.take().unwrap();
        show(&mut child, Arc::clone(&screen));
        Self { site, script: Killed(child), keyboard, screen }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, what: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.text().contains(what) {
            assert!(Instant::now() < deadline, "no {what}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, rows: NonZero<u16>, columns: NonZero<u16>) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let tty = self.read("tty");
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let words = ["-F", &tty, "rows", &rows, "cols", &columns];
        assert!(Command::new("stty").args(words).status().unwrap().success());
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.site.path(file)).unwrap().trim().to_owned()
    }

    /// Waits for the end, and checks that the terminal is as before.
    fn end(mut self) -> ExitStatus {
        wait_until("weir top ends", || self.script.0.try_wait().unwrap().is_some());
        let status = self.script.0.wait().unwrap();
        wait_until("the alternate screen is left", || {
            !self.screen.lock().unwrap().screen().alternate_screen()
        });
        assert!(!self.screen.lock().unwrap().screen().hide_cursor(), "the cursor is hidden");
        assert_eq!(self.read("before"), self.read("after"), "the settings of the terminal");
        status
    }
}

/// Draws what the terminal gets, in a thread.
fn show(child: &mut Child, screen: Arc<Mutex<vt100::Parser>>) {
    let mut output = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut octets = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut octets) {
            screen.lock().unwrap().process(&octets[..count]);
        }
    });
}

/// Whether the test is skipped, because a program is missing. Prints a note.
fn is_skipped() -> bool {
    let missing = ["script", "stty"].into_iter().find(|program| {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err()
    });
    if let Some(program) = missing {
        eprintln!("NOT tested: weir top in a terminal, because {program} is not installed");
    }
    missing.is_some()
}

fn is_alternate(terminal: &Terminal<'_>) -> bool {
    terminal.screen.lock().unwrap().screen().alternate_screen()
}

#[test]
fn top_shows_router_and_restores_terminal() {
    if is_skipped() {
        return;
    }
    let site = Site::new("");
    let router = site.start(&[]);
    random_file(&site.path("file"), 300_000);
    let put = serve(&site, "file", "/top/file");
    let get = ["get", "/top/file", "--allow-unsigned", "-o", "-"];
    for _ in 0..2 {
        assert!(site.weir(&get).output().unwrap().status.success());
    }
    let mut terminal = Terminal::start(&site);
    for part in ["weir top", "Faces (", "fd://", "Objects in the store", "/top/file", "q quit"] {
        terminal.wait_for(part);
    }
    assert!(is_alternate(&terminal));
    terminal.press("s");
    terminal.wait_for("sort: packets/s");
    terminal.press("\x1b[D");
    terminal.wait_for("sort: bytes/s");
    terminal.press("p");
    terminal.wait_for("PAUSED");
    terminal.press("p");

    drop(put);
    router.stop();
    terminal.wait_for("no answer from the router for");
    assert!(terminal.text().contains("/top/file"), "the screen stays: {}", terminal.text());
    let router = site.start(&[]);
    terminal.wait_for("no objects");
    assert!(!terminal.text().contains("no answer"), "{}", terminal.text());

    terminal.resize(NonZero::new(5).unwrap(), NonZero::new(20).unwrap());
    terminal.wait_for("Interests/s");
    assert!(terminal.text().lines().count() <= 5, "{}", terminal.text());
    terminal.press("q");
    assert!(terminal.end().success());

    let terminal = Terminal::start(&site);
    terminal.wait_for("Faces (");
    let pid = Pid::from_raw(terminal.read("pid").parse().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(terminal.end().code(), Some(128 + 15));
    router.stop();
}

#[test]
fn top_without_terminal_names_status() {
    let site = Site::new("");
    let output = site.weir(&["top"]).output().unwrap();
    let error = error_of(&output);
    assert!(error.contains("needs a terminal") && error.contains("weir status"), "{error}");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
}
