//! The nodes of a machine whose memory is not equally near to all (NUMA): which one is next to a
//! device, and memory from there.
//!
//! The kernel tells the node of each PCI device. A device that is not on that bus, or a machine with
//! one node, has none; then memory comes from wherever the system takes it.
#![allow(unsafe_code)]

use std::path::Path;

use super::Device;

/// Where the kernel describes the devices of the bus, a folder each by its address.
const BUS: &str = "/sys/bus/pci/devices";
/// Nodes above this are left out: the kernel takes a set of them as bits of words.
const MOST_NODES: u32 = 64;

/// A node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u32);

impl Node {
    /// The node next to `device`.
    pub fn of(device: &dyn Device) -> Option<Self> {
        let identity = device.identity()?;
        Self::on_bus(Path::new(BUS), &identity.pci_bus_id)
    }

    /// The node of the device with the address `pci_bus_id`. The kernel writes addresses in lower
    /// case, and -1 for a device of no node.
    fn on_bus(bus: &Path, pci_bus_id: &str) -> Option<Self> {
        if pci_bus_id.is_empty() || pci_bus_id.contains('/') {
            return None;
        }
        let file = bus.join(pci_bus_id.to_ascii_lowercase()).join("numa_node");
        let number = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        (number < MOST_NODES).then_some(Self(number))
    }

    /// Has pages of `[address, address + bytes)`, which are whole ones without memory, get theirs
    /// from here, and from other nodes once this one has none. Where the system refuses, nothing
    /// changes.
    pub(super) fn prefer(self, address: u64, bytes: u64) {
        let nodes: [libc::c_ulong; 1] = [1 << self.0];
        // The kernel counts one more than the bits that it reads.
        let bits = u64::from(MOST_NODES) + 1;
        // SAFETY: the call changes where pages come from and nothing in them; `nodes` is live.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                address,
                bytes,
                libc::MPOL_PREFERRED,
                nodes.as_ptr(),
                bits,
                0,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pages;

    #[test]
    fn the_bus_tells_the_node() {
        let bus = std::env::temp_dir().join(format!("genesis_bus_{}", std::process::id()));
        for (id, text) in [("0000:3b:00.0", "1\n"), ("0000:5e:00.0", "-1\n"), ("0000:86:00.0", "")]
        {
            std::fs::create_dir_all(bus.join(id)).unwrap();
            std::fs::write(bus.join(id).join("numa_node"), text).unwrap();
        }
        let node = |id: &str| Node::on_bus(&bus, id);
        assert_eq!(node("0000:3B:00.0"), Some(Node(1)));
        for id in ["0000:5e:00.0", "0000:86:00.0", "0000:ff:00.0", "", "../0000:3b:00.0"] {
            assert_eq!(node(id), None, "{id}");
        }
        std::fs::remove_dir_all(&bus).unwrap();
    }

    /// The policy of a mapping, as the kernel has it; `None` where it may not be asked.
    fn policy_of(address: u64) -> Option<(i32, u64)> {
        let (mut mode, mut nodes) = (0i32, 0 as libc::c_ulong);
        const OF_ADDRESS: u64 = 2;
        // SAFETY: both outputs are live, and the set has as many bits as are told.
        let status = unsafe {
            let bits = u64::from(MOST_NODES) + 1;
            libc::syscall(libc::SYS_get_mempolicy, &mut mode, &mut nodes, bits, address, OF_ADDRESS)
        };
        (status == 0).then_some((mode, nodes))
    }

    #[test]
    fn pages_come_from_the_node() {
        let pages = Pages::map(1 << 20, Some(Node(0))).unwrap();
        if let Some(policy) = policy_of(pages.address()) {
            assert_eq!(policy, (libc::MPOL_PREFERRED, 1));
        }
        // A node that is not there is refused, and the memory is as good.
        let pages = Pages::map(1 << 20, Some(Node(MOST_NODES - 1))).unwrap();
        crate::driver::pages::touch(pages.address(), pages.bytes());
    }
}
