//! Which extents of each lane are *astray*: their home is not their origin (first home). A lane looks
//! for them whenever its memory comes home, so this costs nothing for the others.

use super::ExtentId;

/// The extents astray, by the lane of their origin.
#[derive(Debug, Default)]
pub struct Strays {
    /// In no order.
    of_lanes: Vec<Vec<ExtentId>>,
    /// For each extent astray, where it is among those of its lane.
    indices: Vec<u32>,
}

impl Strays {
    /// Those of `lane`.
    pub fn of(&self, lane: u32) -> &[ExtentId] {
        self.of_lanes.get(lane as usize).map_or(&[], Vec::as_slice)
    }

    /// The extent was astray from the one lane, if from any, and now is from the other.
    pub fn change(&mut self, id: ExtentId, was: Option<u32>, is: Option<u32>) {
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
        }
        if let Some(lane) = is {
            let (lane, number) = (lane as usize, id as usize);
            self.of_lanes.resize_with(self.of_lanes.len().max(lane + 1), Vec::new);
            self.indices.resize(self.indices.len().max(number + 1), 0);
            self.indices[number] = self.of_lanes[lane].len() as u32;
            self.of_lanes[lane].push(id);
        }
    }

    /// Checks that these are the extents `astray`, each given with the lane that it is astray from.
    pub fn validate(&self, astray: impl Iterator<Item = (u32, ExtentId)>) -> Result<(), String> {
        let mut count = 0;
        for (lane, id) in astray {
            count += 1;
            let index = self.indices.get(id as usize).map(|&index| index as usize);
            if index.and_then(|index| self.of(lane).get(index)) != Some(&id) {
                return Err(format!("extent {id} is astray from lane {lane}"));
            }
        }
        let recorded: usize = self.of_lanes.iter().map(Vec::len).sum();
        if recorded == count {
            Ok(())
        } else {
            Err(format!("{count} extents are astray, {recorded} recorded"))
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
    }
}
