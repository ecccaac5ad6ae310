//! The settings from the environment, read once.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `SIMCUDA_MEMORY` | `80GiB` | memory of each device: bytes, or with `KiB`, `MiB`, `GiB` |
//! | `SIMCUDA_DEVICES` | `1` | how many devices; `CUDA_VISIBLE_DEVICES` may hide some |
//! | `SIMCUDA_COMMON` | none | a file: processes that name the same one have the same devices, and one capacity |
//! | `SIMCUDA_MIG` | none | a profile such as `1g.10gb`: each device is an instance (MIG) of that profile |
//! | `SIMCUDA_FABRIC` | `off` | `on`: the devices are in a fabric; `denied`: the process has no IMEX channel to it |
//! | `SIMCUDA_MANAGED` | `concurrent` | `exclusive`: managed memory as on Windows; `off`: none |
//! | `SIMCUDA_STORE` | `addresses` | `bytes`: device memory is real, and copies move it |
//! | `SIMCUDA_PROGRESS` | `automatic` | `manual`: streams advance when waited for or advanced |
//! | `SIMCUDA_ADDRESSES` | `ascending` | `descending`: memory comes from high addresses down |
//! | `SIMCUDA_RACES` | `on` | `off`: no race detector |
//! | `SIMCUDA_KERNEL_TOUCHES` | `on` | `off`: launches touch nothing (see `touches`) |
//! | `SIMCUDA_ON_VIOLATION` | `report` | `abort`: the first race or misuse ends the process |
//! | `SIMCUDA_FAULTS` | none | `call:nth:code[:times]`, separated by commas |
//! | `SIMCUDA_PRICES` | `h100` | prices of calls, by the name of a `simgpu::Prices` |
//! | `SIMCUDA_TIME` | `virtual` | `real`: calls also take their least prices of real time (see `simgpu::Config`) |
//! | `SIMCUDA_LOG` | none | a file that gets one line for each call |
//!
//! A value that cannot be parsed is an error that names it; then there is no device.

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use simgpu::{ManagedAccess, Prices, Progress, StoreKind};

/// Memory of a device if the environment sets none, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 80 << 30;
/// The most devices a machine may have.
const MOST_DEVICES: u32 = 64;

/// What there is of a fabric, over which machines share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// None: the devices' attribute says so.
    Off,
    /// The devices are in one, and the process has no IMEX channel: memory is refused.
    Denied,
    /// All there is.
    On,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) memory_bytes: u64,
    /// Devices that are visible; may be 0.
    pub(crate) devices: u32,
    /// The file of the processes that have the same devices.
    pub(crate) common: Option<PathBuf>,
    /// The profile of the instances that devices are.
    pub(crate) instance: Option<String>,
    pub(crate) fabric: Fabric,
    pub(crate) managed: ManagedAccess,
    pub(crate) store: StoreKind,
    pub(crate) progress: Progress,
    pub(crate) descending_addresses: bool,
    pub(crate) detect_races: bool,
    pub(crate) kernel_touches: bool,
    pub(crate) abort_on_violation: bool,
    pub(crate) faults: Vec<Fault>,
    pub(crate) prices: Prices,
    pub(crate) takes_time: bool,
    pub(crate) log_path: Option<String>,
}

/// Values that replace variables of the environment.
static OVERRIDES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Replaces the value of `name` in the environment by `value`.
pub(crate) fn set(name: &str, value: &str) {
    let mut overrides = OVERRIDES.lock().unwrap_or_else(PoisonError::into_inner);
    overrides.push((name.to_owned(), value.to_owned()));
}

/// From the `nth` call of `call` on (1: the first), `times` calls return `code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) call: String,
    pub(crate) nth: u64,
    pub(crate) code: i32,
    pub(crate) times: u64,
}

