//! One handle mapped at two addresses: are writes through one seen through the other?
//!
//! A round writes a window through the first address and checks it through the second. Between the
//! two is only the order of a stream, or an event between two streams; the host does not wait.
//! Rounds use the same window over and over, so an old line that any cache keeps under the second
//! address is detected. Every second multiprocessor is kept busy with other memory, and the check
//! runs on many of them. Kernels count rounds and mistakes on the device.

use super::{Bench, Outcome, Tried};
use crate::driver::{
    Answer, Churn, DEPENDENT, Driver, Event, Grid, Holder, HostWords, Kernel, Module, ROUNDS,
    Stream,
};

/// Experiments that share the rounds.
const FORMS: u64 = 6;
/// The window: words, and what a round adds to each.
const WORDS: u64 = 1024;
const WINDOW_BYTES: u64 = 4 * WORDS;
/// Blocks that check one window.
const CHECKING_BLOCKS: u32 = 32;
/// What keeps the device busy.
const BUSY_BYTES: u64 = 256 << 20;
/// Rounds between two looks at the clock, after which the streams are waited for; also the rounds
/// of a graph, and the windows kept of what the copy engine moved.
const BATCH: u64 = 64;

const ONE_THREAD: Grid = Grid { blocks: 1, threads: 1 };
const WRITING: Grid = Grid { blocks: 1, threads: WORDS as u32 };
const CHECKING: Grid = Grid { blocks: CHECKING_BLOCKS, threads: WORDS as u32 };

/// What rounds need.
struct Rounds<'a> {
    bench: &'a Bench,
    holder: Holder<'a>,
    module: Module<'a>,
    begin: Kernel,
    /// Two addresses of the same memory.
    first: u64,
    second: u64,
    /// The number of the round, and of wrong words.
    state: u64,
    writes: Stream,
    reads: Stream,
    written: Event,
    read: Event,
}

/// What makes the check follow the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Both on one stream.
    Stream,
    /// On two, each waiting for the other's event.
    Event,
}

pub(super) fn plain(bench: &Bench) -> Tried {
    by_kernels(bench, "write", "check")
}

pub(super) fn read_only(bench: &Bench) -> Tried {
    by_kernels(bench, "write", "check_nc")
}

pub(super) fn atomic(bench: &Bench) -> Tried {
    by_kernels(bench, "write_atomic", "check_atomic")
}

fn by_kernels(bench: &Bench, write: &str, check: &str) -> Tried {
    let rounds = Rounds::new(bench)?;
    let (write, check) = (rounds.module.kernel(write)?, rounds.module.kernel(check)?);
    rounds.run(|order| {
        rounds.write(write)?;
        rounds.then(order)?;
        rounds.check(check, order)
    })
}

pub(super) fn dependent_launch(bench: &Bench) -> Tried {
    const FIRST_CAPABLE: i32 = 9;
    if bench.driver.compute_capability()? < FIRST_CAPABLE {
        return Err("the device has no programmatic dependent launch".to_owned());
    }
    let rounds = Rounds::new(bench)?;
    let module = Module::load(&bench.driver, DEPENDENT)?;
    let (write, check) = (module.kernel("write_dependent")?, module.kernel("check_dependent")?);
    let parameters = [rounds.second, rounds.state];
    rounds.run(|_| {
        rounds.write(write)?;
        bench.driver.launch_dependent(check, CHECKING, &parameters, rounds.writes)
    })
}

/// A graph of many rounds, replayed.
pub(super) fn graph(bench: &Bench) -> Tried {
    let rounds = Rounds::new(bench)?;
    let driver = &bench.driver;
    let (write, check) = (rounds.module.kernel("write")?, rounds.module.kernel("check")?);
    let replayed = driver.record_graph(rounds.writes, || {
        for _ in 0..BATCH {
            rounds.begin()?;
            rounds.write(write)?;
            rounds.check(check, Order::Stream)?;
        }
        Ok(())
    })?;
    rounds.run_batches(|_| driver.launch_graph(replayed, rounds.writes))
}

/// Windows that the copy engine reads through the second address, and writes through the first.
pub(super) fn copy_engine(bench: &Bench) -> Tried {
    let rounds = Rounds::new(bench)?;
    let driver = &bench.driver;
    let (write, check) = (rounds.module.kernel("write")?, rounds.module.kernel("check")?);
    // A window of each round of a batch, written by the host or read by it.
    let host = HostWords::new(driver, BATCH * WORDS)?;
    let window = |index: u64| host.address(index * WORDS);
    let mut wrong_copies = 0;
    let mut finished = rounds.run_batches(|batch| {
        let first_round = batch * BATCH + 1;
        let is_read = batch % 2 == 0;
        let order = if batch % 4 < 2 { Order::Stream } else { Order::Event };
        if !is_read {
            host.put((first_round..first_round + BATCH).flat_map(window_of));
        }
        for index in 0..BATCH {
            rounds.begin()?;
            if is_read {
                rounds.write(write)?;
                rounds.then(order)?;
                let stream = rounds.reader(order);
                driver.enqueue_to_host(window(index), rounds.second, WINDOW_BYTES, stream)?;
            } else {
                let stream = rounds.writes;
                driver.enqueue_to_device(rounds.first, window(index), WINDOW_BYTES, stream)?;
                rounds.then(order)?;
                rounds.check(check, order)?;
            }
            rounds.back(order)?;
        }
        rounds.settle()?;
        if is_read {
            let expected = (first_round..first_round + BATCH).flat_map(window_of);
            wrong_copies += expected.zip(host.words()).filter(|(one, other)| one != other).count();
        }
        Ok(())
    })?;
    if wrong_copies > 0 {
        finished.holds = false;
        finished.seen += &format!("; {wrong_copies} words wrong in copies to the host");
    }
    Ok(finished)
}

