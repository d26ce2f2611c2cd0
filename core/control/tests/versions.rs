//! Of several versions of an object that one owner has registered the newest is planned for.

use crate::common;

use common::{OWNER, alive, config, file, five, name, owned, seconds};
use weir_control::message::Decision;
use weir_control::{Controller, Event, File, Plan};

/// All that the three stores may promise, but for a little.
const SEGMENTS: u64 = 16_000;

fn version(number: u64) -> File {
    File { name: name(&format!("/data/file/v={number}")), ..file(SEGMENTS) }
}

fn ask(controller: &mut Controller, file: &File) -> Decision {
    controller.forward("edge", &file.name).unwrap().decision
}

/// Segments that are kept of a file; none if it has no plan.
fn kept(controller: &Controller, file: &File) -> Option<u64> {
    let plan = controller.plans().find(|plan| plan.object == file.name)?;
    Some(plan.parts.iter().map(|part| part.last - part.first + 1).sum())
}

/// Plans that have come into force or have ended.
fn planned(controller: &mut Controller) -> Vec<Plan> {
    let events = controller.take_events().into_iter();
    events
        .filter_map(|event| match event {
            Event::Planned(plan) => Some(plan),
            _ => None,
        })
        .collect()
}

/// Regression: the version before kept its room until somebody withdrew it, and routers kept an
/// eighth of the next one.
#[test]
fn newer_version_takes_over_the_space() {
    let mut controller = five(config());
    controller.add_file(OWNER, version(1)).unwrap();
    assert_eq!(ask(&mut controller, &version(1)), Decision::Planned);
    let plan = planned(&mut controller).pop().unwrap();

    controller.add_file(OWNER, version(2)).unwrap();
    assert_eq!(kept(&controller, &version(1)), None);
    let end = planned(&mut controller).pop().unwrap();
    assert!(end.is_end() && end.parent == plan.number && end.object == plan.object, "{end:?}");
    assert_eq!(ask(&mut controller, &version(2)), Decision::Planned);
    assert_eq!(kept(&controller, &version(2)), Some(SEGMENTS));
    // Who still reads the one before has it as without a plan.
    assert_eq!(ask(&mut controller, &version(1)), Decision::NoRoom);
    assert_eq!(kept(&controller, &version(1)), None);
    assert_eq!(kept(&controller, &version(2)), Some(SEGMENTS));
    let keeper = controller.configuration("one").unwrap();
    assert!(keeper.rules.iter().all(|rule| rule.object == version(2).name), "{keeper:?}");
    let newer = |number| controller.newer_version(&version(number).name);
    assert_eq!((newer(1), newer(2)), (Some(&version(2)), None));
}

#[test]
fn late_older_version_gets_no_space() {
    let mut controller = five(config());
    controller.add_file(OWNER, version(3)).unwrap();
    assert_eq!(ask(&mut controller, &version(3)), Decision::Planned);
    planned(&mut controller);
    for number in [2, 1] {
        controller.add_file(OWNER, version(number)).unwrap();
        assert_eq!(ask(&mut controller, &version(number)), Decision::NoRoom);
    }
    assert_eq!(planned(&mut controller), []);
    assert_eq!(kept(&controller, &version(3)), Some(SEGMENTS));
}

#[test]
fn withdrawal_revives_the_older_version() {
    let mut controller = five(config());
    for number in [1, 2, 3] {
        controller.add_file(OWNER, version(number)).unwrap();
        assert_eq!(ask(&mut controller, &version(number)), Decision::Planned);
    }
    // One in the middle changes nothing.
    assert!(controller.remove_file(&version(2).name));
    assert_eq!(ask(&mut controller, &version(1)), Decision::NoRoom);
    assert_eq!(kept(&controller, &version(3)), Some(SEGMENTS));

    assert!(controller.remove_file(&version(3).name));
    assert_eq!(ask(&mut controller, &version(1)), Decision::Planned);
    assert_eq!(kept(&controller, &version(1)), Some(SEGMENTS));
}

#[test]
fn owners_do_not_displace_each_other() {
    let mut controller = five(config());
    let half = |number| File { segments: SEGMENTS / 2, ..version(number) };
    controller.add_file(OWNER, half(1)).unwrap();
    assert_eq!(ask(&mut controller, &half(1)), Decision::Planned);
    controller.add_file("producer q", half(2)).unwrap();
    assert_eq!(kept(&controller, &half(1)), Some(SEGMENTS / 2));
    assert_eq!(ask(&mut controller, &half(2)), Decision::Planned);
    assert_eq!(kept(&controller, &half(2)), Some(SEGMENTS / 2));
    assert_eq!(kept(&controller, &half(1)), Some(SEGMENTS / 2));
    let owner = |number| controller.owner(&half(number).name);
    assert_eq!((owner(1), owner(2)), (Some(OWNER), Some("producer q")));
}

/// Only the last component of a name says which version it is, and only if it is one.
#[test]
fn only_last_component_is_a_version() {
    let mut controller = five(config());
    let names = ["/data/a/v=1", "/data/b/v=2", "/data/a/v=2/x", "/data/a/v=1/x", "/data/a/3"];
    let files = names.map(|text| File { name: name(text), ..file(2_000) });
    for file in &files {
        controller.add_file(OWNER, file.clone()).unwrap();
        assert_eq!(ask(&mut controller, file), Decision::Planned);
    }
    assert_eq!(controller.plans().count(), names.len());
}

/// As with a database of the time when versions kept their room.
#[test]
fn restart_ends_plans_of_old_versions() {
    let plan_of = |number| {
        let mut controller = five(config());
        controller.add_file(OWNER, version(number)).unwrap();
        assert_eq!(ask(&mut controller, &version(number)), Decision::Planned);
        controller.plans().next().unwrap().clone()
    };
    let first = plan_of(1);
    let second = Plan { number: first.number + 10, ..plan_of(2) };
    let mut again = Controller::new(config());
    let files = [1, 2].map(version).map(owned);
    again.restore(files.into(), vec![first.clone(), second.clone()]);
    assert_eq!(again.plans().collect::<Vec<_>>(), [&second]);
    let [end] = &planned(&mut again)[..] else { panic!("one has ended") };
    assert!(end.is_end() && end.object == first.object && end.parent == first.number, "{end:?}");
    assert!(end.number > second.number, "{end:?}");
}

/// Another controller that did not know of the newer version yet has planned for the one before.
#[test]
fn ignores_foreign_plan_for_old_version() {
    let mut other = five(config());
    other.add_file(OWNER, version(1)).unwrap();
    assert_eq!(ask(&mut other, &version(1)), Decision::Planned);
    let plan = Plan { number: 1_000_000, ..other.plans().next().unwrap().clone() };

    let mut controller = five(config());
    for number in [1, 2] {
        controller.add_file(OWNER, version(number)).unwrap();
    }
    assert_eq!(ask(&mut controller, &version(2)), Decision::Planned);
    controller.adopt(plan.clone(), false);
    assert_eq!(kept(&controller, &version(1)), None);
    // It ends it itself when it hears of the newer one.
    planned(&mut other);
    other.add_file(OWNER, version(2)).unwrap();
    assert!(matches!(&planned(&mut other)[..], [end] if end.is_end()));
    // If it did not, what it has written counts again when the newer one is gone.
    controller.forget_file(&version(2).name);
    controller.adopt(plan, true);
    assert_eq!(kept(&controller, &version(1)), Some(SEGMENTS));
    alive(&mut controller, seconds(1));
    assert_eq!(kept(&controller, &version(1)), Some(SEGMENTS));
}
