//! Among versions of an object by one owner, only the newest has a plan.

use crate::common;

use common::{OWNER, alive, config, file, five, name, owned, seconds};
use weir_control::message::Decision;
use weir_control::{Controller, Event, File, Plan};

/// Almost all that the three stores may promise.
const SEGMENTS: u64 = 16_000;

fn version(number: u64) -> File {
    File { name: name(&format!("/data/file/v={number}")), ..file(SEGMENTS) }
}

fn ask(controller: &mut Controller, file: &File) -> Decision {
    controller.forward("edge", &file.name).unwrap().decision
}

/// Segments of a file that are kept; none without a plan.
fn kept(controller: &Controller, file: &File) -> Option<u64> {
    let plan = controller.plans().find(|plan| plan.object == file.name)?;
    Some(plan.parts.iter().map(|part| part.last - part.first + 1).sum())
}

/// Plans since the last call, including ends.
fn planned(controller: &mut Controller) -> Vec<Plan> {
    let events = controller.take_events().into_iter();
    events
        .filter_map(|event| match event {
            Event::Planned(plan) => Some(plan),
            _ => None,
        })
        .collect()
}

/// Regression: an older version kept its space until it was withdrawn, and only an eighth of the
/// next one was kept.
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
    // Consumers of the older version get it as without a plan.
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
    // Withdrawing a version in the middle changes nothing.
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

/// As with a database from the time when older versions kept their space.
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

/// Another controller, which did not know of the newer version yet, has planned for the older one.
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
    // That controller ends its plan when it learns of the newer version.
    planned(&mut other);
    other.add_file(OWNER, version(2)).unwrap();
    assert!(matches!(&planned(&mut other)[..], [end] if end.is_end()));
    // If it does not, its plan takes effect when the newer version is withdrawn.
    controller.forget_file(&version(2).name);
    controller.adopt(plan, true);
    assert_eq!(kept(&controller, &version(1)), Some(SEGMENTS));
    alive(&mut controller, seconds(1));
    assert_eq!(kept(&controller, &version(1)), Some(SEGMENTS));
}
