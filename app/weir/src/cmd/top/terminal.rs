//! The terminal while `weir top` uses it. It is restored at every end: return, error, panic (a hook
//! of ratatui) and the first signal. A second signal ends the program at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::SIGTSTP;
use signal_hook::{flag, low_level};

/// A terminal in raw mode that shows the alternate screen.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        let terminal = ratatui::try_init();
        if terminal.is_err() {
            restore();
        }
        terminal.map(Self).context("cannot use the terminal")
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        self.0.draw(draw).context("cannot write to the terminal")?;
        Ok(())
    }

    /// Returns the terminal to the shell and stops the process. When the shell continues it, draws
    /// everything again.
    pub(super) fn suspend(&mut self) -> anyhow::Result<()> {
        restore();
        low_level::emulate_default_handler(SIGTSTP).context("cannot suspend")?;
        // A new terminal with an empty buffer, so that the next drawing writes everything. `clear`
        // would ask the terminal for the cursor, and some do not answer.
        self.0 = ratatui::try_init().context("cannot use the terminal")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Leaves the alternate screen and raw mode, and shows the cursor. A terminal that is closed needs
/// nothing.
fn restore() {
    let _ = ratatui::try_restore();
    let _ = ratatui::crossterm::execute!(io::stdout(), ratatui::crossterm::cursor::Show);
}

/// Set by SIGTSTP, which would leave the shell on the alternate screen.
pub(super) struct SuspendSignal(Arc<AtomicBool>);

impl SuspendSignal {
    pub(super) fn register() -> anyhow::Result<Self> {
        let set = Arc::<AtomicBool>::default();
        flag::register(SIGTSTP, set.clone()).context("cannot handle signals")?;
        Ok(Self(set))
    }

    /// Whether the signal has arrived since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
