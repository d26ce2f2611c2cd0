//! Structures of the management protocol: a decoded value must encode to bytes that decode to the
//! same value.
#![no_main]

use weir_manage::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, Element, FaceEventNotification,
    FaceQueryFilter, FaceStatus, FibEntry, GeneralStatus, RibEntry, StrategyChoice,
};

fn check<T: Element + PartialEq + std::fmt::Debug>(octets: &[u8]) {
    if let Ok(value) = T::decode(octets) {
        assert_eq!(T::decode(&value.encode()).as_ref(), Ok(&value));
    }
    let _ = T::decode_all(octets);
}

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    check::<ControlParameters>(octets);
    check::<ControlResponse>(octets);
    check::<FaceStatus>(octets);
    check::<FaceQueryFilter>(octets);
    check::<FaceEventNotification>(octets);
    check::<ChannelStatus>(octets);
    check::<FibEntry>(octets);
    check::<RibEntry>(octets);
    check::<CsInfo>(octets);
    check::<StrategyChoice>(octets);
    let _ = GeneralStatus::decode_content(octets);
});
