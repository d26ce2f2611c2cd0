//! The keys of `weir top`.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    /// Ctrl-Z, which a terminal in raw mode does not turn into a signal.
    Suspend,
    NextSort,
    PreviousSort,
    Pause,
}

/// The meaning of an event; `None` if it has none, like a new size of the terminal.
pub(super) fn key_of(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Key::Quit),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('s') | KeyCode::Right | KeyCode::Down => Some(Key::NextSort),
        KeyCode::Char('S') | KeyCode::Left | KeyCode::Up => Some(Key::PreviousSort),
        KeyCode::Char('p' | 'P' | ' ') => Some(Key::Pause),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn control_c_quits_and_c_does_not() {
        let key = |code, modifiers| key_of(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(key(KeyCode::Left, KeyModifiers::NONE), Some(Key::PreviousSort));
        assert_eq!(key_of(&Event::Resize(20, 5)), None);
    }
}
