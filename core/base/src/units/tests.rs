use super::*;
use std::string::ToString;

#[test]
fn each_type_reads_its_quantity() {
    assert_eq!("40Mbit".parse(), Ok(Rate { bps: 40_000_000 }));
    assert!("0Mbit".parse::<Rate>().unwrap_err().to_string().contains("above 0"));
    assert!("fast".parse::<Rate>().unwrap_err().to_string().contains("40Mbit"));
    assert_eq!("2.5us".parse(), Ok(Time { ns: 2_500 }));
    assert!("0".parse::<Time>().unwrap_err().to_string().contains("no unit"));
    assert_eq!("256KiB".parse(), Ok(Size { bytes: 256 << 10 }));
    assert_eq!("17".parse(), Ok(Size { bytes: 17 }));
    assert_eq!("4700/s".parse(), Ok(Period { ns: 212_766 }));
    assert_eq!("213us".parse(), Ok(Period { ns: 213_000 }));
    assert!("0/s".parse::<Period>().unwrap_err().to_string().contains("4700/s"));
    assert_eq!("1%".parse(), Ok(Fraction { value: 0.01 }));
    for text in ["", "%", "101%", "-0.1", "NaN", "inf", "half"] {
        assert!(text.parse::<Fraction>().unwrap_err().to_string().contains("1%"), "{text}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for number in [1, 999, 1_500, 40_000_000, 1_500_000_000, u64::MAX] {
        let (rate, time) = (Rate { bps: number }, Time { ns: number });
        assert_eq!(rate.to_string().parse(), Ok(rate));
        assert_eq!(time.to_string().parse(), Ok(time));
        let size = Size { bytes: number };
        assert_eq!(size.to_string().parse(), Ok(size));
    }
}
