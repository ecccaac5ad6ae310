//! Which streams are being captured into graphs.
//!
//! A wait for the device would end a capture, so nothing is waited for while there is any. Memory
//! that is asked for in the order of a capturing stream becomes part of its graph, so CUDA serves
//! it. Begin and end are watched at both levels, and Genesis, which itself waits and gives memory
//! back, is told of both.
//!
//! **The gate** between captures and waits of ours:
//!
//! ```text
//! a wait:   refuse if a capture is entered; count the wait; the driver's call; uncount it
//! a begin:  enter the capture; tell Genesis; wait, not for long, until no wait is counted; the
//!           driver's call
//! ```
//!
//! So no wait begins once a capture may have begun, and a capture does not begin between a wait's
//! look at the gate and its call. A begin stops waiting for a long wait after [`LONGEST`], because
//! the work behind that wait may need the very thread that begins the capture. By then the driver
//! has long had the wait's call, which so came before the capture and does not harm it.
//!
//! **An end** is what the driver says is one: if ending a capture fails, the stream is asked. A
//! capture also ends with its stream or context (`streams`).
//!
//! **Lock**: one, held for a few instructions; nothing is called under it.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::{self, Place};
use crate::driver_api::{PER_THREAD, SUCCESS, driver};
use crate::genesis::Genesis;
use crate::process;

/// How long a begin waits at most for waits of ours: much longer than a thread takes from its look
/// at the gate to the driver's call, and short for a program.
const LONGEST: Duration = Duration::from_millis(100);
/// How long something is asked about at most. What takes longer may need the thread that asks.
pub(crate) const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// From one question to the next.
pub(crate) const NAP: Duration = Duration::from_micros(50);
/// All devices, for Genesis.
const ALL: c_int = -1;

/// What is captured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    stream: usize,
    /// The thread whose default stream it is; 0 for a stream of all threads.
    thread: usize,
    context: usize,
}

/// A capture that may have begun and is not known to have ended.
struct Capture {
    number: u64,
    target: Target,
    /// As Genesis is told of it.
    device: c_int,
    is_announced: bool,
}

struct Gate {
    captures: Vec<Capture>,
    /// Waits of ours under way.
    waits: usize,
}

static GATE: Mutex<Gate> = Mutex::new(Gate { captures: Vec::new(), waits: 0 });
/// A wait has ended.
static WAITED: Condvar = Condvar::new();
/// How many captures there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn gate() -> MutexGuard<'static, Gate> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Target {
    /// What `stream` means in this thread.
    fn new(stream: usize) -> Self {
        thread_local! {
            // Its address is the thread's.
            static MARK: Cell<u8> = const { Cell::new(0) };
        }
        let thread =
            if stream == PER_THREAD { MARK.with(|mark| mark.as_ptr() as usize) } else { 0 };
        let context = driver().and_then(|driver| driver.owner_of(stream)).unwrap_or(0);
        Self { stream, thread, context }
    }

    /// Returns true if it is the created stream of that handle.
    pub(crate) fn is_of(&self, stream: usize) -> bool {
        self.stream == stream
    }

    /// Returns true if it ends with `context`.
    pub(crate) fn is_in(&self, context: usize) -> bool {
        self.context == context
    }
}

/// Returns true if any stream is captured.
#[inline]
pub(crate) fn is_any() -> bool {
    COUNT.load(Acquire) != 0
}

/// Returns true if `stream` is captured, or cannot be used because another one is.
#[inline]
pub(crate) fn concerns(stream: usize) -> bool {
    is_any() && driver().is_some_and(|driver| driver.is_capturing(stream))
}

/// Waits until Genesis has been told of all captures: before it refuses a request, it lets those end that
/// it knows of. In vain after [`LONGEST`].
#[cold]
pub(crate) fn let_be_announced() {
    let begin = Instant::now();
    let is_unknown = || gate().captures.iter().any(|capture| !capture.is_announced);
    while is_unknown() && begin.elapsed() < LONGEST {
        thread::sleep(NAP);
    }
}

/// While this lives, the device may be waited for.
pub(crate) struct Waiting(());

/// Asks for a wait, which is refused while there is any capture.
pub(crate) fn permit_wait() -> Option<Waiting> {
    let mut gate = gate();
    gate.captures.is_empty().then(|| {
        gate.waits += 1;
        Waiting(())
    })
}

