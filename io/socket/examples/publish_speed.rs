//! How many small objects a second one producer publishes: `publish_speed [COUNT] [OCTETS]`, at
//! the router that `weir get` would find.

use std::collections::VecDeque;
use std::time::Instant;

use weir_crypto::{KeySigner, KeyType, PrivateKey};
use weir_socket::{Identity, Pending, Producer, Session};
use weir_wire::Name;

/// Publications under way at a time.
const SIDE_BY_SIDE: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let octets: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let key = PrivateKey::generate(KeyType::Ecdsa)?;
    let signer = KeySigner::new(key, "/speed/KEY/1/self/v=1".parse()?);
    let session = Session::open()?;
    let producer = Producer::bind(&session, "/speed".parse()?, Identity::new(signer))?;
    let content = vec![0; octets];
    for _ in 0..5 {
        let before = Instant::now();
        for _ in 0..count {
            producer.publish(producer.prefix(), content.clone())?;
        }
        let waiting = count as f64 / before.elapsed().as_secs_f64();
        let before = Instant::now();
        let mut under_way: VecDeque<Pending<Name>> = VecDeque::new();
        for _ in 0..count {
            if under_way.len() >= SIDE_BY_SIDE
                && let Some(first) = under_way.pop_front()
            {
                first.wait()?;
            }
            under_way.push_back(producer.publish_async(producer.prefix(), content.clone())?);
        }
        for last in under_way {
            last.wait()?;
        }
        let without = count as f64 / before.elapsed().as_secs_f64();
        println!("{waiting:.0} a second one by one, {without:.0} with {SIDE_BY_SIDE} under way");
    }
    Ok(())
}
