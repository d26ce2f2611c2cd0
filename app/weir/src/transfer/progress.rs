//! Progress bars on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use terminal_size::terminal_size_of;

use crate::table::printable;

/// Terminals with fewer columns get a progress line without a bar.
const BAR_COLUMNS_MIN: u16 = 80;

/// A progress bar in bytes on standard error, hidden if that is not a terminal.
pub(crate) fn byte_bar(message: impl Into<String>, total: Option<u64>) -> ProgressBar {
    progress_bar(
        ProgressDrawTarget::stderr(),
        byte_template(total, error_columns()),
        total,
        message,
    )
}

/// The line of a transfer. The message is shortened to what is left of the terminal's width.
fn byte_template(total: Option<u64>, columns: u16) -> &'static str {
    match total {
        Some(_) if columns >= BAR_COLUMNS_MIN => {
            "{wide_msg} [{bar:20}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} eta \
             {eta}"
        }
        Some(_) => "{wide_msg} {percent} % {binary_bytes_per_sec} {eta}",
        None => "{wide_msg} {spinner} {binary_bytes} {binary_bytes_per_sec}",
    }
}

/// A progress bar in files on standard error, hidden if that is not a terminal.
pub(crate) fn file_bar(message: impl Into<String>, total: u64) -> ProgressBar {
    let template = file_template(error_columns());
    progress_bar(ProgressDrawTarget::stderr(), template, Some(total), message)
}

fn file_template(columns: u16) -> &'static str {
    if columns >= BAR_COLUMNS_MIN {
        "{wide_msg} [{bar:20}] {human_pos} of {human_len} files {per_sec} eta {eta}"
    } else {
        "{wide_msg} {human_pos}/{human_len} files {eta}"
    }
}

/// The columns of the terminal of standard error.
fn error_columns() -> u16 {
    terminal_size_of(std::io::stderr()).map_or(BAR_COLUMNS_MIN, |(width, _)| width.0)
}

fn progress_bar(
    target: ProgressDrawTarget,
    template: &str,
    total: Option<u64>,
    message: impl Into<String>,
) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template that parses");
    let bar = ProgressBar::with_draw_target(total, target);
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(printable(message.into()));
    bar
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps what is written.
    #[derive(Debug, Default)]
    struct Screen {
        columns: u16,
        text: Arc<Mutex<String>>,
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.columns
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.text.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The line that a bar draws.
    fn drawn(template: &str, total: Option<u64>, columns: u16) -> String {
        let text = Arc::default();
        let screen = Screen { columns, text: Arc::clone(&text) };
        let target = ProgressDrawTarget::term_like(Box::new(screen));
        let bar = progress_bar(target, template, total, "/demo/a/name/longer/than/the/terminal");
        bar.set_position(total.unwrap_or(1 << 30) / 2);
        text.lock().unwrap().clear();
        bar.tick();
        text.lock().unwrap().trim_end().to_owned()
    }

    #[test]
    fn progress_fits_the_terminal() {
        for columns in [40, 60, 80, 120] {
            for (template, total) in [
                (byte_template(Some(1), columns), Some(1 << 34)),
                (byte_template(None, columns), None),
                (file_template(columns), Some(100_000)),
            ] {
                let line = drawn(template, total, columns);
                let width = line.chars().count();
                assert!((1..=columns.into()).contains(&width), "{columns}: {width} of {line:?}");
                assert!(line.starts_with("/demo"), "{line:?}");
            }
        }
    }
}
