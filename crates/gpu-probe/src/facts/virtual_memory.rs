//! Questions about virtual memory, which moving pages between addresses relies on.

use genesis_profile::units::bytes;

use super::{Observation, Observed};
use crate::driver::{Answer, Driver, Event, Gate, Stream, Writer};

const TIB: u64 = 1 << 40;
/// How often a rule that must always hold is tried.
const ROUNDS: u32 = 32;
/// The part of a page that is checked: its beginning.
const WINDOW_BYTES: u64 = 64 << 10;

/// What are the granularities of physical memory?
pub(super) fn granularity(driver: &Driver) -> Observed {
    let (least, recommended) = (driver.granularity(false)?, driver.granularity(true)?);
    let text = format!("{} at least, {} recommended", bytes(least), bytes(recommended));
    Ok(Observation::new(least == 2 << 20 && recommended == 2 << 20, text))
}

/// How much address space can be reserved, by the TiB?
pub(super) fn address_space(driver: &Driver) -> Observed {
    const MOST: usize = 300;
    let mut reserved = Vec::new();
    let ending = loop {
        match driver.reserve(TIB) {
            Ok(address) => reserved.push(address),
            Err(failure) => break format!(", then {failure}"),
        }
        if reserved.len() == MOST {
            break " and more".to_owned();
        }
    };
    reserved.iter().try_for_each(|address| driver.unreserve(*address, TIB))?;
    let is_enough = reserved.len() >= 64;
    Ok(Observation::new(is_enough, format!("{} TiB{ending}", reserved.len())))
}

/// Do create, map, set-access and release wait for pending work? Each behind a closed gate.
pub(super) fn calls_do_not_wait(driver: &Driver) -> Observed {
    let page = driver.granularity(false)?;
    let (address, stream) = (driver.reserve(page)?, driver.stream_create()?);
    let (handle, _, create) = Gate::hold(driver, stream, || driver.create(page))?;
    let handle = handle?;
    let (mapped, _, map) = Gate::hold(driver, stream, || driver.map(address, page, handle))?;
    mapped?;
    let (set, _, access) = Gate::hold(driver, stream, || driver.set_access(address, page))?;
    set?;
    let (released, _, release) = Gate::hold(driver, stream, || driver.release(handle))?;
    released?;
    driver.unmap(address, page)?;
    driver.unreserve(address, page)?;
    let calls = [("create", create), ("map", map), ("set-access", access), ("release", release)];
    let waited: Vec<&str> = calls.iter().filter(|call| !call.1).map(|call| call.0).collect();
    let text = if waited.is_empty() {
        "none waits".to_owned()
    } else {
        format!("these wait: {}", waited.join(", "))
    };
    Ok(Observation::new(waited.is_empty(), text))
}

/// Does cuMemUnmap wait for work pending on a stream? The work touches other memory only.
pub(super) fn unmap_waits(driver: &Driver) -> Observed {
    let (page, stream) = (driver.granularity(false)?, driver.stream_create()?);
    let mut place = Place::new(driver, 1)?;
    place.put(0, place.new_page()?)?;
    let (unmapped, elapsed, was_closed) =
        Gate::hold(driver, stream, || driver.unmap(place.address, page))?;
    unmapped?;
    place.mapped[0] = false;
    let text = if was_closed { "no" } else { "yes" };
    Ok(Observation::new(was_closed, format!("{text}: it took {elapsed:.1?}")))
}

/// Mapped a second time while work on the first address is pending: does later work of the
/// stream see its bytes at the second, and back? Nothing waits between the two.
pub(super) fn aliases_in_stream_order(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let writer = Writer::new(driver)?;
    let log = Log::new(driver, &writer, 2 * ROUNDS)?;
    let mut places = Vec::new();
    let mut expected = Vec::new();
    let mut mapped_while_pending = true;
    for round in 0..ROUNDS {
        let (mut first, mut second) = (Place::new(driver, 1)?, Place::new(driver, 1)?);
        let handle = first.new_page()?;
        first.put(0, handle)?;
        let gate = Gate::close(driver, stream)?;
        writer.fill(first.address, WINDOW_BYTES, 2 * round + 1, stream)?;
        second.put(0, handle)?;
        mapped_while_pending &= gate.is_closed();
        log.note(2 * round, second.address, stream)?;
        writer.fill(second.address, WINDOW_BYTES, 2 * round + 2, stream)?;
        log.note(2 * round + 1, first.address, stream)?;
        expected.extend([2 * round + 1, 2 * round + 2]);
        gate.open();
        driver.release(handle)?;
        places.push((first, second));
    }
    driver.stream_synchronize(stream)?;
    let wrong = log.wrong(&expected)?;
    let mapped = if mapped_while_pending { "without waiting" } else { "mapping waited" };
    let text = format!("{wrong} of {} reads wrong, by {}, {mapped}", 2 * ROUNDS, writer.means());
    Ok(Observation::new(wrong == 0 && mapped_while_pending, text))
}

