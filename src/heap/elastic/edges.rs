//! Blocks made of all that there is, free edges of extents included: the last that is tried before memory
//! counts as short.
//!
//! An extent moves only while no block lies in it. So what is free beside a block that stays is lost for
//! large requests, however much it is in all. But an extent may be mapped at two places, and each of its
//! bytes be used at one of them. So the end of one extent, whole ones, and the start of another can serve a
//! request together:
//!
//! ```text
//! home of the first               [ live ...... | lent ]
//! home of the second                                                     [ lent | live .... ]
//! addresses that were bare        [ lent ...... | free ][ whole ][ whole ][ free | lent .... ]
//!                                                \________ the block _________/
//! ```
//!
//! Both homes are in the request's own lane, so the order of its stream is enough. What is written through
//! one view need not be visible through another before the writing kernel has ended (CUDA C++ Programming
//! Guide, *Virtual Aliasing Support*); no byte is used through two. Edges begin and end where blocks do, so
//! no two views share a line of a cache.
//!
//! Of the edges that are large enough the smallest are lent, and no more of them than whole extents leave
//! missing. Once the block is freed they stay where they are: a program that repeats itself finds the place
//! again, with other extents between them. They return once the rest of their extent is free, and before
//! memory is released for a request that is about to be refused.
//!
//! Edges are a last resort, because an extent that lends one cannot move, even if its blocks are freed,
//! until the block over the edge is.
//!
//! Lanes of tags and of private pools lend no edges: their extents are paused one by one, or must stay.

use super::super::lane::{Lane, LaneState};
use super::super::pools::PoolNumber;
use super::super::state::{Climb, DeviceHeap, Extents};
use super::Outcome;
use super::ablation::Part;
use super::area::Laid;
use super::gather::choose;
use super::household::Reach;
use crate::base::size::SizeClass;
use crate::memory::{Edge, Extent, ExtentId, ExtentTable, Lending, Loan, NO_SLOT, Slot, State};

/// Which edges return to their homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returning {
    /// All that are free.
    Free,
    /// Those of extents that are free for the rest.
    Whole,
}

/// The free edge of an extent whose other bytes are not all free, or as much of it as is lent.
#[derive(Clone, Copy, Debug)]
struct FreeEdge {
    id: ExtentId,
    extent_bytes: u64,
    /// Where the extent begins.
    home: u64,
    edge: Edge,
    /// The free block that it lies in; its own, once it is lent.
    slot: Slot,
    /// The lane's epoch (see `order::fence`) in which its bytes were freed.
    epoch: u32,
}

/// The end of one extent and the start of another, as far as there are any.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    end: Option<FreeEdge>,
    start: Option<FreeEdge>,
}

impl Extents {
    /// Maps a free block of the request's size at bare addresses, made of all that there is: whole extents,
    /// what the driver really has left, and edges for what is missing then.
    pub(super) fn lay_from_all(&self, climb: &Climb<'_>) -> crate::base::Result<Outcome> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let class = SizeClass::of(block_bytes);
        let growth = self.growth(climb, Reach::Device);
        let found = self.find_free(climb, Reach::Device);
        let mut whole = Vec::from_iter(found.usable_for(class).copied());
        let whole_bytes: u64 = whole.iter().map(|extent| extent.bytes).sum();
        // Perhaps the driver has just refused what seemed to be left.
        let granule_bytes = self.store.granule_bytes();
        let left_bytes = device.driver_free_bytes().unwrap_or(u64::MAX).min(growth.usable_bytes);
        let left_bytes = left_bytes / granule_bytes * granule_bytes;
        let between_bytes =
            self.charged_bytes(block_bytes).min(whole_bytes.saturating_add(left_bytes));
        let edges = lane.lock().free_edges((lane, class), &self.store.extents());
        let lacking_bytes = block_bytes.saturating_sub(between_bytes);
        let is_new = whole_bytes > 0 || lacking_bytes > 0;
        if !is_new || Pair::choose(&edges, lacking_bytes).is_none() {
            return Ok(Outcome::Short);
        }
        whole.sort_unstable_by_key(|extent| (extent.bytes, extent.address));
        let moved = self.take(climb, choose(&mut whole, between_bytes, u64::MAX)).moved;
        let moved_bytes: u64 = moved.iter().map(|extent| extent.bytes).sum();
        let new_bytes = between_bytes.saturating_sub(moved_bytes);
        let edge_bytes = block_bytes.saturating_sub(moved_bytes + new_bytes);
        // Meanwhile other threads may have taken what was found.
        let is_left = new_bytes <= left_bytes;
        let Some(pair) = is_left.then(|| self.lend((lane, class), edge_bytes)).flatten() else {
            self.bring_back(device, &moved);
            return Ok(Outcome::Overtaken);
        };
        let sizes: Vec<u64> = match new_bytes {
            0 => Vec::new(),
            bytes => growth.extents(bytes).collect(),
        };
        let end = pair.end.map(FreeEdge::laid);
        let before = Vec::from_iter(end.into_iter().chain(self.laid_here(lane, &moved)));
        let behind = Vec::from_iter(pair.start.map(FreeEdge::laid));
        let result = self.lay_side_by_side(climb, (&before, &sizes, &behind), None);
        if !matches!(result, Ok(Outcome::More)) {
            self.take_back(lane, pair);
            self.bring_back(device, &moved);
            return result;
        }
        lane.lock().moves.note(moved_bytes);
        if edge_bytes > 0 {
            self.become_scarce(device);
        }
        result
    }

