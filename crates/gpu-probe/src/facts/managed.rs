//! Questions about managed memory (`cuMemAllocManaged`).

use std::time::Duration;

use genesis_profile::units::bytes;

use super::{Observation, Observed};
use crate::driver::{Answer, CaptureMode, Driver, Stream};

/// Probes that ask for more managed memory than the device has free.
pub(super) const OVERSUBSCRIBING: [&str; 2] = ["managed_beyond_the_device", "managed_makes_room"];

const MIB: u64 = 1 << 20;
/// What is brought and touched.
const TOUCHED: u64 = 256 * MIB;

/// May managed memory be more than the device has, and does it take none before it is touched?
pub(super) fn managed_beyond_the_device(driver: &Driver) -> Observed {
    let (before, total) = driver.memory_info()?;
    let managed = driver.managed_allocate(total + (1 << 30))?;
    let after = driver.memory_info()?.0;
    driver.free(managed)?;
    let taken = before.saturating_sub(after);
    Ok(Observation::new(taken < 64 * MIB, format!("yes, and it takes {}", bytes(taken))))
}

/// Does memory of cuMemAlloc take the place of managed memory? The device is filled with the latter.
pub(super) fn managed_makes_room(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let (free, _) = driver.memory_info()?;
    let managed = driver.managed_allocate(free)?;
    driver.managed_prefetch(managed, free, 0, stream)?;
    driver.stream_synchronize(stream)?;
    let left = driver.memory_info()?.0;
    let plain = driver.allocate(free / 2);
    let text = match plain {
        Ok(address) => {
            driver.free(address)?;
            format!("yes, with {} left before", bytes(left))
        }
        Err(failure) => failure.to_string(),
    };
    driver.free(managed)?;
    Ok(Observation::new(plain.is_ok(), text))
}

/// What does it take to bring managed memory by a prefetch, and by touching it? Each of 256 MiB that
/// are on the host.
pub(super) fn managed_prefetch_and_faults(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let managed = driver.managed_allocate(TOUCHED)?;
    let timed = |work: &dyn Fn() -> Answer| -> Answer<u64> {
        driver.managed_prefetch(managed, TOUCHED, -1, stream)?;
        driver.stream_synchronize(stream)?;
        let began = driver.now_ns();
        work()?;
        driver.stream_synchronize(stream)?;
        Ok(driver.now_ns() - began)
    };
    driver.fill(managed, TOUCHED, 1, stream)?;
    let prefetched = timed(&|| driver.managed_prefetch(managed, TOUCHED, 0, stream))?;
    let faulted = timed(&|| driver.fill(managed, TOUCHED, 2, stream))?;
    driver.free(managed)?;
    let text = format!(
        "prefetched in {:.1?}, touched in {:.1?}",
        Duration::from_nanos(prefetched),
        Duration::from_nanos(faulted)
    );
    Ok(Observation::new(true, text))
}

/// Is a prefetch on a capturing stream refused?
pub(super) fn managed_prefetch_in_capture(driver: &Driver) -> Observed {
    let stream: Stream = driver.stream_create()?;
    let managed = driver.managed_allocate(2 * MIB)?;
    driver.begin_capture(stream, CaptureMode::Relaxed)?;
    let asked = driver.managed_prefetch(managed, 2 * MIB, 0, stream);
    let ended = driver.end_capture(stream);
    driver.free(managed)?;
    let text = match (asked, ended) {
        (Ok(()), Ok(())) => "no: it works and the capture goes on".to_owned(),
        (Ok(()), Err(end)) => format!("no: it works, but then {end}"),
        (Err(call), Ok(())) => format!("{call}; the capture goes on"),
        (Err(call), Err(end)) => format!("{call}; then {end}"),
    };
    // Genesis makes none either way.
    Ok(Observation::new(true, text))
}
