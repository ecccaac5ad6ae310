//! Costs that depend on what went before: the calls of virtual memory right after a release, after a
//! rest of the host, and in a program that launches kernels all the time.
//!
//! Published figures for one call differ tenfold. Calls in a row are the cheapest: after a rest the
//! processor's caches and clock are cold, and a program makes single calls between other work. The
//! rows have a remark, so they are not in the table of prices.

use std::time::{Duration, Instant};

use super::samples::{Bench, Subject, kind};
use crate::driver::{Answer, Driver, Stream};

const MIB: u64 = 1 << 20;
const SIZES: [u64; 4] = [2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
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

/// The host sleeps before each call.
pub(super) fn after_a_rest(bench: &mut Bench<'_>) -> Answer {
    each_after(bench, "after 20 ms of rest", |_| {
        std::thread::sleep(PAUSE);
        Ok(())
    })
}

/// The host launches work before each call, as fast as it can.
pub(super) fn between_launches(bench: &mut Bench<'_>) -> Answer {
    const BYTES: u64 = 1 << 20;
    let driver = bench.driver;
    let (address, stream) = (driver.allocate(BYTES)?, driver.stream_create()?);
    each_after(bench, "after 20 ms of launching", |driver| {
        launch_for(driver, PAUSE, address, BYTES, stream)
    })?;
    driver.free(address)?;
    driver.stream_destroy(stream)
}

/// A size is mapped and unmapped again; before each call something else is done.
fn each_after(
    bench: &mut Bench<'_>,
    remark: &'static str,
    pause: impl Fn(&Driver) -> Answer,
) -> Answer {
    let driver = bench.driver;
    for bytes in SIZES {
        let of = |name, driver_name| -> Subject {
            kind(name, driver_name).bytes(bytes).mappings(1).remark(remark)
        };
        let address = driver.reserve(bytes)?;
        let subjects = [
            of("Create", "cuMemCreate").mappings(0),
            of("Map", "cuMemMap"),
            of("SetAccess", "cuMemSetAccess"),
            of("Unmap", "cuMemUnmap"),
            of("Release", "cuMemRelease").mappings(0),
        ];
        bench.several(subjects, |timer| {
            pause(driver)?;
            let handle = timer.time(0, || driver.create(bytes))?;
            pause(driver)?;
            timer.time(1, || driver.map(address, bytes, handle))?;
            pause(driver)?;
            timer.time(2, || driver.set_access(address, bytes))?;
            pause(driver)?;
            timer.time(3, || driver.unmap(address, bytes))?;
            pause(driver)?;
            timer.time(4, || driver.release(handle))
        })?;
        driver.unreserve(address, bytes)?;
    }
    Ok(())
}

/// Launches until `time` has passed; no more than a few hundred wait at once.
fn launch_for(driver: &Driver, time: Duration, address: u64, bytes: u64, stream: Stream) -> Answer {
    const BETWEEN_WAITS: u32 = 256;
    let began = Instant::now();
    let mut launched = 0_u32;
    while began.elapsed() < time {
        driver.fill(address, bytes, launched, stream)?;
        launched += 1;
        if launched.is_multiple_of(BETWEEN_WAITS) {
            driver.stream_synchronize(stream)?;
        }
    }
    driver.stream_synchronize(stream)
}
