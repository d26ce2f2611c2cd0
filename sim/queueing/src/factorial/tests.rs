use super::*;

/// Table 5 of paper ccnx-measurement: factors A, B, C, D and throughput in Mbit/s.
const TABLE_5: &str = "A,B,C,D,y
-1,-1,-1,-1,25\n1,-1,-1,-1,27\n-1,1,-1,-1,21\n1,1,-1,-1,18
-1,-1,1,-1,97\n1,-1,1,-1,103\n-1,1,1,-1,46\n1,1,1,-1,48
-1,-1,-1,1,26\n1,-1,-1,1,24\n-1,1,-1,1,15\n1,1,-1,1,13
-1,-1,1,1,61\n1,-1,1,1,59\n-1,1,1,1,31\n1,1,1,1,28\n";

fn analyse(text: &str) -> Analysis {
    parse(text).unwrap().analyse(0.95).unwrap()
}

#[test]
fn table_5_gives_table_6() {
    let analysis = analyse(TABLE_5);
    let top: Vec<(&str, f64)> = analysis.effects[..5]
        .iter()
        .map(|effect| (effect.effect.as_str(), effect.variation_percent))
        .collect();
    let expected = [("C", 50.7), ("B", 22.4), ("BC", 9.6), ("D", 9.0), ("CD", 5.7)];
    for ((name, percent), (wanted, value)) in top.iter().zip(expected) {
        assert_eq!(*name, wanted);
        assert!((percent - value).abs() < 0.05, "{name}: {percent}");
    }
    let sum: f64 = analysis.effects.iter().map(|effect| effect.variation_percent).sum();
    assert!((sum - 100.0).abs() < 1e-9);
    assert_eq!(analysis.effects.len(), 15);
    assert_eq!((analysis.replications, analysis.error_percent), (1, None));
    assert_eq!(analysis.mean, 40.125);
    assert!(analysis.effects.iter().all(|effect| effect.low.is_none() && effect.high.is_none()));
}

/// Jain, The Art of Computer Systems Performance Analysis, section 18.2: memory and cache with
/// three replications. q = 41, 21.5, 9.5, 5; s_e = 3.57; t[0.95; 8] = 1.86; half-width 1.92.
#[test]
fn replications_give_error_and_intervals() {
    let text = "A,B,y
-1,-1,15\n-1,-1,18\n-1,-1,12\n1,-1,45\n1,-1,48\n1,-1,51
-1,1,25\n-1,1,28\n-1,1,19\n1,1,75\n1,1,75\n1,1,81\n";
    let analysis = parse(text).unwrap().analyse(0.9).unwrap();
    assert_eq!(analysis.mean, 41.0);
    let expected = [("A", 21.5, 78.88), ("B", 9.5, 15.4), ("AB", 5.0, 4.27)];
    for (effect, (name, q, percent)) in analysis.effects.iter().zip(expected) {
        assert_eq!((effect.effect.as_str(), effect.coefficient), (name, q));
        assert!((effect.variation_percent - percent).abs() < 0.01, "{effect:?}");
        assert!((effect.high.unwrap() - q - 1.915).abs() < 0.005, "{effect:?}");
        assert!((q - effect.low.unwrap() - 1.915).abs() < 0.005, "{effect:?}");
    }
    assert!((analysis.error_deviation.unwrap() - 3.57).abs() < 0.005);
    assert!((analysis.error_percent.unwrap() - 1.45).abs() < 0.01);
}

#[test]
fn words_become_levels() {
    let text = "store size,cache,y\n50000,lru,3\n10000,lru,1\n50000,fifo,7\n10000,fifo,5\n";
    let analysis = analyse(text);
    let [size, cache] = &analysis.factors[..] else { panic!("two factors") };
    assert_eq!((size.low.as_str(), size.high.as_str()), ("10000", "50000"));
    assert_eq!((cache.low.as_str(), cache.high.as_str()), ("lru", "fifo"));
    let names: Vec<&str> = analysis.effects.iter().map(|effect| effect.effect.as_str()).collect();
    assert_eq!(names, ["cache", "store size", "store size*cache"]);
    assert_eq!(analysis.effects[0].coefficient, 2.0);
    assert_eq!(analysis.effects[1].coefficient, 1.0);
}

#[test]
fn equal_numbers_are_the_same_level() {
    let analysis = analyse("# a comment\n\nA , y\r\n +1, 4\r\n-1.0,2\n1,6\n-1,4\n");
    assert_eq!((analysis.mean, analysis.effects[0].coefficient), (4.0, 1.0));
    assert_eq!(analysis.replications, 2);
}

#[test]
fn equal_responses_have_no_variation() {
    let analysis = analyse("A,y\n-1,5\n1,5\n-1,5\n1,5\n");
    assert_eq!(analysis.effects[0].variation_percent, 0.0);
    assert_eq!(analysis.error_percent, Some(0.0));
}

#[test]
fn invalid_files_name_line_and_remedy() {
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    assert!(refused("").starts_with("no rows"));
    assert!(refused("A,B,y\n").starts_with("no rows"));
    assert!(refused("A,B\n1,1\n").contains("line 1: the last column is `B`"));
    assert!(refused("y\n1\n").contains("0 factors"));
    assert!(refused("A,A,y\n1,1,1\n").contains("two columns are called `A`"));
    assert!(refused("A,,y\n1,1,1\n").contains("column 2 has no name"));
    assert!(refused("A,y\n1\n").contains("line 2: 1 fields where the header has 2"));
    assert!(refused("A,y\n1,x\n").contains("line 2: y is `x`: give a number"));
    assert!(refused("A,y\n1,NaN\n").contains("y is `NaN`"));
    assert!(refused("A,y\n,2\n").contains("factor A has no level"));
    assert!(refused("A,y\n1,2\n-1,3\n0,3\n").contains("line 4: factor A is `0`"));
    assert!(refused("A,y\n1,2\n1,3\n").contains("factor A is `1` in every row"));
    let missing = refused("A,B,y\n1,1,2\n-1,-1,3\n-1,1,3\n");
    assert!(missing.contains("1 of 4 combinations have no row, such as A=1 B=-1"), "{missing}");
    let unbalanced = refused("A,y\n1,2\n-1,3\n1,4\n");
    assert!(unbalanced.contains("A=1 has 2 rows and others have 1"), "{unbalanced}");
    let design = parse(TABLE_5).unwrap();
    assert_eq!(design.analyse(1.0), Err(FactorialError::Confidence(1.0)));
    let many: String = (0..17).map(|index| format!("f{index},")).collect();
    assert!(refused(&format!("{many}y\n")).contains("17 factors"));
}
