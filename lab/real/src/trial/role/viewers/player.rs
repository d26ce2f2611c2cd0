//! When a player of a live stream loads playlists and segments (RFC 8216, sections 6.3.3 and
//! 6.3.4), and when it stalls. It knows no clock; the caller passes times.

use super::super::super::hls::{Playlist, Segment};

/// A player starts this many segments before the end of a playlist, so that it never waits for a
/// segment that is still being made.
const START_SEGMENTS: u64 = 3;

/// A player of one channel.
#[derive(Debug, Default)]
pub(super) struct Player {
    /// The newest playlist.
    playlist: Option<Playlist>,
    /// Number of the next segment to load.
    next: u64,
    /// When everything loaded will have been shown. `None` until the first segment.
    shown_at_ns: Option<u64>,
}

impl Player {
    /// Takes a playlist whose load began at `began_ns`. Returns when the next load may begin: after
    /// the target duration if the playlist has changed, else after half of it.
    pub(super) fn on_playlist(&mut self, playlist: Playlist, began_ns: u64) -> u64 {
        let target_ns = playlist.target_ns;
        let known_end = self.playlist.as_ref().map(Playlist::end);
        // A cache may return an older playlist than the newest known one.
        if known_end.is_some_and(|end| playlist.end() <= end) {
            return began_ns.saturating_add(target_ns / 2);
        }
        // At the start, and after segments were missed.
        if known_end.is_none() || self.next < playlist.first {
            self.next = playlist.end().saturating_sub(START_SEGMENTS).max(playlist.first);
        }
        self.playlist = Some(playlist);
        began_ns.saturating_add(target_ns)
    }

    /// The next segment to load, with its number; `None` if all have been loaded.
    pub(super) fn next_segment(&self) -> Option<(u64, &Segment)> {
        let playlist = self.playlist.as_ref()?;
        let place = usize::try_from(self.next.checked_sub(playlist.first)?).ok()?;
        Some((self.next, playlist.segments.get(place)?))
    }

    /// Takes the next segment, loaded at `now_ns`. Returns how long the player had nothing to show.
    pub(super) fn on_segment(&mut self, now_ns: u64) -> u64 {
        let duration_ns = self.next_segment().map_or(0, |(_, segment)| segment.duration_ns);
        self.next += 1;
        let shown_at_ns = self.shown_at_ns.unwrap_or(now_ns);
        self.shown_at_ns = Some(shown_at_ns.max(now_ns).saturating_add(duration_ns));
        now_ns.saturating_sub(shown_at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn playlist(first: u64, end: u64) -> Playlist {
        let segment = |number| Segment { uri: format!("{number}.ts"), duration_ns: 2 * S };
        Playlist { target_ns: 2 * S, first, segments: (first..end).map(segment).collect() }
    }

    fn next(player: &Player) -> Option<u64> {
        player.next_segment().map(|(number, _)| number)
    }

    /// Loads all segments of the playlist at once. Returns their numbers and the time stalled.
    fn load(player: &mut Player, now_ns: u64) -> (Vec<u64>, u64) {
        let (mut numbers, mut stalled_ns) = (Vec::new(), 0);
        while let Some(number) = next(player) {
            numbers.push(number);
            stalled_ns += player.on_segment(now_ns);
        }
        (numbers, stalled_ns)
    }

    #[test]
    fn begins_three_segments_before_the_end() {
        let mut player = Player::default();
        assert_eq!(next(&player), None);
        player.on_playlist(playlist(10, 16), 0);
        assert_eq!(load(&mut player, 0).0, [13, 14, 15]);
        let mut player = Player::default();
        player.on_playlist(playlist(0, 2), 0);
        assert_eq!(load(&mut player, 0).0, [0, 1]);
    }

    #[test]
    fn reloads_sooner_if_nothing_is_new() {
        let mut player = Player::default();
        assert_eq!(player.on_playlist(playlist(10, 16), 100 * S), 102 * S);
        assert_eq!(player.on_playlist(playlist(10, 16), 102 * S), 103 * S);
        assert_eq!(player.on_playlist(playlist(11, 17), 103 * S), 105 * S);
    }

    #[test]
    fn older_playlist_is_ignored() {
        let mut player = Player::default();
        player.on_playlist(playlist(10, 16), 0);
        load(&mut player, 0);
        assert_eq!(player.on_playlist(playlist(9, 15), 2 * S), 3 * S);
        assert_eq!(next(&player), None);
        player.on_playlist(playlist(11, 17), 3 * S);
        assert_eq!(next(&player), Some(16));
    }

    #[test]
    fn stalls_while_nothing_is_loaded() {
        let mut player = Player::default();
        player.on_playlist(playlist(10, 16), 0);
        // Three segments of 2 s: the start itself is no stall.
        assert_eq!(load(&mut player, 100 * S).1, 0);
        player.on_playlist(playlist(11, 17), 102 * S);
        assert_eq!(load(&mut player, 105 * S).1, 0);
        player.on_playlist(playlist(12, 18), 107 * S);
        assert_eq!(load(&mut player, 109 * S), (vec![17], S));
        player.on_playlist(playlist(13, 19), 109 * S);
        assert_eq!(load(&mut player, 110 * S).1, 0);
    }

    #[test]
    fn begins_again_after_missed_segments() {
        let mut player = Player::default();
        player.on_playlist(playlist(10, 16), 0);
        load(&mut player, 0);
        player.on_playlist(playlist(20, 26), 20 * S);
        assert_eq!(load(&mut player, 20 * S), (vec![23, 24, 25], 14 * S));
    }
}
