//! Physical memory with as many of the requested options as a device supports.
//!
//! Some options fail only when memory is created: a driver that knows fabric handles refuses them
//! to a process without an IMEX channel, although the device's attribute and the granularity
//! promise them. So the option sets are tried in order, from all that was requested to none. A set
//! is dropped for good once the driver refuses it and a later one succeeds.
//!
//! A refusal is `NOT_SUPPORTED`, `NOT_PERMITTED`, or `INVALID_VALUE`, which drivers older than a
//! handle type return. Out of memory is no refusal.
//!
//! **Invariants**: the sets end with the plain one; the one in force only moves towards it; the
//! granularity is the largest of all sets', so that a layout made for one set fits the next.
//! **Locks**: none. Threads that find out the same thing at the same time ask once each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Code, Device, DriverError, HandleOptions, MemoryHandle, Result, Shareable};
use crate::config::{HandleType, Settings};

impl HandleOptions {
    /// The options that the settings request.
    pub fn wished(settings: &Settings) -> Self {
        let shareable = match settings.handle_type {
            HandleType::None => Shareable::None,
            HandleType::Posix => Shareable::PosixFd,
            HandleType::Fabric => Shareable::Fabric,
        };
        Self { shareable, rdma: settings.rdma }
    }
}

/// Asks a device for a granularity of memory with these options.
type Ask = fn(&dyn Device, HandleOptions) -> Result<u64>;

/// Creates memory of one device. Methods may be called from any thread.
#[derive(Debug)]
pub struct Handles {
    driver: Arc<dyn Device>,
    /// The option sets, from all requested options to none.
    sets: Vec<HandleOptions>,
    /// Which of them is in force.
    in_force: AtomicUsize,
    granularity_bytes: u64,
}

impl Handles {
    /// Finds out which of `wished` the device is known to lack. Creates nothing.
    ///
    /// `NOT_SUPPORTED` on a device without virtual memory management.
    pub fn open(driver: Arc<dyn Device>, wished: HandleOptions) -> Result<Self> {
        Self::open_by(driver, wished, |driver, options| driver.granularity(options))
    }

    /// [`Self::open`], for sizes and addresses that are multiples of what the driver recommends.
    pub fn open_recommended(driver: Arc<dyn Device>, wished: HandleOptions) -> Result<Self> {
        Self::open_by(driver, wished, |driver, options| driver.recommended_granularity(options))
    }

    fn open_by(driver: Arc<dyn Device>, wished: HandleOptions, ask: Ask) -> Result<Self> {
        let plain = HandleOptions::default();
        let granularity_bytes = ask(&*driver, plain)?;
        let (sets, in_force) = (vec![plain], AtomicUsize::new(0));
        let mut handles = Self { driver, sets, in_force, granularity_bytes };
        if wished.rdma {
            handles.add(HandleOptions { rdma: true, ..plain }, ask)?;
        }
        let rdma = handles.options().rdma;
        if wished.shareable == Shareable::PosixFdOrFabric {
            // Without a fabric the machine's own processes can still share it.
            handles.add(HandleOptions { shareable: Shareable::PosixFd, rdma }, ask)?;
        }
        if wished.shareable != Shareable::None {
            handles.add(HandleOptions { rdma, ..wished }, ask)?;
        }
        Ok(handles)
    }

