//! Replays recorded allocation traces through the C interface of `libgenesis.so`.
//!
//! ```text
//! gtr      a trace as a file                → Record
//! rmm_log  RMM's log of allocations         ↔ Record
//! program  a trace prepared for replay      → Call, with compact slots and the live peak
//! library  libgenesis.so and its functions, looked up by name
//! streams  the stream handles that a replay passes
//! engine   the measured loop; passes, threads, samples
//! crew     threads that do the same thing at once
//! report   what a replay found, as plain data
//! job      one replay, described and run; each in a process of its own
//! profile  a replay that is looked at instead of measured
//! table    numbers set out for people
//! ```
//!
//! The library reads its settings once a process, so every strategy is replayed in a process
//! of its own: see [`job`]. Only the C interface is used, so that what is measured is what a
//! framework gets, call overhead included.

mod crew;
pub mod engine;
mod error;
pub mod gtr;
pub mod job;
pub mod library;
pub mod profile;
pub mod program;
pub mod report;
pub mod rmm_log;
pub mod streams;
pub mod table;

pub use error::{Error, Result};