impl Drop for Waiting {
    fn drop(&mut self) {
        gate().waits -= 1;
        WAITED.notify_all();
    }
}

/// Waits for a stream of ours, which is never captured; returns true if its work is done. While there
/// are captures, the driver is only asked, which ends none.
#[cold]
pub(crate) fn wait_for_stream(stream: usize) -> bool {
    let Some(driver) = driver() else { return false };
    let start = Instant::now();
    loop {
        if let Some(_waiting) = permit_wait() {
            return driver.wait_for_stream(stream);
        }
        match driver.is_idle(stream) {
            Some(false) if start.elapsed() < MOST_PATIENCE => thread::sleep(NAP),
            is_idle => return is_idle == Some(true),
        }
    }
}

/// Begins a capture of `stream` by the driver's own function, whose answer is returned.
pub(crate) fn begin(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    let number = enter(stream);
    if let Some(genesis) = process::genesis_if_open() {
        // Not those of other threads: Genesis takes the thread that tells it for the one that captures.
        announce(genesis, |capture| capture.number == number);
    }
    let gate = gate();
    drop(WAITED.wait_timeout_while(gate, LONGEST, |gate| gate.waits > 0));
    let status = real();
    if status != SUCCESS {
        leave(&[number]);
    }
    status
}

/// Ends a capture of `stream` by the driver's own function, whose answer is returned.
pub(crate) fn end(stream: usize, real: impl FnOnce() -> c_int) -> c_int {
    let target = Target::new(stream);
    let numbers = numbers_of(|known| known.stream == stream && known.thread == target.thread);
    let status = real();
    if status == SUCCESS || driver().is_none_or(|driver| !driver.is_capturing(stream)) {
        leave(&numbers);
    }
    status
}

/// Calls `real`, with which the captures end for which `is_lost` is true; returns its answer.
pub(crate) fn lose(is_lost: impl Fn(&Target) -> bool, real: impl FnOnce() -> c_int) -> c_int {
    // Looked up before: once it is gone, another stream may have the handle.
    let numbers = if is_any() { numbers_of(is_lost) } else { Vec::new() };
    let status = real();
    if status == SUCCESS {
        leave(&numbers);
    }
    status
}

/// Tells Genesis, which is open now, of all captures that it does not know of.
pub(crate) fn announce_all(genesis: &Genesis) {
    announce(genesis, |_| true);
}

/// Tells Genesis of captures, unless it knows of them.
fn announce(genesis: &Genesis, is_meant: impl Fn(&Capture) -> bool) {
    let unannounced = || {
        let gate = gate();
        let mut captures = gate.captures.iter();
        let found = captures.find(|&capture| !capture.is_announced && is_meant(capture));
        found.map(|capture| (capture.number, capture.device))
    };
    while let Some((number, device)) = unannounced() {
        if !genesis.begin_capture(device) {
            return;
        }
        // It may have ended meanwhile, or another thread was the first to tell.
        let mut gate = gate();
        let capture = gate.captures.iter_mut().find(|capture| capture.number == number);
        let is_first =
            capture.is_some_and(|capture| !std::mem::replace(&mut capture.is_announced, true));
        drop(gate);
        if !is_first {
            genesis.end_capture(device);
        }
    }
}

/// A capture of `stream` may begin from now on; returns its number.
fn enter(stream: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Relaxed);
    let target = Target::new(stream);
    let device = match device::of_stream(stream) {
        Place::Served(device) => device.ordinal(),
        Place::Other | Place::Nowhere => ALL,
    };
    let mut gate = gate();
    gate.captures.push(Capture { number, target, device, is_announced: false });
    COUNT.store(gate.captures.len(), Release);
    number
}

fn numbers_of(is_meant: impl Fn(&Target) -> bool) -> Vec<u64> {
    let gate = gate();
    let meant = gate.captures.iter().filter(|capture| is_meant(&capture.target));
    meant.map(|capture| capture.number).collect()
}

/// Captures of those numbers have ended.
fn leave(numbers: &[u64]) {
    for number in numbers {
        let mut gate = gate();
        let index = gate.captures.iter().position(|capture| capture.number == *number);
        let Some(index) = index else { continue };
        let capture = gate.captures.swap_remove(index);
        COUNT.store(gate.captures.len(), Release);
        drop(gate);
        if let Some(genesis) = process::genesis_if_open().filter(|_| capture.is_announced) {
            genesis.end_capture(capture.device);
        }
    }
}
