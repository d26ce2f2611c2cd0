use super::*;

fn read(text: &str) -> Result<LinkConfig, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn empty_config_is_an_ideal_link() {
    assert_eq!(read("").unwrap(), LinkConfig::default());
}

#[test]
fn text_and_numeric_forms_agree() {
    let people = read(
        r#"
        rate = "40Mbit"
        delay = "10ms"
        jitter = { normal = { sigma = "1ms" } }
        loss = { gilbert_elliott = { good_to_bad = "1%", bad_to_good = 0.3 } }
        reorder = { probability = "2%", extra = "5ms" }
        queue = "256KiB"
        queue_packets_max = 50
        overhead_bytes = 38
        "#,
    )
    .unwrap();
    let machines = LinkConfig {
        rate_bps: Some(40_000_000),
        delay_ns: 10_000_000,
        jitter: Jitter::Normal { sigma_ns: 1_000_000 },
        loss: Loss::GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.3,
            loss_good: 0.0,
            loss_bad: 1.0,
        },
        reorder: Some(Reorder { probability: 0.02, extra_ns: 5_000_000 }),
        queue_bytes_max: 262_144,
        queue_packets_max: 50,
        overhead_bytes: 38,
    };
    assert_eq!(people, machines);
    assert_eq!(
        read("rate_bps = 40_000_000\ndelay_ns = 7\nloss = 0.5\njitter = \"3us\"").unwrap(),
        LinkConfig {
            rate_bps: Some(40_000_000),
            delay_ns: 7,
            loss: Loss::Independent { probability: 0.5 },
            jitter: Jitter::Uniform { max_ns: 3_000 },
            ..LinkConfig::default()
        }
    );
}

#[test]
fn config_survives_a_round_trip() {
    let losses = [
        Loss::None,
        Loss::Independent { probability: 0.125 },
        Loss::GilbertElliott { good_to_bad: 0.1, bad_to_good: 0.2, loss_good: 0.3, loss_bad: 0.4 },
    ];
    let jitters = [Jitter::None, Jitter::Uniform { max_ns: 3 }, Jitter::Normal { sigma_ns: 4 }];
    for loss in losses {
        for jitter in jitters {
            let config = LinkConfig {
                rate_bps: Some(9),
                delay_ns: 8,
                jitter,
                loss,
                reorder: Some(Reorder { probability: 0.5, extra_ns: 6 }),
                ..LinkConfig::default()
            };
            for config in [config, LinkConfig { loss, jitter, ..LinkConfig::default() }] {
                let text = toml::to_string(&config).unwrap();
                assert_eq!(read(&text).unwrap(), config, "{text}");
                let text = serde_json::to_string(&config).unwrap();
                assert_eq!(serde_json::from_str::<LinkConfig>(&text).unwrap(), config, "{text}");
            }
        }
    }
}

#[test]
fn errors_name_key_and_remedy() {
    for (text, needles) in [
        ("rat = \"1Mbit\"", &["line 1", "unknown field `rat`"][..]),
        ("\nrate = \"fast\"", &["line 2", "40Mbit"]),
        ("rate = 5", &["line 1", "5Mbit/s"]),
        ("delay = 10", &["line 1", "10ms"]),
        ("rate_bps = 0", &["a rate of 0"]),
        ("rate = \"1Mbit\"\nrate_bps = 3", &["both `rate` and `rate_bps`"]),
        ("loss = \"150%\"", &["line 1", "1%"]),
        ("loss = 1.5", &["line 1", "from 0 to 1"]),
        ("loss = { independant = { probability = 1 } }", &["unknown variant", "independent"]),
        (
            "loss = { gilbert_elliott = { good_to_bad = 0.1, bad_to_good = 1, burst = 2 } }",
            &["unknown field `burst`"],
        ),
        ("loss = { gilbert_elliott = { good_to_bad = 0.1 } }", &["missing field `bad_to_good`"]),
        ("jitter = { uniform = {} }", &["`max` is missing"]),
        ("reorder = { probability = 0.1 }", &["`extra` is missing"]),
        ("queue_packets_max = -1", &["line 1"]),
    ] {
        let error = read(text).unwrap_err();
        for needle in needles {
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}

#[test]
fn checks_links_built_in_code() {
    let bad = LinkConfig {
        loss: Loss::GilbertElliott {
            good_to_bad: 0.1,
            bad_to_good: 0.1,
            loss_good: 0.0,
            loss_bad: f64::NAN,
        },
        ..LinkConfig::default()
    };
    assert!(matches!(bad.check(), Err(ConfigError::Probability { key: "loss_bad", .. })));
    let bad = LinkConfig { rate_bps: Some(0), ..LinkConfig::default() };
    assert_eq!(bad.check(), Err(ConfigError::RateZero));
    assert_eq!(LinkConfig::default().check(), Ok(()));
}
