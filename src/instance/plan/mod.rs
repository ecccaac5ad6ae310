//! The plan of the process (`GENESIS_PLAN`): what a run held, kept in a file, and made ready by the
//! next run of the same program.
//!
//! ```text
//! the heap is made   the file is read; lanes for its streams will be made when a device is opened
//! then               a thread makes the memory ready, device by device (`heap::ready`)
//! at exit            that thread ends; what is held now, or was when most was held, goes to the file
//! ```
//!
//! A file that is for another program, version, process of the program, device or strategy is named
//! in one line of the log. It is not used, and it is left as it is.
//!
//! **Locks.** `THREAD` is held only to read or change it.

mod form;

use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::files::{self, RANK};
use super::heap_if_made;
use crate::base::{Error, Result, Status};
use crate::config::{LogLevel, Settings};
use crate::heap::{DevicePlan, Heap};
use crate::process::{self, fork};
use form::{Identity, Plan};

/// An exiting process waits at most this long for the thread to leave the driver.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(2);
/// A longer file is no plan.
const LONGEST_FILE_BYTES: u64 = 64 << 20;

/// What the file had.
static READ: OnceCell<Vec<DevicePlan>> = OnceCell::new();
/// The file is not for this process.
static IS_LEFT: AtomicBool = AtomicBool::new(false);
/// The process is exiting.
static IS_OVER: AtomicBool = AtomicBool::new(false);
static THREAD: Mutex<Thread> = Mutex::new(Thread::None);
static CHANGED: Condvar = Condvar::new();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    None,
    Running,
}

/// Reads the plan that the settings name, for `heap`, which nobody uses yet; appends messages.
pub(super) fn read(heap: &Heap, settings: &Settings, messages: &mut Vec<(LogLevel, String)>) {
    let Some(path) = &settings.plan else { return };
    let path = &numbered(path, settings);
    let plan = match read_file(Path::new(path), &identity(settings)) {
        Ok(None) => return,
        Ok(Some(plan)) => plan.devices,
        Err(reason) => {
            IS_LEFT.store(true, Relaxed);
            return messages.push((LogLevel::Warn, left(path, &reason)));
        }
    };
    // One for a device that is not there is noticed when it is to be made ready.
    plan.iter().for_each(|device| drop(heap.expect(device)));
    let _ = READ.set(plan);
}

/// Has a thread make ready what was read, and the plan of this run written at exit.
pub(super) fn follow(heap: &'static Heap) {
    if heap.settings().plan.is_none() {
        return;
    }
    process::at_exit(end);
    let Some(plan) = READ.get() else { return };
    *thread() = Thread::Running;
    let start = || Builder::new().name("genesis-plan".to_owned()).spawn(|| make_ready(heap, plan));
    if let Err(error) = process::starting_threads(start) {
        *thread() = Thread::None;
        let message =
            format!("GENESIS_PLAN: nothing is made ready: cannot start a thread: {error}");
        heap.log().write(LogLevel::Warn, &message);
    }
}

/// The thread.
fn make_ready(heap: &Heap, plan: &[DevicePlan]) {
    let each = |device: &DevicePlan| {
        let made = heap.make_ready(device, &IS_OVER);
        let Err(error) = made else { return };
        if matches!(error.status, Status::InvalidArgument | Status::InvalidDevice) {
            IS_LEFT.store(true, Relaxed);
        }
        let message = format!("GENESIS_PLAN: device {}: {}", device.device, error.message);
        heap.log().write(LogLevel::Warn, &message);
    };
    // Requests grow as always where nothing is ready.
    let _ = catch_unwind(AssertUnwindSafe(|| plan.iter().for_each(each)));
    *thread() = Thread::None;
    CHANGED.notify_all();
}

/// Waits until the plan is ready, or as much of it as there is memory for.
pub(crate) fn wait() -> Result<()> {
    fork::refuse_child()?;
    super::heap()?;
    let running = |thread: &mut Thread| *thread == Thread::Running;
    drop(CHANGED.wait_while(thread(), running).unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// Writes the plan of this run so far to `path`.
pub(crate) fn write(path: &str) -> Result<()> {
    fork::refuse_child()?;
    let heap = super::heap()?;
    write_file(heap, &numbered(path, &heap.settings()))
}

fn end() {
    IS_OVER.store(true, Relaxed);
    let running = |thread: &mut Thread| *thread == Thread::Running;
    drop(CHANGED.wait_timeout_while(thread(), PATIENCE_AT_EXIT, running));
    let Ok(Some(heap)) = heap_if_made() else { return };
    if let Some(path) = heap.settings().plan
        && !IS_LEFT.load(Relaxed)
        && let Err(error) = write_file(heap, &numbered(&path, &heap.settings()))
    {
        heap.log().write(LogLevel::Warn, &format_args!("GENESIS_PLAN: {error}"));
    }
}

fn write_file(heap: &Heap, path: &str) -> Result<()> {
    let plan = Plan { identity: identity(&heap.settings()), devices: heap.plan() };
    let failed = |error| Error::new(Status::FileFailed, format!("{path}: {error}"));
    let text = plan.text();
    files::remove_left(Path::new(path));
    files::replace(Path::new(path), files::FOR_ALL, |file| file.write_all(text.as_bytes()))
        .map_err(failed)
}

/// The plan in the file; `None` if there is no file. The error says why it is not for this process.
fn read_file(path: &Path, identity: &Identity) -> std::result::Result<Option<Plan>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let mut text = String::new();
    let read = file.take(LONGEST_FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    let plan = Plan::of_text(&text)?;
    match plan.identity.difference(identity) {
        Some(difference) => Err(difference),
        None => Ok(Some(plan)),
    }
}

fn identity(settings: &Settings) -> Identity {
    Identity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: process::command_line().replace(char::is_control, " ").trim().to_owned(),
        rank: settings.rank,
    }
}

/// `path` with the numbers that stand in it for the process.
fn numbered(path: &str, settings: &Settings) -> String {
    process::numbered(path).replace(RANK, &settings.rank.unwrap_or(0).to_string())
}

fn left(path: &str, reason: &str) -> String {
    format!("GENESIS_PLAN: {path} is not used, and left as it is: {reason}")
}

fn thread() -> MutexGuard<'static, Thread> {
    THREAD.lock().unwrap_or_else(PoisonError::into_inner)
}
