//! The calls that are counted, by the names of their symbols.
//!
//! They are sorted by bytes, and a call's index is its number in the file. A test of the preload
//! library checks that its list of symbols has all of them.

/// Every symbol whose calls are counted, sorted.
pub const CALLS: &[&str] = &[
    "cuArray3DCreate_v2",
    "cuArrayCreate_v2",
    "cuCtxSynchronize",
    "cuIpcGetMemHandle",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMipmappedArrayCreate",
    "cudaDeviceSynchronize",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeAsync_ptsz",
    "cudaFreeHost",
    "cudaHostAlloc",
    "cudaIpcGetMemHandle",
    "cudaMalloc",
    "cudaMalloc3D",
    "cudaMalloc3DArray",
    "cudaMallocArray",
    "cudaMallocAsync",
    "cudaMallocAsync_ptsz",
    "cudaMallocFromPoolAsync",
    "cudaMallocFromPoolAsync_ptsz",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMallocMipmappedArray",
    "cudaMallocPitch",
    "cudaMemGetInfo",
];

/// The number of the call of that name; `None` if it is not counted.
pub fn call_index(name: &str) -> Option<usize> {
    CALLS.binary_search(&name).ok()
}

/// A number of the list, to detect another version's: FNV-1a over the names.
pub(crate) const fn fingerprint() -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut index = 0;
    while index < CALLS.len() {
        let name = CALLS[index].as_bytes();
        let mut at = 0;
        while at <= name.len() {
            // A zero ends each name.
            let byte = if at < name.len() { name[at] } else { 0 };
            hash = (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(CALLS.is_sorted_by(|one, other| one < other));
        assert_eq!(call_index("cudaMalloc").map(|index| CALLS[index]), Some("cudaMalloc"));
        assert_eq!(call_index("cudaMallocs"), None);
    }
}
