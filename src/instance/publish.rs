//! The files that a process publishes while it runs: one for `genesis top` (`GENESIS_TOP`) and one
//! for Prometheus' node exporter (`GENESIS_METRICS`).
//!
//! One thread of the library writes both and exists only while one of them is wanted. It writes
//! what the heap counts anyway and, if a profile is being made, the call sites that hold most. It
//! locks one lane after the other, calls no driver, and reads no input.
//!
//! **Files** are written under a temporary name and then renamed, so a reader never sees a partial
//! one. They are removed when they are no longer wanted and when the process exits; a reader
//! recognises the file of a killed process. A forked child has neither the thread nor the files.
//!
//! **Locks.** `WANTED` is held only to read or change it. `FILES` is held from the first byte of a
//! file until it is renamed, and at exit, after which no file is made. Neither is held while the
//! heap is read.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use genesis_profile::{Form, model};

use super::{description, files, profile};
use crate::config::{LogLevel, Settings};
use crate::heap::Heap;
use crate::observe::publication::{FOLDERS, INTERVAL, file_name};
use crate::process;

/// The most call sites and streams in a file: the largest.
const MOST_SITES: usize = 32;
const MOST_STREAMS: usize = 256;
/// The bounds of the interval between metrics; other values are clamped.
const METRICS_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;
/// An exiting process waits at most this long for a file that is being written.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(1);

static WANTED: Mutex<Wanted> = Mutex::new(Wanted { targets: Vec::new(), is_served: false });
static CHANGED: Condvar = Condvar::new();
static FILES: Mutex<Files> = Mutex::new(Files { written: Vec::new(), is_over: false });

/// The files that the settings ask for.
struct Wanted {
    targets: Vec<Target>,
    /// Whether the thread exists.
    is_served: bool,
}

/// One file to publish.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    form: Form,
    interval: Duration,
    /// The first that can be written is used.
    paths: Vec<PathBuf>,
}

/// A target that the thread serves.
struct Publication {
    target: Target,
    due: Instant,
    is_complained: bool,
}

/// The files that exist.
struct Files {
    written: Vec<PathBuf>,
    /// The process is exiting.
    is_over: bool,
}

/// Publishes exactly the files that the settings of `heap` ask for, from now on.
pub(super) fn follow(heap: &'static Heap) {
    let targets = targets(&heap.settings());
    let mut wanted = lock(&WANTED);
    if wanted.targets == targets {
        return;
    }
    wanted.targets = targets;
    CHANGED.notify_all();
    if wanted.targets.is_empty() || wanted.is_served {
        return;
    }
    process::at_exit(end);
    let start = || Builder::new().name("genesis-publish".to_owned()).spawn(move || serve(heap));
    match process::starting_threads(start) {
        Ok(_) => wanted.is_served = true,
        Err(error) => {
            wanted.targets.clear();
            drop(wanted);
            warn(heap, &format_args!("nothing is published: cannot start a thread: {error}"));
        }
    }
}

fn targets(settings: &Settings) -> Vec<Target> {
    let mut targets = Vec::new();
    if settings.top {
        let name = file_name(process::user_id(), std::process::id());
        let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(&name)).collect();
        targets.push(Target { form: Form::Json, interval: INTERVAL, paths });
    }
    if let Some(path) = &settings.metrics {
        let seconds =
            settings.metrics_seconds.clamp(*METRICS_SECONDS.start(), *METRICS_SECONDS.end());
        let interval = Duration::from_secs_f64(seconds);
        let paths = vec![PathBuf::from(files::own(path, settings))];
        targets.push(Target { form: Form::Prometheus, interval, paths });
    }
    targets
}

/// The thread.
fn serve(heap: &Heap) {
    if catch_unwind(AssertUnwindSafe(|| publish_while_wanted(heap))).is_err() {
        lock(&WANTED).is_served = false;
        warn(heap, &"nothing is published any more: a defect in genesis");
    }
}

