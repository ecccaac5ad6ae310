//! What this driver charges for mapped memory, measured by the calls that are made anyhow.
//!
//! Drivers differ by more than ten times in what one extent costs, and mostly not by its size. So
//! how large extents should be depends on the driver. The first [`SAMPLES`] calls of each kind are
//! timed, and the least time is the price: single calls may take a hundred times as long (on an
//! H100 one of a hundred `cuMemSetAccess` takes 1 ms). From then on a call costs one load more.
//!
//! Only calls for extents of at most [`MOST_BYTES`] are timed, because some drivers charge for
//! larger ones by size (a B300 17 µs for 2 MiB and 140 µs for 256 MiB): that part of the price is
//! the same for few large extents and many small ones.
//!
//! Time is the device's own ([`Device::clock_ns`]). On a simulated device it is virtual, so a
//! program that is repeated at the same prices always sees the same ones.
//!
//! [`Prices::dearness`] is what follows. The unit is what an extent costs until it can be used
//! (create, map, set access), in relation to [`REFERENCE_NS`], as a power of two within bounds.
//! Unmapping is not part of it, because Elastic unmaps late, or never. An extent that costs more
//! than a quarter of the reference is not cheap: docs/elastic.md, "Tried, and not kept".
//!
//! | source in `crates/simgpu/src/prices.rs` | create + map + access, µs | dearness |
//! |---|---|---|
//! | H100, for which Elastic's sizes were chosen | 10 + 0.5 + 77 | 0 |
//! | RTX PRO 6000 | 14 + 1 + 69 | 0 |
//! | vAttention (A100) | 29 + 2 + 38 | 0 |
//! | A100 | 193 + 1.5 + 36 | 1 |
//! | H200, calls in a row | 14 + 1 + 28 | 0 |
//! | an H100, calls in a row (docs/benchmarks) | 7.5 + 0.6 + 20 | 0 |
//! | H200, each call after a rest | 121 + 28 + 203 | 2 |
//! | B300 | 17 + 1 + 1 | −2 |
//!
//! **Threads**: any; two that make the last sample at once may both time one more. **Locks**: none.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Device, HandleOptions, Result};
use crate::base::size::MIB;

/// How many calls of each kind are timed.
const SAMPLES: u32 = 8;
/// Calls for larger extents are not timed.
const MOST_BYTES: u64 = 32 * MIB;
/// What an extent cost where Elastic's sizes were chosen.
const REFERENCE_NS: u64 = 87_500;
/// Under a debugger a call may take any time. Extents then become larger by so much at most, …
const MOST_DEARNESS: i8 = 2;
/// … and no driver makes them smaller by more than this.
const LEAST_DEARNESS: i8 = -3;
/// From so many doublings down an extent is cheap: at a quarter of the reference.
const CHEAP: f64 = -2.0;
/// Creating memory goes through the kernel, and takes 7 µs and more on every driver that was ever
/// measured. Below this the driver is one that pretends, and its times mean nothing.
const LEAST_CREATE_NS: u64 = 5_000;
/// [`Prices::dearness`] is not known yet.
const UNKNOWN: i8 = i8::MIN;

/// A kind of call that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priced {
    /// `cuMemCreate`.
    Create,
    /// `cuMemMap`.
    Map,
    /// `cuMemSetAccess`, for each mapping.
    SetAccess,
    /// `cuMemUnmap`.
    Unmap,
    /// `cuMemRelease`.
    Release,
}

impl Priced {
    const COUNT: usize = Self::Release as usize + 1;
    /// The calls after which an extent can be used.
    const OF_AN_EXTENT: [Self; 3] = [Self::Create, Self::Map, Self::SetAccess];

    /// The word for it in reports.
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Map => "map",
            Self::SetAccess => "set access",
            Self::Unmap => "unmap",
            Self::Release => "release",
        }
    }
}

/// The prices of one device's driver, as far as they are known.
#[derive(Debug)]
pub struct Prices {
    samples: [Sample; Priced::COUNT],
    dearness: AtomicI8,
    is_announced: AtomicBool,
}

/// The calls of one kind.
#[derive(Debug)]
struct Sample {
    count: AtomicU32,
    least_ns: AtomicU64,
}

impl Sample {
    fn is_complete(&self) -> bool {
        self.count.load(Relaxed) >= SAMPLES
    }

    /// The least time so far.
    fn price_ns(&self) -> Option<u64> {
        Some(self.least_ns.load(Relaxed)).filter(|_| self.count.load(Relaxed) > 0)
    }
}

impl Default for Prices {
    fn default() -> Self {
        let sample = || Sample { count: AtomicU32::new(0), least_ns: AtomicU64::new(u64::MAX) };
        Self {
            samples: std::array::from_fn(|_| sample()),
            dearness: AtomicI8::new(UNKNOWN),
            is_announced: AtomicBool::new(false),
        }
    }
}

