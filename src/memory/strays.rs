//! How many extents of each lane are *astray*: their home is not their origin (first home). A lane
//! that has none need not look for any.

/// The counts, by the lane of the origin.
#[derive(Debug, Default)]
pub struct StrayCounts(Vec<u32>);

impl StrayCounts {
    /// How many there are of `lane`.
    pub fn of(&self, lane: u32) -> u32 {
        self.0.get(lane as usize).copied().unwrap_or(0)
    }

    /// Counts an extent that was astray from the one lane, if from any, and now is from the other.
    pub fn change(&mut self, was: Option<u32>, is: Option<u32>) {
        for (lane, change) in [(was, -1), (is, 1)] {
            let Some(lane) = lane.map(|lane| lane as usize) else { continue };
            if self.0.len() <= lane {
                self.0.resize(lane + 1, 0);
            }
            self.0[lane] = self.0[lane].wrapping_add_signed(change);
        }
    }

    /// Checks the counts against the extents, each given by the lane that it is astray from.
    pub fn validate(&self, astray: impl Iterator<Item = u32>) -> Result<(), String> {
        let mut counts = vec![0; self.0.len()];
        for lane in astray {
            match counts.get_mut(lane as usize) {
                Some(count) => *count += 1,
                None => return Err(format!("an extent is astray from lane {lane}")),
            }
        }
        if counts == self.0 {
            Ok(())
        } else {
            Err(format!("{counts:?} extents are astray, {:?} recorded", self.0))
        }
    }
}
