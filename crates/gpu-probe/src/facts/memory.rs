//! Questions about `cuMemAlloc` and `cuMemFree`.

use genesis_profile::units::bytes;

use super::{Observation, Observed};
use crate::driver::{Answer, Driver, Gate};

const MIB: u64 = 1 << 20;

/// How are addresses of cuMemAlloc aligned? The least alignment of many, of mixed sizes.
pub(super) fn allocation_alignment(driver: &Driver) -> Observed {
    let sizes = [1, 3, 512, 4097, 65_537, MIB + 1, 2 * MIB, 20 * MIB];
    let addresses = sizes
        .iter()
        .cycle()
        .take(96)
        .map(|size| driver.allocate(*size))
        .collect::<Answer<Vec<u64>>>()?;
    let least = addresses.iter().map(|address| 1 << address.trailing_zeros().min(40)).min();
    let least: u64 = least.unwrap_or(0);
    addresses.iter().try_for_each(|address| driver.free(*address))?;
    Ok(Observation::new(least >= 512, bytes(least)))
}

/// How much physical memory does cuMemAlloc take? What is free before and after.
pub(super) fn allocation_rounding(driver: &Driver) -> Observed {
    const SMALL: u64 = 64;
    // The first allocation may set up more than itself.
    let first = driver.allocate(2 * MIB)?;
    let taken = |size: u64, count: u64| -> Answer<u64> {
        let before = driver.memory_info()?.0;
        let addresses = (0..count).map(|_| driver.allocate(size)).collect::<Answer<Vec<_>>>()?;
        let after = driver.memory_info()?.0;
        addresses.iter().try_for_each(|address| driver.free(*address))?;
        Ok(before.saturating_sub(after))
    };
    let small = taken(1, SMALL)?;
    let sizes = [2 * MIB, 2 * MIB + 1, 5 * MIB];
    let large = sizes.map(|size| taken(size, 1));
    driver.free(first)?;
    let mut as_expected = small <= 2 * MIB;
    let mut text = format!("{SMALL} × 1 byte take {}", bytes(small));
    for (size, taken) in sizes.into_iter().zip(large) {
        let taken = taken?;
        as_expected &= taken == size.next_multiple_of(2 * MIB);
        let rest = if size % MIB == 0 { "" } else { " + 1 byte" };
        text += &format!("; {}{rest} take {}", bytes(size / MIB * MIB), bytes(taken));
    }
    Ok(Observation::new(as_expected, text))
}

/// Does cuMemAlloc wait for work pending on another stream? Timed behind a closed gate.
pub(super) fn allocate_waits(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let (allocated, elapsed, was_closed) =
        Gate::hold(driver, stream, || driver.allocate(64 * MIB))?;
    driver.free(allocated?)?;
    let text = if was_closed { "no" } else { "yes" };
    Ok(Observation::new(was_closed, format!("{text}: it took {elapsed:.1?}")))
}

/// Does cuMemFree wait for work pending on another stream? Timed behind a closed gate.
pub(super) fn free_waits(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let address = driver.allocate(64 * MIB)?;
    let (freed, elapsed, was_closed) = Gate::hold(driver, stream, || driver.free(address))?;
    freed?;
    let text = if was_closed { "no" } else { "yes" };
    Ok(Observation::new(!was_closed, format!("{text}: it took {elapsed:.1?}")))
}
