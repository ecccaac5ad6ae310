//! Managed memory. Prefetches and advice have two forms: that of CUDA 8, whose destination is a
//! device, and that of CUDA 13 (`_v2`), whose destination is a place.

use std::ffi::{c_int, c_uint};

use simgpu::{Advice, Code};

use crate::answer::{Answer, put};
use crate::call::driver;
use crate::current;
use crate::simulation::Simulation;

/// `CU_DEVICE_CPU`.
const CPU: c_int = -1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`, and those of the host: any memory, that of a node (`_HOST_NUMA`),
/// that of the thread's node (`_HOST_NUMA_CURRENT`).
const LOCATION_DEVICE: c_uint = 1;
const LOCATIONS_HOST: [c_uint; 3] = [2, 3, 4];
/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACHMENTS: [c_uint; 2] = [1, 2];

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    kind: c_uint,
    id: c_int,
}

impl Location {
    /// The device; `None` for the host.
    fn device(self, simulation: &Simulation) -> Answer<Option<u32>> {
        match self.kind {
            LOCATION_DEVICE => simulation.device(self.id).map(Some),
            kind if LOCATIONS_HOST.contains(&kind) => Ok(None),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// The place that CUDA 8 calls `device`.
    const fn of(device: c_int) -> Self {
        match device {
            CPU => Self { kind: LOCATIONS_HOST[0], id: 0 },
            id => Self { kind: LOCATION_DEVICE, id },
        }
    }
}

/// Managed memory of a context.
pub(crate) fn allocate(
    simulation: &Simulation,
    context: u32,
    bytes: usize,
    flags: c_uint,
) -> Answer<u64> {
    if !ATTACHMENTS.contains(&flags) {
        return Err(Code::INVALID_VALUE);
    }
    simulation.machine.allocate_managed(context, bytes as u64)
}

pub(crate) fn advise(
    simulation: &Simulation,
    context: u32,
    (address, bytes): (u64, usize),
    advice: c_uint,
    location: Location,
) -> Answer {
    let advice = match advice {
        1 => Advice::ReadMostly(true),
        2 => Advice::ReadMostly(false),
        3 => Advice::PreferredLocation(true),
        4 => Advice::PreferredLocation(false),
        5 => Advice::AccessedBy(true),
        6 => Advice::AccessedBy(false),
        _ => return Err(Code::INVALID_VALUE),
    };
    // These two ignore where.
    let device = match advice {
        Advice::ReadMostly(_) | Advice::PreferredLocation(false) => None,
        _ => location.device(simulation)?,
    };
    simulation.machine.advise(context, (address, bytes as u64), advice, device)
}

pub(crate) fn prefetch(
    simulation: &Simulation,
    context: u32,
    (address, bytes): (u64, usize),
    location: Location,
    stream: usize,
) -> Answer {
    let device = location.device(simulation)?;
    simulation.machine.prefetch(context, (address, bytes as u64), device, stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    driver("cuMemAllocManaged", format_args!("{bytes}, {flags}"), |simulation| {
        let allocated = allocate(simulation, current::driver_context()?, bytes, flags)?;
        // SAFETY: see the head of `driver`.
        unsafe { put(address, allocated) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise(address: u64, bytes: usize, advice: c_uint, device: c_int) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {advice}, {device}");
    driver("cuMemAdvise", arguments, |simulation| {
        let context = current::driver_context()?;
        advise(simulation, context, (address, bytes), advice, Location::of(device))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAdvise_v2(
    address: u64,
    bytes: usize,
    advice: c_uint,
    location: Location,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {advice}, {location:?}");
    driver("cuMemAdvise_v2", arguments, |simulation| {
        advise(simulation, current::driver_context()?, (address, bytes), advice, location)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync(
    address: u64,
    bytes: usize,
    device: c_int,
    stream: usize,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {device}, {stream:#x}");
    driver("cuMemPrefetchAsync", arguments, |simulation| {
        let context = current::driver_context()?;
        prefetch(simulation, context, (address, bytes), Location::of(device), stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPrefetchAsync_v2(
    address: u64,
    bytes: usize,
    location: Location,
    flags: c_uint,
    stream: usize,
) -> c_int {
    let arguments = format_args!("{address:#x}, {bytes}, {location:?}, {flags}, {stream:#x}");
    driver("cuMemPrefetchAsync_v2", arguments, |simulation| {
        // The manual reserves them.
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        prefetch(simulation, current::driver_context()?, (address, bytes), location, stream)
    })
}
