//! What a controller knows about the other controllers of its database.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::database::ControllerRow;

/// While the database works, the list of controllers is read at least this often.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(3);

/// Another controller.
pub(crate) struct OtherController {
    pub(crate) row: ControllerRow,
    /// When its beat last changed.
    pub(crate) last_beat_at: Instant,
    /// It was stopped cleanly. Its routers are looking for another controller, so they are no more
    /// lost than those of a controller that was killed.
    has_ended: bool,
}

/// What is known about other controllers, and how far their changes have been read.
pub(crate) struct Follower {
    /// Its own run number, and its address.
    pub(crate) run: u64,
    pub(crate) url: String,
    /// Whether other controllers can use the database at the same time.
    pub(crate) is_shared: bool,
    /// The last change that was adopted.
    pub(crate) change: u64,
    /// Other controllers, including controllers that ended a moment ago.
    pub(crate) others: BTreeMap<u64, OtherController>,
    /// The controller that each router reports to.
    pub(crate) routers: BTreeMap<String, u64>,
    /// Routers of other controllers, as the controller state was last notified.
    pub(crate) announced: BTreeMap<String, u64>,
    /// When it last increased its own beat.
    pub(crate) beat_at: Option<Instant>,
    /// When the list of controllers was last read.
    read_at: Option<Instant>,
    /// A controller without a beat for this long is gone.
    timeout: Duration,
}

impl Follower {
    /// Starts as controller `run`, which listens at `url`.
    pub(crate) fn new(config: &Config, run: u64, url: String) -> Self {
        Self {
            run,
            url,
            is_shared: config.database.is_server(),
            change: 0,
            others: BTreeMap::new(),
            routers: BTreeMap::new(),
            announced: BTreeMap::new(),
            beat_at: None,
            read_at: None,
            timeout: Duration::from_nanos(config.controller.router_timeout_ns),
        }
    }

    /// Records the list of controllers. The time in which the list could not be read counts for no
    /// controller.
    pub(crate) fn note_controllers(&mut self, rows: Vec<ControllerRow>, now: Instant) {
        let last = self.read_at.replace(now).unwrap_or(now);
        let unread = now.duration_since(last).saturating_sub(READ_INTERVAL_MAX);
        let mut former = std::mem::take(&mut self.others);
        former.values_mut().for_each(|other| other.last_beat_at += unread);
        for row in rows.into_iter().filter(|row| row.run != self.run) {
            let at = match former.remove(&row.run) {
                Some(other) if other.row == row => other.last_beat_at,
                _ => now,
            };
            self.others
                .insert(row.run, OtherController { row, last_beat_at: at, has_ended: false });
        }
        for (run, other) in former.into_iter().filter(|(run, _)| *run != self.run) {
            // A controller that was gone already does not come back because its row was removed.
            if now.duration_since(other.last_beat_at) <= self.timeout {
                // Its routers get the whole timeout from now on to find another controller.
                let at = if other.has_ended { other.last_beat_at } else { now };
                self.others
                    .insert(run, OtherController { last_beat_at: at, has_ended: true, ..other });
            }
        }
    }

    /// Whether another controller runs, or ended a moment ago.
    pub(crate) fn is_alive(&self, run: u64, now: Instant) -> bool {
        let other = self.others.get(&run).filter(|_| self.is_shared);
        other.is_some_and(|other| now.duration_since(other.last_beat_at) <= self.timeout)
    }

    /// Addresses of the other running controllers.
    pub(crate) fn urls(&self, now: Instant) -> Vec<String> {
        let others = self.others.values().filter(|other| !other.has_ended);
        let others = others.filter(|other| self.is_alive(other.row.run, now));
        others.map(|other| other.row.url.clone()).collect()
    }

    /// The routers that report to other controllers, with the run number of that controller.
    pub(crate) fn routers_elsewhere(&self, now: Instant) -> BTreeMap<String, u64> {
        let is_heard = |(_, run): &(&String, &u64)| self.is_alive(**run, now);
        let heard = self.routers.iter().filter(is_heard);
        heard.map(|(name, run)| (name.clone(), *run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseLocation;

    fn follower() -> Follower {
        let database: DatabaseLocation = "postgres://weir@localhost/weir".parse().unwrap();
        let mut config = Config { database, ..Config::default() };
        config.controller.router_timeout_ns = 15_000_000_000;
        Follower::new(&config, 1, "http://one".to_owned())
    }

    fn row(run: u64, beat: u64) -> ControllerRow {
        ControllerRow { run, url: format!("http://{run}"), beat }
    }

    /// One read each second. The second controller's beat rises until it is removed from the
    /// database.
    fn hear(follower: &mut Follower, begin: Instant, second: u64, beats: bool) -> Instant {
        let now = begin + Duration::from_secs(second);
        let others = if beats { vec![row(2, second)] } else { Vec::new() };
        follower.note_controllers([vec![row(1, second)], others].concat(), now);
        now
    }

    #[test]
    fn routers_of_stopped_controller_have_time() {
        let (mut follower, begin) = (follower(), Instant::now());
        follower.routers.insert("r".to_owned(), 2);
        let now = hear(&mut follower, begin, 0, true);
        assert_eq!(follower.urls(now), ["http://2"]);
        assert_eq!(follower.routers_elsewhere(now).len(), 1);
        for second in 1..=16 {
            let now = hear(&mut follower, begin, second, false);
            assert_eq!(follower.urls(now), [""; 0], "it has stopped");
            assert_eq!(follower.routers_elsewhere(now).len(), 1, "its routers are on their way");
        }
        let now = hear(&mut follower, begin, 17, false);
        assert!(follower.routers_elsewhere(now).is_empty() && follower.others.is_empty());
    }

    #[test]
    fn killed_controller_expires_after_timeout() {
        let (mut follower, begin) = (follower(), Instant::now());
        follower.routers.insert("r".to_owned(), 2);
        let silent = |follower: &mut Follower, second: u64| {
            let now = begin + Duration::from_secs(second);
            follower.note_controllers(vec![row(1, second), row(2, 0)], now);
            follower.routers_elsewhere(now).len()
        };
        let heard: usize = (0..=15).map(|second| silent(&mut follower, second)).sum();
        assert_eq!((heard, silent(&mut follower, 16)), (16, 0));
    }

    #[test]
    fn removed_row_does_not_revive_a_controller() {
        let (mut follower, begin) = (follower(), Instant::now());
        follower.routers.insert("r".to_owned(), 2);
        for second in 0..=600 {
            let now = begin + Duration::from_secs(second);
            follower.note_controllers(vec![row(1, second), row(2, 0)], now);
        }
        let now = hear(&mut follower, begin, 601, false);
        assert!(follower.routers_elsewhere(now).is_empty() && follower.urls(now).is_empty());
        assert!(follower.others.is_empty());
    }

    #[test]
    fn database_outage_expires_no_controller() {
        let (mut follower, begin) = (follower(), Instant::now());
        follower.routers.insert("r".to_owned(), 2);
        hear(&mut follower, begin, 0, true);
        let now = begin + Duration::from_secs(600);
        follower.note_controllers(vec![row(1, 1), row(2, 0)], now);
        assert_eq!(follower.routers_elsewhere(now).len(), 1);
    }
}
