//! Random and damaged packets.

use proptest::prelude::*;
use weir_manage::commands::Command;
use weir_manage::{
    ChannelStatus, ControlParameters, ControlResponse, CsInfo, Element, FaceEventNotification,
    FaceQueryFilter, FaceStatus, FibEntry, GeneralStatus, RibEntry, StrategyChoice,
};
use weir_wire::{Interest, Name};

use crate::harness::{Harness, name, parameters};

/// Decoding either fails, or gives a value that encodes to an equal one.
fn stable<E: Element + PartialEq + std::fmt::Debug>(octets: &[u8]) {
    if let Ok(decoded) = E::decode_value(octets) {
        assert_eq!(E::decode(&decoded.encode()).as_ref(), Ok(&decoded));
    }
    let _ = E::decode_all(octets);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_octets_are_refused_or_stable(
        elements in prop::collection::vec(
            (
                prop_oneof![100..155_u8, Just(7_u8), 190..194_u8],
                prop::collection::vec(any::<u8>(), 0..10),
            ),
            0..12,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let mut octets = Vec::new();
        for (typ, value) in elements {
            octets.push(typ);
            octets.push(value.len() as u8);
            octets.extend(value);
        }
        octets.extend(tail);
        stable::<ControlParameters>(&octets);
        stable::<ControlResponse>(&octets);
        stable::<FaceStatus>(&octets);
        stable::<FaceEventNotification>(&octets);
        stable::<FaceQueryFilter>(&octets);
        stable::<ChannelStatus>(&octets);
        stable::<FibEntry>(&octets);
        stable::<RibEntry>(&octets);
        stable::<StrategyChoice>(&octets);
        stable::<CsInfo>(&octets);
        let _ = GeneralStatus::decode_content(&octets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn damaged_interests_change_nothing(
        at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        module in prop::sample::select(vec![
            "faces/create", "faces/update", "cs/erase", "rib/register", "rib/announce",
            "faces/query", "faces/events", "strategy-choice/set", "status/general",
        ]),
        arguments in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut harness = Harness::new();
        let mut command: Name = name(&format!("/localhost/nfd/{module}"));
        command.append_generic(&arguments);
        let interest = Interest::new(command).nonce(1).can_be_prefix(true).encode();
        harness.interest(&interest);
        let register = parameters(|p| p.name = Some(name("/p")));
        harness.send(Command::RibRegister, &register);
        let mut damaged = harness.command_octets(
            weir_manage::commands::Scope::Localhost,
            Command::RibRegister,
            &register,
            &weir_security::DigestSigner,
        );
        let at = at.index(damaged.len());
        damaged[at] = octet;
        harness.interest(&damaged);
        damaged.truncate(cut.index(damaged.len()));
        harness.interest(&damaged);
        prop_assert!(harness.manager.rib().len() <= 4);
    }
}
