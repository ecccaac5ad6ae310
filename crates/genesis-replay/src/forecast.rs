//! Whether a recorded program fits a device, and the smallest device on which it does.
//!
//! Every answer is a replay: the device asked about, the smallest device found and the device one
//! page smaller are each tried themselves. Between them the search only bisects, because a
//! strategy may complete on a device and fail on a larger one. No size below the lower bound is
//! tried but that one page: the bytes live at one time do not fit there under any strategy.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::bisection::least;
use crate::error::Result;
use crate::program::{Call, Kind, Program};
use crate::trial::{FailedCall, Trial};

/// Sizes of devices are tried in multiples of this many bytes: physical memory comes in such pages.
pub const PAGE_BYTES: u64 = 2 << 20;
/// The largest device that can be simulated, in bytes.
pub const MOST_DEVICE_BYTES: u64 = 128 << 40;
/// How many holders a failure lists.
const MOST_HOLDERS: usize = 8;

/// What is known of one recorded program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The program's name.
    pub trace: String,
    /// Calls in one pass.
    pub calls: u64,
    /// Its iterations.
    pub iterations: u64,
    /// Passes of each replay.
    pub passes: u64,
    /// The device asked about, in bytes.
    pub device_bytes: u64,
    /// The most bytes live on one device, each request rounded up to 512 bytes: no strategy needs
    /// less.
    pub lower_bound_bytes: u64,
    /// What each strategy needs.
    pub strategies: Vec<Forecast>,
    /// What limits these answers.
    pub remarks: Vec<String>,
}

/// What one strategy needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The strategy.
    pub strategy: String,
    /// Whether every pass completed on the device asked about.
    pub fits: bool,
    /// Where it failed there.
    pub failure: Option<Failure>,
    /// The smallest device found on which every pass completed; `None` if none was found.
    pub smallest_device_bytes: Option<u64>,
    /// The device one page smaller, on which a replay failed; 0 if the smallest is one page.
    pub failing_device_bytes: Option<u64>,
    /// The device asked about less the smallest.
    pub margin_bytes: Option<i64>,
    /// The same as a part of the device asked about.
    pub margin_ratio: Option<f64>,
    /// How many replays said so.
    pub replays: u64,
}

/// A request that failed, and what was live then on its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The pass, counted from 1.
    pub pass: u64,
    /// The call of the pass, counted from 1.
    pub call: u64,
    /// The iteration of the pass, counted from 1; `None` if the program tells of none.
    pub iteration: Option<u64>,
    /// The device.
    pub device: u32,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes live, as requested.
    pub live_bytes: u64,
    /// Who had them, those with most first.
    pub holders: Vec<Holder>,
    /// Bytes of all others.
    pub other_bytes: u64,
}

/// Live blocks of one size, or of one call site where these are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The call site.
    pub site: Option<String>,
    /// The size requested of each, if it is one.
    pub requested_bytes: Option<u64>,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes, as requested.
    pub live_bytes: u64,
}

/// A program, and the call site of each of its calls where these are known.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The program.
    pub program: &'a Program,
    /// The call sites by the index of the call; empty if they are not known.
    pub sites: &'a [Rc<str>],
}

impl Plan {
    /// Whether any strategy fits.
    pub fn fits(&self) -> bool {
        self.strategies.iter().any(|forecast| forecast.fits)
    }
}

/// What one strategy needs, of which `try_on` makes replays on devices of so many bytes.
pub fn forecast(
    recorded: Recorded<'_>,
    device_bytes: u64,
    mut try_on: impl FnMut(u64) -> Result<Trial>,
) -> Result<Forecast> {
    let mut trials = Trials { tried: HashMap::new(), try_on: &mut try_on };
    let asked = trials.on(device_bytes)?;
    let lower_bound_bytes = recorded.program.largest_device_peak_bytes;
    let smallest = trials.smallest(lower_bound_bytes, device_bytes)?;
    let margin_bytes = smallest.map(|smallest| device_bytes as i64 - smallest as i64);
    Ok(Forecast {
        strategy: asked.strategy,
        fits: asked.failed.is_none(),
        failure: asked.failed.map(|failed| recorded.failure(failed)),
        smallest_device_bytes: smallest,
        failing_device_bytes: smallest.map(|smallest| smallest - PAGE_BYTES),
        margin_bytes,
        margin_ratio: margin_bytes.map(|margin| margin as f64 / device_bytes as f64),
        replays: trials.tried.len() as u64,
    })
}

