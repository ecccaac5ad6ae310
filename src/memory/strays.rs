//! Which extents of each lane are *astray*: their home is not their origin (first home). A lane looks
//! for them whenever its memory comes home, mostly in vain, so it learns that without the table's lock.

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The extents astray, by number, for each lane of their origins.
#[derive(Debug, Default)]
pub struct Strays {
    /// In no order.
    of_lanes: Vec<Vec<u32>>,
    /// For each extent astray, where it is among those of its lane.
    indices: Vec<u32>,
    lanes: Arc<LanesAstray>,
}

/// The lanes from which extents are astray: each bit is for every 64th lane.
#[derive(Debug, Default)]
pub struct LanesAstray(AtomicU64);

impl LanesAstray {
    /// Returns false if no extent is astray from `lane`. Needs no lock: what happens meanwhile may be
    /// missed.
    pub fn may_have(&self, lane: u32) -> bool {
        self.0.load(Relaxed) & Self::bit(lane as usize) != 0
    }

    fn bit(lane: usize) -> u64 {
        1 << (lane % u64::BITS as usize)
    }
}

impl Strays {
    /// Those of `lane`.
    pub fn of(&self, lane: u32) -> &[u32] {
        self.of_lanes.get(lane as usize).map_or(&[], Vec::as_slice)
    }

    /// The lanes that have some.
    pub fn lanes(&self) -> &Arc<LanesAstray> {
        &self.lanes
    }

    /// The extent was astray from the one lane, if from any, and now is from the other.
    pub fn change(&mut self, id: u32, was: Option<u32>, is: Option<u32>) {
        if was == is {
            return;
        }
        if let Some(lane) = was {
            let of_lane = &mut self.of_lanes[lane as usize];
            let index = self.indices[id as usize];
            of_lane.swap_remove(index as usize);
            if let Some(&last) = of_lane.get(index as usize) {
                self.indices[last as usize] = index;
            }
            if of_lane.is_empty() {
                self.forget(lane as usize);
            }
        }
        if let Some(lane) = is {
            let (lane, number) = (lane as usize, id as usize);
            self.of_lanes.resize_with(self.of_lanes.len().max(lane + 1), Vec::new);
            self.indices.resize(self.indices.len().max(number + 1), 0);
            self.indices[number] = self.of_lanes[lane].len() as u32;
            if self.of_lanes[lane].is_empty() {
                self.lanes.0.fetch_or(LanesAstray::bit(lane), Relaxed);
            }
            self.of_lanes[lane].push(id);
        }
    }

    /// `lane` has none any more.
    fn forget(&self, lane: usize) {
        let step = u64::BITS as usize;
        let mut of_bit = self.of_lanes.iter().skip(lane % step).step_by(step);
        if of_bit.all(Vec::is_empty) {
            self.lanes.0.fetch_and(!LanesAstray::bit(lane), Relaxed);
        }
    }

    /// Checks that these are the extents `astray`, each given with the lane that it is astray from.
    pub fn validate(&self, astray: impl Iterator<Item = (u32, u32)>) -> Result<(), String> {
        let (mut count, mut lanes) = (0, 0);
        for (lane, id) in astray {
            count += 1;
            lanes |= LanesAstray::bit(lane as usize);
            let index = self.indices.get(id as usize).map(|&index| index as usize);
            if index.and_then(|index| self.of(lane).get(index)) != Some(&id) {
                return Err(format!("extent {id} is astray from lane {lane}"));
            }
        }
        let recorded: usize = self.of_lanes.iter().map(Vec::len).sum();
        if recorded == count && lanes == self.lanes.0.load(Relaxed) {
            Ok(())
        } else {
            Err(format!("{count} extents are astray, {recorded} and {:?} recorded", self.lanes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_its_own() {
        let mut strays = Strays::default();
        for id in [5, 6, 7] {
            strays.change(id, None, Some(2));
        }
        strays.change(6, Some(2), Some(0));
        strays.change(5, Some(2), None);
        strays.change(7, Some(2), Some(2));
        assert_eq!((strays.of(0), strays.of(1), strays.of(2)), (&[6][..], &[][..], &[7][..]));
        strays.validate([(2, 7), (0, 6)].into_iter()).unwrap();
        strays.validate([(2, 7)].into_iter()).unwrap_err();
        strays.validate([(2, 7), (1, 6)].into_iter()).unwrap_err();
        // One too many in a lane that has others, and a lane that is not known to have some.
        strays.change(5, None, Some(2));
        strays.validate([(2, 7), (0, 6)].into_iter()).unwrap_err();
        strays.change(5, Some(2), None);
        strays.lanes.0.store(0, Relaxed);
        strays.validate([(2, 7), (0, 6)].into_iter()).unwrap_err();
    }

    #[test]
    fn lanes_are_known_without_the_lists() {
        let mut strays = Strays::default();
        let lanes = Arc::clone(strays.lanes());
        strays.change(1, None, Some(2));
        strays.change(2, None, Some(66));
        assert_eq!([1, 2, 66].map(|lane| lanes.may_have(lane)), [false, true, true]);
        strays.change(1, Some(2), None);
        assert!(lanes.may_have(66));
        strays.change(2, Some(66), None);
        assert_eq!([2, 66].map(|lane| lanes.may_have(lane)), [false, false]);
        strays.change(1, None, Some(2));
        strays.change(2, None, Some(66));
        strays.change(2, Some(66), None);
        assert!(lanes.may_have(2), "which shares a bit with 66");
    }
}
