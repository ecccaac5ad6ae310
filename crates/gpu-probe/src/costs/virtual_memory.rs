//! The calls of virtual memory: in a row, after a rest of the host, and in a program that launches work
//! all the time.
//!
//! Published figures for one call differ tenfold. Calls in a row are the cheapest: after a rest the
//! processor's caches and clock are cold, and a program makes single calls between other work. Only
//! calls in a row are in the table of prices; the other rows have a remark.

use std::time::{Duration, Instant};

use super::samples::{Bench, kind};
use crate::driver::{Answer, Driver, Stream};

const MIB: u64 = 1 << 20;
/// Sizes at which others have published figures for handles and mappings.
pub(super) const HANDLE_SIZES: [u64; 5] = [2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
/// Sizes whose calls are measured between other work, which takes long.
const SINGLE_SIZES: [u64; 4] = [2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
/// Handles created in a row.
const IN_A_ROW: usize = 64;
/// How long the host does something else.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn many_in_a_row(bench: &mut Bench<'_>) -> Answer {
    let (driver, page) = (bench.driver, bench.driver.granularity(false)?);
    let created = kind("Create", "cuMemCreate").bytes(page);
    bench.several([created.remark("64 in a row, nothing released")], |timer| {
        let handles = (0..IN_A_ROW)
            .map(|_| timer.time(0, || driver.create(page)))
            .collect::<Answer<Vec<u64>>>()?;
        handles.into_iter().try_for_each(|handle| driver.release(handle))
    })
}

/// One handle of each size.
pub(super) fn in_a_row(bench: &mut Bench<'_>) -> Answer {
    HANDLE_SIZES.into_iter().try_for_each(|bytes| extent(bench, bytes, None, |_| Ok(())))
}

/// The host sleeps before each call.
pub(super) fn after_a_rest(bench: &mut Bench<'_>) -> Answer {
    SINGLE_SIZES.into_iter().try_for_each(|bytes| {
        extent(bench, bytes, Some("after 20 ms of rest"), |_| {
            std::thread::sleep(PAUSE);
            Ok(())
        })
    })
}

/// The host launches work before each call, as fast as it can.
pub(super) fn between_launches(bench: &mut Bench<'_>) -> Answer {
    let driver = bench.driver;
    let (address, stream) = (driver.allocate(MIB)?, driver.stream_create()?);
    SINGLE_SIZES.into_iter().try_for_each(|bytes| {
        extent(bench, bytes, Some("after 20 ms of launching"), |driver| {
            launch_for(driver, PAUSE, address, stream)
        })
    })?;
    driver.free(address)?;
    driver.stream_destroy(stream)
}

/// `bytes` are made, mapped and given back, over and over; `before` runs before each call.
fn extent(
    bench: &mut Bench<'_>,
    bytes: u64,
    remark: Option<&'static str>,
    before: impl Fn(&Driver) -> Answer,
) -> Answer {
    let driver = bench.driver;
    let of = |name, driver_name, mappings| {
        let subject = kind(name, driver_name).bytes(bytes).mappings(mappings);
        remark.map_or(subject, |remark| subject.remark(remark))
    };
    let address = driver.reserve(bytes)?;
    let subjects = [
        of("Create", "cuMemCreate", 0),
        of("Map", "cuMemMap", 1),
        of("SetAccess", "cuMemSetAccess", 1),
        of("Unmap", "cuMemUnmap", 1),
        of("Release", "cuMemRelease", 0),
    ];
    bench.several(subjects, |timer| {
        before(driver)?;
        let handle = timer.time(0, || driver.create(bytes))?;
        before(driver)?;
        timer.time(1, || driver.map(address, bytes, handle))?;
        before(driver)?;
        timer.time(2, || driver.set_access(address, bytes))?;
        before(driver)?;
        timer.time(3, || driver.unmap(address, bytes))?;
        before(driver)?;
        timer.time(4, || driver.release(handle))
    })?;
    driver.unreserve(address, bytes)
}

/// Fills a MiB again and again until `time` has passed; no more than a few hundred fills wait at once.
fn launch_for(driver: &Driver, time: Duration, address: u64, stream: Stream) -> Answer {
    const BETWEEN_WAITS: u32 = 256;
    let began = Instant::now();
    let mut launched = 0_u32;
    while began.elapsed() < time {
        driver.fill(address, MIB, launched, stream)?;
        launched += 1;
        if launched.is_multiple_of(BETWEEN_WAITS) {
            driver.stream_synchronize(stream)?;
        }
    }
    driver.stream_synchronize(stream)
}
