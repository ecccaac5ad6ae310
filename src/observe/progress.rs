//! A line on the terminal that says how far a long operation is.
//!
//! It is drawn once the operation has taken [`DELAY`], again each [`INTERVAL`] at most, and erased at
//! the end. Nothing is written if standard error is no terminal.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::base::size::Bytes;

/// A shorter operation draws nothing.
const DELAY: Duration = Duration::from_secs(1);
/// The time between two drawings.
const INTERVAL: Duration = Duration::from_millis(100);
/// Erases what is right of the cursor.
const ERASE: &str = "\x1b[K";

/// The line of an operation, until it is dropped.
#[derive(Debug)]
pub struct ProgressLine {
    doing: &'static str,
    began: Instant,
    drawn: Option<Instant>,
}

impl ProgressLine {
    /// The line of an operation that begins now; `None` if standard error is no terminal. `doing` says
    /// what it does.
    pub fn begin(doing: &'static str) -> Option<Self> {
        let line = Self { doing, began: Instant::now(), drawn: None };
        stderr().is_terminal().then_some(line)
    }

    /// So many bytes of all are done.
    pub fn show(&mut self, done_bytes: u64, total_bytes: u64) {
        let now = Instant::now();
        let elapsed = now - self.began;
        let is_due = self.drawn.is_none_or(|drawn| now - drawn >= INTERVAL);
        if elapsed >= DELAY && is_due {
            self.drawn = Some(now);
            let Self { doing, .. } = *self;
            write(&format!("\r{}{ERASE}", State { doing, done_bytes, total_bytes, elapsed }));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            write(&format!("\r{ERASE}"));
        }
    }
}

/// A terminal that is gone is no reason to fail.
fn write(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// How far an operation is: "genesis: pausing: 12.00 GiB of 40.00 GiB, 3.10 GiB/s, 9 s left".
struct State {
    doing: &'static str,
    done_bytes: u64,
    total_bytes: u64,
    elapsed: Duration,
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doing, done_bytes, total_bytes, elapsed } = *self;
        let (done, total) = (Bytes(done_bytes), Bytes(total_bytes));
        write!(formatter, "genesis: {doing}: {done} of {total}")?;
        let bytes_per_second = done_bytes as f64 / elapsed.as_secs_f64();
        if done_bytes > 0 && bytes_per_second.is_finite() {
            let seconds = total_bytes.saturating_sub(done_bytes) as f64 / bytes_per_second;
            write!(formatter, ", {}/s, {seconds:.0} s left", Bytes(bytes_per_second as u64))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::GIB;

    #[test]
    fn it_says_how_much_is_done_and_how_long_the_rest_takes() {
        let text = |done_bytes, seconds| {
            let elapsed = Duration::from_secs(seconds);
            State { doing: "pausing", done_bytes, total_bytes: 40 * GIB, elapsed }.to_string()
        };
        assert_eq!(
            text(10 * GIB, 5),
            "genesis: pausing: 10.00 GiB of 40.00 GiB, 2.00 GiB/s, 15 s left"
        );
        assert_eq!(text(0, 5), "genesis: pausing: 0 B of 40.00 GiB");
        assert_eq!(text(GIB, 0), "genesis: pausing: 1.00 GiB of 40.00 GiB");
        let longest = State {
            doing: "resuming",
            done_bytes: 1023 << 30,
            total_bytes: 1023 << 30,
            elapsed: Duration::from_secs(9999),
        };
        assert!(longest.to_string().len() < 80, "{longest}");
    }
}
