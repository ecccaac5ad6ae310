//! The table of one device's physical memory, in extents, and of the addresses of each.
//!
//! An *extent* is one handle of the driver (`cuMemCreate`): a multiple of the granularity, mapped
//! whole or not at all. A *view* is one mapping of it. An extent may have several views in
//! several lanes, but its blocks lie in at most one of them, its *home*; only an edge of it may be used
//! through another ([`loans`]). The others are its
//! *shadows*; the block at each is [`State::Shadow`](super::State). To change the home of an
//! extent is bookkeeping; the driver is called only for a view that does not exist yet. So memory
//! moves between addresses without a wait: a view left behind is used again, or unmapped later,
//! when the work queued through it is known to be complete.
//!
//! ```text
//! views[v.address] = extent                  for every view v of every extent
//! home ∈ views of the extent, or none        none: on its way, resting, or set aside
//! a shadow with number 0 (never left) is not accessible and becomes no home, unless its extent
//!     is set aside: then it is where the home of the paused blocks was or will be
//! no two views overlap
//! a resting or set-aside extent has no home;   shadow_count = the shadows of all extents
//! left_bytes[c] = Σ bytes of the shadows that blocks of class c have left
//! resting_bytes = Σ bytes of the resting extents
//! ```
//!
//! *Resting*: kept without a home for the next need. *Set aside*: used by a pause or a resume.
//! The table never calls the driver. It is used under one lock of the device, on slow paths only.

mod left;
mod loans;

pub use loans::{Edge, Lending, Loan};

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::communication::Communication;
use super::strays::{LanesAstray, Strays};
use crate::base::size::SizeClass;
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::driver::MemoryHandle;
use crate::observe::{Action, DeviceEvents};

/// Index of an extent.
pub type ExtentId = u32;

/// One mapping of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The lane whose area the address lies in.
    pub lane: u32,
    /// First byte.
    pub address: u64,
    /// The epoch of the lane (the number of its fence) when blocks last lay here; 0: never.
    pub left_epoch: u32,
    /// The class of the blocks that lie or lay here.
    pub class: SizeClass,
    /// Its place in the order in which views were left; 0: never left.
    number: u64,
}

impl View {
    /// `bytes` if blocks have left the view, 0 if none ever lay here.
    fn left_bytes(&self, bytes: u64) -> u64 {
        if self.number == 0 { 0 } else { bytes }
    }
}

/// One handle of the driver. Neighbours in the table may be of other threads' lanes.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Extent {
    /// The driver's handle.
    pub handle: MemoryHandle,
    /// Size in bytes.
    pub bytes: u64,
    /// The size class of its blocks.
    pub class: SizeClass,
    /// How it was made, if others reach it by its address.
    pub communication: Option<Arc<Communication>>,
    /// Whether its view is registered.
    is_registered: bool,
    /// The view in which its blocks lie.
    pub home: Option<View>,
    /// Its other views.
    pub shadows: Vec<View>,
    /// Whether it has one more view, where an edge of it is used.
    pub lending: Lending,
    /// How many views the driver is unmapping at the moment; it may still refuse.
    leaving: u32,
    /// Where it comes home to, the lane and the address, while it is mapped there: mostly its first home.
    pub origin: Option<(u32, u64)>,
    /// Whether it belongs to a pause or resume of the blocks that lay in it.
    pub is_set_aside: bool,
}

impl Extent {
    /// All its views.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        let lent = self.lending.loan().map(|loan| &loan.view);
        self.shadows.iter().chain(&self.home).chain(lent)
    }

    /// The lane of its origin, if its home is elsewhere.
    fn astray_from(&self) -> Option<u32> {
        let (home, origin) = (self.home?, self.origin?);
        ((home.lane, home.address) != origin).then_some(origin.0)
    }
}

/// The extents of one device.
#[derive(Debug)]
pub struct ExtentTable {
    events: DeviceEvents,
    /// `None`: the index can be used again.
    table: Vec<Option<Extent>>,
    unused: Vec<ExtentId>,
    views: BTreeMap<u64, ExtentId>,
    /// Extents without a home, kept for the next need.
    resting: Vec<ExtentId>,
    /// Their sum, which statistics read without the lock.
    resting_bytes: Arc<AtomicU64>,
    /// What is to come of the present round of each class ([`left`]): numbers of views, the oldest last.
    rounds: [Vec<(u64, ExtentId)>; 2],
    /// The sum of the shadows that blocks of each class have left, in bytes.
    left_bytes: [u64; 2],
    last_number: u64,
    shadow_count: usize,
    strays: Strays,
    /// The extents that have a loan.
    lent: Vec<ExtentId>,
    count: usize,
}

