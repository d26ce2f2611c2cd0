//! Queries about the contents of a router's store, and rules for it.

use super::*;
use crate::{MissReports, StoreCommand, StoreEvent};
use alloc::format;
use alloc::vec;
use weir_store::{
    HoldingsConfig, HoldingsCursor, Retention, Rule, Rules, RulesError, SegmentRange, Tier,
};

fn fetch(fixture: &mut Fixture, segments: core::ops::Range<u32>) {
    for segment in segments {
        let name = format!("/a/v=1/seg={segment}");
        fixture.ask(LOCAL, &Ask::new(&name, segment + 1));
        fixture.answer(U, data(&name, 1000));
    }
}

fn ask(fixture: &mut Fixture, command: StoreCommand) -> StoreEvent {
    fixture.command(Command::Store(command));
    match fixture.out.events.pop() {
        Some(Event::Store(event)) => event,
        other => panic!("{other:?}"),
    }
}

fn ranges(fixture: &mut Fixture) -> Vec<SegmentRange> {
    let object = "/a/v=1".parse().unwrap();
    match ask(fixture, StoreCommand::ListObject { transaction: 3, object }) {
        StoreEvent::Listed { transaction: 3, page: Some(page) } => {
            page.holdings.into_iter().flat_map(|holding| holding.ranges).collect()
        }
        other => panic!("{other:?}"),
    }
}

const fn range(first: u64, last: u64) -> SegmentRange {
    SegmentRange { first, last }
}

#[test]
fn reports_holdings_and_changes() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fetch(&mut fixture, 0..400);
    let take = || StoreCommand::TakeChanges { transaction: 9, blocks_max: 100 };
    let nothing = StoreEvent::Changed { transaction: 9, changes: None };
    assert_eq!(ask(&mut fixture, take()), nothing, "no index is kept");
    fixture.command(Command::Store(StoreCommand::Track(Some(HoldingsConfig::default()))));
    // The index is built in steps, and the router requests a wakeup for each.
    while fixture.router.next_wakeup().is_some_and(|due| due <= fixture.now) {
        fixture.handle(&mut [Input::Wakeup]);
    }
    assert_eq!(ranges(&mut fixture), [range(0, 399)]);
    let prefix: Name = "/a".parse().unwrap();
    let from = HoldingsCursor::default();
    let list = StoreCommand::List { transaction: 4, prefix, from, objects_max: 10 };
    let StoreEvent::Listed { page: Some(page), .. } = ask(&mut fixture, list) else { panic!() };
    assert!(!page.is_partial && page.next.is_none());
    assert_eq!(page.holdings[0].name, "/a/v=1".parse().unwrap());
    assert_eq!(page.holdings[0].tier, Tier::Memory);
    let told = |fixture: &mut Fixture| match ask(fixture, take()) {
        StoreEvent::Changed { changes: Some(changes), .. } => changes,
        other => panic!("{other:?}"),
    };
    let first = told(&mut fixture);
    assert_eq!((first.generation, first.sequence), (1, 1));
    assert_eq!(first.changes[0].added, [range(0, 399)]);
    fetch(&mut fixture, 500..510);
    let second = told(&mut fixture);
    assert_eq!((second.generation, second.sequence), (1, 2));
    assert_eq!(second.changes[0].added, [range(500, 509)]);
    fixture.command(Command::Store(StoreCommand::RestartChanges));
    let again = told(&mut fixture);
    assert_eq!((again.generation, again.sequence), (2, 1));
    assert_eq!(again.changes[0].added, [range(0, 399), range(500, 509)]);
}

