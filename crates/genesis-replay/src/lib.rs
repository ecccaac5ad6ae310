//! Replays recorded allocation traces through the C interface of `libgenesis.so`.
//!
//! ```text
//! record   what a trace consists of
//! gtr      a trace as a file                ↔ Record
//! rmm_log  RMM's log of allocations         ↔ Record
//! varied   a trace with other sizes         Record → Record
//! program  a trace prepared for replay      → Call, with compact slots and the live peak
//! library  libgenesis.so and its functions, looked up by name
//! streams  the stream handles that a replay passes
//! engine   the measured loop; passes, threads, samples
//! crew     threads that do the same thing at once
//! report   what a replay found, as plain data
//! job      one replay, described and run
//! profile  a replay under the profiler
//! trial    a replay to its first failure, on a device of some size
//! forecast the smallest device, and whether another is enough
//! curve    how bytes depend on the batch
//! loops    the loops of a recorded program, written once
//! alignment  which requests of two recordings are the same
//! growth   how many blocks there are of what loops hold
//! prediction  a program at a batch at which it was not recorded
//! batch    the largest batch, by replays of predicted programs
//! bisection  the least size that is enough
//! apart    any of them in a process of its own
//! table    tables of numbers, for people
//! ```
//!
//! The library reads its settings once a process, so every strategy is replayed in a process
//! of its own ([`apart`]). Only the C interface is used: a framework pays what is measured here,
//! call overhead included.

mod alignment;
pub mod apart;
pub mod batch;
pub mod bisection;
mod crew;
pub mod curve;
pub mod engine;
mod error;
pub mod forecast;
mod growth;
pub mod gtr;
pub mod job;
pub mod library;
mod loops;
pub mod prediction;
pub mod profile;
pub mod program;
mod record;
pub mod report;
pub mod rmm_log;
pub mod streams;
pub mod table;
pub mod trial;
pub mod varied;

pub use error::{Error, Result};
