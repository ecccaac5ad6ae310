//! The forecast of the process: whether its memory grows from step to step, and when it will be used
//! up (`observe::Growth`).
//!
//! A program marks the ends of its steps, as it does for a recording. Each mark notes two levels of
//! every device in use. If one of them will be used up within as many steps as
//! `GENESIS_FORECAST_STEPS` says, there is one warning: a line in the log, a mark in the profile, and
//! a call of the program's function. The next one comes when less than a quarter of the steps are
//! left, or when memory has stopped growing in between.
//!
//! **Locks.** `STEPS` is held only while levels are noted and looked at, and never while the heap is
//! read or a function of the program runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{annotate, heap_if_made};
use crate::base::size::Bytes;
use crate::base::{DeviceOrdinal, Result};
use crate::config::LogLevel;
use crate::heap::{Heap, Step};
use crate::observe::{Action, Growth, Outlook, Possible, StepLevels};
use crate::process::fork;

/// The name of the mark in the profile.
const MARK: &str = "memory runs out";
/// A second warning comes when less than this part of the steps is left that the first one told.
const AGAIN_PART: f64 = 0.25;

/// What is known of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Forecast {
    /// Steps that were marked while the device was in use.
    pub(crate) steps: u64,
    /// The most bytes that were ever live.
    pub(crate) peak_bytes: u64,
    /// The most bytes that could be; 0 unless memory grows.
    pub(crate) possible_bytes: u64,
    /// How memory grows, if it does.
    pub(crate) outlook: Option<Outlook>,
}

/// Called with the device whose memory runs out.
pub(crate) type Callback = Arc<dyn Fn(DeviceOrdinal, &Forecast) + Send + Sync>;

static STEPS: Mutex<Steps> = Mutex::new(Steps { devices: Vec::new(), callback: None });

struct Steps {
    /// By ordinal.
    devices: Vec<Followed>,
    callback: Option<Callback>,
}

/// The steps of one device.
#[derive(Default)]
struct Followed {
    growth: Growth,
    last: Forecast,
    /// The steps that the last warning told were left.
    told: Option<f64>,
}

/// A step of the program has ended.
pub(crate) fn end_step() -> Result<()> {
    let Some(heap) = heap_if_made()? else { return Ok(()) };
    let horizon = heap.settings().forecast_steps;
    for Step { device, levels } in heap.steps() {
        let is_growing = steps().device(device).add(levels);
        // The driver is asked only then.
        let possible = if is_growing { Some(heap.possible(device)?) } else { None };
        let mut steps = steps();
        let warning = steps.device(device).look(possible, horizon);
        let callback = steps.callback.clone();
        drop(steps);
        if let Some(forecast) = warning {
            warn(heap, device, &forecast);
            callback.inspect(|callback| callback(device, &forecast));
        }
    }
    Ok(())
}

/// What is known of `device` at the end of the last step.
pub(crate) fn of(device: DeviceOrdinal) -> Result<Forecast> {
    super::heap()?.device_name(device)?;
    Ok(last(device))
}

/// The same, for a device that there is.
pub(super) fn last(device: DeviceOrdinal) -> Forecast {
    steps().device(device).last
}

/// Has `callback` called for warnings from now on.
pub(crate) fn set_callback(callback: Option<Callback>) -> Result<()> {
    fork::refuse_child()?;
    let before = std::mem::replace(&mut steps().callback, callback);
    drop(before);
    Ok(())
}

fn warn(heap: &Heap, device: DeviceOrdinal, forecast: &Forecast) {
    let Some(outlook) = forecast.outlook else { return };
    let what = if outlook.is_leak { "what stays live" } else { "the peak of a step" };
    heap.log().write(LogLevel::Warn, &format_args!(
        "device {device}: memory runs out in about {:.0} steps, at least {:.0}: {what} grows by {} \
         a step, and {} of {} are left",
        outlook.steps_left,
        outlook.fewest_steps_left,
        Bytes(outlook.bytes_per_step as u64),
        Bytes(forecast.possible_bytes.saturating_sub(forecast.peak_bytes)),
        Bytes(forecast.possible_bytes),
    ));
    let _ = annotate(Action::Mark, Some(MARK));
}

fn steps() -> MutexGuard<'static, Steps> {
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Steps {
    fn device(&mut self, device: DeviceOrdinal) -> &mut Followed {
        if self.devices.len() <= device.index() {
            self.devices.resize_with(device.index() + 1, Followed::default);
        }
        &mut self.devices[device.index()]
    }
}

impl Followed {
    /// Notes the end of a step; returns true if memory grows.
    fn add(&mut self, levels: StepLevels) -> bool {
        self.growth.add(levels);
        self.last = Forecast {
            steps: self.growth.steps(),
            peak_bytes: levels.peak_bytes,
            possible_bytes: 0,
            outlook: None,
        };
        self.growth.outlook(Possible::default()).is_some()
    }

    /// Looks ahead, where so much is possible; returns what is to be warned of.
    fn look(&mut self, possible: Option<Possible>, horizon: Option<u64>) -> Option<Forecast> {
        let outlook = possible.and_then(|possible| self.growth.outlook(possible));
        let possible_bytes = possible.map_or(0, |possible| possible.most_bytes);
        self.last = Forecast { possible_bytes, outlook, ..self.last };
        let Some(Outlook { steps_left, .. }) = outlook else {
            self.told = None;
            return None;
        };
        let is_near = horizon.is_some_and(|horizon| steps_left <= horizon as f64);
        let is_new = self.told.is_none_or(|told| steps_left < told * AGAIN_PART);
        (is_near && is_new).then(|| {
            self.told = Some(steps_left);
            self.last
        })
    }
}
