//! The one kind of device there is: its attributes, by CUDA's numbers.
//!
//! An H100 SXM as its driver describes it, without what is not simulated: fabric handles,
//! multicast.

use simgpu::ManagedAccess;

use crate::settings::{Fabric, Settings};

/// The name of a device, or of an instance of one, as the driver writes it (deviceQuery of CUDA's
/// samples on an A100: "NVIDIA A100-SXM4-40GB MIG 1g.5gb").
pub(crate) fn name(settings: &Settings) -> String {
    let instance = settings.instance.as_ref().map(|profile| format!(" MIG {profile}"));
    format!("Simulated H100{}", instance.unwrap_or_default())
}
/// The driver's version: CUDA 13.0.
pub(crate) const DRIVER_VERSION: i32 = 13_000;
/// Compute capability.
pub(crate) const CAPABILITY: (i32, i32) = (9, 0);
/// Streaming multiprocessors.
pub(crate) const PROCESSORS: i32 = 132;

/// The attribute that contains the ordinal.
const PCI_BUS_ID: i32 = 33;
/// The attribute that says whether handles can be shared over a fabric.
const FABRIC_HANDLES: i32 = 128;
/// The attributes that say whether there is managed memory, and whether it may be used by several
/// processors at once.
const MANAGED_MEMORY: i32 = 83;
const CONCURRENT_MANAGED_ACCESS: i32 = 89;
/// The largest number of an attribute.
const LAST_ATTRIBUTE: i32 = 160;

/// The value of an attribute of device `ordinal`; 0 for those not in the table, `None` for
/// numbers that no attribute has.
pub(crate) fn attribute(settings: &Settings, ordinal: u32, number: i32) -> Option<i32> {
    match number {
        PCI_BUS_ID => return Some(ordinal as i32 + 1),
        MANAGED_MEMORY => return Some((settings.managed != ManagedAccess::None).into()),
        CONCURRENT_MANAGED_ACCESS => {
            return Some((settings.managed == ManagedAccess::Concurrent).into());
        }
        FABRIC_HANDLES => return Some((settings.fabric != Fabric::Off).into()),
        _ => {}
    }
    let known = ATTRIBUTES.iter().find(|(listed, _)| *listed == number);
    let is_number = (1..=LAST_ATTRIBUTE).contains(&number);
    known.map(|(_, value)| *value).or(is_number.then_some(0))
}

/// The address on the PCI bus, as text.
pub(crate) fn pci_bus_id(ordinal: u32) -> String {
    format!("0000:{:02X}:00.0", ordinal + 1)
}

/// The unique number of a device or an instance.
pub(crate) fn uuid(settings: &Settings, ordinal: u32) -> [u8; 16] {
    let is_instance = settings.instance.is_some();
    let mut uuid = if is_instance { *b"simcuda-inst.\0\0\0" } else { *b"simcuda-device\0\0" };
    uuid[15] = ordinal as u8;
    uuid
}

static ATTRIBUTES: [(i32, i32); 95] = [
    (1, 1024),        // threads per block
    (2, 1024),        // block, x
    (3, 1024),        // block, y
    (4, 64),          // block, z
    (5, i32::MAX),    // grid, x
    (6, 65_535),      // grid, y
    (7, 65_535),      // grid, z
    (8, 49_152),      // shared memory per block
    (9, 65_536),      // constant memory
    (10, 32),         // warp size
    (11, i32::MAX),   // pitch
    (12, 65_536),     // registers per block
    (13, 1_980_000),  // clock rate, kHz
    (14, 512),        // texture alignment
    (15, 1),          // overlap of copies and kernels
    (16, PROCESSORS), // multiprocessors
    (19, 1),          // can map host memory
    (21, 131_072),    // textures and surfaces
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2048),
    (30, 512),
    (31, 1),          // concurrent kernels
    (32, 1),          // ECC
    (36, 2_619_000),  // memory clock, kHz
    (37, 5120),       // memory bus, bits
    (38, 52_428_800), // L2 cache
    (39, 2048),       // threads per multiprocessor
    (40, 3),          // copy engines
    (41, 1),          // unified addressing
    (42, 32_768),
    (43, 2048),
    (45, 32_768),
    (46, 32_768),
    (47, 8192),
    (48, 8192),
    (49, 32_768),
    (51, 32), // texture pitch alignment
    (52, 32_768),
    (53, 32_768),
    (54, 2046),
    (55, 32_768),
    (56, 131_072),
    (57, 65_536),
    (58, 16_384),
    (59, 16_384),
    (60, 16_384),
    (61, 32_768),
    (62, 2048),
    (63, 32_768),
    (64, 32_768),
    (65, 2048),
    (66, 32_768),
    (67, 32_768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65_000),
    (72, 2_097_120),
    (73, 32_768),
    (74, 32_768),
    (75, CAPABILITY.0), // compute capability, major
    (76, CAPABILITY.1), // compute capability, minor
    (77, 32_768),
    (78, 1),            // stream priorities
    (79, 1),            // L1 caches globals
    (80, 1),            // L1 caches locals
    (81, 233_472),      // shared memory per multiprocessor
    (82, 65_536),       // registers per multiprocessor
    (87, 2),            // single over double precision
    (90, 1),            // compute preemption
    (91, 1),            // registered memory at the host's address
    (95, 1),            // cooperative launch
    (97, 232_448),      // shared memory per block, opted in
    (99, 1),            // host registration
    (102, 1),           // virtual memory management
    (103, 1),           // handles as file descriptors
    (106, 32),          // blocks per multiprocessor
    (108, 32_768_000),  // persisting L2
    (109, 134_213_632), // access policy window
    (110, 1),           // virtual memory for RDMA
    (111, 1024),        // reserved shared memory per block
    (112, 1),           // sparse arrays
    (115, 1),           // memory pools
    (120, 1),           // clusters
    (125, 1),           // events for other processes
    (127, 1),           // tensor maps
    (129, 1),           // unified function pointers
    (131, -1),          // NUMA node of the memory
    (134, -1),          // NUMA node of the host
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_listed_once_in_order() {
        assert!(ATTRIBUTES.is_sorted_by(|(one, _), (next, _)| one < next));
        let settings = Settings::read().unwrap();
        let of = |number| attribute(&settings, 2, number);
        assert_eq!([33, 75, 83, 128, 0].map(of), [Some(3), Some(9), Some(1), Some(0), None]);
        assert_eq!(pci_bus_id(9), "0000:0A:00.0");
    }
}
