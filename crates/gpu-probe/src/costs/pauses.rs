//! Costs that depend on the calls before: creation and set-access right after a release, many in a
//! row, and after a rest.
//!
//! Drivers keep released memory for a while and work on it in the background; published figures for
//! one call differ tenfold. The rows have a remark, so they are not in the table of prices.

use std::time::Duration;

use super::samples::{Bench, Subject, kind};
use crate::driver::Answer;

/// Handles created in a row.
const IN_A_ROW: usize = 64;
const REST: Duration = Duration::from_millis(20);

pub(super) fn after_rest_and_release(bench: &mut Bench<'_>) -> Answer {
    let page = bench.driver.granularity(false)?;
    let created = kind("Create", "cuMemCreate").bytes(page);
    let set = kind("SetAccess", "cuMemSetAccess").bytes(page).mappings(1);
    in_a_row(bench, created.remark("64 in a row, nothing released"))?;
    let after = [created.remark("right after a release"), set.remark("right after a release")];
    after_a_release(bench, after, Duration::ZERO)?;
    let rested = [created.remark("after 20 ms of rest"), set.remark("after 20 ms of rest")];
    after_a_release(bench, rested, REST)
}

fn in_a_row(bench: &mut Bench<'_>, created: Subject) -> Answer {
    let (driver, page) = (bench.driver, created.bytes);
    bench.several([created], |timer| {
        let handles = (0..IN_A_ROW)
            .map(|_| timer.time(0, || driver.create(page)))
            .collect::<Answer<Vec<u64>>>()?;
        handles.into_iter().try_for_each(|handle| driver.release(handle))
    })
}

/// A page is created and mapped `rest` after another was unmapped and released.
fn after_a_release(bench: &mut Bench<'_>, subjects: [Subject; 2], rest: Duration) -> Answer {
    let (driver, page) = (bench.driver, subjects[0].bytes);
    let address = driver.reserve(page)?;
    bench.several(subjects, |timer| {
        std::thread::sleep(rest);
        let handle = timer.time(0, || driver.create(page))?;
        driver.map(address, page, handle)?;
        timer.time(1, || driver.set_access(address, page))?;
        driver.unmap(address, page)?;
        driver.release(handle)
    })?;
    driver.unreserve(address, page)
}