    /// Takes edges of `bytes` together out of the lane's free blocks.
    fn lend(&self, (lane, class): (&Lane, SizeClass), bytes: u64) -> Option<Pair> {
        let mut state = lane.lock();
        let edges = state.free_edges((lane, class), &self.store.extents());
        let pair = Pair::choose(&edges, bytes)?.map(|edge| state.lend(edge));
        pair.edges().for_each(|edge| self.store.extents().begin_lending(edge.id));
        lane.count_held(&state.blocks);
        Some(pair)
    }

    /// Undoes [`Self::lend`].
    fn take_back(&self, lane: &Lane, pair: Pair) {
        let mut state = lane.lock();
        for edge in pair.edges() {
            state.take_back_edge(edge.slot, edge.epoch);
            self.store.extents().give_up_lending(edge.id);
        }
        lane.count_held(&state.blocks);
    }

    /// Returns the edges of all extents that are free for the rest.
    pub(super) fn return_edges_of_all(&self, device: DeviceHeap<'_>) {
        if !self.store.extents().lent().is_empty() {
            device.lanes().for_each(|lane| self.return_edges(lane, Returning::Whole));
        }
    }

    /// Returns edges of the lane's extents to their homes.
    pub(super) fn return_edges(&self, lane: &Lane, which: Returning) {
        let mut state = lane.lock();
        let mut extents = self.store.extents();
        for id in extents.lent().to_vec() {
            let of_lane = extents.get(id).and_then(|extent| {
                let home = extent.home.filter(|home| home.lane == lane.index)?;
                Some((home.address, extent.bytes, *extent.lending.loan()?))
            });
            let Some((home, bytes, Loan { view, edge, slot: lent })) = of_lane else { continue };
            let rest = edge.rest(bytes);
            let is_whole =
                || state.free_block_around(home + rest.start, rest.bytes(), NO_SLOT).is_some();
            let address = view.address + edge.start;
            let Some(slot) = state.free_block_around(address, edge.bytes(), NO_SLOT) else {
                continue;
            };
            if which == Returning::Whole && !is_whole() {
                continue;
            }
            let epoch = state.blocks.get(slot).freed_epoch;
            extents.end_loan(id, epoch);
            state.give_edge_up(slot, (view.address, edge), id);
            state.take_back_edge(lent, epoch);
        }
        lane.count_held(&state.blocks);
    }
}

impl FreeEdge {
    fn laid(self) -> Laid {
        let Self { id, extent_bytes: bytes, edge, slot, epoch, .. } = self;
        Laid { id, bytes, epoch, edge: Some((edge, slot)) }
    }
}

impl Pair {
    /// The smallest of `edges` that have `bytes` together, cut to these. Not both of one extent, because it
    /// lends one at a time.
    fn choose(edges: &[FreeEdge], bytes: u64) -> Option<Self> {
        if bytes == 0 {
            return Some(Self::default());
        }
        let is_start = |edge: &&FreeEdge| edge.edge.start == 0;
        let mut starts: Vec<FreeEdge> = edges.iter().filter(is_start).copied().collect();
        starts.sort_unstable_by_key(|edge| edge.edge.bytes());
        let smallest_start = |bytes: u64, end: Option<FreeEdge>| {
            let first = starts.partition_point(|edge| edge.edge.bytes() < bytes);
            let is_other = |edge: &&FreeEdge| end.is_none_or(|end| end.id != edge.id);
            starts[first..].iter().find(is_other).copied()
        };
        let with_end = |&end: &FreeEdge| {
            let missing_bytes = bytes.saturating_sub(end.edge.bytes());
            let start = smallest_start(missing_bytes, Some(end)).filter(|_| missing_bytes > 0);
            (missing_bytes == 0 || start.is_some()).then_some(Self { end: Some(end), start })
        };
        let pairs = edges.iter().filter(|edge| !is_start(edge)).filter_map(with_end);
        let alone = smallest_start(bytes, None).map(|start| Self { end: None, start: Some(start) });
        pairs.chain(alone).min_by_key(|pair| pair.bytes()).map(|pair| pair.cut(bytes))
    }

