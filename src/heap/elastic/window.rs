//! The search for the cheapest place for a block: one window over the lane's addresses.
//!
//! A *window* is a run of adjacent parts that together are large enough:
//!
//! | part | what lies there | costs |
//! |---|---|---|
//! | free | a free block | nothing |
//! | shadow | a remembered view; its extent is wholly free elsewhere | 1 a byte: bookkeeping |
//! | bare | addresses without a view | 4 a byte: it must be mapped |
//!
//! All else is a wall: live blocks, and views whose extents are in use. A window may begin and end
//! inside a bare part, at a granule. The cheapest wins, of equal ones that of which the least is left
//! over, and of these the first. So holes are filled before memory is added at the *frontier*, the bare
//! end of an area.
//!
//! A window without bare parts costs nothing at all: no call of the driver. Of several the first
//! wins, which is mostly the oldest, because new views are laid at the frontier. So a program that
//! repeats itself takes the windows of its first cycle again: those that it has made since do not
//! divert it, and its cycles become alike. If the one with the fewest bytes of shadows wins instead,
//! each new window may lead to another layout, which needs further ones.
//!
//! Views whose extents are in use are walls because a program that repeats itself comes back to
//! them. Mapping over them would break up one layout for another. It is done only if more than the
//! limit would otherwise be held ([`Walls::ViewsInUse`]): the views are then unmapped. A program without
//! cycles (`heap::moves`) has no layout to keep, and its blocks that stay would be scattered, one behind
//! each hole whose extents have moved on. If it fills the device, this is done whenever memory must be
//! created all the same.

use super::super::lane::LaneState;
use super::ablation::Part::{OldestFirst, Recall};
use super::gather::Found;
use crate::base::size::SizeClass;
use crate::memory::{Block, ExtentId, ExtentTable, NO_SLOT, State, View};

/// What a byte of a bare part costs if a byte of a shadow costs 1.
const BARE_COST: u64 = 4;

/// Few windows have more parts.
pub(super) const USUAL_PARTS: usize = 64;

/// Which views of extents in use end a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Walls<'a> {
    /// All of them.
    BusyViews,
    /// Those through which work may still be under way, as the table shows; the others count as bare.
    ViewsInUse(&'a ExtentTable),
}

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) class: SizeClass,
    pub(super) bytes: u64,
    pub(super) granule_bytes: u64,
    /// The wholly free extents.
    pub(super) found: &'a Found,
    pub(super) walls: Walls<'a>,
}

/// One part of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// What lies in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Free,
    /// The view of a free extent: its index among those found.
    Shadow(usize),
    Bare,
}

/// The parts, in the order of their addresses, that a block can be made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    pub(super) parts: Vec<Part>,
    /// The sum of the bare parts.
    pub(super) bare_bytes: u64,
    /// How many bare bytes there are from the start of the last part, if it is bare.
    pub(super) last_room_bytes: u64,
}

impl Window {
    /// Returns true if `address` lies in the window.
    pub(super) fn contains(&self, address: u64) -> bool {
        let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) else {
            return false;
        };
        (first.address..last.address + last.bytes).contains(&address)
    }

    /// The bare parts, and how many bytes each has room for.
    pub(super) fn bare_parts(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        let last = self.parts.len().wrapping_sub(1);
        let bare = self.parts.iter().enumerate().filter(|(_, part)| part.kind == Kind::Bare);
        bare.map(move |(index, &part)| {
            (part, if index == last { self.last_room_bytes } else { part.bytes })
        })
    }

    /// The extents to be brought back, by their index among those found, and where to.
    pub(super) fn shadows(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.parts.iter().filter_map(|part| match part.kind {
            Kind::Shadow(index) => Some((index, part.address)),
            Kind::Free | Kind::Bare => None,
        })
    }
}

impl LaneState {
    /// The cheapest window for `wanted`; `None` if the lane's addresses have none. Linear in the
    /// number of blocks of the class.
    pub(super) fn find_window(&self, wanted: &Wanted<'_>) -> Option<Window> {
        let mut search = Search::new(wanted);
        for &head in &self.areas {
            if self.blocks.get(head).class != wanted.class {
                continue;
            }
            let mut slot = head;
            while slot != NO_SLOT {
                let block = self.blocks.get(slot);
                match self.part(wanted, block) {
                    Some(part) => search.add(part),
                    None => search.end_chain(),
                }
                if search.least_cost == NOTHING {
                    return search.best;
                }
                slot = block.after;
            }
            search.end_chain();
        }
        search.best
    }