impl Settings {
    /// Reads the environment. The error names what is wrong in it.
    pub(crate) fn read() -> Result<Self, String> {
        let overrides = OVERRIDES.lock().unwrap_or_else(PoisonError::into_inner);
        let overridden = |name: &str| {
            overrides.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        Self::parse(|name| overridden(name).or_else(|| env::var(name).ok()))
    }

    fn parse(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let choice = |name: &str, no: &str, yes: &str, default: bool| match get(name).as_deref() {
            None | Some("") => Ok(default),
            Some(value) if value == yes => Ok(true),
            Some(value) if value == no => Ok(false),
            Some(value) => Err(format!("{name}={value}: it is {no} or {yes}")),
        };
        let memory_bytes = match get("SIMCUDA_MEMORY") {
            None => DEFAULT_MEMORY_BYTES,
            Some(text) => parse_bytes(&text)
                .filter(|&bytes| bytes > 0)
                .ok_or(format!("SIMCUDA_MEMORY={text}: it is a size such as 80GiB"))?,
        };
        let installed = match get("SIMCUDA_DEVICES") {
            None => 1,
            Some(text) => text
                .parse()
                .ok()
                .filter(|&count| count <= MOST_DEVICES)
                .ok_or(format!("SIMCUDA_DEVICES={text}: it is 0 to {MOST_DEVICES}"))?,
        };
        let devices = visible_devices(installed, get("CUDA_VISIBLE_DEVICES").as_deref());
        let bytes = choice("SIMCUDA_STORE", "addresses", "bytes", false)?;
        let manual = choice("SIMCUDA_PROGRESS", "automatic", "manual", false)?;
        let fabric = match get("SIMCUDA_FABRIC").as_deref() {
            None | Some("" | "off") => Fabric::Off,
            Some("denied") => Fabric::Denied,
            Some("on") => Fabric::On,
            Some(value) => return Err(format!("SIMCUDA_FABRIC={value}: it is off, denied or on")),
        };
        let managed = match get("SIMCUDA_MANAGED").as_deref() {
            None | Some("" | "concurrent") => ManagedAccess::Concurrent,
            Some("exclusive") => ManagedAccess::Exclusive,
            Some("off") => ManagedAccess::None,
            Some(value) => {
                let choices = "concurrent, exclusive or off";
                return Err(format!("SIMCUDA_MANAGED={value}: it is {choices}"));
            }
        };
        let faults = get("SIMCUDA_FAULTS").unwrap_or_default();
        let prices = match get("SIMCUDA_PRICES").as_deref() {
            None | Some("") => Prices::default(),
            Some(text) => {
                text.parse().map_err(|error| format!("SIMCUDA_PRICES={text}: {error}"))?
            }
        };
        Ok(Self {
            memory_bytes,
            devices,
            common: get("SIMCUDA_COMMON").filter(|path| !path.is_empty()).map(PathBuf::from),
            instance: get("SIMCUDA_MIG").filter(|profile| !profile.is_empty()),
            fabric,
            managed,
            store: if bytes { StoreKind::RealBytes } else { StoreKind::AddressesOnly },
            progress: if manual { Progress::Manual } else { Progress::Automatic },
            descending_addresses: choice("SIMCUDA_ADDRESSES", "ascending", "descending", false)?,
            detect_races: choice("SIMCUDA_RACES", "off", "on", true)?,
            kernel_touches: choice("SIMCUDA_KERNEL_TOUCHES", "off", "on", true)?,
            abort_on_violation: choice("SIMCUDA_ON_VIOLATION", "report", "abort", false)?,
            faults: faults
                .split(',')
                .filter(|rule| !rule.trim().is_empty())
                .map(parse_fault)
                .collect::<Result<_, _>>()?,
            prices,
            takes_time: choice("SIMCUDA_TIME", "virtual", "real", false)?,
            log_path: get("SIMCUDA_LOG").filter(|path| !path.is_empty()),
        })
    }
}

/// How many devices a program sees: CUDA's list of ordinals ends at the first wrong one.
fn visible_devices(installed: u32, list: Option<&str>) -> u32 {
    let Some(list) = list else { return installed };
    let is_there = |entry: &&str| entry.trim().parse().is_ok_and(|one: u32| one < installed);
    list.split(',').take_while(is_there).count() as u32
}

fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

fn parse_fault(rule: &str) -> Result<Fault, String> {
    let wrong = || format!("SIMCUDA_FAULTS: {rule}: it is call:nth:code or call:nth:code:times");
    let parts: Vec<&str> = rule.trim().split(':').collect();
    let number = |index: usize| parts.get(index).and_then(|text| text.parse::<u64>().ok());
    let times = match parts.len() {
        3 => 1,
        4 if parts[3] == "*" => u64::MAX,
        4 => number(3).ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let nth = number(1).filter(|&nth| nth > 0).ok_or_else(wrong)?;
    let code = number(2).and_then(|code| i32::try_from(code).ok()).ok_or_else(wrong)?;
    Ok(Fault { call: parts[0].to_owned(), nth, code, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::parse(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn everything_has_a_default() {
        let settings = parse(&[]).unwrap();
        assert_eq!((settings.memory_bytes, settings.devices), (80 << 30, 1));
        assert_eq!((settings.store, settings.prices), (StoreKind::AddressesOnly, Prices::H100));
        assert!(settings.detect_races && !settings.abort_on_violation);
        assert_eq!(settings.fabric, Fabric::Off);
    }

    #[test]
    fn every_value_is_understood() {
        let settings = parse(&[
            ("SIMCUDA_MEMORY", "16GiB"),
            ("SIMCUDA_DEVICES", "4"),
            ("CUDA_VISIBLE_DEVICES", "2,0,9,1"),
            ("SIMCUDA_STORE", "bytes"),
            ("SIMCUDA_PROGRESS", "manual"),
            ("SIMCUDA_ADDRESSES", "descending"),
            ("SIMCUDA_RACES", "off"),
            ("SIMCUDA_FAULTS", "cuMemAlloc:5:2,cudaMalloc:1:700:*"),
            ("SIMCUDA_PRICES", "a100"),
            ("SIMCUDA_TIME", "real"),
            ("SIMCUDA_MIG", "1g.10gb"),
            ("SIMCUDA_FABRIC", "denied"),
            ("SIMCUDA_MANAGED", "exclusive"),
        ])
        .unwrap();
        assert_eq!((settings.memory_bytes, settings.devices), (16 << 30, 2));
        assert_eq!((settings.store, settings.progress), (StoreKind::RealBytes, Progress::Manual));
        assert!(settings.descending_addresses && !settings.detect_races && settings.takes_time);
        assert_eq!(
            (settings.prices, settings.instance.as_deref(), settings.fabric),
            (Prices::A100, Some("1g.10gb"), Fabric::Denied)
        );
        assert_eq!(settings.managed, ManagedAccess::Exclusive);
        let rule = |call: &str, nth, code, times| Fault { call: call.into(), nth, code, times };
        let expected = [rule("cuMemAlloc", 5, 2, 1), rule("cudaMalloc", 1, 700, u64::MAX)];
        assert_eq!(settings.faults, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value) in [
            ("SIMCUDA_MEMORY", "much"),
            ("SIMCUDA_MEMORY", "0"),
            ("SIMCUDA_DEVICES", "65"),
            ("SIMCUDA_STORE", "byte"),
            ("SIMCUDA_FABRIC", "maybe"),
            ("SIMCUDA_MANAGED", "maybe"),
            ("SIMCUDA_FAULTS", "cuMemAlloc:0:2"),
            ("SIMCUDA_FAULTS", "cuMemAlloc:5"),
            ("SIMCUDA_PRICES", "b400"),
            ("SIMCUDA_TIME", "none"),
        ] {
            let message = parse(&[(name, value)]).unwrap_err();
            assert!(message.contains(name) && message.contains(value), "{message}");
        }
    }

    #[test]
    fn hidden_devices_are_not_counted() {
        for (list, count) in [("", 0), ("-1", 0), ("0", 1), ("1,0", 2), ("GPU-1", 0)] {
            assert_eq!(visible_devices(2, Some(list)), count, "{list:?}");
        }
        assert_eq!(visible_devices(2, None), 2);
    }
}
