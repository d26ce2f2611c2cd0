//! Connection slots, so that clients without a valid token cannot lock others out.
//!
//! A connection starts as anonymous: it has not shown a token yet. A quarter of all slots is for
//! anonymous connections, and one host may use a quarter of these. When either limit is reached, a
//! new connection evicts the oldest anonymous one. So a client that shows its token quickly gets
//! in, even from a host that uses all of its slots.
//!
//! The other three quarters are for authenticated connections, which are never evicted. When these
//! are full, further authenticated connections stay in the anonymous slots.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Anonymous connections get this fraction of all slots, and one host gets this fraction of those.
const SHARE_DIVISOR: usize = 4;

/// An IPv4 address, or an IPv6 network of 64 bits, because one host may use all addresses of it.
type Host = IpAddr;

fn host_of(address: IpAddr) -> Host {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        v4 => v4,
    }
}

/// The slots of a server.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    authenticated_max: usize,
    anonymous_max: usize,
    per_host_max: usize,
    table: Mutex<SlotTable>,
}

/// The connections by state.
#[derive(Debug, Default)]
struct SlotTable {
    /// Anonymous connections by host and age, each with the notification that closes it.
    anonymous: BTreeMap<(Host, u64), Arc<Notify>>,
    counts: BTreeMap<Host, usize>,
    authenticated: usize,
    /// The number of evicted connections.
    evicted: u64,
    next_number: u64,
}

impl SlotTable {
    /// Removes an anonymous connection. Returns its notification if it was there.
    fn remove(&mut self, host: Host, number: u64) -> Option<Arc<Notify>> {
        let close = self.anonymous.remove(&(host, number))?;
        if let Some(count) = self.counts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&host);
            }
        }
        Some(close)
    }

    fn evict_oldest_of(&mut self, host: Host) {
        let of_host = (host, 0)..=(host, u64::MAX);
        let oldest = self.anonymous.range(of_host).next().map(|(&(_, number), _)| number);
        if let Some(close) = oldest.and_then(|number| self.remove(host, number)) {
            self.evicted += 1;
            close.notify_one();
        }
    }
}

impl ConnectionSlots {
    pub(crate) fn new(connections_max: usize) -> Arc<Self> {
        let strangers_max = (connections_max / SHARE_DIVISOR).max(1);
        Arc::new(Self {
            authenticated_max: connections_max - strangers_max.min(connections_max),
            anonymous_max: strangers_max,
            per_host_max: (strangers_max / SHARE_DIVISOR).max(1),
            table: Mutex::default(),
        })
    }

    /// A slot for a new connection. If there is none, an older anonymous connection is evicted.
    pub(crate) fn acquire(self: &Arc<Self>, from: IpAddr) -> ConnectionSlot {
        let host = host_of(from);
        let close = Arc::new(Notify::new());
        let mut table = self.lock();
        if table.counts.get(&host).is_some_and(|count| *count >= self.per_host_max) {
            table.evict_oldest_of(host);
        } else if table.anonymous.len() >= self.anonymous_max {
            // Evict from the host with the most anonymous connections.
            let most = table.counts.iter().max_by_key(|(_, count)| **count);
            if let Some(crowd) = most.map(|(host, _)| *host) {
                table.evict_oldest_of(crowd);
            }
        }
        let number = table.next_number;
        table.next_number += 1;
        table.anonymous.insert((host, number), Arc::clone(&close));
        *table.counts.entry(host).or_default() += 1;
        drop(table);
        ConnectionSlot {
            slots: Arc::clone(self),
            host,
            number,
            close,
            is_authenticated: Mutex::new(false),
        }
    }

    /// The number of evicted connections.
    pub(crate) fn evicted_count(&self) -> u64 {
        self.lock().evicted
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one connection. It is released when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    host: Host,
    number: u64,
    close: Arc<Notify>,
    is_authenticated: Mutex<bool>,
}

impl ConnectionSlot {
    /// Moves the connection to an authenticated slot, because its client has shown a valid token.
    /// Without a free slot it stays anonymous.
    pub(crate) fn mark_authenticated(&self) {
        let mut is_known = self.is_authenticated.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.slots.lock();
        // A connection that was evicted meanwhile is no longer in the table.
        if !*is_known
            && table.authenticated < self.slots.authenticated_max
            && table.remove(self.host, self.number).is_some()
        {
            table.authenticated += 1;
            *is_known = true;
        }
    }

    /// Returns when the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let is_known = *self.is_authenticated.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.slots.lock();
        match is_known {
            true => table.authenticated -= 1,
            false => drop(table.remove(self.host, self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_displaced(place: &ConnectionSlot) -> bool {
        let table = place.slots.lock();
        !*place.is_authenticated.lock().unwrap()
            && !table.anonymous.contains_key(&(place.host, place.number))
    }

    #[test]
    fn host_evicts_its_oldest_anonymous_slot() {
        let places = ConnectionSlots::new(64);
        let (crowd, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let quiet = places.acquire(other);
        let crowded: Vec<ConnectionSlot> = (0..6).map(|_| places.acquire(crowd)).collect();
        let displaced: Vec<bool> = crowded.iter().map(is_displaced).collect();
        assert_eq!(displaced, [true, true, false, false, false, false]);
        assert!(!is_displaced(&quiet));
        assert_eq!(places.evicted_count(), 2);
        drop((crowded, quiet));
        assert!(places.lock().anonymous.is_empty() && places.lock().counts.is_empty());
    }

    #[test]
    fn never_evicts_authenticated_callers() {
        let places = ConnectionSlots::new(64);
        let host = "2001:db8::1".parse().unwrap();
        let known = places.acquire(host);
        known.mark_authenticated();
        known.mark_authenticated();
        let crowd: Vec<ConnectionSlot> = (0..100)
            .map(|number| places.acquire(Ipv6Addr::from((0x2001_0db8_u128 << 96) + number).into()))
            .collect();
        assert!(!is_displaced(&known));
        // An IPv6 network counts as one host.
        assert_eq!(crowd.iter().filter(|place| !is_displaced(place)).count(), 4);
        drop((known, crowd));
        assert_eq!(places.lock().authenticated, 0);
    }

    #[test]
    fn evicts_from_the_host_with_most_slots() {
        let places = ConnectionSlots::new(64);
        let hosts = |number: u8| IpAddr::from([192, 0, 2, number]);
        let crowd: Vec<ConnectionSlot> = (0..3).map(|_| places.acquire(hosts(0))).collect();
        let singles: Vec<ConnectionSlot> =
            (1..=15).map(|number| places.acquire(hosts(number))).collect();
        assert!(is_displaced(&crowd[0]) && is_displaced(&crowd[1]) && !is_displaced(&crowd[2]));
        assert!(!singles.iter().any(is_displaced));
    }

    #[test]
    fn excess_callers_stay_anonymous() {
        let places = ConnectionSlots::new(8);
        let host = "192.0.2.1".parse().unwrap();
        let known: Vec<ConnectionSlot> = (0..7)
            .map(|_| {
                let place = places.acquire(host);
                place.mark_authenticated();
                place
            })
            .collect();
        assert!(known[..6].iter().all(|place| !is_displaced(place)));
        let _next = places.acquire(host);
        assert!(is_displaced(&known[6]));
    }
}
