use super::*;

fn peer(text: &str) -> Claimant {
    Claimant::Datagram(text.parse().expect("an address"))
}

#[test]
fn each_kind_has_own_limit() {
    let quota = FaceQuota::new(FaceLimits { faces_max: 2, per_host_max: 9, per_network_max: 9 });
    let stream = Claimant::Stream("192.0.2.1".parse().expect("an address"));
    for claimant in [Claimant::Local, Claimant::Operator, peer("192.0.2.1"), stream] {
        let face = quota.claim(claimant).expect("room");
        quota.claim(claimant).expect("room");
        assert_eq!(quota.claim(claimant), Err(Refusal::Kind { max: 2 }));
        quota.release(face);
        // Releasing twice frees only one slot.
        quota.release(face);
        quota.claim(claimant).expect("room");
        assert_eq!(quota.claim(claimant), Err(Refusal::Kind { max: 2 }));
    }
}

#[test]
fn host_and_network_limits_are_separate() {
    let quota = FaceQuota::new(FaceLimits { faces_max: 99, per_host_max: 2, per_network_max: 3 });
    let refusal = |text| quota.claim(peer(text)).expect_err("refused").to_string();
    let first = quota.claim(peer("192.0.2.1")).expect("room");
    quota.claim(peer("192.0.2.1")).expect("room");
    assert!(refusal("192.0.2.1").contains("192.0.2.1/32 has 2 faces"));
    quota.claim(peer("192.0.2.2")).expect("room");
    assert!(refusal("192.0.2.3").contains("192.0.2.0/24 has 3 faces"));
    quota.claim(peer("192.0.3.1")).expect("another network has room");
    let stream = Claimant::Stream("192.0.2.1".parse().expect("an address"));
    quota.claim(stream).expect("datagrams keep no connection out");
    let other = quota.claim(peer("192.0.3.2")).expect("room");
    assert!(quota.replace(other, peer("192.0.2.9")).is_err(), "no place of that network's");
    quota.release(other);
    quota.replace(first, peer("192.0.2.9")).expect("its own network's place");
    // One IPv6 host has many addresses. IPv4-mapped IPv6 addresses count as IPv4.
    quota.claim(peer("2001:db8::1")).expect("room");
    quota.claim(peer("2001:db8::2")).expect("room");
    assert!(refusal("2001:db8::3").contains("2001:db8::/64"));
    quota.claim(peer("2001:db8:0:1::1")).expect("room");
    assert!(refusal("2001:db8:0:2::1").contains("2001:db8::/48"));
    assert!(refusal("::ffff:192.0.2.7").contains("192.0.2.0/24"));
}
