//! Which calls return before work elsewhere is done.
//!
//! Work is held on another stream, in another context, in a green one, in a graph, or on a second
//! device. Then each call is made in the primary context of the first device, on memory that the
//! work does not touch. A thread lets the work go on after a while: a call that returned before
//! did not wait.

use super::{Bench, Outcome, Table, Tried};
use crate::driver::{Answer, Context, Driver, Graph, HELD_FOR, Hold, Holder, Stream};

const BYTES: u64 = 64 << 20;

/// A call's name, and the call, with the memory that is made for it.
type Call = (&'static str, fn(&Driver, u64) -> Answer);

const CALLS: [Call; 3] = [
    ("cuCtxSynchronize", |driver, _| driver.synchronize()),
    ("cuMemFree", Driver::free),
    ("cuMemUnmap", |driver, place| driver.unmap(place, BYTES)),
];
/// Their numbers.
const SYNCHRONIZE: usize = 0;
const FREE: usize = 1;
const UNMAP: usize = 2;

/// The stream on which work is held.
struct Elsewhere<'a> {
    driver: &'a Driver,
    context: Context,
    stream: Stream,
    holder: Holder<'a>,
    /// Work that is launched in one piece. A kernel holds it inside, a host function before it.
    graph: Option<Graph>,
}

pub(super) fn stream(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let elsewhere = Elsewhere::new(driver, driver.current_context()?)?;
    elsewhere.observe(|waits| waits[SYNCHRONIZE] && waits[FREE])
}

pub(super) fn graph(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let mut elsewhere = Elsewhere::new(driver, driver.current_context()?)?;
    elsewhere.make_graph()?;
    elsewhere.observe(|waits| waits[SYNCHRONIZE] && waits[FREE])
}

pub(super) fn context(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let context = driver.context_create()?;
    Elsewhere::new(driver, context)?.observe(|waits| !waits[SYNCHRONIZE])
}

pub(super) fn green_context(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    let green = driver.green_context()?;
    driver.enter_context(green.context)?;
    let holder = Holder::new(driver)?;
    driver.enter()?;
    let (context, stream) = (green.context, green.stream);
    let elsewhere = Elsewhere { driver, context, stream, holder, graph: None };
    elsewhere.observe(|waits| waits[SYNCHRONIZE])
}

pub(super) fn second_device(bench: &Bench) -> Tried {
    let driver = &bench.driver;
    if driver.device_count()? < 2 {
        return Err("there is one device".to_owned());
    }
    let context = driver.second_device()?;
    Elsewhere::new(driver, context)?.observe(|waits| !waits[SYNCHRONIZE])
}

impl<'a> Elsewhere<'a> {
    /// A stream of `context`, and its holder.
    fn new(driver: &'a Driver, context: Context) -> Result<Self, String> {
        driver.enter_context(context)?;
        let (stream, holder) = (driver.stream_create()?, Holder::new(driver)?);
        driver.enter()?;
        Ok(Self { driver, context, stream, holder, graph: None })
    }

    /// Puts the holding kernel, if kernels work, and a fill into a graph.
    fn make_graph(&mut self) -> Result<(), String> {
        let place = self.driver.allocate(BYTES)?;
        let mut held = None;
        let graph = self.driver.record_graph(self.stream, || {
            if self.holder.has_kernels() {
                held = Some(self.holder.close(self.stream)?);
            }
            self.driver.fill(place, BYTES, 1, self.stream)
        })?;
        self.graph = Some(graph);
        // Launched once while nothing is held: the first launch may wait for other things.
        drop(held);
        self.driver.launch_graph(graph, self.stream)?;
        self.driver.stream_synchronize(self.stream)?;
        Ok(())
    }

    /// Enqueues work that is held.
    fn hold(&self) -> Answer<Hold> {
        self.driver.enter_context(self.context)?;
        let launch = |graph| self.driver.launch_graph(graph, self.stream);
        let hold = match self.graph {
            None => self.holder.close(self.stream)?,
            Some(graph) => match self.holder.close_again(|| launch(graph))? {
                Some(hold) => hold,
                None => {
                    let hold = self.holder.close(self.stream)?;
                    launch(graph)?;
                    hold
                }
            },
        };
        self.driver.enter()?;
        Ok(hold)
    }

    /// Makes every call while work is held; `holds` judges by the calls that waited.
    fn observe(&self, holds: impl Fn(&[bool; CALLS.len()]) -> bool) -> Tried {
        let driver = self.driver;
        let mut table = Table::new(&["call", "waits", "took"]);
        let mut waits = [false; CALLS.len()];
        for (number, (name, call)) in CALLS.into_iter().enumerate() {
            let place = prepare(driver, number)?;
            let hold = self.hold()?;
            let held = hold.watch(HELD_FOR, || call(driver, place));
            hold.open();
            driver.enter_context(self.context)?;
            driver.stream_synchronize(self.stream)?;
            driver.enter()?;
            held.value?;
            waits[number] = !held.returned_before;
            let answer = if waits[number] { "yes" } else { "no" };
            table.row([name.into(), answer.into(), format!("{:.1?}", held.elapsed)]);
        }
        let waiting: Vec<&str> =
            CALLS.iter().zip(waits).filter(|(_, waits)| *waits).map(|(call, _)| call.0).collect();
        let seen = if waiting.is_empty() {
            "none of them waits".to_owned()
        } else {
            format!("these wait: {}", waiting.join(", "))
        };
        let by = if self.holder.has_kernels() { "a kernel" } else { "a function of the host" };
        Ok(Outcome::new(holds(&waits), format!("{seen} (work held by {by})")).with(table))
    }
}

/// Memory for a call.
fn prepare(driver: &Driver, number: usize) -> Answer<u64> {
    match number {
        FREE => driver.allocate(BYTES),
        UNMAP => {
            let (place, handle) = (driver.reserve(BYTES)?, driver.create(BYTES)?);
            driver.map(place, BYTES, handle)?;
            driver.set_access(place, BYTES)?;
            driver.release(handle)?;
            Ok(place)
        }
        _ => Ok(0),
    }
}