fn publish_while_wanted(heap: &Heap) {
    let speaker = Speaker::new();
    let mut publications: Vec<Publication> = Vec::new();
    let mut wanted = lock(&WANTED);
    loop {
        if !is_served(&wanted.targets, &publications) {
            publications = lock(&FILES).change(publications, &wanted.targets);
        }
        if publications.is_empty() {
            wanted.is_served = false;
            return;
        }
        drop(wanted);
        for publication in &mut publications {
            if publication.due <= Instant::now() {
                publication.publish(heap, &speaker);
            }
        }
        let next = publications.iter().map(|publication| publication.due).min();
        let pause = next.map_or(INTERVAL, |due| due.saturating_duration_since(Instant::now()));
        let is_unchanged = |wanted: &mut Wanted| is_served(&wanted.targets, &publications);
        let waited = CHANGED.wait_timeout_while(lock(&WANTED), pause, is_unchanged);
        wanted = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn is_served(targets: &[Target], publications: &[Publication]) -> bool {
    targets.iter().eq(publications.iter().map(|publication| &publication.target))
}

impl Publication {
    fn publish(&mut self, heap: &Heap, speaker: &Speaker) {
        let profile = speaker.describe(heap);
        // After a delay, do not catch up.
        self.due = Instant::now() + self.target.interval;
        let written = lock(&FILES).write(&self.target, &profile);
        if let Err(error) = written
            && !std::mem::replace(&mut self.is_complained, true)
        {
            let option = match self.target.form {
                Form::Prometheus => "GENESIS_METRICS",
                _ => "GENESIS_TOP",
            };
            warn(heap, &format_args!("{option}: {error}"));
        }
    }
}

impl Files {
    /// Serves `targets` from now on; removes the files of others.
    fn change(&mut self, mut served: Vec<Publication>, targets: &[Target]) -> Vec<Publication> {
        served.retain(|publication| {
            let stays = targets.contains(&publication.target);
            if !stays {
                self.remove(|path| publication.target.paths.iter().any(|own| own == path));
            }
            stays
        });
        let publication = |target: &Target| {
            let known = served.iter().position(|publication| publication.target == *target);
            known.map(|index| served.swap_remove(index)).unwrap_or_else(|| Publication {
                target: target.clone(),
                due: Instant::now(),
                is_complained: false,
            })
        };
        targets.iter().map(publication).collect()
    }

    /// Removes all files and has no more made.
    fn end(&mut self) {
        self.is_over = true;
        self.remove(|_| true);
    }

    fn remove(&mut self, is_gone: impl Fn(&Path) -> bool) {
        self.written.retain(|path| {
            let goes = is_gone(path);
            if goes {
                // Another process may have removed it.
                let _ = std::fs::remove_file(path);
            }
            !goes
        });
    }

    /// Writes `profile` to the first of the target's paths that can be written.
    fn write(&mut self, target: &Target, profile: &model::Profile) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        let mut failure = Ok(());
        for path in &target.paths {
            match replace(path, target.form, profile) {
                Ok(()) => {
                    if !self.written.contains(path) {
                        self.written.push(path.clone());
                    }
                    return Ok(());
                }
                Err(error) => failure = Err(format!("{}: {error}", path.display())),
            }
        }
        failure
    }
}

/// Makes or replaces the file at `path`. All users may read metrics, only the user other files.
fn replace(path: &Path, form: Form, profile: &model::Profile) -> io::Result<()> {
    let mode = if form == Form::Prometheus { 0o644 } else { 0o600 };
    files::replace(path, mode, |file| form.write(profile, file))
}

/// At exit: removes the files and has no more made.
fn end() {
    let deadline = Instant::now() + PATIENCE_AT_EXIT;
    loop {
        match FILES.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(files)) => break files.into_inner().end(),
            Ok(mut files) => break files.end(),
        }
    }
}

/// What all files have in common.
struct Speaker {
    started: Instant,
    started_unix_ns: u64,
    program: String,
}

impl Speaker {
    fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_unix_ns: since_1970.as_nanos() as u64,
            program: process::command_line(),
        }
    }

    /// The present state as a profile with counts since the process began and no history.
    fn describe(&self, heap: &Heap) -> model::Profile {
        let devices = heap.devices_in_use();
        let strategy =
            devices.first().map_or(heap.settings().strategy.pool_type, |first| first.pool_type);
        let (sites, call_sites) = profile::biggest_sites(MOST_SITES);
        model::Profile {
            format: model::FORMAT.to_owned(),
            genesis_version: env!("CARGO_PKG_VERSION").to_owned(),
            program: self.program.clone(),
            process_id: std::process::id(),
            started_unix_ns: self.started_unix_ns,
            duration_ns: self.started.elapsed().as_nanos() as u64,
            strategy: strategy.name().to_owned(),
            backend: heap.backend().name().to_owned(),
            devices: devices.into_iter().map(description::device).collect(),
            streams: describe_streams(heap),
            sites,
            call_sites,
            ..model::Profile::default()
        }
    }
}

/// The streams that hold most. Their peaks are not known, so the present level stands for them.
fn describe_streams(heap: &Heap) -> Vec<model::Stream> {
    let mut streams = heap.streams_in_use();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.active_bytes));
    streams.truncate(MOST_STREAMS);
    let described = streams.into_iter().map(|stream| {
        let now = model::Levels {
            requested_bytes: stream.requested_bytes,
            allocated_bytes: stream.allocated_bytes,
            active_bytes: stream.active_bytes,
            reserved_bytes: 0,
        };
        model::Stream { device: stream.device.0, key: stream.stream.0, now, peak: now }
    });
    described.collect()
}

fn warn(heap: &Heap, message: &dyn std::fmt::Display) {
    heap.log().write(LogLevel::Warn, message);
}

/// Ignores poison: a thread that panicked leaves nothing inconsistent here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