    fn map(self, mut change: impl FnMut(FreeEdge) -> FreeEdge) -> Self {
        Self { end: self.end.map(&mut change), start: self.start.map(&mut change) }
    }

    fn edges(self) -> impl Iterator<Item = FreeEdge> {
        [self.end, self.start].into_iter().flatten()
    }

    fn bytes(self) -> u64 {
        self.edges().map(|edge| edge.edge.bytes()).sum()
    }

    /// Just `bytes` of them, where they meet.
    fn cut(self, bytes: u64) -> Self {
        let start_bytes = self.start.map_or(0, |edge| edge.edge.bytes()).min(bytes);
        let end_bytes = bytes - start_bytes;
        let end = self.end.filter(|_| end_bytes > 0).map(|edge| {
            let Edge { end, .. } = edge.edge;
            FreeEdge { edge: Edge { start: end - end_bytes, end }, ..edge }
        });
        let start = self
            .start
            .filter(|_| start_bytes > 0)
            .map(|edge| FreeEdge { edge: Edge { start: 0, end: start_bytes }, ..edge });
        Self { end, start }
    }
}

impl LaneState {
    /// The free edges of extents whose home is in `lane`, which has this state, for a block of `class`. None
    /// if it may lend none, and for small blocks, which need no two extents.
    fn free_edges(
        &self,
        (lane, class): (&Lane, SizeClass),
        extents: &ExtentTable,
    ) -> Vec<FreeEdge> {
        let mut edges = Vec::new();
        let is_common = lane.pool() == PoolNumber::COMMON;
        if class != SizeClass::Large || !is_common || !Part::Edges.is_in() {
            return edges;
        }
        self.strategy.visit(&self.blocks, &(1..=u64::MAX), &mut |slot, block| {
            if block.class != class {
                return;
            }
            let end = block.address + block.bytes;
            for (home, id) in extents.touching(block.address..end) {
                let is_home = |extent: &&Extent| {
                    extent.home.is_some_and(|view| (view.lane, view.address) == (lane.index, home))
                };
                let Some(extent) = extents.get(id).filter(is_home) else { continue };
                let edge = Edge {
                    start: block.address.saturating_sub(home),
                    end: (end - home).min(extent.bytes),
                };
                let is_at_end = edge.start > 0 && edge.end == extent.bytes;
                let is_at_start = edge.start == 0 && edge.end < extent.bytes;
                if extent.lending == Lending::No && (is_at_end || is_at_start) {
                    let (extent_bytes, epoch) = (extent.bytes, block.freed_epoch);
                    edges.push(FreeEdge { id, extent_bytes, home, edge, slot, epoch });
                }
            }
        });
        edges
    }

    /// Takes `edge` out of the free block that it lies in; returns it with the slot of its own block.
    fn lend(&mut self, edge: FreeEdge) -> FreeEdge {
        let (address, bytes) = (edge.home + edge.edge.start, edge.edge.bytes());
        // The other edge may have been taken out of the same block.
        let around = self.free_block_around(address, bytes, edge.slot);
        let slot = self.take_out(around.unwrap_or(edge.slot), address, bytes);
        self.blocks.turn(slot, State::Lent);
        FreeEdge { slot, ..edge }
    }

    /// The lent edge in `slot`, at its home, is free there, since `epoch`.
    fn take_back_edge(&mut self, slot: Slot, epoch: u32) {
        self.blocks.turn(slot, State::Free);
        self.blocks.get_mut(slot).freed_epoch = epoch;
        self.strategy.give(&mut self.blocks, slot);
    }

    /// The new view of an extent, the shadow in `slot`, is where its `edge` is used: that is free, since
    /// `epoch`.
    pub(super) fn take_in_edge(&mut self, slot: Slot, edge: Edge, epoch: u32) {
        let is_start = edge.start == 0;
        let behind = self.blocks.split(slot, if is_start { edge.end } else { edge.start });
        let (free, lent) = if is_start { (slot, behind) } else { (behind, slot) };
        self.blocks.turn(lent, State::Lent);
        self.blocks.turn(free, State::Free);
        self.blocks.get_mut(free).freed_epoch = epoch;
        self.strategy.give(&mut self.blocks, free);
    }

    /// The view at `address` is no longer where an `edge` of the extent `id` is used, which lies in the free
    /// block in `slot`: it becomes a shadow.
    fn give_edge_up(&mut self, slot: Slot, (address, edge): (u64, Edge), id: ExtentId) {
        let taken = self.take_out(slot, address + edge.start, edge.bytes());
        self.blocks.turn(taken, State::Lent);
        let first = if edge.start == 0 { taken } else { self.blocks.get(taken).before };
        self.blocks.merge_with_after(first);
        self.blocks.turn_into_shadow(first, Some(id));
    }
}
