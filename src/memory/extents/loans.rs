//! Extents of which an edge is lent: its bytes are used through another view than the home.
//!
//! ```text
//! an extent that has lent an edge has a home, and is neither at rest nor set aside
//! loan.view is no shadow;   0 < loan.edge's bytes < the extent's, at its start or at its end
//! ```

use super::{ExtentId, ExtentTable, View};
use crate::memory::directory::Slot;
use crate::observe::Action;

/// Bytes at the start or at the end of an extent, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The first byte.
    pub start: u64,
    /// The byte behind the last.
    pub end: u64,
}

impl Edge {
    /// How many bytes it has.
    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// The rest of an extent of `extent_bytes`.
    pub fn rest(self, extent_bytes: u64) -> Self {
        if self.start == 0 {
            Self { start: self.end, end: extent_bytes }
        } else {
            Self { start: 0, end: self.start }
        }
    }
}

/// An edge of an extent, and the view through which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The view. What else of the extent lies there is not used through it.
    pub view: View,
    /// The edge.
    pub edge: Edge,
    /// The block at the home that stands for it.
    pub slot: Slot,
}

/// Whether an edge of an extent is used elsewhere. It lends one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// None is.
    No,
    /// One is about to be.
    Begun,
    /// One is.
    Lent(Loan),
}

impl Lending {
    /// The loan, if there is one.
    pub fn loan(&self) -> Option<&Loan> {
        match self {
            Self::Lent(loan) => Some(loan),
            Self::No | Self::Begun => None,
        }
    }
}

impl ExtentTable {
    /// An edge of the extent is about to be lent.
    pub fn begin_lending(&mut self, id: ExtentId) {
        self.change_lending(id, (Lending::No, Lending::Begun));
    }

    /// It is not lent after all.
    pub fn give_up_lending(&mut self, id: ExtentId) {
        self.change_lending(id, (Lending::Begun, Lending::No));
    }

    fn change_lending(&mut self, id: ExtentId, (before, after): (Lending, Lending)) {
        if let Some(extent) = self.get_mut(id) {
            debug_assert_eq!(extent.lending, before, "extent {id}");
            extent.lending = after;
        }
    }

    /// The shadow at `address`, which no blocks have left, becomes the view of the extent's `edge`, for which
    /// the block in `slot` stands at the home.
    pub fn lend(&mut self, id: ExtentId, address: u64, (edge, slot): (Edge, Slot)) {
        let Some(extent) = self.get_mut(id) else { return };
        debug_assert_eq!(extent.lending, Lending::Begun, "extent {id}");
        let position = extent.shadows.iter().position(|view| view.address == address);
        let (Some(position), Some(home)) = (position, extent.home) else { return };
        let view = extent.shadows.swap_remove(position);
        extent.lending = Lending::Lent(Loan { view, edge, slot });
        self.shadow_count -= 1;
        self.lent.push(id);
        self.events.note(Action::Unmap, home.address + edge.start, edge.bytes());
        self.events.note(Action::Map, address + edge.start, edge.bytes());
    }

    /// The edge that is lent is used at the home again: the other view becomes a shadow, left in `epoch`
    /// of its lane.
    pub fn end_loan(&mut self, id: ExtentId, epoch: u32) -> Option<Loan> {
        let extent = self.get_mut(id)?;
        let (home, loan) = (extent.home?, *extent.lending.loan()?);
        let Loan { view, edge, .. } = loan;
        extent.lending = Lending::No;
        self.lent.retain(|&lent| lent != id);
        self.events.note(Action::Unmap, view.address + edge.start, edge.bytes());
        self.events.note(Action::Map, home.address + edge.start, edge.bytes());
        self.add_left(id, view, epoch);
        Some(loan)
    }

    /// The extents that have a loan.
    pub fn lent(&self) -> &[ExtentId] {
        &self.lent
    }

    /// Checks the equations of the module's note.
    pub(super) fn validate_loans(&self) -> Result<(), String> {
        let mut count = 0;
        for (id, extent) in self.iter() {
            let Some(Loan { view, edge, .. }) = extent.lending.loan() else { continue };
            count += 1;
            let is_edge = edge.start == 0 && (1..extent.bytes).contains(&edge.end)
                || edge.end == extent.bytes && (1..extent.bytes).contains(&edge.start);
            let is_shadow = extent.shadows.iter().any(|other| other.address == view.address);
            if !is_edge || is_shadow || extent.home.is_none() || !self.lent.contains(&id) {
                return Err(format!("extent {id} cannot have lent {edge:?} at {view:?}"));
            }
        }
        if count == self.lent.len() {
            Ok(())
        } else {
            Err(format!("{count} edges are lent, {} recorded", self.lent.len()))
        }
    }
}
