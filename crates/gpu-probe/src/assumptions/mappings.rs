//! Very many mappings, made while a kernel streams through neighbouring pages.
//!
//! A few handles are mapped over and over, each time at the next address of one reservation, whose
//! first pages a kernel writes all the time. Every call is timed, and once in a while a launch on
//! another stream with the wait for it. The memory that mappings take of host and device is read
//! before and after. It ends at the count asked for, when time is up, or at the driver's first
//! refusal, which refutes the assumption.

use std::time::Instant;

use genesis_profile::units::{bytes, time};

use super::{Bench, Outcome, Table, Tried, quantile};
use crate::driver::{Answer, Churn, Driver, Failure, Holder, Stream};

/// Handles that are mapped over and over.
const HANDLES: u64 = 64;
/// Pages that the kernel streams through, with handles of their own.
const STREAMED: u64 = 64;
/// A launch is timed once in so many mappings.
const LAUNCH_EVERY: u64 = 100;
/// Part of the time that is kept for unmapping.
const MAPPING_PART: f64 = 0.6;
/// How many times as much set-access, and a launch, may cost at the end as at first.
const MOST_GROWTH: u64 = 3;
const MOST_LAUNCH_GROWTH: u64 = 10;

/// Times of calls, in nanoseconds.
#[derive(Default)]
struct Samples {
    map: Vec<u64>,
    set_access: Vec<u64>,
    launch: Vec<u64>,
    unmap: Vec<u64>,
}

/// What an experiment measured.
struct Measured {
    /// Mappings asked for, and made.
    count: u64,
    made: u64,
    /// Why the driver refused the next.
    ending: Option<Failure>,
    /// Times of launches before the first mapping, in nanoseconds.
    before: Vec<u64>,
    samples: Samples,
    /// The memory that the mappings took, as text.
    needs: String,
    was_busy: bool,
}

/// What mappings need.
struct Place<'a> {
    driver: &'a Driver,
    page: u64,
    /// The first of the streamed pages; the mappings follow.
    address: u64,
    handles: Vec<u64>,
    stream: Stream,
    word: u64,
}

pub(super) fn under_load(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let holder = Holder::new(driver)?;
    let count = bench.counts.mappings.max(1);
    let place = Place::new(driver, count)?;
    let (busy_stream, mut samples) = (driver.stream_create()?, Samples::default());
    // A first launch may load code.
    place.launch()?;
    let churn = holder.churn(place.address, STREAMED * place.page, busy_stream)?;
    let before = (0..LAUNCH_EVERY).map(|_| place.launch()).collect::<Answer<Vec<u64>>>()?;
    let memory = Needs::now(driver)?;
    let started = Instant::now();
    let allowed = bench.deadline.saturating_duration_since(started).mul_f64(MAPPING_PART);
    let mut ending = None;
    let mut made = 0;
    while made < count && ending.is_none() {
        match place.map(made, &mut samples) {
            Ok(()) => made += 1,
            Err(failure) => ending = Some(failure),
        }
        if made % LAUNCH_EVERY == 0 {
            churn.as_ref().map_or(Ok(()), Churn::keep_up)?;
            samples.launch.push(place.launch()?);
            if started.elapsed() > allowed {
                break;
            }
        }
    }
    let needs = memory.since(driver)?;
    // Mappings that are left when time is up end with the process.
    for index in (0..made).take_while(|_| !bench.is_over()) {
        if index % LAUNCH_EVERY == 0 {
            churn.as_ref().map_or(Ok(()), Churn::keep_up)?;
        }
        place.unmap(index, &mut samples)?;
    }
    let was_busy = churn.is_some();
    Ok(judge(&Measured { count, made, ending, before, samples, needs, was_busy }))
}

