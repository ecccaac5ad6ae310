//! Extents laid side by side: new ones are created, and all are mapped at bare addresses of a lane.

use super::super::lane::Lane;
use super::super::state::{Climb, Extents};
use super::Outcome;
use super::addresses::no_addresses;
use super::area::Laid;
use super::gather::Moved;
use crate::base::lock::assert_none_held;
use crate::base::size::SizeClass;
use crate::config::LogLevel;
use crate::memory::{ExtentId, Refusal};

impl Extents {
    /// Maps the extents `moved`, and new ones of `sizes`, side by side in the lane's addresses: at
    /// `address` if that is still bare. If any part fails, everything is as it was.
    pub(super) fn lay(
        &self,
        climb: &Climb<'_>,
        moved: &[Moved],
        sizes: &[u64],
        address: Option<u64>,
    ) -> crate::base::Result<Outcome> {
        let moved_here: Vec<Laid> = self.laid_here(climb.lane, moved).collect();
        let result = self.lay_side_by_side(climb, (&moved_here, sizes, &[]), address);
        if !matches!(result, Ok(Outcome::More)) {
            self.bring_back(climb.device, moved);
        }
        result
    }

    /// The extents `moved`, to be laid in `lane`.
    pub(super) fn laid_here(&self, lane: &Lane, moved: &[Moved]) -> impl Iterator<Item = Laid> {
        let now = lane.lock().fence.epoch();
        moved.iter().map(move |extent| {
            let epoch = self.epoch_here(lane.index, now, extent);
            Laid { id: extent.id, bytes: extent.bytes, epoch, edge: None }
        })
    }

    /// Maps extents side by side in the lane's addresses, at `address` if that is still bare: those that
    /// come `before`, new ones of `sizes`, and those `behind`. If any part fails, the new ones go back.
    pub(super) fn lay_side_by_side(
        &self,
        climb: &Climb<'_>,
        (before, sizes, behind): (&[Laid], &[u64], &[Laid]),
        address: Option<u64>,
    ) -> crate::base::Result<Outcome> {
        let Climb { device, block_bytes, .. } = *climb;
        assert_none_held();
        device.meet_peers();
        // Nothing moves into a pool, so if this fails nothing has to go back.
        let charge = climb.charge_pool(sizes.iter().sum())?;
        let mut created = Vec::with_capacity(sizes.len());
        let result = self.create(climb, sizes, &mut created).and_then(|()| {
            let laid = [before, &created, behind].concat();
            self.map(climb, &laid, address)
        });
        let Err(refusal) = result else {
            charge.keep();
            self.follow_scarcity(device, sizes);
            return Ok(Outcome::More);
        };
        drop(charge);
        for extent in created {
            self.discard(device, extent.id);
        }
        match refusal {
            Refusal::Limit => Ok(Outcome::Short),
            Refusal::Driver(error) if error.is_out_of_memory() => Ok(Outcome::Short),
            Refusal::Driver(error) => Err(error.into()),
            Refusal::AddressSpace(error) => Err(no_addresses(device, block_bytes, error)),
        }
    }

    /// Creates extents of `sizes` and appends them to `created`.
    fn create(
        &self,
        climb: &Climb<'_>,
        sizes: &[u64],
        created: &mut Vec<Laid>,
    ) -> Result<(), Refusal> {
        let Climb { device, block_bytes, .. } = *climb;
        let bytes: u64 = sizes.iter().sum();
        if bytes == 0 {
            return Ok(());
        }
        if bytes > device.left_bytes() {
            // Not piece by piece, only to be given back.
            return Err(Refusal::Limit);
        }
        device
            .heap
            .log
            .write(LogLevel::Debug, &format_args!("device {}: {bytes} bytes more", device.ordinal));
        let class = SizeClass::of(block_bytes);
        let communication = device.pools.communication(climb.lane.pool());
        for &bytes in sizes {
            let made_for = communication.as_ref();
            let id = self.store.create(&device.ledger, (bytes, class), made_for)?;
            created.push(Laid { id, bytes, epoch: 0, edge: None });
        }
        Ok(())
    }

    /// Maps extents side by side in the lane's addresses, as free blocks.
    fn map(&self, climb: &Climb<'_>, laid: &[Laid], address: Option<u64>) -> Result<(), Refusal> {
        let Climb { device, lane, block_bytes, .. } = *climb;
        let class = SizeClass::of(block_bytes);
        let bytes = laid.iter().map(|extent| extent.bytes).sum();
        let claim = || {
            let mut state = lane.lock();
            let claimed =
                address.and_then(|address| Some((state.claim_at(class, address, bytes)?, address)));
            claimed.or_else(|| state.claim(class, bytes))
        };
        let (slot, address) = match claim() {
            Some(claimed) => claimed,
            None => {
                let added = self.make_bare_addresses(climb, bytes);
                match (claim(), added) {
                    (Some(claimed), _) => claimed,
                    (None, Err(refusal)) => return Err(refusal),
                    // Another thread was faster: memory is short for now.
                    (None, Ok(())) => return Err(Refusal::Limit),
                }
            }
        };
        let ids: Vec<ExtentId> = laid.iter().map(|extent| extent.id).collect();
        let mapped = self.store.map(&ids, lane.index, address);
        let mut state = lane.lock();
        lane.settle_claim(&mut state, self.books(device), laid, slot, mapped.is_ok());
        mapped.map_err(Refusal::Driver)
    }
}
