//! Forecasts: whether memory grows from step to step, and when it will be used up.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::callbacks::UserData;
use super::statistics::write_sized;
use super::{boundary, ordinal};
use crate::base::Status;
use crate::instance::forecast;

/// What is known of a device at the end of the last step, which `genesis_trace_iteration` marks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Forecast {
    /// `sizeof(genesis_forecast)`, set by the caller.
    pub struct_size: usize,
    /// Steps marked while the device was in use.
    pub steps: u64,
    /// The most bytes that were ever live.
    pub peak_bytes: u64,
    /// The most bytes that could be: live, cached, or left by the driver and the limits. 0 unless
    /// memory grows.
    pub possible_bytes: u64,
    /// More bytes in each step; 0 unless memory grows.
    pub bytes_per_step: f64,
    /// After so many more steps memory runs out; infinity unless it grows.
    pub steps_left: f64,
    /// The same if memory grows as fast as it sometimes did, and is as fragmented as so far, and the
    /// next step is as high as the highest.
    pub fewest_steps_left: f64,
    /// How sure it is that memory grows: 1 less the probability of the same by chance; 0 unless it
    /// grows.
    pub confidence: f64,
    /// 1 if what is live at the end of a step grows; 0 if only the peak within a step does, or
    /// neither.
    pub is_leak: c_int,
}

impl From<forecast::Forecast> for Forecast {
    fn from(known: forecast::Forecast) -> Self {
        let forecast::Forecast { steps, peak_bytes, possible_bytes, outlook } = known;
        let of = |value: fn(&crate::observe::Outlook) -> f64, otherwise| {
            outlook.as_ref().map_or(otherwise, value)
        };
        Self {
            struct_size: size_of::<Self>(),
            steps,
            peak_bytes,
            possible_bytes,
            bytes_per_step: of(|outlook| outlook.bytes_per_step, 0.0),
            steps_left: of(|outlook| outlook.steps_left, f64::INFINITY),
            fewest_steps_left: of(|outlook| outlook.fewest_steps_left, f64::INFINITY),
            confidence: of(|outlook| outlook.confidence, 0.0),
            is_leak: outlook.is_some_and(|outlook| outlook.is_leak).into(),
        }
    }
}

/// Called when memory of `device` will run out within as many steps as GENESIS_FORECAST_STEPS says,
/// on the thread that marks the end of the step. `forecast` is valid until it returns. It may call
/// any function of the library, and must not throw.
#[allow(non_camel_case_types)]
pub type genesis_forecast_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, device: c_int, forecast: *const Forecast)>;

/// Writes what is known of `device` to `forecast`, whose `struct_size` the caller has set.
///
/// # Safety
/// `forecast` is NULL, which is an error, or points to `forecast->struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_forecast_get(device: c_int, forecast: *mut Forecast) -> Status {
    let get = || forecast::of(ordinal(device)?).map(Forecast::from);
    // SAFETY: the caller's contract; the struct begins with its size.
    boundary::status(|| unsafe { write_sized(forecast, get) })
}

/// Has `callback` called for each warning that memory runs out, in place of the one before; NULL:
/// none. There is a line in the log in any case.
///
/// # Safety
/// `callback` and `user_data` stay valid until another callback is set and the last call of this
/// one has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_forecast_callback_set(
    callback: genesis_forecast_callback,
    user_data: *mut c_void,
) -> Status {
    let user_data = UserData(user_data);
    boundary::status(|| {
        forecast::set_callback(callback.map(|callback| -> forecast::Callback {
            Arc::new(move |device, known| {
                let known = Forecast::from(*known);
                // SAFETY: the caller keeps both valid, by the contract of this function.
                unsafe { callback(user_data.get(), device.0 as c_int, &raw const known) };
            })
        }))
    })
}