    /// The block as a part of a window; `None` if it is a wall.
    #[inline]
    fn part(&self, wanted: &Wanted<'_>, block: &Block) -> Option<Part> {
        let Block { address, bytes, state, links, .. } = *block;
        let kind = match state {
            State::Free => Kind::Free,
            State::Unmapped => Kind::Bare,
            State::Shadow => {
                let left = links[0];
                match (wanted.found.index_of(left), wanted.walls) {
                    (Some(index), _) if Recall.is_in() => Kind::Shadow(index),
                    (_, Walls::ViewsInUse(extents)) if self.may_clear(extents, left, address) => {
                        Kind::Bare
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Part { kind, address, bytes })
    }

    /// Returns true if the view at `address`, left by the blocks of `extent`, may be unmapped for
    /// the window.
    #[inline]
    fn may_clear(&self, extents: &ExtentTable, extent: ExtentId, address: u64) -> bool {
        let is_idle = |view: &View| view.address == address && self.fence.is_idle(view.left_epoch);
        extents
            .get(extent)
            .is_some_and(|extent| extent.home.is_some() && extent.shadows.iter().any(is_idle))
    }
}

/// A search under way: the parts since the last wall, and the best window so far.
struct Search<'a> {
    wanted: &'a Wanted<'a>,
    chain: Vec<Part>,
    /// The sums up to the end of each part of the chain.
    ends: Vec<Sums>,
    least_cost: Cost,
    best: Option<Window>,
}

/// What a window costs, and how many bytes of it are left over.
type Cost = (u64, u64);

/// Without bare parts the first window wins, whatever is left over.
const NOTHING: Cost = (0, 0);

/// Bytes of a run of parts.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: u64,
    bare: u64,
    shadow: u64,
}

impl Sums {
    fn minus(self, other: Self) -> Self {
        Self {
            all: self.all - other.all,
            bare: self.bare - other.bare,
            shadow: self.shadow - other.shadow,
        }
    }
}

impl<'a> Search<'a> {
    fn new(wanted: &'a Wanted<'a>) -> Self {
        let (chain, ends) = (Vec::with_capacity(USUAL_PARTS), Vec::with_capacity(USUAL_PARTS));
        Self { wanted, chain, ends, least_cost: (u64::MAX, 0), best: None }
    }

    #[inline]
    fn add(&mut self, part: Part) {
        let mut end = self.ends.last().copied().unwrap_or_default();
        end.all += part.bytes;
        match part.kind {
            Kind::Free => {}
            Kind::Shadow(_) => end.shadow += part.bytes,
            Kind::Bare => end.bare += part.bytes,
        }
        match (self.chain.last_mut(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last.kind == Kind::Bare && part.kind == Kind::Bare => {
                last.bytes += part.bytes;
                *last_end = end;
            }
            _ => {
                self.chain.push(part);
                self.ends.push(end);
            }
        }
    }

    /// Looks at the parts since the last wall, if there are any.
    #[inline]
    fn end_chain(&mut self) {
        if self.ends.last().is_some_and(|end| end.all >= self.wanted.bytes) {
            self.consider_chain();
        }
        self.chain.clear();
        self.ends.clear();
    }

    /// Looks at each run of parts that is large enough and has none to spare at its ends. Linear in
    /// the number of parts, but for runs that begin with a bare part.
    fn consider_chain(&mut self) {
        let wanted_bytes = self.wanted.bytes;
        let mut before = Sums::default();
        let mut least_last = 0;
        for first in 0..self.chain.len() {
            let enough = before.all + wanted_bytes;
            while least_last < self.chain.len() && self.ends[least_last].all < enough {
                least_last += 1;
            }
            for last in least_last..self.chain.len() {
                self.consider(first, last, self.ends[last].minus(before));
                // A bare part may be cut at its start, as long as a piece of it is needed.
                let is_first_cut = self.chain[first].kind == Kind::Bare
                    && self.ends[last].all - self.ends[first].all < wanted_bytes;
                if !is_first_cut {
                    break;
                }
            }
            if self.least_cost == NOTHING {
                break;
            }
            before = self.ends[first];
        }
    }

    /// Keeps the run of parts from `first` to `last` as the best window if it is. `sums` are those
    /// of the run.
    fn consider(&mut self, first: usize, last: usize, sums: Sums) {
        let granule_bytes = self.wanted.granule_bytes;
        let mut spare_bytes = (sums.all - self.wanted.bytes) / granule_bytes * granule_bytes;
        let mut cut = |part: &Part| {
            let is_bare = part.kind == Kind::Bare;
            let cut_bytes = if is_bare { spare_bytes.min(part.bytes) } else { 0 };
            spare_bytes -= cut_bytes;
            cut_bytes
        };
        let end_cut_bytes = cut(&self.chain[last]);
        let start_cut_bytes = if first < last { cut(&self.chain[first]) } else { 0 };
        let bare_bytes = sums.bare - end_cut_bytes - start_cut_bytes;
        let cost = match bare_bytes {
            0 if OldestFirst.is_in() => NOTHING,
            _ => {
                let rest_bytes = sums.all - self.wanted.bytes - end_cut_bytes - start_cut_bytes;
                (BARE_COST * bare_bytes + sums.shadow, rest_bytes)
            }
        };
        if cost >= self.least_cost {
            return;
        }
        let last_room_bytes = self.chain[last].bytes;
        let parts = self.chain[first..=last].to_vec();
        let mut window = Window { parts, bare_bytes, last_room_bytes };
        let ends = window.parts.len() - 1;
        window.parts[ends].bytes -= end_cut_bytes;
        window.parts[0].address += start_cut_bytes;
        window.parts[0].bytes -= start_cut_bytes;
        window.parts.retain(|part| part.bytes > 0);
        if self.has_bytes_once(&window) {
            self.least_cost = cost;
            self.best = Some(window);
        }
    }

    /// Returns true if no extent of the window lies in the window already, and none is in it twice.
    fn has_bytes_once(&self, window: &Window) -> bool {
        let mut found: Vec<usize> = window.shadows().map(|(index, _)| index).collect();
        found.sort_unstable();
        found.windows(2).all(|pair| pair[0] != pair[1])
            && found.iter().all(|&index| !window.contains(self.wanted.found.free[index].address))
    }
}
