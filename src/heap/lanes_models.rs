//! The index of lanes under drawn schedules, at the limit of lanes: streams that come at once, and
//! lanes that are reassigned while others look for them.

use std::sync::Arc;

use shuttle::thread;

use super::lanes::MAX_LANES;
use super::lanes_tests::{House, common};
use crate::base::sync::schedules;

/// Streams that come at once; there is one lane less.
const STREAMS: u64 = 3;

/// A stream that finds its lane and locks it there has it to itself, for as long as it holds a
/// block; other lanes are reassigned meanwhile.
#[test]
fn a_lane_with_a_block_stays_its_streams() {
    schedules::explore(|_| {
        let house = Arc::new(House::new());
        for key in 0..MAX_LANES as u64 - STREAMS + 1 {
            house.occupy(house.lane(key).unwrap());
        }
        let comers = (0..STREAMS).map(|n| {
            let house = Arc::clone(&house);
            thread::spawn(move || house.come(1000 + n))
        });
        let comers: Vec<_> = comers.collect();
        let found: Vec<Option<u32>> = comers.into_iter().map(|one| one.join().unwrap()).collect();
        // Empty lanes go from hand to hand, but the last lanes that got blocks are full now.
        assert_eq!(found.iter().flatten().count() as u64, STREAMS - 1, "{found:?}");
        for (key, lane) in (1000..).zip(&found) {
            assert_eq!(house.find(key), *lane);
            assert!(lane.is_none_or(|lane| house.holds(lane, common(key))), "{key}");
        }
    });
}

/// Readers without a lock find each stream's own lane, or none, while the index is rebuilt.
#[test]
fn readers_find_their_own_lane_or_none() {
    schedules::explore(|_| {
        let house = Arc::new(House::new());
        let lane = house.lane(7).unwrap();
        house.occupy(lane);
        let reader = {
            let house = Arc::clone(&house);
            thread::spawn(move || (0..6).all(|_| house.find(7).is_none_or(|found| found == lane)))
        };
        // More streams than there are entries of the index, so it is rebuilt.
        for key in 100..100 + 3 * MAX_LANES as u64 {
            house.lane(key).unwrap();
        }
        assert!(reader.join().unwrap());
        assert_eq!(house.find(7), Some(lane));
    });
}