impl<'a> Rounds<'a> {
    fn new(bench: &'a Bench) -> Result<Self, String> {
        let driver = &bench.driver;
        let holder = Holder::new(driver)?;
        if !holder.has_kernels() {
            return Err("kernels do nothing on this driver".to_owned());
        }
        let module = Module::load(driver, ROUNDS)?;
        let (first, second) = two_addresses(driver)?;
        let state = driver.allocate(4096)?;
        driver.fill(state, 4096, 0, Stream::LEGACY)?;
        driver.synchronize()?;
        Ok(Self {
            bench,
            holder,
            begin: module.kernel("begin")?,
            module,
            first,
            second,
            state,
            writes: driver.stream_create()?,
            reads: driver.stream_create()?,
            written: driver.event_create(false)?,
            read: driver.event_create(false)?,
        })
    }

    /// Rounds that are enqueued one by one: half in the order of a stream, half by events.
    fn run(&self, round: impl Fn(Order) -> Answer) -> Tried {
        self.run_batches(|batch| {
            let order = if batch % 2 == 0 { Order::Stream } else { Order::Event };
            for _ in 0..BATCH {
                self.begin()?;
                round(order)?;
                self.back(order)?;
            }
            Ok(())
        })
    }

    /// Batches until there are enough rounds, or time is up. The first few run before the device is
    /// busy, because loading code may wait for it; all forms of a round are among them.
    fn run_batches(&self, mut enqueue: impl FnMut(u64) -> Answer) -> Tried {
        const FIRST_BATCHES: u64 = 4;
        let driver = &self.bench.driver;
        let wanted = (self.bench.counts.rounds / FORMS).div_ceil(BATCH).max(FIRST_BATCHES);
        let (others, stream) = (driver.allocate(BUSY_BYTES)?, driver.stream_create()?);
        let mut churn = None;
        let mut batches = 0;
        while batches < wanted && !self.bench.is_over() {
            enqueue(batches)?;
            self.settle()?;
            batches += 1;
            match &churn {
                Some(churn) => Churn::keep_up(churn)?,
                None if batches >= FIRST_BATCHES => {
                    churn = self.holder.churn(others, BUSY_BYTES, stream)?;
                }
                None => {}
            }
        }
        let was_busy = churn.is_some();
        drop(churn);
        driver.stream_synchronize(stream)?;
        let state = driver.read(self.state, 2)?;
        if batches < FIRST_BATCHES {
            return Err("there was no time for a round of each form".to_owned());
        }
        let rounds = batches * BATCH;
        if u64::from(state[0]) != rounds {
            return Err(format!("{} of {rounds} rounds were counted by the kernels", state[0]));
        }
        let load = if was_busy { "busy with other work" } else { "not busy otherwise" };
        let seen = format!("{} reads wrong in {rounds} rounds, the device {load}", state[1]);
        Ok(Outcome::new(state[1] == 0, seen))
    }

    fn begin(&self) -> Answer {
        self.launch(self.begin, ONE_THREAD, &[self.state], self.writes)
    }

    fn write(&self, kernel: Kernel) -> Answer {
        self.launch(kernel, WRITING, &[self.first, self.state], self.writes)
    }

    fn check(&self, kernel: Kernel, order: Order) -> Answer {
        self.launch(kernel, CHECKING, &[self.second, self.state], self.reader(order))
    }

    fn launch(&self, kernel: Kernel, grid: Grid, parameters: &[u64], stream: Stream) -> Answer {
        self.bench.driver.launch(kernel, grid, parameters, stream)
    }

    fn reader(&self, order: Order) -> Stream {
        if order == Order::Stream { self.writes } else { self.reads }
    }

    /// Makes the reading follow the writing.
    fn then(&self, order: Order) -> Answer {
        self.hand_over(order, self.written, self.writes, self.reads)
    }

    /// Makes the next round follow the reading.
    fn back(&self, order: Order) -> Answer {
        self.hand_over(order, self.read, self.reads, self.writes)
    }

    fn hand_over(&self, order: Order, event: Event, from: Stream, to: Stream) -> Answer {
        if order == Order::Stream {
            return Ok(());
        }
        self.bench.driver.event_record(event, from)?;
        self.bench.driver.stream_wait(to, event)
    }

    fn settle(&self) -> Answer {
        self.bench.driver.stream_synchronize(self.writes)?;
        self.bench.driver.stream_synchronize(self.reads)
    }
}

/// A page mapped twice.
fn two_addresses(driver: &Driver) -> Answer<(u64, u64)> {
    let page = driver.granularity(false)?;
    let address = driver.reserve(2 * page)?;
    let handle = driver.create(page)?;
    driver.map(address, page, handle)?;
    driver.map(address + page, page, handle)?;
    driver.release(handle)?;
    driver.set_access(address, 2 * page)?;
    Ok((address, address + page))
}

/// The words of a round's window.
fn window_of(round: u64) -> impl Iterator<Item = u32> {
    let first = (round as u32).wrapping_mul(WORDS as u32);
    (0..WORDS as u32).map(move |index| first.wrapping_add(index))
}