impl Prices {
    /// Makes `call`, which concerns `mappings` (not 0) extents of `bytes` together, and times it if
    /// that is still wanted. A call that fails is not counted.
    pub fn timed<T>(
        &self,
        driver: &dyn Device,
        priced: Priced,
        (bytes, mappings): (u64, u64),
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let sample = &self.samples[priced as usize];
        if sample.is_complete() || bytes / mappings.max(1) > MOST_BYTES {
            return call();
        }
        let begin_ns = driver.clock_ns();
        let result = call();
        if result.is_ok() {
            let passed_ns = driver.clock_ns().saturating_sub(begin_ns) / mappings.max(1);
            sample.least_ns.fetch_min(passed_ns, Relaxed);
            sample.count.fetch_add(1, Relaxed);
            self.conclude();
        }
        result
    }

    /// How dear an extent is, as a power of two: 0 as on an H100, 1 twice as dear; from −3 to 2.
    /// 0 as long as it is not known. Once known, it does not change.
    pub fn dearness(&self) -> i8 {
        match self.dearness.load(Relaxed) {
            UNKNOWN => 0,
            known => known,
        }
    }

    /// Returns true once: after the dearness has become known.
    pub fn is_news(&self) -> bool {
        self.dearness.load(Relaxed) != UNKNOWN
            && !self.is_announced.load(Relaxed)
            && !self.is_announced.swap(true, Relaxed)
    }

    /// Makes the calls for [`SAMPLES`] extents of one granule each, and undoes them: for reports of
    /// what a driver charges. Fails without virtual memory management, or if a call fails.
    pub fn try_out(driver: &dyn Device) -> Result<Self> {
        let prices = Self::default();
        let options = HandleOptions::default();
        let bytes = driver.granularity(options)?;
        let address = driver.reserve(bytes, 0)?;
        let tried = (0..SAMPLES).try_for_each(|_| prices.try_one(driver, address, bytes, options));
        // An extent that could not be unmapped keeps its address, too.
        let unreserved = driver.unreserve(address, bytes);
        tried.and(unreserved).map(|()| prices)
    }

    fn try_one(
        &self,
        driver: &dyn Device,
        address: u64,
        bytes: u64,
        options: HandleOptions,
    ) -> Result<()> {
        let timed =
            |priced, call: &dyn Fn() -> Result<()>| self.timed(driver, priced, (bytes, 1), call);
        let create = || driver.create(bytes, options);
        let handle = self.timed(driver, Priced::Create, (bytes, 1), create)?;
        let mapped = timed(Priced::Map, &|| driver.map(address, bytes, handle));
        let unmapped = mapped.and_then(|()| {
            let accessible = timed(Priced::SetAccess, &|| driver.set_access(address, bytes, &[]));
            let unmapped = timed(Priced::Unmap, &|| driver.unmap(address, bytes));
            accessible.and(unmapped)
        });
        let released = timed(Priced::Release, &|| driver.release(handle));
        unmapped.and(released)
    }

    /// Sets the dearness as soon as what it is made of is known.
    fn conclude(&self) {
        let parts = Priced::OF_AN_EXTENT.map(|priced| &self.samples[priced as usize]);
        if self.dearness.load(Relaxed) != UNKNOWN || !parts.iter().all(|part| part.is_complete()) {
            return;
        }
        let prices_ns = parts.map(|part| part.least_ns.load(Relaxed));
        // The first conclusion counts, so that extents keep their size.
        let known = dearness_of(prices_ns[0], prices_ns.iter().sum());
        let _ = self.dearness.compare_exchange(UNKNOWN, known, Relaxed, Relaxed);
    }
}

/// The dearness of an extent that costs `extent_ns`, `create_ns` of it for its creation.
fn dearness_of(create_ns: u64, extent_ns: u64) -> i8 {
    if create_ns < LEAST_CREATE_NS {
        return 0;
    }
    let doublings = (extent_ns as f64 / REFERENCE_NS as f64).log2();
    let steps = match doublings {
        0.0.. => doublings.round(),
        ..=CHEAP => doublings.trunc(),
        _ => 0.0,
    };
    steps.clamp(LEAST_DEARNESS.into(), MOST_DEARNESS.into()) as i8
}

/// The prices that are known, in microseconds: "create 10.0 µs, map 0.5 µs, set access 77.0 µs".
impl fmt::Display for Prices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Priced::{Create, Map, Release, SetAccess, Unmap};
        let mut separator = "";
        for priced in [Create, Map, SetAccess, Unmap, Release] {
            if let Some(price_ns) = self.samples[priced as usize].price_ns() {
                let microseconds = price_ns as f64 / 1000.0;
                write!(formatter, "{separator}{} {microseconds:.1} µs", priced.name())?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "prices_tests.rs"]
mod tests;
