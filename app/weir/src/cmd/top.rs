//! `weir top`.

mod keys;
mod reader;
mod report;
mod screen;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ratatui::crossterm::event;
use weir_store::ObjectOrder;

use self::keys::{Key, key_of};
use self::reader::{Answer, Reading};
use self::report::{Report, Sort};
use self::screen::View;
use self::terminal::{Screen, SuspendSignal};
use crate::management_client::ManagementClient;
use crate::table::is_color_wanted;
use crate::transfer::{Interrupted, RouterArgs, Stop};

/// How long the screen waits for a key before it looks for news.
const TICK: Duration = Duration::from_millis(100);
/// A router that has not answered for this time is reported.
const SILENCE_MIN: Duration = Duration::from_secs(3);

const READER_ENDED: &str =
    "the thread that reads the router has ended; run `weir top` again, and report this";

/// Watch the traffic, disks, faces and objects of a running router.
///
/// The screen shows what happens now: rates since the last reading, one second before. It needs a
/// terminal; `weir status` prints the same counters once.
///
/// Keys: q, Esc or Ctrl-C quit; s or the right arrow changes the order of faces and objects, and
/// the left arrow changes it back; p holds the screen.
///
/// If the router stops, the screen stays, says for how long there has been no answer, and continues
/// when the router is back. NO_COLOR turns colours off.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir top\n  weir top --router tcp://127.0.0.1")]
pub(crate) struct Args {
    #[command(flatten)]
    router: RouterArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        bail!(
            "`weir top` needs a terminal that can move the cursor; use `weir status`, or `weir \
             status --json` for programs"
        );
    }
    let stop = Stop::on_signals()?;
    let suspend = SuspendSignal::register()?;
    let uri = args.router.uri()?;
    // A router that is not there is an error of the command line. Later, it is news.
    let client = ManagementClient::connect(&args.router)?;
    let (orders, answers) = reader::start(client, uri.clone(), Sort::default().object_order())?;
    let mut app = App::new(uri.to_string(), orders);
    let mut screen = Screen::open()?;
    let result = app.show(&mut screen, &answers, &stop, &suspend);
    drop(screen);
    ensure!(!stop.is_set(), Interrupted(""));
    result
}

/// What the screen shows, and the two readings that it comes from.
struct App {
    uri: String,
    orders: Sender<ObjectOrder>,
    previous: Option<Reading>,
    latest: Option<Reading>,
    report: Option<Report>,
    sort: Sort,
    is_paused: bool,
    answered: Instant,
    problem: Option<String>,
}

impl App {
    fn new(uri: String, orders: Sender<ObjectOrder>) -> Self {
        Self {
            uri,
            orders,
            previous: None,
            latest: None,
            report: None,
            sort: Sort::default(),
            is_paused: false,
            answered: Instant::now(),
            problem: None,
        }
    }

    fn show(
        &mut self,
        screen: &mut Screen,
        answers: &Receiver<Answer>,
        stop: &Stop,
        suspend: &SuspendSignal,
    ) -> anyhow::Result<()> {
        while !stop.is_set() {
            loop {
                match answers.try_recv() {
                    Ok(answer) => self.take(answer),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => bail!(READER_ENDED),
                }
            }
            screen.draw(|frame| screen::draw(frame, &self.view()))?;
            let has_event = event::poll(TICK).context("cannot read the keyboard")?;
            let key = if has_event { key_of(&event::read()?) } else { None };
            match key {
                Some(Key::Quit) => return Ok(()),
                Some(Key::Suspend) => screen.suspend()?,
                Some(Key::NextSort) => self.sort_by(self.sort.next()),
                Some(Key::PreviousSort) => self.sort_by(self.sort.previous()),
                Some(Key::Pause) => self.pause(),
                None if suspend.take() => screen.suspend()?,
                None => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Ok(reading) => {
                self.previous = self.latest.replace(*reading);
                self.answered = Instant::now();
                self.problem = None;
                if !self.is_paused {
                    self.update();
                }
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    fn update(&mut self) {
        if let Some(latest) = &self.latest {
            self.report = Some(Report::between(self.previous.as_ref(), latest));
        }
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        // If the reader has ended, the next look at its answers reports it.
        let _ = self.orders.send(sort.object_order());
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.update();
        }
    }

    fn view(&self) -> View<'_> {
        let silence = self.answered.elapsed();
        let is_silent = self.problem.is_some() || silence >= SILENCE_MIN;
        View {
            uri: &self.uri,
            report: self.report.as_ref(),
            sort: self.sort,
            is_paused: self.is_paused,
            silence: is_silent.then_some(silence),
            problem: self.problem.as_deref(),
            has_color: is_color_wanted(),
        }
    }
}