/// Replays made, by the size of their device.
struct Trials<'a> {
    tried: HashMap<u64, Trial>,
    try_on: &'a mut dyn FnMut(u64) -> Result<Trial>,
}

impl Trials<'_> {
    fn on(&mut self, device_bytes: u64) -> Result<Trial> {
        if let Some(trial) = self.tried.get(&device_bytes) {
            return Ok(trial.clone());
        }
        let trial = (self.try_on)(device_bytes)?;
        self.tried.insert(device_bytes, trial.clone());
        Ok(trial)
    }

    /// Whether every pass completes on a device of `pages`.
    fn completes(&mut self, pages: u64) -> Result<bool> {
        let device_bytes = pages.saturating_mul(PAGE_BYTES);
        if pages == 0 || device_bytes > MOST_DEVICE_BYTES {
            return Ok(false);
        }
        Ok(self.on(device_bytes)?.failed.is_none())
    }

    /// The smallest device; `None` if the program completes on none.
    fn smallest(&mut self, lower_bound_bytes: u64, asked_bytes: u64) -> Result<Option<u64>> {
        if lower_bound_bytes > MOST_DEVICE_BYTES {
            return Ok(None);
        }
        let Some(ample) = self.ample(asked_bytes)? else { return Ok(None) };
        let mut too_small = lower_bound_bytes.div_ceil(PAGE_BYTES).max(1) - 1;
        if self.on(asked_bytes)?.failed.is_some() {
            too_small = too_small.max(asked_bytes / PAGE_BYTES);
        }
        let guess = ample.reserved_peak_bytes.div_ceil(PAGE_BYTES).max(too_small + 1);
        let Some(mut found) = least(too_small, guess, 1, |pages| self.completes(pages))? else {
            return Ok(None);
        };
        // The last size below may be one that was not tried itself.
        while self.completes(found - 1)? {
            found -= 1;
        }
        Ok(Some(found * PAGE_BYTES))
    }

    /// A replay that completes with memory to spare; `None` if there is none.
    fn ample(&mut self, asked_bytes: u64) -> Result<Option<Trial>> {
        for device_bytes in [asked_bytes, MOST_DEVICE_BYTES] {
            let trial = self.on(device_bytes)?;
            if trial.failed.is_none() {
                return Ok(Some(trial));
            }
        }
        Ok(None)
    }
}

impl Recorded<'_> {
    /// What there is to say of `failed`.
    fn failure(&self, failed: FailedCall) -> Failure {
        let program = self.program;
        let request = program.calls[failed.call];
        let live = live_before(program, failed.call, request.device);
        let (holders, other_bytes) = self.holders(&live);
        let ends = &program.iteration_ends;
        let ended = ends.iter().filter(|end| end.calls <= failed.call).count();
        Failure {
            pass: failed.pass as u64,
            call: failed.call as u64 + 1,
            iteration: (!ends.is_empty()).then_some(ended as u64 + 1),
            device: request.device.into(),
            requested_bytes: request.requested_bytes,
            live_bytes: live.iter().map(|(_, call)| call.requested_bytes).sum(),
            holders,
            other_bytes,
        }
    }

    /// Those that hold most of `live`, and the bytes of all others.
    fn holders(&self, live: &[(usize, Call)]) -> (Vec<Holder>, u64) {
        let mut groups: BTreeMap<_, Holder> = BTreeMap::new();
        for (index, call) in live {
            let site = self.sites.get(*index).map(|site| &**site);
            let requested_bytes = site.is_none().then_some(call.requested_bytes);
            let holder = groups.entry((site, requested_bytes)).or_insert_with(|| Holder {
                site: site.map(str::to_owned),
                requested_bytes,
                blocks: 0,
                live_bytes: 0,
            });
            holder.blocks += 1;
            holder.live_bytes += call.requested_bytes;
        }
        let mut holders: Vec<Holder> = groups.into_values().collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.live_bytes));
        let others = holders.split_off(holders.len().min(MOST_HOLDERS));
        (holders, others.iter().map(|holder| holder.live_bytes).sum())
    }
}

