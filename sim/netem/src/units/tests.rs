use super::*;

#[test]
fn rates_are_read() {
    for (text, bps) in [
        ("40Mbit", 40_000_000),
        ("1 Gbit/s", 1_000_000_000),
        ("1.5Gbps", 1_500_000_000),
        ("64kbit", 64_000),
        ("7bit", 7),
        (".5Mb", 500_000),
        ("0.1Tbit", 100_000_000_000),
    ] {
        assert_eq!(text.parse(), Ok(Rate { bps }), "{text}");
    }
    for text in
        ["", "40", "Mbit", "-1Mbit", "1MiB", "40 Mbits", "1e6bit", "99999999999Tbit", ".bit"]
    {
        let error = text.parse::<Rate>().unwrap_err().to_string();
        assert!(error.contains("for example \"40Mbit\""), "{error}");
    }
    assert!("0Mbit".parse::<Rate>().unwrap_err().to_string().contains("above 0"));
}

#[test]
fn times_are_read() {
    for (text, ns) in [
        ("10ms", 10_000_000),
        ("2.5us", 2_500),
        ("1 s", 1_000_000_000),
        ("3m", 180_000_000_000),
        ("0", 0),
        ("0.0000000015s", 2),
        ("1µs", 1_000),
    ] {
        assert_eq!(text.parse(), Ok(Time { ns }), "{text}");
    }
    for text in ["10", "ms", "1 fortnight", "-1s", "1.2.3s", "99999999999999999999s"] {
        let error = text.parse::<Time>().unwrap_err().to_string();
        assert!(error.contains("for example \"10ms\""), "{error}");
    }
}

#[test]
fn sizes_and_fractions_are_read() {
    assert_eq!("256KiB".parse(), Ok(Size { bytes: 256 << 10 }));
    assert_eq!("1.5 MB".parse(), Ok(Size { bytes: 1_500_000 }));
    assert_eq!("17".parse(), Ok(Size { bytes: 17 }));
    assert!("17 parsecs".parse::<Size>().unwrap_err().to_string().contains("256KiB"));
    assert_eq!("1%".parse(), Ok(Fraction { value: 0.01 }));
    assert_eq!("0.25".parse(), Ok(Fraction { value: 0.25 }));
    for text in ["", "%", "101%", "-0.1", "NaN", "inf", "half"] {
        assert!(text.parse::<Fraction>().unwrap_err().to_string().contains("1%"), "{text}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for bps in [1, 999, 1_000, 40_000_000, 1_500_000_000, u64::MAX] {
        assert_eq!(Rate { bps }.to_string().parse(), Ok(Rate { bps }));
        assert_eq!(Time { ns: bps }.to_string().parse(), Ok(Time { ns: bps }));
        assert_eq!(Size { bytes: bps }.to_string().parse(), Ok(Size { bytes: bps }));
    }
    assert_eq!(Rate { bps: 40_000_000 }.to_string(), "40Mbit");
    assert_eq!(Time { ns: 0 }.to_string().parse(), Ok(Time { ns: 0 }));
}