/// The same on another stream that waits for an event?
pub(super) fn aliases_across_streams(driver: &Driver) -> Observed {
    let (writes, reads) = (driver.stream_create()?, driver.stream_create()?);
    let writer = Writer::new(driver)?;
    let log = Log::new(driver, &writer, ROUNDS)?;
    let mut places = Vec::new();
    for round in 0..ROUNDS {
        let (mut first, mut second) = (Place::new(driver, 1)?, Place::new(driver, 1)?);
        let handle = first.new_page()?;
        first.put(0, handle)?;
        let gate = Gate::close(driver, writes)?;
        writer.fill(first.address, WINDOW_BYTES, round + 1, writes)?;
        hand_over(driver, writes, reads)?;
        second.put(0, handle)?;
        log.note(round, second.address, reads)?;
        gate.open();
        driver.release(handle)?;
        places.push((first, second));
    }
    driver.synchronize()?;
    let wrong = log.wrong(&(1..=ROUNDS).collect::<Vec<_>>())?;
    let text = format!("{wrong} of {ROUNDS} reads wrong, by {}", writer.means());
    Ok(Observation::new(wrong == 0, text))
}

/// Another handle mapped at an address used before: are its bytes seen there? The work on the
/// old mapping has completed, as unmapping requires.
pub(super) fn remapped_address(driver: &Driver) -> Observed {
    let stream = driver.stream_create()?;
    let writer = Writer::new(driver)?;
    let log = Log::new(driver, &writer, ROUNDS)?;
    let mut place = Place::new(driver, 1)?;
    let mut keep = Place::new(driver, u64::from(ROUNDS))?;
    for round in 0..ROUNDS {
        let handle = keep.new_page()?;
        keep.put(u64::from(round), handle)?;
        writer.fill(keep.at(u64::from(round)), WINDOW_BYTES, round + 1, stream)?;
        driver.stream_synchronize(stream)?;
        place.put(0, handle)?;
        log.note(round, place.address, stream)?;
        driver.stream_synchronize(stream)?;
        place.take(0)?;
        driver.release(handle)?;
    }
    let wrong = log.wrong(&(1..=ROUNDS).collect::<Vec<_>>())?;
    let text = format!("{wrong} of {ROUNDS} reads wrong, by {}", writer.means());
    Ok(Observation::new(wrong == 0, text))
}

/// Does memory stay usable when its handle is released before the mapping goes, and is it
/// given back then?
pub(super) fn release_before_unmap(driver: &Driver) -> Observed {
    const BYTES: u64 = 256 << 20;
    const VALUE: u32 = 0x5eed_5eed;
    let address = driver.reserve(BYTES)?;
    let before = driver.memory_info()?.0;
    let handle = driver.create(BYTES)?;
    driver.map(address, BYTES, handle)?;
    driver.set_access(address, BYTES)?;
    driver.release(handle)?;
    driver.fill(address, WINDOW_BYTES, VALUE, Stream::LEGACY)?;
    let usable = driver.read(address, 16)?.iter().all(|word| *word == VALUE);
    let held = before.saturating_sub(driver.memory_info()?.0);
    driver.unmap(address, BYTES)?;
    let after = before.saturating_sub(driver.memory_info()?.0);
    driver.unreserve(address, BYTES)?;
    let as_expected = usable && held >= BYTES && after < BYTES;
    let usable = if usable { "usable" } else { "not usable" };
    let text = format!("{usable}; {} held, then {}", bytes(held), bytes(after));
    Ok(Observation::new(as_expected, text))
}

/// May one set-access and one unmap cover many mappings?
pub(super) fn many_mappings_in_one_call(driver: &Driver) -> Observed {
    const COUNT: u64 = 16;
    let page = driver.granularity(false)?;
    let address = driver.reserve(COUNT * page)?;
    for index in 0..COUNT {
        let handle = driver.create(page)?;
        driver.map(address + index * page, page, handle)?;
        driver.release(handle)?;
    }
    let access = driver.set_access(address, COUNT * page);
    let used = driver.fill(address, COUNT * page, 1, Stream::LEGACY);
    driver.synchronize()?;
    let unmap = driver.unmap(address, COUNT * page);
    if unmap.is_ok() {
        driver.unreserve(address, COUNT * page)?;
    }
    let text = format!("set-access: {}; unmap: {}", said(access.and(used)), said(unmap));
    Ok(Observation::new(access.and(unmap).is_ok(), text))
}

/// Is unmapping a part of a mapping refused?
pub(super) fn part_of_a_mapping(driver: &Driver) -> Observed {
    let page = driver.granularity(false)?;
    let address = driver.reserve(2 * page)?;
    let handle = driver.create(2 * page)?;
    driver.map(address, 2 * page, handle)?;
    driver.release(handle)?;
    let answer = driver.unmap(address, page);
    if answer.is_err() {
        driver.unmap(address, 2 * page)?;
        driver.unreserve(address, 2 * page)?;
    }
    Ok(Observation::new(answer.is_err_and(|failure| failure.code == 1), said(answer)))
}

