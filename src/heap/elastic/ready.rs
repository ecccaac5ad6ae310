//! Extents made ready before they are asked for: those of a plan where they lay, and mapped
//! wherever they were mapped.
//!
//! A run that has found its layout needs no more calls, because each window that it takes is made of
//! views that it remembers. So the next run gets the extents *and* the views. First all extents are
//! laid as they were created. Then each is moved to its other views, one after the other, and back to
//! where the run had left it. Last, free blocks are put into the order in which they were freed.
//! All of this is what growing, gathering and recalling do anyway (`super::gather`). An extent belongs
//! to one thread while it is moved, and one that the program uses already is left where it is.
//!
//! Where an address is taken meanwhile, an extent is made elsewhere in its lane.

use super::super::lane::{Lane, LaneState};
use super::super::plan::{ExtentPlan, ViewPlan};
use super::super::ready::Making;
use super::super::state::{Climb, Extents};
use super::Outcome;
use super::addresses::no_addresses;
use super::area::Shadow;
use super::gather::FreeExtent;
use super::household::Reach;
use crate::base::Result;
use crate::base::size::{ALIGNMENT_BYTES, SMALL_BLOCK_LIMIT_BYTES, SizeClass};
use crate::memory::{ExtentId, NO_SLOT, Refusal, State};

/// So many extents are laid at once: what is ready can be used before the next are.
const MOST_LAID: usize = 16;

/// Where the areas of a plan are now: by lane, by area; `None`: there are no addresses.
struct Places(Vec<Vec<Option<u64>>>);

/// An extent of a plan, and which one it is now.
type Made<'a> = (&'a ExtentPlan, ExtentId);

impl Places {
    fn address(&self, view: &ViewPlan) -> Option<u64> {
        let area = *self.0.get(view.lane)?.get(view.area)?;
        area?.checked_add(view.offset_bytes)
    }
}

impl Extents {
    /// Makes the extents of a plan.
    pub(in super::super) fn make_ready(&self, making: Making<'_>) -> Result<()> {
        let numbers = 0..making.plan.lanes.len();
        let areas = numbers.clone().map(|number| self.areas_for(making, number));
        let places = Places(areas.collect::<Result<_>>()?);
        let mut made = Vec::new();
        let laid = self.lay_all(making, &places, &mut made);
        for (extent, id) in &made {
            for view in &extent.views[1..] {
                self.remember(making, *id, (view, places.address(view)))?;
            }
        }
        for number in numbers {
            self.bring_home(making, &places, &made, number);
        }
        made.iter().for_each(|&(_, id)| self.refresh(making, id));
        laid
    }

    /// Takes `climb.block_bytes` from the driver, as free memory of its lane; returns true if it did.
    pub(in super::super) fn preallocate(&self, climb: &Climb<'_>) -> Result<bool> {
        let bytes = self.charged_bytes(climb.block_bytes);
        let sizes: Vec<u64> = self.growth(climb, Reach::Device).extents(bytes).collect();
        Ok(self.lay(climb, &[], &sizes, None)? == Outcome::More)
    }

    /// The addresses of the areas of a lane, reserved if necessary. The lane takes over what was
    /// learned of its program.
    fn areas_for(&self, making: Making<'_>, number: usize) -> Result<Vec<Option<u64>>> {
        let (plan, Some(lane)) = (&making.plan.lanes[number], making.lane(number)) else {
            return Ok(Vec::new());
        };
        lane.lock().trough.expect(plan.levels);
        let mut counts = [0; 2];
        let area = |&(class, bytes): &(SizeClass, u64)| {
            let before = counts[class.index()];
            counts[class.index()] += 1;
            self.area_for(making, lane, class, (before, bytes))
        };
        plan.areas.iter().map(area).collect()
    }

    /// The address of the lane's area for `class` after `before` others, if it has at least `bytes`.
    fn area_for(
        &self,
        making: Making<'_>,
        lane: &Lane,
        class: SizeClass,
        (before, bytes): (usize, u64),
    ) -> Result<Option<u64>> {
        let find = || lane.lock().areas().filter(|area| area.class == class).nth(before);
        let mut area = find();
        if area.is_none() {
            let add = |climb: &Climb<'_>| self.make_bare_addresses(climb, bytes);
            let added = making.device.climbing(lane, bytes_of(class), add);
            if let Err(Refusal::AddressSpace(error)) = added {
                return Err(no_addresses(making.device, bytes, error));
            }
            area = find();
        }
        Ok(area.filter(|area| area.bytes >= bytes).map(|area| area.address))
    }

