//! The order in which views were left: the oldest shadows are unmapped first.
//!
//! Views are left at every move, and asked for in this order only where there are too many. So they are
//! put in order only then, a *round* at a time: all that there are, the oldest first. What is left meanwhile
//! is younger, and comes in the next round. A view that is a home again, or gone, is skipped.

use super::{ExtentId, ExtentTable, View};
use crate::base::size::SizeClass;

impl ExtentTable {
    /// The sum of the shadows that blocks of `class` have left, in bytes.
    pub fn left_bytes(&self, class: SizeClass) -> u64 {
        self.left_bytes[class.index()]
    }

    /// `view` becomes a shadow, left in `epoch` of its lane.
    pub(super) fn add_left(&mut self, id: ExtentId, view: View, epoch: u32) {
        let left = self.left(view, epoch);
        let Some(extent) = self.get_mut(id) else { return };
        extent.shadows.push(left);
        self.left_bytes[view.class.index()] += extent.bytes;
        self.shadow_count += 1;
    }

    /// `view` as it is once blocks have left it, in `epoch` of its lane.
    pub(super) fn left(&mut self, view: View, epoch: u32) -> View {
        self.last_number += 1;
        View { left_epoch: epoch, number: self.last_number, ..view }
    }

    /// Begins a round of the shadows that blocks of `class` have left. Linear in all views.
    pub fn begin_round(&mut self, class: SizeClass) {
        let of_class = |view: &&View| view.number > 0 && view.class == class;
        let mut round: Vec<(u64, ExtentId)> = Vec::new();
        for (id, extent) in self.iter() {
            round.extend(extent.shadows.iter().filter(of_class).map(|view| (view.number, id)));
        }
        round.sort_unstable_by_key(|&(number, _)| std::cmp::Reverse(number));
        self.rounds[class.index()] = round;
    }

    /// The next shadow of the round, the oldest that was not returned in it; `None` at its end.
    pub fn next_of_round(&mut self, class: SizeClass) -> Option<(ExtentId, View)> {
        while let Some((number, id)) = self.rounds[class.index()].pop() {
            let mut shadows = self.get(id).into_iter().flat_map(|extent| &extent.shadows);
            if let Some(&view) = shadows.find(|view| view.number == number) {
                return Some((id, view));
            }
        }
        None
    }
}
