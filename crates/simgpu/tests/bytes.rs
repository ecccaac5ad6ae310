//! The store with real bytes: what the host can reach, and what memory it regains.

use std::ffi::c_void;
use std::os::unix::fs::MetadataExt;

use simgpu::{Config, Machine, StoreKind};

const MIB: u64 = 1 << 20;
const GRANULE: u64 = 2 * MIB;

/// Returns true if the host can read a byte at `address`: the kernel tries it, without a crash.
fn is_readable(address: u64) -> bool {
    let mut ends = [0; 2];
    // SAFETY: `ends` holds the two descriptors that pipe writes.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: write reads one byte in the kernel, which returns EFAULT if there is none; both
    // descriptors are ours and closed once.
    unsafe {
        let written = libc::write(ends[1], address as *const c_void, 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
        written == 1
    }
}

/// How much of the host's memory the files of this process's machines hold, in bytes.
fn held_bytes() -> u64 {
    let is_ours = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.starts_with("/memfd:simgpu (deleted)"))
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let files: Vec<_> = descriptors.map(|entry| entry.unwrap().path()).filter(is_ours).collect();
    assert_eq!(files.len(), 1);
    files.iter().map(|path| std::fs::metadata(path).unwrap().blocks() * 512).sum()
}

fn fill(address: u64, bytes: u64) {
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: the caller's memory is live and accessible, and used by this thread alone.
        unsafe { ((address + offset) as *mut u8).write_volatile(1) };
    }
}

// One test, because it looks at what the whole process has in use.
#[test]
fn access_follows_the_calls_and_memory_comes_back() {
    let machine = Machine::new(Config::new(StoreKind::RealBytes, 1, 256 * MIB)).unwrap();
    assert_eq!(held_bytes(), 0);

    let base = machine.reserve(0, 64 * MIB, 0).unwrap();
    assert!(!is_readable(base));
    let handle = machine.create(0, 64 * MIB).unwrap();
    machine.map(0, base, 64 * MIB, handle).unwrap();
    assert!(!is_readable(base), "a fresh mapping has no access");
    machine.set_access(0, base, 64 * MIB, &[0]).unwrap();
    assert!(is_readable(base) && is_readable(base + 64 * MIB - 1));
    assert!(!is_readable(base + 64 * MIB), "the span beyond has no access");
    fill(base, 64 * MIB);
    assert_eq!(held_bytes(), 64 * MIB);
    machine.unmap(0, base, 64 * MIB).unwrap();
    assert!(!is_readable(base));
    machine.map(0, base, 64 * MIB, handle).unwrap();
    assert!(!is_readable(base), "access does not survive unmapping");
    machine.unmap(0, base, 64 * MIB).unwrap();
    machine.release(0, handle).unwrap();
    machine.unreserve(0, base, 64 * MIB).unwrap();
    assert_eq!(held_bytes(), 0);

    let large = machine.allocate(0, 64 * MIB).unwrap();
    fill(large, 64 * MIB);
    machine.free(0, large).unwrap();
    assert!(!is_readable(large));
    assert_eq!(held_bytes(), 0);
    let small: Vec<u64> = (0..64).map(|_| machine.allocate(0, MIB).unwrap()).collect();
    small.iter().for_each(|&address| fill(address, MIB));
    assert_eq!(held_bytes(), 64 * MIB);
    small.iter().for_each(|&address| machine.free(0, address).unwrap());
    assert!(held_bytes() <= GRANULE, "one page may be kept");

    let pinned = machine.host_allocate(0, 10_000).unwrap();
    assert!(is_readable(pinned + 9_999));
    machine.validate().unwrap();
    let kept = machine.allocate(0, 1).unwrap();
    assert!(is_readable(kept));
    drop(machine);
    assert!(!is_readable(kept) && !is_readable(pinned), "a machine leaves nothing behind");
}
