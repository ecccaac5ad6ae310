//! The ring, with two producers and a consumer, in every order or in drawn ones: no event is torn,
//! lost, seen twice or out of its producer's order, also where the ring is full.

use std::sync::Arc;

#[cfg(all(feature = "loom", not(feature = "shuttle")))]
use loom::thread;
#[cfg(feature = "shuttle")]
use shuttle::thread;

use super::*;

/// The events of each producer: more together than the ring has room for.
const EVENTS: [u64; 2] = [2, 1];

fn deliver() {
    let ring = Arc::new(Ring::new());
    let producers = EVENTS.into_iter().zip(0..).map(|(count, producer): (u64, u64)| {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            for n in 0..count {
                ring.push([producer, n, 0, 0, 0, !(producer ^ n)], || ());
            }
        })
    });
    let producers: Vec<_> = producers.collect();
    let mut next = [0; EVENTS.len()];
    for number in 0..EVENTS.iter().sum() {
        let [producer, n, .., check] = ring.get(number);
        assert_eq!(check, !(producer ^ n), "torn");
        assert_eq!(next[producer as usize], n, "out of order");
        next[producer as usize] += 1;
        ring.release(number + 1);
    }
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!((next, ring.read()), (EVENTS, ring.taken()));
}

#[test]
#[cfg(all(feature = "loom", not(feature = "shuttle")))]
fn events_arrive_whole_once_and_in_order() {
    // Every order in which a thread is stopped at most twice where it could go on.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(deliver);
}

#[test]
#[cfg(feature = "shuttle")]
fn events_arrive_whole_once_and_in_order() {
    crate::base::sync::schedules::explore(|_| deliver());
}
