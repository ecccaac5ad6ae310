//! What the lanes of a device hold, as a plan keeps it (`heap::plan`).
//!
//! **Spare views.** A run that began without a plan may end before it has found its layout. The next
//! one then needs windows that this one never took. So in lanes whose memory moves much (those with
//! first fit) each extent for large blocks gets one view more, behind all others: a window there needs
//! no call. Windows at lower addresses win, so a program that has found its layout never comes there.
//! In the row of spare views, extents that never moved come first. Of the orders tried this one left
//! the fewest calls: of the recorded programs' second runs, none in the first step.

use std::cmp::Reverse;
use std::ops::Range;

use super::super::lane::{Lane, LaneState};
use super::super::plan::{ExtentPlan, LanePlan, MOST_PARTS, ViewPlan};
use super::super::state::Extents;
use crate::base::size::SizeClass;
use crate::memory::{Extent, NO_SLOT};

/// A lane as it was when it was read.
struct Seen {
    lane: u32,
    areas: Vec<Area>,
    /// Where its free blocks lie, in the order of their lists.
    free: Vec<Range<u64>>,
    /// Its next request brings its extents to their origins.
    is_at_trough: bool,
    plan: LanePlan,
}

/// One area.
pub(super) struct Area {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) class: SizeClass,
}

impl Extents {
    /// What the lanes hold, as [`Self::make_ready`] takes it; with spare views if the run is the first.
    pub(in super::super) fn plan(
        &self,
        lanes: &[&Lane],
        is_first: bool,
    ) -> (Vec<LanePlan>, Vec<ExtentPlan>) {
        let mut seen: Vec<Seen> = lanes.iter().map(|lane| see(lane)).collect();
        let mut extents: Vec<(Option<usize>, ExtentPlan)> = {
            let table = self.store.extents();
            table.iter().filter_map(|(_, extent)| planned(&seen, extent)).collect()
        };
        // The first in a list of free blocks is the one that was freed last.
        extents.sort_by_key(|&(place, _)| (place.is_some(), Reverse(place)));
        let mut extents: Vec<ExtentPlan> = extents.into_iter().map(|(_, extent)| extent).collect();
        for extent in &extents {
            for view in &extent.views {
                let used_bytes = &mut seen[view.lane].plan.areas[view.area].1;
                *used_bytes = (*used_bytes).max(view.offset_bytes + extent.bytes);
            }
        }
        if is_first {
            let moving = seen.iter_mut().enumerate().filter(|(_, seen)| seen.plan.has_first_fit);
            moving.for_each(|(lane, seen)| add_spare_views(&mut extents, lane, seen));
        }
        (seen.into_iter().map(|seen| seen.plan).collect(), extents)
    }
}

/// The plan of an extent that lies in one of the lanes, and the place of the free block around it.
fn planned(seen: &[Seen], extent: &Extent) -> Option<(Option<usize>, ExtentPlan)> {
    let view = |(lane, address): (u32, u64)| {
        let lane = seen.iter().position(|seen| seen.lane == lane)?;
        let is_around = |area: &Area| (area.address..area.address + area.bytes).contains(&address);
        let area = seen[lane].areas.iter().position(is_around)?;
        Some(ViewPlan { lane, area, offset_bytes: address - seen[lane].areas[area].address })
    };
    let home = extent.home?;
    let here = view((home.lane, home.address))?;
    let origin = extent.origin.and_then(view).unwrap_or(here);
    let shadows = extent.shadows.iter().filter_map(|shadow| view((shadow.lane, shadow.address)));
    let others = shadows.chain([here]).filter(|&view| view != origin);
    let views: Vec<ViewPlan> = [origin].into_iter().chain(others).collect();
    let is_here = |view: &ViewPlan| *view == here && !seen[here.lane].is_at_trough;
    let home_view = views.iter().position(is_here).unwrap_or(0);
    let place = seen[here.lane].free.iter().position(|range| range.contains(&home.address));
    Some((place, ExtentPlan { bytes: extent.bytes, views, home_view }))
}

/// Adds a spare view of each of the lane's extents for large blocks, as far as there are addresses.
fn add_spare_views(extents: &mut [ExtentPlan], lane: usize, seen: &mut Seen) {
    let is_large = |area: &Area| area.class == SizeClass::Large;
    let Some(last) = seen.areas.iter().rposition(is_large) else { return };
    let is_of_lane = |extent: &&mut ExtentPlan| {
        let origin = extent.views[0];
        origin.lane == lane && is_large(&seen.areas[origin.area]) && extent.views.len() < MOST_PARTS
    };
    let mut of_lane: Vec<&mut ExtentPlan> = extents.iter_mut().filter(is_of_lane).collect();
    of_lane.sort_by_key(|extent| {
        let origin = extent.views[0];
        (extent.views.len() > 1, origin.area, origin.offset_bytes)
    });
    let (room_bytes, used_bytes) = (seen.areas[last].bytes, &mut seen.plan.areas[last].1);
    for extent in of_lane {
        let offset_bytes = *used_bytes;
        if offset_bytes + extent.bytes > room_bytes {
            break;
        }
        extent.views.push(ViewPlan { lane, area: last, offset_bytes });
        *used_bytes += extent.bytes;
    }
}

fn see(lane: &Lane) -> Seen {
    let state = lane.lock();
    let areas: Vec<Area> = state.areas().collect();
    let mut free = Vec::new();
    state.strategy.visit(&state.blocks, &(0..=u64::MAX), &mut |_, block| {
        free.push(block.address..block.address + block.bytes);
    });
    let plan = LanePlan {
        has_first_fit: state.strategy.has_first_fit(),
        levels: state.trough.levels(),
        areas: areas.iter().map(|area| (area.class, 0)).collect(),
        segments: Vec::new(),
    };
    Seen { lane: lane.index, areas, free, is_at_trough: state.trough.is_reached(), plan }
}

impl LaneState {
    /// The areas, in the order in which they were added.
    pub(super) fn areas(&self) -> impl Iterator<Item = Area> + '_ {
        self.areas.iter().map(|&head| {
            let first = self.blocks.get(head);
            let next = |slot| (slot != NO_SLOT).then(|| self.blocks.get(slot));
            let blocks = std::iter::successors(Some(first), |block| next(block.after));
            let bytes = blocks.map(|block| block.bytes).sum();
            Area { address: first.address, bytes, class: first.class }
        })
    }
}
