//! The order in which views were left: the oldest shadows are unmapped first.

use std::collections::VecDeque;

use super::{ExtentId, ExtentTable, View};
use crate::base::size::SizeClass;

impl ExtentTable {
    /// The sum of the shadows that blocks of `class` have left, in bytes.
    pub fn left_bytes(&self, class: SizeClass) -> u64 {
        self.left_bytes[class.index()]
    }

    /// `view` becomes a shadow, left in `epoch` of its lane.
    pub(super) fn add_left(&mut self, id: ExtentId, view: View, epoch: u32) {
        let number = self.last_number + 1;
        let Some(extent) = self.get_mut(id) else { return };
        extent.shadows.push(View { left_epoch: epoch, number, ..view });
        let bytes = extent.bytes;
        self.shadow_count += 1;
        self.last_number = number;
        self.left_bytes[view.class.index()] += bytes;
        self.left[view.class.index()].push_back((id, number));
        if self.left.iter().map(VecDeque::len).sum::<usize>() > 2 * self.views.len() + 64 {
            for class in SizeClass::ALL {
                let mut left = std::mem::take(&mut self.left[class.index()]);
                left.retain(|&(id, number)| self.shadow(id, number).is_some());
                self.left[class.index()] = left;
            }
        }
    }

    fn shadow(&self, id: ExtentId, number: u64) -> Option<View> {
        self.get(id)?.shadows.iter().copied().find(|view| view.number == number)
    }

    /// Takes the shadow that blocks of `class` left longest ago out of the order; the next call
    /// returns the next one.
    pub fn pop_oldest_shadow(&mut self, class: SizeClass) -> Option<(ExtentId, View)> {
        while let Some((id, number)) = self.left[class.index()].pop_front() {
            if let Some(view) = self.shadow(id, number) {
                return Some((id, view));
            }
        }
        None
    }

    /// Puts back what [`Self::pop_oldest_shadow`] returned, behind all others.
    pub fn put_back_shadow(&mut self, id: ExtentId, view: View) {
        self.left[view.class.index()].push_back((id, view.number));
    }
}
