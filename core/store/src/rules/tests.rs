use super::*;
use weir_base::Rng;

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

/// The rule as the documentation of [`Rule`] defines it.
fn expected(rules: &[Rule], object: &Name, segment: Option<u64>) -> Option<u32> {
    let holds = |rule: &Rule| {
        let has = match segment {
            Some(segment) => rule.segments.contains(segment),
            None => len(rule.segments) == u64::MAX,
        };
        has && rule.prefix.as_view().is_prefix_of(object.as_view())
    };
    let rank = |rule: &Rule| (Reverse(rule.prefix.component_count()), len(rule.segments));
    let found = rules.iter().enumerate().filter(|(_, rule)| holds(rule));
    found.min_by_key(|(_, rule)| rank(rule)).map(|(at, _)| at as u32)
}

#[test]
fn rule_lookup_equals_definition() {
    let prefixes = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/b"].map(name);
    let objects = ["/", "/a", "/a/b", "/a/b/c/d", "/a/c", "/ab/b", "/c"].map(name);
    let mut checked = 0;
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut rng = Rng::from_seed(seed);
        let mut rules = Rules::default();
        for _ in 0..rng.below(24) {
            let edge = if rng.below(2) == 0 { 0 } else { u64::MAX - 60 };
            let first = edge + u64::from(rng.below(40));
            let last = match rng.below(8) {
                0 => u64::MAX,
                _ => first + u64::from(rng.below(20)),
            };
            let first = if rng.below(8) == 0 { 0 } else { first };
            let prefix = prefixes[rng.below(6) as usize].clone();
            let retention = Retention::Refuse;
            rules.rules.push(Rule { prefix, segments: SegmentRange { first, last }, retention });
            if rules.check(0).is_err() {
                rules.rules.pop();
            }
        }
        let mut ruling = ActiveRules::new(rules.clone());
        for _ in 0..100 {
            let at = rng.below(objects.len() as u32);
            let object = &objects[at as usize];
            let edge = if rng.below(2) == 0 { 0 } else { u64::MAX - 63 };
            let segment = edge + u64::from(rng.below(64));
            let found = ruling.rule_for_segment(at.into(), || object.as_view(), segment);
            let of_segment = expected(&rules.rules, object, Some(segment));
            assert_eq!(found, of_segment, "seed {seed}, {object}, {segment}: {rules:?}");
            let whole = expected(&rules.rules, object, None);
            assert_eq!(
                ruling.rule_for_unsegmented(object.as_view()),
                whole,
                "seed {seed}, {object}"
            );
            checked += u32::from(of_segment.is_some());
        }
    }
    assert!(checked > 10, "{checked}");
}

#[test]
fn kept_prefixes_are_disjoint() {
    let rule = |prefix: &str, first| Rule {
        prefix: name(prefix),
        segments: SegmentRange { first, last: first },
        retention: Retention::Keep { bytes_max: 1 },
    };
    let of_one = (0..RULES_MAX as u64).map(|segment| rule("/file/v=1", segment));
    let kept = |rules: Vec<Rule>| ActiveRules::new(Rules { generation: 1, rules }).kept_prefixes();
    assert_eq!(kept(of_one.collect()), [name("/file/v=1")]);
    let several = ["/b/c", "/a/b", "/ab", "/a", "/b/c/d/e", "/a", "/b/cd"].map(|at| rule(at, 1));
    assert_eq!(kept(several.to_vec()), ["/a", "/b/c", "/b/cd", "/ab"].map(name));
    let mut all = several.to_vec();
    all.push(rule("/", 5));
    assert_eq!(kept(all), [name("/")]);
    let refuse = Rule { retention: Retention::Refuse, ..rule("/", 5) };
    assert_eq!(kept(vec![refuse, rule("/x", 1)]), [name("/x")]);
}
