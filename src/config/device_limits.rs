//! Limits of devices that are set outside of the program, where people already write them.
//!
//! | variable | whose | a value |
//! |---|---|---|
//! | `GENESIS_DEVICE_LIMITS` | our own; the others then do not count | `10GB`, or `0=10GB,1=20GB` |
//! | `CUDA_DEVICE_MEMORY_LIMIT`, for one device `CUDA_DEVICE_MEMORY_LIMIT_0` | HAMi's | `3000m` |
//! | `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` | MPS's | `0=1G,1=512MB` |
//! | `dmem.max` of the control group and of those around it | the kernel's | `drm/0000:03:00.0/vram0 1073741824` |
//!
//! Of HAMi's and MPS's the lower one counts. HAMi's is for all processes of a container together
//! (`device_register`), MPS's for each. The kernel's is read when a device is opened.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::settings::DeviceLimits;
use super::value::{Read, UNLIMITED, bytes, optional, show_bytes, show_optional, whole};
use crate::base::DeviceOrdinal;

/// MPS's variable.
const MPS: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// HAMi's variable, for all devices; with an underscore and an ordinal, for one.
const HAMI: &str = "CUDA_DEVICE_MEMORY_LIMIT";
/// The most devices.
const MOST_DEVICES: u32 = 64;

/// Reads one size for all devices, or one for each named device.
pub(super) fn parse(text: &str) -> Read<DeviceLimits> {
    if !text.contains('=') {
        let others = optional(text, UNLIMITED, bytes)?;
        return Ok(DeviceLimits { others, ..DeviceLimits::default() });
    }
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let named = parts.map(|part| {
        let (device, size) = part.split_once('=').ok_or_else(|| format!("{part}: no device"))?;
        let device = whole(device.trim(), 0..=MOST_DEVICES - 1)?;
        Ok((device, optional(size.trim(), UNLIMITED, bytes)?))
    });
    Ok(DeviceLimits { named: named.collect::<Read<_>>()?, ..DeviceLimits::default() })
}

/// What [`parse`] reads back.
pub(super) fn show(limits: &DeviceLimits) -> String {
    let size = |bytes| show_optional(bytes, UNLIMITED, show_bytes);
    if limits.named.is_empty() {
        return size(limits.others);
    }
    let named = limits.named.iter().map(|(device, bytes)| format!("{device}={}", size(*bytes)));
    named.collect::<Vec<_>>().join(",")
}

/// The limits that HAMi's and MPS's variables set.
pub(super) fn from_others(
    environment: &HashMap<OsString, OsString>,
) -> Result<DeviceLimits, String> {
    let read = |name: &str| {
        let text = environment.get(OsStr::new(name))?.to_string_lossy();
        let text = text.trim();
        Some(parse(text).map_err(|mistake| format!("{name}={text}: {mistake}")))
    };
    let mut hami = read(HAMI).transpose()?.unwrap_or_default();
    let mps = read(MPS).transpose()?.unwrap_or_default();
    let others = lower(hami.others, mps.others);
    let mut all = DeviceLimits { others, ..DeviceLimits::default() };
    for ordinal in (0..MOST_DEVICES).map(DeviceOrdinal) {
        let of_one = read(&format!("{HAMI}_{}", ordinal.0)).transpose()?;
        hami.named.extend(of_one.map(|limits| (ordinal.0, limits.of(ordinal))));
        let bytes = lower(hami.of(ordinal), mps.of(ordinal));
        if bytes != all.others {
            all.named.insert(ordinal.0, bytes);
        }
    }
    all.container = (hami != DeviceLimits::default()).then(|| Box::new(hami));
    Ok(all)
}

fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What the kernel lets the process's control group hold of the device at this address of the PCI
/// bus, in bytes; `None` if it sets no limit.
pub fn dmem_limit_bytes(pci_bus_id: &str) -> Option<u64> {
    dmem_limit_in(Path::new("/"), pci_bus_id)
}

/// The same where the system's files are under `root`.
fn dmem_limit_in(root: &Path, pci_bus_id: &str) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let all = root.join("sys/fs/cgroup");
    let own = all.join(group);
    let limited = own.ancestors().take_while(|folder| folder.starts_with(&all));
    let files = limited.filter_map(|folder| std::fs::read_to_string(folder.join("dmem.max")).ok());
    // A driver that does not say where the device is leaves this to the kernel.
    let address = Some(pci_bus_id.to_ascii_lowercase()).filter(|address| !address.is_empty())?;
    files.filter_map(|text| lowest_of(&text, &address)).min()
}