fn judge(measured: &Measured) -> Outcome {
    let Measured { count, made, ending, before, samples, needs, was_busy } = measured;
    let tenth = (samples.set_access.len() / 10).max(1);
    let growth_of = |samples: &[u64]| {
        let last = &samples[samples.len().saturating_sub(tenth)..];
        (quantile(&samples[..tenth.min(samples.len())], 0.5), quantile(last, 0.5))
    };
    let (first, last) = growth_of(&samples.set_access);
    let (quiet, loaded) = (quantile(before, 0.99), quantile(&samples.launch, 0.99));
    let ended = match ending {
        Some(failure) => format!(", then {failure}"),
        None if made < count => ", then time was up".to_owned(),
        None => String::new(),
    };
    let load = if *was_busy { "a kernel streaming" } else { "no kernel streaming" };
    let seen = format!(
        "{made} of {count} mappings{ended}, {load}; set-access {} in the first tenth and {} in \
         the last; a launch and its wait {} before and {} meanwhile (p99); {needs}",
        time(first),
        time(last),
        time(quiet),
        time(loaded)
    );
    let holds = ending.is_none()
        && last <= MOST_GROWTH * first.max(1)
        && loaded <= MOST_LAUNCH_GROWTH * quiet.max(1);
    let mut table = Table::new(&["call", "median", "p99", "most", "samples"]);
    for (name, samples) in [
        ("cuMemMap", &samples.map[..]),
        ("cuMemSetAccess", &samples.set_access),
        ("launch and wait, before", &before[..]),
        ("launch and wait, meanwhile", &samples.launch),
        ("cuMemUnmap", &samples.unmap),
    ] {
        let at = |part| time(quantile(samples, part));
        table.row([name.into(), at(0.5), at(0.99), at(1.0), samples.len().to_string()]);
    }
    Outcome::new(holds, seen).with(table)
}

impl<'a> Place<'a> {
    fn new(driver: &'a Driver, count: u64) -> Answer<Self> {
        let page = driver.granularity(false)?;
        let address = driver.reserve((STREAMED + count) * page)?;
        for index in 0..STREAMED {
            let handle = driver.create(page)?;
            driver.map(address + index * page, page, handle)?;
            driver.release(handle)?;
        }
        driver.set_access(address, STREAMED * page)?;
        let handles = (0..HANDLES).map(|_| driver.create(page)).collect::<Answer<Vec<u64>>>()?;
        let (stream, word) = (driver.stream_create()?, driver.allocate(4096)?);
        Ok(Self { driver, page, address, handles, stream, word })
    }

    fn at(&self, index: u64) -> u64 {
        self.address + (STREAMED + index) * self.page
    }

    /// Makes a mapping that can be used, or none.
    fn map(&self, index: u64, samples: &mut Samples) -> Answer {
        let (address, handle) = (self.at(index), self.handles[(index % HANDLES) as usize]);
        samples.map.push(self.timed(|| self.driver.map(address, self.page, handle))?);
        match self.timed(|| self.driver.set_access(address, self.page)) {
            Ok(elapsed_ns) => samples.set_access.push(elapsed_ns),
            Err(failure) => {
                self.driver.unmap(address, self.page)?;
                return Err(failure);
            }
        }
        Ok(())
    }

    fn unmap(&self, index: u64, samples: &mut Samples) -> Answer {
        let elapsed_ns = self.timed(|| self.driver.unmap(self.at(index), self.page))?;
        samples.unmap.push(elapsed_ns);
        Ok(())
    }

    /// The time of a fill of one word with the wait for it.
    fn launch(&self) -> Answer<u64> {
        self.timed(|| {
            self.driver.fill(self.word, 4, 1, self.stream)?;
            self.driver.stream_synchronize(self.stream)
        })
    }

    fn timed(&self, call: impl FnOnce() -> Answer) -> Answer<u64> {
        let started_ns = self.driver.now_ns();
        call()?;
        Ok(self.driver.now_ns() - started_ns)
    }
}

/// Memory in use: of the host by this process, of the device by all.
struct Needs {
    host_bytes: u64,
    free_bytes: u64,
}

impl Needs {
    fn now(driver: &Driver) -> Answer<Self> {
        Ok(Self { host_bytes: resident_bytes(), free_bytes: driver.memory_info()?.0 })
    }

    /// What was added since.
    fn since(&self, driver: &Driver) -> Answer<String> {
        let now = Self::now(driver)?;
        Ok(format!(
            "{} of the host and {} of the device for it",
            bytes(now.host_bytes.saturating_sub(self.host_bytes)),
            bytes(self.free_bytes.saturating_sub(now.free_bytes))
        ))
    }
}

/// Memory of the host that this process has in use; 0 if the system does not say.
fn resident_bytes() -> u64 {
    const KIB: u64 = 1 << 10;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * KIB
}
