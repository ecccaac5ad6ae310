//! The log: one line per message, to the user's sink or to standard error.
//!
//! A message above the level is not even formatted. The sink is called without a lock held, and
//! several threads may call it at once.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::base::lock::{Lock, assert_none_held, rank};
use crate::config::LogLevel;

/// The receiver of messages.
pub type Sink = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// The log of a heap.
pub struct Log {
    level: AtomicU8,
    sink: Lock<Option<Sink>, { rank::LEAF }>,
}

impl Log {
    /// A log that writes messages up to `level` to standard error.
    pub const fn new(level: LogLevel) -> Self {
        Self { level: AtomicU8::new(level as u8), sink: Lock::new(None) }
    }

    /// Changes the level.
    pub fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Relaxed);
    }

    /// Changes the sink; `None` is standard error.
    pub fn set_sink(&self, sink: Option<Sink>) {
        let replaced = std::mem::replace(&mut *self.sink.lock(), sink);
        drop(replaced);
    }

    /// Writes `message` if it is within the level.
    pub fn write(&self, level: LogLevel, message: &dyn fmt::Display) {
        if level as u8 > self.level.load(Relaxed) {
            return;
        }
        assert_none_held();
        let line = message.to_string();
        let sink = self.sink.lock().clone();
        match sink {
            Some(sink) => sink(level, &line),
            None => print(&format!("genesis: {line}\n")),
        }
    }
}

/// Writes the line to standard error at once, so that those of several processes do not mix. Not
/// through the standard library's lock, if there is a descriptor to spare: in a forked child it may
/// be held for ever. A closed standard error is no reason to fail an allocation.
fn print(line: &str) {
    let mut shared = std::io::stderr();
    let _ = match shared.as_fd().try_clone_to_owned() {
        Ok(own) => File::from(own).write_all(line.as_bytes()),
        Err(_) => shared.write_all(line.as_bytes()),
    };
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Log").field("level", &self.level).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_decides_what_reaches_the_sink() {
        let lines = Arc::new(Lock::<Vec<String>, { rank::LEAF }>::new(Vec::new()));
        let log = Log::new(LogLevel::Warn);
        let written = Arc::clone(&lines);
        log.set_sink(Some(Arc::new(move |level, line| {
            written.lock().push(format!("{level:?} {line}"));
        })));
        log.write(LogLevel::Info, &"quiet");
        log.write(LogLevel::Warn, &"heard");
        log.set_level(LogLevel::Off);
        log.write(LogLevel::Error, &"quiet");
        assert_eq!(*lines.lock(), ["Warn heard"]);
    }
}
