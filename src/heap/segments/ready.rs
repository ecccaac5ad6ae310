//! Segments made ready before they are asked for.

use super::super::lane::Lane;
use super::super::plan::LanePlan;
use super::super::pool_memory::Segments;
use super::super::ready::Making;
use super::super::state::Climb;
use crate::base::size::{MIB, SizeClass};
use crate::base::{Result, StreamHandle, blocking};
use crate::memory::{Block, NO_SLOT, Refusal};

impl Segments {
    /// What the lanes hold, as [`Self::make_ready`] takes it.
    pub(in super::super) fn plan(&self, lanes: &[&Lane]) -> Vec<LanePlan> {
        let plan = |lane: &&Lane| {
            let state = lane.lock();
            let next = |slot| (slot != NO_SLOT).then(|| state.blocks.get(slot));
            let heads = state.blocks.iter().map(|(_, block)| block);
            let heads = heads.filter(|block| block.before == NO_SLOT && block.state.is_backed());
            let mut segments: Vec<(u64, (SizeClass, u64))> = heads
                .map(|head| {
                    let blocks =
                        std::iter::successors(Some(head), |block: &&Block| next(block.after));
                    (head.address, (head.class, blocks.map(|block| block.bytes).sum()))
                })
                .collect();
            segments.sort_unstable_by_key(|(address, _)| *address);
            let segments = segments.into_iter().map(|(_, segment)| segment).collect();
            LanePlan { segments, ..LanePlan::default() }
        };
        lanes.iter().map(plan).collect()
    }

    /// Gets the segments of a plan.
    pub(in super::super) fn make_ready(&self, making: Making<'_>) -> Result<()> {
        for (number, plan) in making.plan.lanes.iter().enumerate() {
            let Some(lane) = making.lane(number) else { continue };
            for &(class, bytes) in &plan.segments {
                if !making.wants(bytes) {
                    return Ok(());
                }
                let is_got = making.device.climbing(lane, bytes, |climb| self.get(climb, class))?;
                if !is_got {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes `climb.block_bytes` from the driver, as free memory of its lane; returns true if it did.
    pub(in super::super) fn preallocate(&self, climb: &Climb<'_>) -> Result<bool> {
        let block_bytes = climb.block_bytes.next_multiple_of(2 * MIB);
        self.get(&Climb { block_bytes, ..*climb }, SizeClass::Large)
    }

    /// Gets a segment of `climb.block_bytes`, for blocks of `class`, that nothing ever used.
    fn get(&self, climb: &Climb<'_>, class: SizeClass) -> Result<bool> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let acquired = blocking(|| {
            self.store.acquire(&device.ledger, (block_bytes, class), StreamHandle::LEGACY)
        });
        match acquired {
            Ok(segment) => {
                lane.put_back_segment(&mut lane.lock(), segment, 0);
                Ok(true)
            }
            Err(Refusal::Limit) => Ok(false),
            Err(Refusal::Driver(error)) if error.is_out_of_memory() => Ok(false),
            Err(Refusal::Driver(error) | Refusal::AddressSpace(error)) => Err(error.into()),
        }
    }
}