#[test]
fn index_retries_objects_without_room() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    let config = HoldingsConfig { bytes_max: 8_000 };
    fixture.command(Command::Store(StoreCommand::Track(Some(config))));
    let build = |fixture: &mut Fixture| {
        while fixture.router.next_wakeup().is_some_and(|due| due <= fixture.now) {
            fixture.handle(&mut [Input::Wakeup]);
        }
    };
    build(&mut fixture);
    for object in 0..60 {
        let name = format!("/a/{object}/seg=0");
        fixture.ask(LOCAL, &Ask::new(&name, object + 1));
        fixture.answer(U, data(&name, 1000));
    }
    let list = |fixture: &mut Fixture| {
        let (prefix, from) = ("/a".parse().unwrap(), HoldingsCursor::default());
        match ask(fixture, StoreCommand::List { transaction: 4, prefix, from, objects_max: 100 }) {
            StoreEvent::Listed { page: Some(page), .. } => (page.holdings.len(), page.is_partial),
            other => panic!("{other:?}"),
        }
    };
    let (listed, is_partial) = list(&mut fixture);
    assert!(is_partial && (20..50).contains(&listed), "{listed}");
    for object in 0..40 {
        let prefix = format!("/a/{object}").parse().unwrap();
        fixture.command(Command::EraseStore { transaction: 1, prefix, limit: 1 });
    }
    fixture.command(Command::Store(StoreCommand::RestartChanges));
    build(&mut fixture);
    assert_eq!(list(&mut fixture), (20, false));
}

#[test]
fn refused_ranges_are_forwarded_but_not_stored() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fixture.command(Command::Store(StoreCommand::Track(Some(HoldingsConfig::default()))));
    let rule = |segments, retention| Rule { prefix: "/a".parse().unwrap(), segments, retention };
    let rules = |generation| Rules {
        generation,
        rules: vec![
            rule(range(10, 19), Retention::Keep { bytes_max: 100_000 }),
            rule(range(0, u64::MAX), Retention::Refuse),
        ],
    };
    let set = |fixture: &mut Fixture, generation| {
        ask(fixture, StoreCommand::SetRules { transaction: 1, rules: rules(generation) })
    };
    let in_force = StoreEvent::RulesSet { transaction: 1, refused: None };
    assert_eq!(set(&mut fixture, 7), in_force);
    let outdated = RulesError::Outdated { offered: 6, present: 7 };
    assert_eq!(
        set(&mut fixture, 6),
        StoreEvent::RulesSet { transaction: 1, refused: Some(outdated) }
    );
    for segment in 0..30 {
        let name = format!("/a/v=1/seg={segment}");
        fixture.ask(LOCAL, &Ask::new(&name, segment + 1));
        assert_eq!(fixture.answer(U, data(&name, 1000)).len(), 1, "it is forwarded in both cases");
    }
    assert_eq!(ranges(&mut fixture), [range(10, 19)]);
    assert_eq!(fixture.router.stats().store.refusals, 20);
}

#[test]
fn reports_one_in_64_misses_of_large_objects() {
    let mut fixture = Fixture::new();
    fixture.route("/a", &[(U, 0)]);
    fetch(&mut fixture, 0..130);
    assert!(fixture.out.events.is_empty(), "no report was requested");
    fixture.command(Command::ReportMisses(MissReports::Local));
    fetch(&mut fixture, 0..130);
    assert!(fixture.out.events.is_empty(), "the store has all segments");
    fetch(&mut fixture, 130..257);
    let missed = |fixture: &mut Fixture| {
        let events = core::mem::take(&mut fixture.out.events);
        let object = |event| match event {
            Event::Missed { ingress, is_local, object } => {
                assert_eq!(is_local, ingress == LOCAL);
                (ingress, format!("{object}"))
            }
            other => panic!("{other:?}"),
        };
        events.into_iter().map(object).collect::<Vec<_>>()
    };
    assert_eq!(missed(&mut fixture), [(LOCAL, "/a/v=1".into()), (LOCAL, "/a/v=1".into())]);
    // Objects with at most one segment are small.
    for name in ["/a/b/v=1/seg=0", "/a/64", "/a/b/v=1/seg=63"] {
        fixture.ask(LOCAL, &Ask::new(name, 7));
    }
    assert!(missed(&mut fixture).is_empty());
    // Misses of a neighbour are reported only if all are.
    fixture.ask(V, &Ask::new("/a/c/v=1/seg=64", 8));
    assert!(missed(&mut fixture).is_empty());
    fixture.command(Command::ReportMisses(MissReports::All));
    fixture.ask(V, &Ask::new("/a/d/v=1/seg=64", 9));
    assert_eq!(missed(&mut fixture), [(V, "/a/d/v=1".into())]);
}