    /// Creates the extents of the plan where they were created, as far as there is memory, and adds
    /// them to `made`.
    fn lay_all<'a>(
        &self,
        making: Making<'a>,
        places: &Places,
        made: &mut Vec<Made<'a>>,
    ) -> Result<()> {
        let mut wanted: Vec<(ViewPlan, &ExtentPlan)> =
            making.plan.extents.iter().map(|extent| (extent.views[0], extent)).collect();
        wanted.sort_by_key(|(view, _)| (view.lane, view.area, view.offset_bytes));
        let are_adjacent = |one: &(ViewPlan, &ExtentPlan), next: &(ViewPlan, &ExtentPlan)| {
            ViewPlan { offset_bytes: one.0.offset_bytes + one.1.bytes, ..one.0 } == next.0
        };
        for run in wanted.chunk_by(are_adjacent) {
            for group in run.chunks(MOST_LAID) {
                if !self.lay_group(making, places, group, made)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Creates extents side by side. Returns false once there is no more memory, or it is not wanted.
    fn lay_group<'a>(
        &self,
        making: Making<'a>,
        places: &Places,
        group: &[(ViewPlan, &'a ExtentPlan)],
        made: &mut Vec<Made<'a>>,
    ) -> Result<bool> {
        let first = group[0].0;
        let (lane, start) = (making.lane(first.lane), places.address(&first));
        let (Some(lane), Some(start)) = (lane, start) else { return Ok(true) };
        let sizes: Vec<u64> = group.iter().map(|(_, extent)| extent.bytes).collect();
        if !making.wants(sizes.iter().sum()) {
            return Ok(false);
        }
        let bytes = bytes_of(making.plan.lanes[first.lane].areas[first.area].0);
        let lay = |climb: &Climb<'_>| self.lay(climb, &[], &sizes, Some(start));
        if making.device.climbing(lane, bytes, lay)? == Outcome::Short {
            return Ok(false);
        }
        let table = self.store.extents();
        for &(view, extent) in group {
            let id = places.address(&view).and_then(|address| table.at(address));
            let is_as_wanted = |id: &ExtentId| {
                // The program may have moved one of the others here.
                let is_known = made.iter().any(|(_, known)| known == id);
                !is_known && table.get(*id).is_some_and(|made| made.bytes == extent.bytes)
            };
            made.extend(id.filter(is_as_wanted).map(|id| (extent, id)));
        }
        Ok(true)
    }

    /// Moves an extent that is wholly free to a view's address, if nothing is there; where it was it
    /// stays mapped.
    fn remember(
        &self,
        making: Making<'_>,
        id: ExtentId,
        (view, address): (&ViewPlan, Option<u64>),
    ) -> Result<()> {
        let (lane, free) = (making.lane(view.lane), self.free_extent(id));
        let (Some(lane), Some(free), Some(address)) = (lane, free, address) else { return Ok(()) };
        let class = making.plan.lanes[view.lane].areas[view.area].0;
        if !making.goes_on() || !lane.lock().is_bare(address, free.bytes) {
            return Ok(());
        }
        making.device.climbing(lane, bytes_of(class), |climb| {
            // Or the program uses it now.
            match &self.take(climb, vec![free]).moved[..] {
                [] => Ok(()),
                moved => self.lay(climb, moved, &[], Some(address)).map(drop),
            }
        })
    }

    /// Brings the extents whose home was in the lane of that number back there.
    fn bring_home(&self, making: Making<'_>, places: &Places, made: &[Made<'_>], number: usize) {
        let Some(lane) = making.lane(number) else { return };
        let homes = made.iter().filter_map(|&(extent, id)| {
            let home = &extent.views[extent.home_view];
            let (free, address) = (self.free_extent(id)?, places.address(home)?);
            let is_away = (free.lane, free.address) != (lane.index, address);
            let to = Some(Shadow { address, slot: NO_SLOT });
            let coming_home = FreeExtent { to, ..free };
            (home.lane == number && is_away).then_some(coming_home)
        });
        let homes: Vec<FreeExtent> = homes.collect();
        making.device.climbing(lane, ALIGNMENT_BYTES, |climb| self.recall(climb, homes));
    }

    /// Makes the free block around the extent the one that was freed last.
    fn refresh(&self, making: Making<'_>, id: ExtentId) {
        let Some(free) = self.free_extent(id) else { return };
        let Some(lane) = making.device.heap.lanes.get(free.lane) else { return };
        let state = &mut *lane.lock();
        if let Some(slot) = state.free_block_around(free.address, free.bytes, NO_SLOT) {
            state.strategy.withdraw(&mut state.blocks, slot);
            state.strategy.give(&mut state.blocks, slot);
        }
    }

    /// The extent, if it has a home; whether that is free is seen when it is taken.
    fn free_extent(&self, id: ExtentId) -> Option<FreeExtent> {
        let extents = self.store.extents();
        let extent = extents.get(id)?;
        let home = extent.home?;
        let (bytes, lane, address) = (extent.bytes, home.lane, home.address);
        Some(FreeExtent { id, bytes, lane, address, slot: NO_SLOT, to: None })
    }
}

impl LaneState {
    /// Returns true if `[address, address + bytes)` is bare.
    fn is_bare(&self, address: u64, bytes: u64) -> bool {
        self.blocks.iter().any(|(_, block)| {
            block.state == State::Unmapped
                && block.address <= address
                && address + bytes <= block.address + block.bytes
        })
    }
}

/// The size of a request of `class`.
fn bytes_of(class: SizeClass) -> u64 {
    match class {
        SizeClass::Small => ALIGNMENT_BYTES,
        SizeClass::Large => SMALL_BLOCK_LIMIT_BYTES + ALIGNMENT_BYTES,
    }
}
