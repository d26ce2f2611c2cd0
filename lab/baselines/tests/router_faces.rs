//! Faces of a real router with a queue discipline of a paper.

use weir_baselines::links::DISCIPLINES;
use weir_io_fixture::router::{TestRouter, interest, name, name_of};
use weir_runtime::{DisciplineConfig, StaticFace};

/// Interests held by the face's discipline leave when the worker thread's timer fires: nothing else
/// makes it poll the face.
#[test]
fn held_interests_leave_by_timer() {
    let far = TestRouter::start();
    let mut producer = far.unix();
    producer.register("/far");
    let rate = DisciplineConfig::read("interest-rate interests_per_s=100 burst=1", DISCIPLINES);
    for scheme in ["udp4", "tcp4"] {
        let address = far.address(scheme);
        let near = TestRouter::start_with(|config| {
            config.static_faces = vec![StaticFace {
                uri: format!("{scheme}://{address}"),
                permanent: true,
                discipline: Some(rate.clone().expect("a discipline of the laboratory")),
                routes: vec![(name("/"), 0)],
                ..StaticFace::default()
            }];
        });
        near.wait_until("the face is there", |snapshot| {
            !snapshot.faces.is_empty() && snapshot.router.fib_entries >= 3
        });
        let mut consumer = near.unix();
        let names = [0, 1, 2, 3, 4].map(|number| format!("/far/{scheme}/{number}"));
        consumer.send(&names.iter().flat_map(|name| interest(name)).collect::<Vec<u8>>());
        for name in names {
            assert_eq!(name_of(&producer.receive().interest()), name);
        }
    }
}