impl ExtentTable {
    /// An empty table. Homes that are gained or left are reported to `events`.
    pub fn new(events: DeviceEvents) -> Self {
        Self {
            events,
            table: Vec::new(),
            unused: Vec::new(),
            views: BTreeMap::new(),
            resting: Vec::new(),
            resting_bytes: Arc::default(),
            rounds: [Vec::new(), Vec::new()],
            left_bytes: [0; 2],
            last_number: 0,
            shadow_count: 0,
            strays: Strays::default(),
            lent: Vec::new(),
            count: 0,
        }
    }

    /// How many extents there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All ids are below this.
    pub fn end_id(&self) -> ExtentId {
        self.table.len() as ExtentId
    }

    /// How many shadows there are.
    pub fn shadow_count(&self) -> usize {
        self.shadow_count
    }

    /// The extent `id`.
    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.table.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: ExtentId) -> Option<&mut Extent> {
        self.table.get_mut(id as usize)?.as_mut()
    }

    /// Adds a new extent, which has no view.
    pub fn add(
        &mut self,
        handle: MemoryHandle,
        (bytes, class): (u64, SizeClass),
        communication: Option<Arc<Communication>>,
    ) -> ExtentId {
        let extent = Extent {
            handle,
            bytes,
            class,
            communication,
            is_registered: false,
            home: None,
            shadows: Vec::new(),
            lending: Lending::No,
            leaving: 0,
            origin: None,
            is_set_aside: false,
        };
        self.count += 1;
        match self.unused.pop() {
            Some(id) => {
                self.table[id as usize] = Some(extent);
                id
            }
            None => {
                self.table.push(Some(extent));
                self.table.len() as ExtentId - 1
            }
        }
    }

    /// Sets whether the extent's only view is registered; returns with whom, if it was before.
    pub fn set_registered(
        &mut self,
        id: ExtentId,
        is_registered: bool,
    ) -> Option<Arc<Communication>> {
        let extent = self.get_mut(id)?;
        let was_registered = std::mem::replace(&mut extent.is_registered, is_registered);
        extent.communication.clone().filter(|_| was_registered)
    }

    /// Returns true if the extent is mapped anywhere, or may be again: a view that another thread
    /// is unmapping returns if the driver refuses, so until then the extent must stay.
    pub fn has_views(&self, id: ExtentId) -> bool {
        self.get(id).is_some_and(|extent| {
            extent.home.is_some() || !extent.shadows.is_empty() || extent.leaving > 0
        })
    }

    /// Forgets an extent that has no view.
    pub fn remove(&mut self, id: ExtentId) {
        debug_assert!(!self.has_views(id), "extent {id}");
        if self.table.get_mut(id as usize).and_then(Option::take).is_some() {
            self.count -= 1;
            self.unused.push(id);
        }
    }

    /// The views that lie wholly within `range`, by address, with their extents.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, ExtentId)> + '_ {
        let end = range.end;
        self.views.range(range).map(|(&address, &id)| (address, id)).filter(
            move |&(address, id)| self.get(id).is_some_and(|extent| address + extent.bytes <= end),
        )
    }

    /// The views that lie at least partly within `range`, by address, with their extents.
    pub fn touching(&self, range: Range<u64>) -> Vec<(u64, ExtentId)> {
        let first = self.views.range(..=range.start).next_back();
        let start = first.map_or(range.start, |(&address, _)| address);
        let views = self.views.range(start..range.end).map(|(&address, &id)| (address, id));
        let ends_within = |&(address, id): &(u64, ExtentId)| {
            self.get(id).is_some_and(|extent| address + extent.bytes > range.start)
        };
        views.filter(ends_within).collect()
    }

    /// The extent mapped at `address`, which is the view's first byte.
    pub fn at(&self, address: u64) -> Option<ExtentId> {
        self.views.get(&address).copied()
    }

    /// Adds a new view of the extent, which is a shadow until it is made the home.
    pub fn add_view(&mut self, id: ExtentId, lane: u32, address: u64) {
        let Some(extent) = self.get_mut(id) else { return };
        let class = extent.class;
        extent.shadows.push(View { lane, address, left_epoch: 0, class, number: 0 });
        self.shadow_count += 1;
        self.views.insert(address, id);
    }

    /// Removes a shadow that is about to be unmapped; [`Self::forget_view`] or
    /// [`Self::put_back_view`] must follow.
    pub fn remove_view(&mut self, id: ExtentId, address: u64) -> Option<View> {
        let extent = self.get_mut(id)?;
        let position = extent.shadows.iter().position(|view| view.address == address)?;
        let view = extent.shadows.swap_remove(position);
        let was_astray = extent.astray_from();
        extent.leaving += 1;
        extent.origin = extent.origin.filter(|origin| origin.1 != address);
        let (bytes, is_astray) = (extent.bytes, extent.astray_from());
        self.strays.change(id, was_astray, is_astray);
        self.left_bytes[view.class.index()] -= view.left_bytes(bytes);
        self.shadow_count -= 1;
        self.views.remove(&address);
        Some(view)
    }

    /// The driver has unmapped the view removed by [`Self::remove_view`].
    pub fn forget_view(&mut self, id: ExtentId) {
        if let Some(extent) = self.get_mut(id) {
            extent.leaving -= 1;
        }
    }

    /// Undoes [`Self::remove_view`]: the driver has refused to unmap the view.
    pub fn put_back_view(&mut self, id: ExtentId, view: View) {
        let Some(extent) = self.get_mut(id) else { return };
        extent.leaving -= 1;
        extent.shadows.push(view);
        let bytes = extent.bytes;
        self.left_bytes[view.class.index()] += view.left_bytes(bytes);
        self.shadow_count += 1;
        self.views.insert(view.address, id);
    }

    /// The extent loses its home and belongs to the caller alone, until it comes home or rests.
    /// It stays mapped where its home was.
    pub fn set_aside(&mut self, id: ExtentId) {
        let Some(extent) = self.get_mut(id) else { return };
        extent.is_set_aside = true;
        debug_assert_eq!(extent.lending, Lending::No, "extent {id}");
        let was_astray = extent.astray_from();
        if let Some(home) = extent.home.take() {
            extent.shadows.push(View { left_epoch: 0, number: 0, ..home });
            let bytes = extent.bytes;
            self.strays.change(id, was_astray, None);
            self.shadow_count += 1;
            self.events.note(Action::Unmap, home.address, bytes);
        }
    }

    /// The home becomes a shadow, left in `epoch` of its lane.
    pub fn leave_home(&mut self, id: ExtentId, epoch: u32) {
        let Some(extent) = self.get_mut(id) else { return };
        debug_assert_eq!(extent.lending, Lending::No, "extent {id}");
        let was_astray = extent.astray_from();
        let Some(home) = extent.home.take() else { return };
        let bytes = extent.bytes;
        self.strays.change(id, was_astray, None);
        self.events.note(Action::Unmap, home.address, bytes);
        self.add_left(id, home, epoch);
    }

    /// The shadow at `address` becomes the home of an extent that has none, for blocks of
    /// `class`; returns its class before.
    pub fn come_home(&mut self, id: ExtentId, address: u64, class: SizeClass) -> SizeClass {
        let Some(extent) = self.get_mut(id) else { return class };
        debug_assert!(extent.home.is_none());
        extent.is_set_aside = false;
        let position = extent.shadows.iter().position(|view| view.address == address);
        let view = position.map(|position| extent.shadows.swap_remove(position));
        extent.home = view.map(|view| View { class, ..view });
        extent.origin = extent.origin.or(extent.home.map(|home| (home.lane, home.address)));
        let before = std::mem::replace(&mut extent.class, class);
        let (bytes, is_astray) = (extent.bytes, extent.astray_from());
        self.strays.change(id, None, is_astray);
        self.shadow_count -= 1;
        if let Some(view) = view {
            self.left_bytes[view.class.index()] -= view.left_bytes(bytes);
        }
        self.events.note(Action::Map, address, bytes);
        before
    }

    /// The home moves to the shadow at `address`, for blocks of `class`, and the former one becomes a shadow,
    /// left in `epoch` of its lane: [`Self::leave_home`] and [`Self::come_home`] in one. Returns its class
    /// before; `None`, and nothing changes, if the extent has no home or no such shadow.
    pub fn change_home(
        &mut self,
        id: ExtentId,
        address: u64,
        class: SizeClass,
        epoch: u32,
    ) -> Option<SizeClass> {
        let home = self.get(id)?.home?;
        let left = self.left(home, epoch);
        let extent = self.get_mut(id)?;
        debug_assert_eq!(extent.lending, Lending::No, "extent {id}");
        let was_astray = extent.astray_from();
        let shadow = extent.shadows.iter_mut().find(|view| view.address == address)?;
        let view = std::mem::replace(shadow, left);
        extent.home = Some(View { class, ..view });
        extent.origin = extent.origin.or(Some((view.lane, view.address)));
        let before = std::mem::replace(&mut extent.class, class);
        let (bytes, is_astray) = (extent.bytes, extent.astray_from());
        self.left_bytes[home.class.index()] += bytes;
        self.left_bytes[view.class.index()] -= view.left_bytes(bytes);
        self.strays.change(id, was_astray, is_astray);
        self.events.note(Action::Unmap, home.address, bytes);
        self.events.note(Action::Map, address, bytes);
        Some(before)
    }

    /// The extent's home becomes its origin.
    pub fn make_home_origin(&mut self, id: ExtentId) {
        let Some(extent) = self.get_mut(id) else { return };
        let was_astray = extent.astray_from();
        extent.origin = extent.home.map(|home| (home.lane, home.address)).or(extent.origin);
        let is_astray = extent.astray_from();
        self.strays.change(id, was_astray, is_astray);
    }

    /// Keeps an extent that has no home for the next need.
    pub fn rest(&mut self, id: ExtentId) {
        self.resting.push(id);
        if let Some(extent) = self.get_mut(id) {
            extent.is_set_aside = false;
            let bytes = extent.bytes;
            self.resting_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// The resting extents.
    pub fn resting(&self) -> &[ExtentId] {
        &self.resting
    }

    /// Their sum in bytes, which any thread may read at any time.
    pub fn resting_bytes(&self) -> &Arc<AtomicU64> {
        &self.resting_bytes
    }

    /// The sum of all extents that rest or are set aside, in bytes.
    pub fn homeless_bytes(&self) -> u64 {
        let resting = self.resting.iter().filter_map(|&id| self.get(id));
        let aside = self.iter().map(|(_, extent)| extent).filter(|extent| extent.is_set_aside);
        resting.chain(aside).map(|extent| extent.bytes).sum()
    }

    /// Removes an extent from the resting ones; returns true if it was one of them.
    pub fn wake(&mut self, id: ExtentId) -> bool {
        let position = self.resting.iter().position(|&resting| resting == id);
        let Some(position) = position else { return false };
        self.resting.swap_remove(position);
        let bytes = self.get(id).map_or(0, |extent| extent.bytes);
        self.resting_bytes.fetch_sub(bytes, Relaxed);
        true
    }

    /// The lanes that have [`Self::strays`].
    pub fn lanes_astray(&self) -> &Arc<LanesAstray> {
        self.strays.lanes()
    }

    /// The extents whose origin is in `lane` and whose home is elsewhere.
    pub fn strays(&self, lane: u32) -> impl Iterator<Item = (ExtentId, &Extent)> {
        self.strays.of(lane).iter().filter_map(|&id| Some((id, self.get(id)?)))
    }

    /// All extents with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, &Extent)> {
        (0..).zip(&self.table).filter_map(|(id, extent)| Some((id, extent.as_ref()?)))
    }

    /// Checks every invariant of the module's note; the error names the one that is broken.
    pub fn validate(&self) -> Result<(), String> {
        let mut views = 0;
        let mut shadow_count = 0;
        let mut left_bytes = [0; 2];
        for (id, extent) in self.iter() {
            for view in &extent.shadows {
                left_bytes[view.class.index()] += view.left_bytes(extent.bytes);
            }
            for view in extent.views() {
                views += 1;
                if self.at(view.address) != Some(id) {
                    return Err(format!("extent {id} is not found at {:#x}", view.address));
                }
            }
            shadow_count += extent.shadows.len();
            let places = [extent.home.is_some(), self.resting.contains(&id), extent.is_set_aside];
            if places.into_iter().filter(|&is_there| is_there).count() != 1 {
                return Err(format!("extent {id}: home, rest and aside are {places:?}"));
            }
        }
        let mut end = 0;
        for (&address, &id) in &self.views {
            if address < end {
                return Err(format!("the view at {address:#x} overlaps the one before"));
            }
            end = address + self.get(id).map_or(0, |extent| extent.bytes);
        }
        if views != self.views.len() || shadow_count != self.shadow_count {
            return Err(format!(
                "{views} views, {shadow_count} shadows counted; {} and {} recorded",
                self.views.len(),
                self.shadow_count
            ));
        }
        if left_bytes != self.left_bytes {
            return Err(format!("{left_bytes:?} bytes left, {:?} recorded", self.left_bytes));
        }
        let resting = self.resting.iter().filter_map(|&id| self.get(id));
        let resting_bytes: u64 = resting.map(|extent| extent.bytes).sum();
        if resting_bytes != self.resting_bytes.load(Relaxed) {
            return Err(format!("{resting_bytes} bytes rest, {:?} recorded", self.resting_bytes));
        }
        if self.iter().count() != self.count {
            return Err(format!("{} extents recorded", self.count));
        }
        self.validate_loans()?;
        let astray = |(id, extent): (ExtentId, &Extent)| Some((extent.astray_from()?, id));
        self.strays.validate(self.iter().filter_map(astray))
    }
}

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
