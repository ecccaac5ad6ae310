//! Managed memory of a simulated device.

use super::device::SimulatedDevice;
use crate::base::StreamHandle;
use crate::driver::{Advice, Call, Location, Managed, Result};

impl Managed for SimulatedDevice {
    fn has_managed(&self) -> Result<bool> {
        Ok(self.has_managed)
    }

    fn allocate_managed(&self, bytes: u64) -> Result<u64> {
        self.ask(Call::AllocateManaged, |machine, device| machine.allocate_managed(device, bytes))
    }

    fn advise(&self, address: u64, bytes: u64, advice: Advice, location: Location) -> Result<()> {
        let advice = match advice {
            Advice::ReadMostly(on) => simgpu::Advice::ReadMostly(on),
            Advice::PreferredLocation(on) => simgpu::Advice::PreferredLocation(on),
            Advice::AccessedBy(on) => simgpu::Advice::AccessedBy(on),
        };
        self.ask(Call::Advise, |machine, device| {
            machine.advise(device, (address, bytes), advice, device_of(location))
        })
    }

    fn prefetch(
        &self,
        address: u64,
        bytes: u64,
        location: Location,
        stream: StreamHandle,
    ) -> Result<()> {
        self.ask(Call::Prefetch, |machine, device| {
            machine.prefetch(device, (address, bytes), device_of(location), stream.0)
        })
    }
}

fn device_of(location: Location) -> Option<u32> {
    match location {
        Location::Host => None,
        Location::Device(device) => Some(device.0),
    }
}
