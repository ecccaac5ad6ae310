//! The simulated device: crate `simgpu` behind the device contract.
//!
//! [`open`] makes the machine of a user: any handle names a stream, work completes at once, no
//! race detector. Tests make their own machine, keep it to script faults and advance streams, and
//! open its devices with [`SimulatedDevice::new`].

mod device;
mod managed;

use std::sync::Arc;

use simgpu::{Config, Machine, StoreKind};

pub use device::SimulatedDevice;

use super::{Backend, Device, Platform};
use crate::base::size::{GIB, KIB, MIB};
use crate::base::{Error, Result, Status};
use crate::config::{SIM_MEMORY_BYTES, Settings};

/// The memory of a `host` device if the machine's is unknown, in bytes.
const UNKNOWN_HOST_MEMORY_BYTES: u64 = 4 * GIB;

/// Opens simulated devices: with real bytes for [`Backend::Host`], with addresses only for
/// [`Backend::Sim`]. [`Backend::Cuda`] is an invalid argument.
pub fn open(backend: Backend, settings: &Settings) -> Result<Platform> {
    let (store, default_bytes) = match backend {
        Backend::Host => (StoreKind::RealBytes, half_of_host_memory_bytes()),
        Backend::Sim => (StoreKind::AddressesOnly, SIM_MEMORY_BYTES),
        Backend::Cuda => return Err(Error::invalid_argument("cuda is not a simulated backend")),
    };
    let memory_bytes = settings.sim_memory_bytes.unwrap_or(default_bytes);
    let mut config = Config::new(store, settings.sim_devices as usize, memory_bytes);
    config.costs = settings.sim_prices.table();
    let machine = Machine::new(config).map_err(|code| {
        let devices = settings.sim_devices;
        let message = format!(
            "cannot simulate {devices} devices of {memory_bytes} bytes: {code}; \
             1 to 64 devices are possible, within the address space of the process"
        );
        Error::new(Status::InvalidConfiguration, message)
    })?;
    let devices = (0..settings.sim_devices)
        .map(|ordinal| Arc::new(SimulatedDevice::new(machine.clone(), ordinal)) as Arc<dyn Device>)
        .collect();
    Ok(Platform { backend, devices, notice: None })
}

/// Half of the machine's memory, in whole granules. This is only an upper bound: the device takes
/// what is written.
fn half_of_host_memory_bytes() -> u64 {
    let total_bytes = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_bytes_of(&text))
        .unwrap_or(2 * UNKNOWN_HOST_MEMORY_BYTES);
    (total_bytes / 2) & !(2 * MIB - 1)
}

/// `MemTotal` of a `/proc/meminfo`, in bytes.
fn total_bytes_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(KIB)
}

#[cfg(test)]
mod tests {
    use simgpu::Prices;

    use super::super::HandleOptions;
    use super::*;

    #[test]
    fn memory_of_the_host_is_read() {
        let meminfo = "MemTotal:       24576000 kB\nMemFree:  1 kB\n";
        assert_eq!(total_bytes_of(meminfo), Some(24_576_000 << 10));
        assert_eq!(total_bytes_of("MemFree: 1 kB"), None);
        assert!(half_of_host_memory_bytes() >= 2 * MIB);
    }

    #[test]
    fn both_backends_open_with_their_settings() {
        let settings =
            Settings { sim_devices: 3, sim_memory_bytes: Some(GIB), ..Settings::default() };
        for backend in [Backend::Host, Backend::Sim] {
            let platform = open(backend, &settings).unwrap();
            assert_eq!((platform.backend, platform.devices.len()), (backend, 3));
            for (index, device) in platform.devices.iter().enumerate() {
                assert_eq!(device.ordinal().index(), index);
                assert_eq!(device.memory_info().unwrap().total_bytes, GIB);
            }
        }
        let platform = open(Backend::Sim, &Settings::default()).unwrap();
        assert_eq!(platform.devices[0].memory_info().unwrap().total_bytes, SIM_MEMORY_BYTES);
    }

    #[test]
    fn calls_cost_what_the_chosen_list_says() {
        for sim_prices in Prices::ALL {
            let settings = Settings { sim_prices: *sim_prices, ..Settings::default() };
            let device = &open(Backend::Sim, &settings).unwrap().devices[0];
            let handle = device.create(2 * MIB, HandleOptions::default()).unwrap();
            let create_ns = sim_prices.table().get(simgpu::Call::Create).base_ns();
            assert_eq!(device.usage().nanoseconds, create_ns, "{}", sim_prices.name());
            device.release(handle).unwrap();
        }
    }

    #[test]
    fn impossible_machines_are_a_wrong_configuration() {
        for (sim_devices, sim_memory_bytes) in [(0, GIB), (65, GIB), (2, u64::MAX)] {
            let sim_memory_bytes = Some(sim_memory_bytes);
            let settings = Settings { sim_devices, sim_memory_bytes, ..Settings::default() };
            let status = open(Backend::Sim, &settings).map(|_| ()).unwrap_err().status;
            assert_eq!(status, Status::InvalidConfiguration);
        }
    }
}