/// The lowest limit of a region with `address` in its name.
fn lowest_of(text: &str, address: &str) -> Option<u64> {
    let limits = text.lines().filter_map(|line| {
        let (region, limit) = line.trim().rsplit_once(' ')?;
        region.to_ascii_lowercase().contains(address).then_some(limit)?.parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::size::{GIB, KIB, MIB};

    fn of(variables: &[(&str, &str)]) -> Result<[Option<u64>; 3], String> {
        let environment =
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let limits = from_others(&environment)?;
        Ok([0, 1, 2].map(|device| limits.of(DeviceOrdinal(device))))
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for text in ["unlimited", "10GiB", "0=512MiB", "0=1GiB,3=unlimited,63=5KiB"] {
            assert_eq!(show(&parse(text).unwrap()), text);
        }
        for (text, shown) in [("0", "unlimited"), ("3000m", "3000MiB"), (" 1 = 2G ,", "1=2GiB")] {
            assert_eq!(show(&parse(text).unwrap()), shown);
        }
        for wrong in ["much", "64=1G", "0=", "=1G", "1G,2=1G", "-1=1G", "0=-5"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hamis_and_mpss_variables_count_and_the_lower_wins() {
        assert_eq!(of(&[]), Ok([None; 3]));
        assert_eq!(of(&[(HAMI, "3000m")]), Ok([Some(3000 * MIB); 3]));
        let one = [(HAMI, "4g"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "900k")];
        assert_eq!(of(&one), Ok([Some(4 * GIB), Some(900 * KIB), Some(4 * GIB)]));
        let lifted = [(HAMI, "4g"), ("CUDA_DEVICE_MEMORY_LIMIT_2", "0")];
        assert_eq!(of(&lifted), Ok([Some(4 * GIB), Some(4 * GIB), None]));
        assert_eq!(of(&[(MPS, "0=1G,1=512MB")]), Ok([Some(GIB), Some(512 * MIB), None]));
        let both = [(HAMI, "2G"), (MPS, "0=1G,1=3G")];
        assert_eq!(of(&both), Ok([Some(GIB), Some(2 * GIB), Some(2 * GIB)]));
        let of_container = |variables: &[(&str, &str)]| {
            let environment = variables.iter().map(|(name, value)| (name.into(), value.into()));
            let limits = from_others(&environment.collect()).unwrap();
            [0, 1, 2].map(|device| limits.of_container(DeviceOrdinal(device)))
        };
        assert_eq!(of_container(&one), [Some(4 * GIB), Some(900 * KIB), Some(4 * GIB)]);
        assert_eq!(of_container(&both), [Some(2 * GIB); 3], "MPS's are each process's own");
        assert_eq!(of_container(&[(MPS, "0=1G")]), [None; 3]);
        let wrong = of(&[("CUDA_DEVICE_MEMORY_LIMIT_1", "a lot")]).unwrap_err();
        assert!(wrong.starts_with("CUDA_DEVICE_MEMORY_LIMIT_1=a lot: not a size"), "{wrong}");
    }

    #[test]
    fn the_kernels_limit_is_the_lowest_of_the_group_and_those_around_it() {
        let root = std::env::temp_dir().join(format!("genesis-dmem-{}", std::process::id()));
        let group = root.join("sys/fs/cgroup/jobs/one");
        std::fs::create_dir_all(&group).unwrap();
        std::fs::create_dir_all(root.join("proc/self")).unwrap();
        let write = |path: &str, text: &str| std::fs::write(root.join(path), text).unwrap();
        write("proc/self/cgroup", "1:cpu:/other\n0::/jobs/one\n");
        let limit = || dmem_limit_in(&root, "0000:1A:00.0");
        assert_eq!(limit(), None);
        let max = "sys/fs/cgroup/jobs/one/dmem.max";
        write(max, "drm/0000:1a:00.0/vram0 max\n");
        assert_eq!(limit(), None);
        write(max, "drm/0000:03:00.0/vram0 5\ndrm/0000:1a:00.0/vram0 8192\nnonsense\n");
        assert_eq!(limit(), Some(8192));
        write("sys/fs/cgroup/jobs/dmem.max", "drm/0000:1a:00.0/vram0 4096\n");
        assert_eq!(limit(), Some(4096));
        write("sys/fs/cgroup/jobs/dmem.max", "drm/0000:1a:00.0/vram0 65536\n");
        assert_eq!(limit(), Some(8192));
        assert_eq!(dmem_limit_in(&root, ""), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
