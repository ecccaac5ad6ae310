//! Two stages of work on chunks, the first in a thread of its own: while one chunk is copied, the
//! next is locked, read or written.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;

use crate::base::{Error, Result, Status};

/// Calls `first` and then `second` for each of so many chunks, in order. `first`, in another thread,
/// is at most `ahead` chunks before `second`. At an error neither goes on, and the first is returned.
pub(super) fn in_two_stages(
    (chunks, ahead): (u64, u64),
    first: impl Fn(u64) -> Result<()> + Send,
    mut second: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    if chunks <= 1 {
        return (0..chunks).try_for_each(|chunk| first(chunk).and_then(|()| second(chunk)));
    }
    let (done, ready) = channel();
    let (permit, permits) = channel();
    (0..ahead).for_each(|_| send(&permit, ()));
    let other = move || {
        for chunk in 0..chunks {
            let result = permits.recv().map_err(|_| stopped()).and_then(|()| first(chunk));
            let is_over = result.is_err();
            if done.send(result).is_err() || is_over {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        // Dropped before the scope waits for the other thread, which then ends.
        let (ready, permit): (Receiver<Result<()>>, _) = (ready, permit);
        let name = "genesis backup".to_owned();
        Builder::new().name(name).spawn_scoped(scope, other).map_err(no_thread)?;
        (0..chunks).try_for_each(|chunk| {
            ready.recv().map_err(|_| stopped()).and_then(|result| result)?;
            second(chunk)?;
            send(&permit, ());
            Ok(())
        })
    })
}

/// Tells the other thread, which may have ended.
fn send(permit: &std::sync::mpsc::Sender<()>, value: ()) {
    let _ = permit.send(value);
}

fn stopped() -> Error {
    Error::new(Status::Internal, "the other thread of a backup has ended")
}

fn no_thread(error: io::Error) -> Error {
    Error::new(Status::OutOfMemory, format!("no thread can be started for a backup: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_chunk_passes_both_stages_in_order() {
        for (chunks, ahead) in [(0, 1), (1, 1), (2, 1), (9, 2), (50, 8)] {
            let (before, after) = (AtomicU64::new(0), AtomicU64::new(0));
            let first = |chunk| {
                assert_eq!(before.fetch_add(1, Relaxed), chunk);
                assert!(chunk < after.load(Relaxed) + ahead.max(1), "{chunk} is too early");
                Ok(())
            };
            let second = |chunk| {
                assert!(before.load(Relaxed) > chunk);
                assert_eq!(after.fetch_add(1, Relaxed), chunk);
                Ok(())
            };
            in_two_stages((chunks, ahead), first, second).unwrap();
            assert_eq!(after.into_inner(), chunks);
        }
    }

    #[test]
    fn an_error_of_either_stage_ends_both() {
        let fail =
            |at, chunk| if chunk == at { Err(Error::invalid_argument("bad")) } else { Ok(()) };
        for at in 0..6 {
            for (first_at, second_at) in [(at, 9), (9, at)] {
                let (first, second) =
                    (|chunk| fail(first_at, chunk), |chunk| fail(second_at, chunk));
                let error = in_two_stages((6, 2), first, second).unwrap_err();
                assert_eq!(error.message, "bad");
            }
        }
    }
}
