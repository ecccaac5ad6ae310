//! What the lanes of a device hold, as a plan keeps it (`heap::plan`).

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::super::lane::{Lane, LaneState};
use super::super::plan::{DevicePlan, ExtentPlan, LanePlan, ViewPlan};
use super::super::state::Extents;
use crate::base::size::SizeClass;
use crate::config::ElasticPolicy;
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
    /// Makes extents as small as they can be, before there are any, as `ElasticPolicy::Fine`. Returns
    /// true if they were to be larger.
    pub(in super::super) fn make_finer(&mut self) -> bool {
        self.is_finer = self.policy == ElasticPolicy::Balanced;
        if self.is_finer {
            self.policy = ElasticPolicy::Fine;
        }
        self.is_finer
    }

    /// `plan`, or without extents if those were too coarse: the next run makes finer ones.
    pub(in super::super) fn judged(&self, plan: DevicePlan) -> DevicePlan {
        let is_coarse = plan.extents.iter().any(|extent| extent.bytes > self.granule_bytes());
        let is_policy_coarse = self.policy == ElasticPolicy::Balanced && is_coarse;
        if is_policy_coarse && self.was_in_pieces.load(Relaxed) {
            DevicePlan { extents: Vec::new(), needs_finer: true, ..plan }
        } else {
            DevicePlan { needs_finer: self.is_finer, ..plan }
        }
    }

    /// What the lanes hold, as [`Self::make_ready`] takes it.
    pub(in super::super) fn plan(&self, lanes: &[&Lane]) -> (Vec<LanePlan>, Vec<ExtentPlan>) {
        let mut seen: Vec<Seen> = lanes.iter().map(|lane| see(lane)).collect();
        let mut extents: Vec<(Option<usize>, ExtentPlan)> = {
            let table = self.store.extents();
            table.iter().filter_map(|(_, extent)| planned(&seen, extent)).collect()
        };
        // The first in a list of free blocks is the one that was freed last.
        extents.sort_by_key(|&(place, _)| (place.is_some(), Reverse(place)));
        let extents: Vec<ExtentPlan> = extents.into_iter().map(|(_, extent)| extent).collect();
        for extent in &extents {
            for view in &extent.views {
                let used_bytes = &mut seen[view.lane].plan.areas[view.area].1;
                *used_bytes = (*used_bytes).max(view.offset_bytes + extent.bytes);
            }
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

fn see(lane: &Lane) -> Seen {
    let state = lane.lock();
    let areas: Vec<Area> = state.areas().collect();
    let mut free = Vec::new();
    state.strategy.visit(&state.blocks, &(0..=u64::MAX), &mut |_, block| {
        free.push(block.address..block.address + block.bytes);
    });
    let plan = LanePlan {
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
