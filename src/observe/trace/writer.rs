//! The thread that writes a trace.
//!
//! It sleeps until there is something to do: a quarter of the ring has filled, a piece has
//! waited as long as it may, or somebody asks. Then it empties the ring into the file.
//!
//! Whatever ends it, the file's refusal or a defect of our own, the recording is off before it
//! goes and the ring is empty: no thread of the program is left waiting for it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::Summary;
use super::event::Event;
use super::numbering::Numbering;
use super::output::Output;
use super::ring::{Ring, WAKE_INTERVAL};

/// The consumer tells how far it has read once in so many events.
const RELEASE_INTERVAL: u64 = 1024;

/// What the thread is asked to do. It answers once everything recorded before is in the file.
pub(super) enum Command {
    /// Write what there is.
    Flush(SyncSender<Summary>),
    /// The same, and no more after it.
    Stop(SyncSender<Summary>),
}

/// The state of the thread.
pub(super) struct Writer<'a> {
    pub(super) ring: &'a Ring,
    pub(super) commands: Receiver<Command>,
    pub(super) output: Output,
    pub(super) flush_interval: Duration,
    /// Events with lower numbers are of before the recording: threads that were late.
    pub(super) first: u64,
    pub(super) numbering: Numbering,
}

impl Writer<'_> {
    /// Writes until told to stop, or until the file takes no more.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut flush_at = Instant::now() + self.flush_interval;
        loop {
            self.drain()?;
            while let Ok(command) = self.commands.try_recv() {
                self.drain()?;
                self.output.flush()?;
                // Whoever asked may have lost its patience.
                match command {
                    Command::Flush(answer) => {
                        let _ = answer.try_send(self.summary());
                    }
                    Command::Stop(answer) => {
                        let _ = answer.try_send(self.summary());
                        return Ok(());
                    }
                }
            }
            let now = Instant::now();
            if now >= flush_at {
                self.output.flush()?;
                flush_at = now + self.flush_interval;
            }
            if self.ring.taken() - self.ring.read() < WAKE_INTERVAL {
                thread::park_timeout(flush_at - now);
            }
        }
    }

    /// Takes in all events whose numbers have been taken by now.
    fn drain(&mut self) -> io::Result<()> {
        let (ring, end) = (self.ring, self.ring.taken());
        for number in ring.read()..end {
            let words = ring.get(number);
            if number >= self.first
                && let Some(event) = Event::unpack(words)
            {
                self.numbering.add(event, |record| self.output.add(record));
            }
            if number % RELEASE_INTERVAL == 0 {
                ring.release(number);
                if self.output.is_full() {
                    self.output.flush()?;
                }
            }
        }
        ring.release(end);
        Ok(())
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            records: self.numbering.records,
            left_out: self.numbering.left_out,
            put_in: self.numbering.put_in,
            streams_folded: self.numbering.streams_folded,
        }
    }
}

/// Reads the ring empty, once nothing is recorded any more, for threads that wait for room.
pub(super) fn discard(ring: &Ring) {
    let end = ring.taken();
    for number in ring.read()..end {
        ring.get(number);
        ring.release(number + 1);
    }
}
