//! Work that is held back until a thread of the host lets it go on; a watching thread does so in
//! any case.
//!
//! On a GPU it is a kernel that reads a word of page-locked memory: the device is busy with it, as
//! with a program's own. Where kernels do nothing (simcuda) it is a function of the host
//! ([`Gate`]). Both end by themselves, so that nothing hangs for ever.

use std::time::{Duration, Instant};

use super::host_words::Flag;
use super::module::{Grid, HOLD, Kernel, Module};
use super::{Answer, Driver, Gate, Stream};

/// The time after which the watching thread lets held work go on.
pub(crate) const HELD_FOR: Duration = Duration::from_millis(150);
/// When a kernel that holds a stream ends by itself.
const MOST_HELD: Duration = Duration::from_secs(5);
/// When a kernel that keeps the device busy ends by itself: a call that waits for it must return.
const MOST_BUSY: Duration = Duration::from_secs(2);

const ONE_THREAD: Grid = Grid { blocks: 1, threads: 1 };

/// Holds streams of the context that was current when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder<'a> {
    driver: &'a Driver,
    kernels: Option<Kernels>,
}

#[derive(Clone, Copy, Debug)]
struct Kernels {
    gate: Kernel,
    churn: Kernel,
    flag: Flag,
}

/// Work that waits.
#[derive(Debug)]
pub(crate) enum Hold {
    Kernel(HeldKernel),
    Host(Gate),
}

/// A kernel that waits.
#[derive(Debug)]
pub(crate) struct HeldKernel {
    flag: Flag,
    since: Instant,
}

/// Keeps the device busy until dropped.
#[derive(Debug)]
pub(crate) struct Churn<'a> {
    driver: &'a Driver,
    kernel: Kernel,
    grid: Grid,
    parameters: [u64; 4],
    stream: Stream,
    stop: Flag,
}

/// The result of a call made while work was held.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) value: T,
    pub(crate) elapsed: Duration,
    /// True if it returned while the work was still held, and so did not wait for it.
    pub(crate) returned_before: bool,
}

impl<'a> Holder<'a> {
    /// Compiles the kernels and runs them once, to find out if they do anything.
    pub(crate) fn new(driver: &'a Driver) -> Result<Self, String> {
        let module = Module::load(driver, HOLD)?;
        let (gate, churn) = (module.kernel("gate")?, module.kernel("churn")?);
        let kernels = Kernels { gate, churn, flag: Flag::new(driver)? };
        let works = kernels.work(driver)?;
        Ok(Self { driver, kernels: Some(kernels).filter(|_| works) })
    }

    /// Returns true if kernels do something on this driver.
    pub(crate) fn has_kernels(&self) -> bool {
        self.kernels.is_some()
    }

    /// Holds `stream`: work that is enqueued from now on waits. One hold at a time.
    pub(crate) fn close(&self, stream: Stream) -> Answer<Hold> {
        let Some(Kernels { gate, flag, .. }) = self.kernels else {
            return Gate::close(self.driver, stream).map(Hold::Host);
        };
        let parameters = [flag.address(), MOST_HELD.as_nanos() as u64];
        let launch = || self.driver.launch(gate, ONE_THREAD, &parameters, stream);
        Self::hold_by(flag, launch)
    }

    /// Holds by launching a graph in which a stream was held; `None` if kernels do nothing.
    pub(crate) fn close_again(&self, launch: impl FnOnce() -> Answer) -> Answer<Option<Hold>> {
        self.kernels.map(|kernels| Self::hold_by(kernels.flag, launch)).transpose()
    }

    fn hold_by(flag: Flag, launch: impl FnOnce() -> Answer) -> Answer<Hold> {
        flag.set(false);
        launch()?;
        Ok(Hold::Kernel(HeldKernel { flag, since: Instant::now() }))
    }

    /// Keeps every second multiprocessor busy, writing `bytes` of memory all the time; the others
    /// are free for blocks of any size. `None` if kernels do nothing.
    pub(crate) fn churn(
        &self,
        address: u64,
        bytes: u64,
        stream: Stream,
    ) -> Answer<Option<Churn<'a>>> {
        let Some(Kernels { churn, .. }) = self.kernels else { return Ok(None) };
        let driver = self.driver;
        let stop = Flag::new(driver)?;
        let grid = Grid { blocks: (driver.multiprocessors()? / 2).max(1), threads: 1024 };
        let parameters = [address, bytes / 4, stop.address(), MOST_BUSY.as_nanos() as u64];
        let churn = Churn { driver, kernel: churn, grid, parameters, stream, stop };
        churn.keep_up()?;
        Ok(Some(churn))
    }
}

impl Churn<'_> {
    /// Starts the work again if it has ended by itself.
    pub(crate) fn keep_up(&self) -> Answer {
        if self.driver.stream_query(self.stream)? {
            self.driver.launch(self.kernel, self.grid, &self.parameters, self.stream)
        } else {
            Ok(())
        }
    }
}

impl Kernels {
    /// Runs each once with nothing to wait for; returns true if they do anything. Code is loaded
    /// by that, and not while work is held: loading may wait for the device.
    fn work(&self, driver: &Driver) -> Answer<bool> {
        let word = driver.allocate(4096)?;
        driver.fill(word, 4096, 0, Stream::LEGACY)?;
        self.flag.set(true);
        let at_once = [self.flag.address(), 0];
        driver.launch(self.gate, ONE_THREAD, &at_once, Stream::LEGACY)?;
        driver.launch(
            self.churn,
            ONE_THREAD,
            &[word, 1, self.flag.address(), 0],
            Stream::LEGACY,
        )?;
        let words = driver.read(word, 1)?;
        driver.free(word)?;
        Ok(words == [1])
    }
}

impl Hold {
    /// Lets the work go on.
    pub(crate) fn open(&self) {
        match self {
            Self::Kernel(held) => held.flag.set(true),
            Self::Host(gate) => gate.open(),
        }
    }

    /// Returns true while the work waits.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Kernel(held) => !held.flag.is_set() && held.since.elapsed() < MOST_HELD,
            Self::Host(gate) => gate.is_closed(),
        }
    }

    /// Runs `work`, and lets the held work go on if `work` has not returned after `limit`.
    pub(crate) fn watch<T>(&self, limit: Duration, work: impl FnOnce() -> T) -> Held<T> {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if is_done.recv_timeout(limit).is_err() {
                    self.open();
                }
            });
            let started = Instant::now();
            let value = work();
            let (elapsed, returned_before) = (started.elapsed(), self.is_closed());
            // The watching thread may have ended already.
            let _ = done.send(());
            Held { value, elapsed, returned_before }
        })
    }
}

impl Drop for HeldKernel {
    fn drop(&mut self) {
        self.flag.set(true);
    }
}

impl Drop for Churn<'_> {
    fn drop(&mut self) {
        self.stop.set(true);
    }
}
