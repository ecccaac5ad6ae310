//! A thread that is overtaken: before each driver call that it makes, another one goes on.
//!
//! Where a heap calls the driver it holds no lock that others need, with few exceptions, so that whatever
//! it has found out before may no longer be so afterwards. Threads that only run at once hardly meet there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Random, Rig};

/// Steps of the other thread before one call: fewer than this.
const END_STEPS: u64 = 4;
/// Where the thread that is overtaken holds a lock, the other one cannot go on: it is waited for this long.
const MOST_WAIT: Duration = Duration::from_millis(1);

/// The thread that overtakes, as the other one knows it.
struct Overtaker {
    /// Tells how many steps it is to take.
    ask: Sender<u64>,
    /// That it has taken them.
    done: Receiver<()>,
    /// It is still taking some.
    is_under_way: bool,
    /// How many steps it was asked for.
    steps: u64,
    random: Random,
}

impl Overtaker {
    /// Lets it go on, as far as it can.
    fn go_on(&mut self) {
        if self.is_under_way && self.done.try_recv().is_err() {
            return;
        }
        // One at the first call, so that each run has some.
        let least = u64::from(self.steps == 0);
        let count = self.random.below(END_STEPS).max(least);
        self.steps += count;
        self.is_under_way =
            self.ask.send(count).is_ok() && self.done.recv_timeout(MOST_WAIT).is_err();
    }
}

/// The steps that the overtaking thread is to take, each when it may. They end when the other thread does.
pub struct Steps {
    asked: Receiver<u64>,
    tell: Sender<()>,
    /// Those asked for that are not taken yet.
    left: Option<u64>,
}

impl Iterator for Steps {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        loop {
            match self.left {
                Some(left @ 1..) => {
                    self.left = Some(left - 1);
                    return Some(());
                }
                Some(0) => {
                    self.left = None;
                    // The other one may have done with this.
                    let _ = self.tell.send(());
                }
                None => self.left = Some(self.asked.recv().ok()?),
            }
        }
    }
}

/// Runs `overtaken` in this thread, and `overtaking` in another one, which may take steps before each
/// driver call of the former for `rig`, as many as `random` draws. Once for each rig.
pub fn overtake(
    rig: &Rig,
    random: Random,
    overtaken: impl FnOnce(),
    overtaking: impl FnOnce(Steps) + Send,
) {
    let (ask, asked) = channel();
    let (tell, done) = channel();
    thread::scope(|scope| {
        scope.spawn(move || overtaking(Steps { asked, tell, left: Some(0) }));
        // Until it is ready, as the answer to none. If it fails before, so does this.
        let _ = done.recv();
        let overtaker = Overtaker { ask, done, is_under_way: false, steps: 0, random };
        let overtaker = Arc::new(Mutex::new(Some(overtaker)));
        let (thread, known) = (thread::current().id(), Arc::clone(&overtaker));
        rig.machine.before_each_call(move |_| {
            if thread::current().id() == thread
                && let Some(overtaker) = lock(&known).as_mut()
            {
                overtaker.go_on();
            }
        });
        let _end = End(&overtaker);
        overtaken();
        let steps = lock(&overtaker).as_ref().map_or(0, |overtaker| overtaker.steps);
        assert!(steps > 0, "a thread that is never overtaken shows nothing");
    });
}

fn lock(overtaker: &Mutex<Option<Overtaker>>) -> MutexGuard<'_, Option<Overtaker>> {
    overtaker.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the steps, also if the overtaken thread fails: otherwise the other one would wait for ever.
struct End<'a>(&'a Mutex<Option<Overtaker>>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        lock(self.0).take();
    }
}