    /// The multiple, in bytes, that sizes and addresses of this memory must be of: a power of
    /// two, whatever options are left out later.
    pub const fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes
    }

    /// The options in force, with which the next memory is requested. Before the first memory is
    /// created, the device may still turn out to lack some.
    pub fn options(&self) -> HandleOptions {
        self.sets[self.in_force.load(Ordering::Relaxed)]
    }

    /// Creates `bytes` of physical memory with the options in force. If the driver refuses them,
    /// fewer are tried, and those that succeed are in force from now on.
    ///
    /// Fails as [`Device::create`] does; with a refusal only if even plain memory is refused.
    pub fn create(&self, bytes: u64) -> Result<MemoryHandle> {
        let mut set = self.in_force.load(Ordering::Relaxed);
        loop {
            match self.driver.create(bytes, self.sets[set]) {
                Err(error) if is_refusal(error) && set + 1 < self.sets.len() => set += 1,
                Err(error) => return Err(error),
                Ok(handle) => {
                    self.in_force.fetch_max(set, Ordering::Relaxed);
                    return Ok(handle);
                }
            }
        }
    }

    /// Adds a set before the others, unless the device is known to lack it.
    fn add(&mut self, set: HandleOptions, ask: Ask) -> Result<()> {
        match ask(&*self.driver, set) {
            Ok(bytes) => {
                self.sets.insert(0, set);
                self.granularity_bytes = self.granularity_bytes.max(bytes);
                Ok(())
            }
            Err(error) if is_refusal(error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_refusal(error: DriverError) -> bool {
    matches!(error.code, Code::NOT_SUPPORTED | Code::NOT_PERMITTED | Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use simgpu::{Call, Config, HandleProperties, Machine, StoreKind, Target, Times};

    use super::*;
    use crate::driver::simulated::SimulatedDevice;

    const GRANULE: u64 = 2 << 20;
    const ALL: HandleProperties = HandleProperties { posix: true, fabric: true, rdma: true };

    fn machine(can_make: HandleProperties) -> Arc<Machine> {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
        config.devices[0].handles = can_make;
        Machine::new(config).unwrap()
    }

    fn handles(machine: &Arc<Machine>, wished: HandleOptions) -> Handles {
        let device = Arc::new(SimulatedDevice::new(Arc::clone(machine), 0));
        Handles::open(device, wished).unwrap()
    }

    fn options(shareable: Shareable, rdma: bool) -> HandleOptions {
        HandleOptions { shareable, rdma }
    }

    fn creations(machine: &Machine) -> u64 {
        machine.usage(0).unwrap().count(Call::Create)
    }

    #[test]
    fn what_a_device_has_is_given_and_what_it_is_known_to_lack_is_not_asked_for() {
        let all =
            [Shareable::None, Shareable::PosixFd, Shareable::Fabric, Shareable::PosixFdOrFabric];
        let wishes = all
            .into_iter()
            .flat_map(|shareable| [false, true].map(|rdma| options(shareable, rdma)));
        for wished in wishes {
            for can_make in [
                ALL,
                HandleProperties { rdma: false, ..ALL },
                HandleProperties { fabric: false, ..ALL },
                HandleProperties { posix: false, fabric: false, rdma: true },
                HandleProperties::default(),
            ] {
                let machine = machine(can_make);
                let handles = handles(&machine, wished);
                let shareable = match (wished.shareable, can_make.posix, can_make.fabric) {
                    (Shareable::PosixFd, true, _) => Shareable::PosixFd,
                    (Shareable::Fabric, _, true) => Shareable::Fabric,
                    (Shareable::PosixFdOrFabric, true, true) => Shareable::PosixFdOrFabric,
                    (Shareable::PosixFdOrFabric, true, false) => Shareable::PosixFd,
                    _ => Shareable::None,
                };
                let given = options(shareable, wished.rdma && can_make.rdma);
                assert_eq!(handles.options(), given, "{wished:?} of {can_make:?}");
                assert_eq!(handles.granularity_bytes(), GRANULE);
                handles.create(GRANULE).unwrap();
                assert_eq!((handles.options(), creations(&machine)), (given, 1));
            }
        }
    }

    #[test]
    fn a_type_refused_at_creation_is_left_out_and_not_tried_again() {
        for code in [Code::NOT_PERMITTED, Code::NOT_SUPPORTED, Code::INVALID_VALUE] {
            let machine = machine(ALL);
            let handles = handles(&machine, options(Shareable::Fabric, true));
            let fail = |times| {
                machine.faults().fail(Target::call(Call::Create), 1, times, simgpu::Code(code.0));
            };
            fail(Times::Once);
            handles.create(GRANULE).unwrap();
            assert_eq!(handles.options(), options(Shareable::None, true));
            assert_eq!(creations(&machine), 2);
            handles.create(GRANULE).unwrap();
            assert_eq!(creations(&machine), 3);
            // If RDMA is refused as well, that is left out too.
            fail(Times::Once);
            handles.create(GRANULE).unwrap();
            assert_eq!((handles.options(), creations(&machine)), (HandleOptions::default(), 5));
            // And at last a refusal is an error.
            fail(Times::Once);
            assert_eq!(handles.create(GRANULE).unwrap_err().code, code);
            assert_eq!(creations(&machine), 6);
        }
    }

    #[test]
    fn errors_that_are_no_refusals_leave_the_options_alone() {
        let machine = machine(ALL);
        let wished = options(Shareable::Fabric, true);
        let handles = handles(&machine, wished);
        let error = handles.create(2 << 30).unwrap_err();
        assert!(error.is_out_of_memory());
        // A wrong size is refused with every set, so no set is dropped.
        assert_eq!(handles.create(GRANULE / 2).unwrap_err().code, Code::INVALID_VALUE);
        machine.faults().fail(Target::call(Call::Create), 1, Times::Once, simgpu::Code(4));
        assert!(handles.create(GRANULE).unwrap_err().is_shutdown());
        assert_eq!(handles.options(), wished);
        // Nor is one dropped by a refusal if memory is short without the option.
        let rule = Target::call(Call::Create);
        machine.faults().fail(rule, 1, Times::Once, simgpu::Code::NOT_PERMITTED);
        assert!(handles.create(2 << 30).unwrap_err().is_out_of_memory());
        assert_eq!(handles.options(), wished);
    }

    #[test]
    fn a_device_without_virtual_memory_makes_none() {
        let mut config = Config::new(StoreKind::AddressesOnly, 1, 1 << 30);
        config.devices[0].virtual_memory = false;
        let device = Arc::new(SimulatedDevice::new(Machine::new(config).unwrap(), 0));
        let error = Handles::open(device, HandleOptions::default()).unwrap_err();
        assert_eq!(error.code, Code::NOT_SUPPORTED);
    }

    #[test]
    fn settings_are_wishes() {
        let default = HandleOptions::wished(&Settings::default());
        assert_eq!(default, options(Shareable::None, true));
        for (handle_type, shareable) in
            [(HandleType::Posix, Shareable::PosixFd), (HandleType::Fabric, Shareable::Fabric)]
        {
            let settings = Settings { handle_type, rdma: false, ..Settings::default() };
            assert_eq!(HandleOptions::wished(&settings), options(shareable, false));
        }
    }
}
