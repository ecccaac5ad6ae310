//! The consumer of events that writes them to the file of a trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::numbering::Numbering;
use super::output::Output;
use super::{Summary, file_failed};
use crate::base::{Error, Result};
use crate::config::LogLevel;
use crate::observe::{Consumer, Event, Log};

/// The state of a recording.
pub(super) struct Writer {
    pub(super) name: Arc<str>,
    pub(super) log: &'static Log,
    pub(super) output: Output,
    pub(super) flush_interval: Duration,
    pub(super) flush_at: Instant,
    pub(super) numbering: Numbering,
}

impl Writer {
    pub(super) fn summary(&self) -> Summary {
        Summary {
            records: self.numbering.records,
            left_out: self.numbering.left_out,
            put_in: self.numbering.put_in,
            streams_folded: self.numbering.streams_folded,
        }
    }
}

impl Consumer for Writer {
    fn take(&mut self, event: &Event) {
        self.numbering.add(event, |record| self.output.add(record));
    }

    /// A trace has an order but no times.
    fn wants_time(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        self.output.is_full()
    }

    fn settle(&mut self, is_asked: bool) -> Result<Duration> {
        let now = Instant::now();
        let is_due = now >= self.flush_at;
        if is_asked || is_due || self.output.is_full() {
            self.output.flush().map_err(|error| file_failed(&self.name, &error))?;
        }
        if is_due {
            self.flush_at = now + self.flush_interval;
        }
        Ok(self.flush_at - now)
    }

    /// Logs the failure from a thread of its own, because the log's receiver may call the library
    /// and wait for the collecting thread.
    fn fail(&mut self, error: &Error) {
        let (log, message) = (self.log, format!("recording has ended: {error}"));
        let say = move || log.write(LogLevel::Warn, &message);
        // Without a thread it is not logged; ending the recording returns the error.
        let _ = std::thread::Builder::new().name("genesis-log".to_owned()).spawn(say);
    }
}