/// The allocations on `device` that are live before call `end`, with their indices.
pub(crate) fn live_before(program: &Program, end: usize, device: u8) -> Vec<(usize, Call)> {
    let mut live = BTreeMap::new();
    for (index, call) in program.calls[..end].iter().enumerate() {
        match call.kind {
            Kind::Allocate => drop(live.insert(call.slot, (index, *call))),
            Kind::Free => drop(live.remove(&call.slot)),
            Kind::RecordStream | Kind::EmptyCache => {}
        }
    }
    live.into_values().filter(|(_, call)| call.device == device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Action, Record};

    const MIB: u64 = 1 << 20;

    /// Three blocks, of which two are live when the third is asked for.
    fn program() -> Program {
        let allocate = |id, requested_bytes| Record {
            action: Action::Allocate,
            device: 0,
            stream: 0,
            id,
            requested_bytes,
        };
        let end = Record { action: Action::IterationEnd, ..allocate(0, 0) };
        let records = [allocate(0, 4 * MIB), end, allocate(1, 2 * MIB), allocate(2, 6 * MIB)];
        Program::prepare(&records).unwrap()
    }

    fn told(device_bytes: u64, fits: impl Fn(u64) -> bool) -> Forecast {
        let program = program();
        let recorded = Recorded { program: &program, sites: &[] };
        let try_on = |bytes| {
            let failed = (!fits(bytes)).then_some(FailedCall { pass: 2, call: 2 });
            Ok(Trial { strategy: "S".to_owned(), failed, reserved_peak_bytes: bytes.min(80 * MIB) })
        };
        forecast(recorded, device_bytes, try_on).unwrap()
    }

    #[test]
    fn the_smallest_device_completes_and_one_page_below_fails() {
        for pages in 6..60 {
            for asked in [3, 12, 50, 200] {
                let forecast = told(asked * MIB, |bytes| bytes >= pages * PAGE_BYTES);
                assert_eq!(forecast.smallest_device_bytes, Some(pages * PAGE_BYTES));
                assert_eq!(forecast.failing_device_bytes, Some((pages - 1) * PAGE_BYTES));
                assert_eq!(forecast.fits, asked * MIB >= pages * PAGE_BYTES);
                let margin = (asked * MIB) as i64 - (pages * PAGE_BYTES) as i64;
                assert_eq!(forecast.margin_bytes, Some(margin));
            }
        }
    }

    #[test]
    fn memory_need_not_be_monotonic() {
        // Completes on 16 and 17 pages, fails on 18 to 29, completes above.
        let fits = |bytes: u64| matches!(bytes / PAGE_BYTES, 16 | 17 | 30..);
        for asked in 12..70 {
            let forecast = told(asked * MIB, fits);
            assert_eq!(forecast.fits, fits(asked * MIB));
            assert!(fits(forecast.smallest_device_bytes.unwrap()));
            assert!(!fits(forecast.failing_device_bytes.unwrap()));
        }
    }

    #[test]
    fn what_completes_nowhere_has_no_smallest_device() {
        let forecast = told(100 * MIB, |_| false);
        assert_eq!((forecast.smallest_device_bytes, forecast.margin_bytes), (None, None));
        assert_eq!(forecast.replays, 2);
    }

    #[test]
    fn a_failure_says_who_holds_memory() {
        let failure = told(100 * MIB, |_| false).failure.unwrap();
        assert_eq!((failure.pass, failure.call, failure.iteration), (2, 3, Some(2)));
        assert_eq!((failure.requested_bytes, failure.live_bytes), (6 * MIB, 6 * MIB));
        let sizes: Vec<_> = failure.holders.iter().map(|holder| holder.requested_bytes).collect();
        assert_eq!((sizes, failure.other_bytes), (vec![Some(4 * MIB), Some(2 * MIB)], 0));
    }
}