/// Is mapping a handle from an offset on refused?
pub(super) fn part_of_a_handle(driver: &Driver) -> Observed {
    let page = driver.granularity(false)?;
    let address = driver.reserve(page)?;
    let handle = driver.create(2 * page)?;
    let answer = driver.map_at(address, page, page, handle);
    if answer.is_ok() {
        driver.unmap(address, page)?;
    }
    driver.release(handle)?;
    driver.unreserve(address, page)?;
    let is_refused = answer.is_err_and(|failure| [1, 801].contains(&failure.code));
    Ok(Observation::new(is_refused, said(answer)))
}

/// Is mapping over the end of a reservation refused?
pub(super) fn beyond_a_reservation(driver: &Driver) -> Observed {
    let page = driver.granularity(false)?;
    let address = driver.reserve(page)?;
    let handle = driver.create(2 * page)?;
    let answer = driver.map(address, 2 * page, handle);
    if answer.is_ok() {
        driver.unmap(address, 2 * page)?;
    }
    driver.release(handle)?;
    driver.unreserve(address, page)?;
    Ok(Observation::new(true, said(answer)))
}

/// Is unmapping where nothing is mapped refused, and setting access over a hole?
pub(super) fn unmapping_nothing(driver: &Driver) -> Observed {
    let mut place = Place::new(driver, 3)?;
    for index in [0, 2] {
        let handle = place.new_page()?;
        place.put(index, handle)?;
        driver.release(handle)?;
    }
    let page = place.page;
    let access = driver.set_access(place.at(0), 3 * page);
    let hole = driver.unmap(place.at(1), page);
    let all = driver.unmap(place.at(0), 3 * page);
    place.mapped.fill(all.is_err());
    let text = format!(
        "the hole: {}; over it: {}; access over it: {}",
        said(hole),
        said(all),
        said(access)
    );
    Ok(Observation::new(true, text))
}

fn said(answer: Answer) -> String {
    answer.map_or_else(|failure| failure.to_string(), |()| "it works".to_owned())
}

/// Makes `to` wait for the work enqueued on `from`.
fn hand_over(driver: &Driver, from: Stream, to: Stream) -> Answer {
    let event: Event = driver.event_create(false)?;
    driver.event_record(event, from)?;
    driver.stream_wait(to, event)?;
    driver.event_destroy(event)
}

/// A reservation of some pages, emptied when dropped.
struct Place<'a> {
    driver: &'a Driver,
    page: u64,
    address: u64,
    mapped: Vec<bool>,
}

impl<'a> Place<'a> {
    fn new(driver: &'a Driver, pages: u64) -> Answer<Self> {
        let page = driver.granularity(false)?;
        let address = driver.reserve(pages * page)?;
        Ok(Self { driver, page, address, mapped: vec![false; pages as usize] })
    }

    fn at(&self, index: u64) -> u64 {
        self.address + index * self.page
    }

    /// A page of physical memory that fits here.
    fn new_page(&self) -> Answer<u64> {
        self.driver.create(self.page)
    }

    fn put(&mut self, index: u64, handle: u64) -> Answer {
        self.driver.map(self.at(index), self.page, handle)?;
        self.mapped[index as usize] = true;
        self.driver.set_access(self.at(index), self.page)
    }

    fn take(&mut self, index: u64) -> Answer {
        self.mapped[index as usize] = false;
        self.driver.unmap(self.at(index), self.page)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Errors do not matter any more: the process ends with the probe.
        let _ = self.driver.synchronize();
        for index in 0..self.mapped.len() as u64 {
            if self.mapped[index as usize] {
                let _ = self.take(index);
            }
        }
        let _ = self.driver.unreserve(self.address, self.mapped.len() as u64 * self.page);
    }
}

/// Copies of windows of memory, made in the order of a stream.
struct Log<'a> {
    driver: &'a Driver,
    writer: &'a Writer<'a>,
    address: u64,
}

impl<'a> Log<'a> {
    fn new(driver: &'a Driver, writer: &'a Writer<'a>, entries: u32) -> Answer<Self> {
        let address = driver.allocate(u64::from(entries) * WINDOW_BYTES)?;
        Ok(Self { driver, writer, address })
    }

    fn place(&self, entry: u32) -> u64 {
        self.address + u64::from(entry) * WINDOW_BYTES
    }

    /// Enqueues copying the window at `address` into the log.
    fn note(&self, entry: u32, address: u64, stream: Stream) -> Answer {
        self.writer.copy(self.place(entry), address, WINDOW_BYTES, stream)
    }

    /// The number of windows that do not hold the expected value throughout.
    fn wrong(&self, expected: &[u32]) -> Answer<usize> {
        let mut wrong = 0;
        for (entry, value) in (0..).zip(expected) {
            let words = self.driver.read(self.place(entry), WINDOW_BYTES as usize / 4)?;
            wrong += usize::from(words.iter().any(|word| word != value));
        }
        Ok(wrong)
    }
}
