//! Every symbol of CUDA's that is taken over: one list, sorted by name.
//!
//! A symbol's place in the list is its *row*, the number by which `next` keeps its real function,
//! `replacements` what programs get in its place, and `report` its counter. A symbol without a
//! replacement does not compile; an export without a symbol, or a symbol without an export, fails
//! a test (`tests/exports.rs`).
//!
//! Programs also ask for the driver's functions by plain names: `cuGetProcAddress("cuMemAlloc")`
//! means `cuMemAlloc_v2`. If a plain name may mean several symbols, the caller's version of CUDA
//! decides: it means the newest that this version knows.
//!
//! **Invariant**, tested: the list is sorted in the order of bytes, and has every call that the
//! report counts.

use std::ffi::{CStr, c_int};

/// A symbol that is taken over.
pub(crate) struct Symbol {
    pub(crate) name: &'static CStr,
    /// The version of CUDA from which the plain name means this symbol; 0: it always has.
    since: c_int,
    /// Its number in the report.
    pub(crate) counter: Option<usize>,
}

macro_rules! symbols {
    ($($name:ident $(since $since:literal)?;)*) => {
        /// All symbols, sorted by name.
        pub(crate) static SYMBOLS: [Symbol; NAMES.len()] = [$(Symbol {
            name: c_name(concat!(stringify!($name), "\0")),
            since: 0 $(+ $since)?,
            counter: position(preload_report::CALLS, stringify!($name)),
        },)*];

        const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];
    };
}

symbols! {
    cuArray3DCreate_v2;
    cuArrayCreate_v2;
    cuCtxDestroy;
    cuCtxDestroy_v2 since 4000;
    cuCtxEnablePeerAccess;
    cuCtxSynchronize;
    cuCtxSynchronize_v2 since 13000;
    cuDevicePrimaryCtxReset;
    cuDevicePrimaryCtxReset_v2 since 11000;
    cuDeviceSetMemPool;
    cuGetProcAddress;
    cuGetProcAddress_v2 since 12000;
    cuGreenCtxDestroy;
    cuIpcGetMemHandle;
    cuMemAllocAsync;
    cuMemAllocAsync_ptsz;
    cuMemAllocFromPoolAsync;
    cuMemAllocFromPoolAsync_ptsz;
    cuMemAllocHost_v2;
    cuMemAllocManaged;
    cuMemAllocPitch_v2;
    cuMemAlloc_v2;
    cuMemFreeAsync;
    cuMemFreeAsync_ptsz;
    cuMemFreeHost;
    cuMemFree_v2;
    cuMemGetAddressRange_v2;
    cuMemGetInfo_v2;
    cuMemHostAlloc;
    cuMemPoolSetAccess;
    cuMemSetMemPool;
    cuMemsetD8Async;
    cuMipmappedArrayCreate;
    cuPointerGetAttribute;
    cuPointerGetAttributes;
    cuStreamBeginCapture;
    cuStreamBeginCaptureToGraph;
    cuStreamBeginCaptureToGraph_ptsz;
    cuStreamBeginCapture_ptsz;
    cuStreamBeginCapture_v2 since 10010;
    cuStreamBeginCapture_v2_ptsz since 10010;
    cuStreamBeginRecaptureToGraph;
    cuStreamBeginRecaptureToGraph_ptsz;
    cuStreamDestroy;
    cuStreamDestroy_v2 since 4000;
    cuStreamEndCapture;
    cuStreamEndCapture_ptsz;
    cuStreamWaitEvent;
    cudaDeviceEnablePeerAccess;
    cudaDeviceReset;
    cudaDeviceSetMemPool;
    cudaDeviceSynchronize;
    cudaFree;
    cudaFreeAsync;
    cudaFreeAsync_ptsz;
    cudaFreeHost;
    cudaGetDriverEntryPoint;
    cudaGetDriverEntryPointByVersion;
    cudaGetDriverEntryPointByVersion_ptsz;
    cudaGetDriverEntryPoint_ptsz;
    cudaGetLastError;
    cudaHostAlloc;
    cudaIpcGetMemHandle;
    cudaMalloc;
    cudaMalloc3D;
    cudaMalloc3DArray;
    cudaMallocArray;
    cudaMallocAsync;
    cudaMallocAsync_ptsz;
    cudaMallocFromPoolAsync;
    cudaMallocFromPoolAsync_ptsz;
    cudaMallocHost;
    cudaMallocManaged;
    cudaMallocMipmappedArray;
    cudaMallocPitch;
    cudaMemGetInfo;
    cudaMemPoolSetAccess;
    cudaMemSetMemPool;
    cudaPeekAtLastError;
    cudaStreamBeginCapture;
    cudaStreamBeginCaptureToGraph;
    cudaStreamBeginCaptureToGraph_ptsz;
    cudaStreamBeginCapture_ptsz;
    cudaStreamDestroy;
    cudaStreamEndCapture;
    cudaStreamEndCapture_ptsz;
}

/// How many there are.
pub(crate) const COUNT: usize = NAMES.len();

/// The rows of functions that Genesis alone gets from us, to tell us what it queues on a stream:
/// programs call CUDA's own.
pub(crate) const FOR_GENESIS: [usize; 2] = [row("cuStreamWaitEvent"), row("cuMemsetD8Async")];

/// The row of the symbol `name`, which must be in the list: for constants.
pub(crate) const fn row(name: &str) -> usize {
    position(&NAMES, name).expect("a symbol of that name")
}

/// The row of the symbol `name`.
pub(crate) fn find(name: &CStr) -> Option<usize> {
    SYMBOLS.binary_search_by(|symbol| symbol.name.cmp(name)).ok()
}

/// The row of the symbol that the driver's plain name `plain` means for a program of CUDA
/// `version`; `is_per_thread` if the program's default streams are per thread.
pub(crate) fn find_plain(plain: &CStr, version: c_int, is_per_thread: bool) -> Option<usize> {
    let meant = SYMBOLS.iter().enumerate().filter(|(row, symbol)| {
        let name = symbol.name.to_bytes();
        let (stem, has_suffix) = match name.strip_suffix(b"_ptsz") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let stem = stem.strip_suffix(b"_v2").unwrap_or(stem);
        stem == plain.to_bytes()
            && has_suffix == (is_per_thread && has_stream(plain))
            && symbol.since <= version
            && !FOR_GENESIS.contains(row)
    });
    meant.max_by_key(|(_, symbol)| symbol.since).map(|(row, _)| row)
}

/// Returns true if the function of that plain name has a form for streams per thread.
fn has_stream(plain: &CStr) -> bool {
    let suffixed = [plain.to_bytes(), b"_ptsz"].concat();
    SYMBOLS.iter().any(|symbol| symbol.name.to_bytes() == suffixed)
}

/// The index of `name` in `names`.
const fn position(names: &[&str], name: &str) -> Option<usize> {
    let mut index = 0;
    while index < names.len() {
        if is_same(names[index].as_bytes(), name.as_bytes()) {
            return Some(index);
        }
        index += 1;
    }
    None
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    one.len() == other.len()
}

const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a symbol has no NUL in it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_sorted() {
        assert!(SYMBOLS.is_sorted_by(|one, other| one.name < other.name));
    }

    #[test]
    fn every_call_that_is_counted_is_a_symbol() {
        let counted: Vec<&str> = SYMBOLS
            .iter()
            .filter(|symbol| symbol.counter.is_some())
            .map(|symbol| symbol.name.to_str().unwrap())
            .collect();
        assert_eq!(counted, preload_report::CALLS);
    }

    #[test]
    fn plain_names_mean_the_newest_that_is_known() {
        let meant = |plain: &CStr, version, is_per_thread| {
            find_plain(plain, version, is_per_thread).map(|row| SYMBOLS[row].name)
        };
        assert_eq!(meant(c"cuMemAlloc", 11_030, false), Some(c"cuMemAlloc_v2"));
        assert_eq!(meant(c"cuMemAlloc", 11_030, true), Some(c"cuMemAlloc_v2"));
        assert_eq!(meant(c"cuMemAllocAsync", 12_000, true), Some(c"cuMemAllocAsync_ptsz"));
        assert_eq!(meant(c"cuGetProcAddress", 11_080, false), Some(c"cuGetProcAddress"));
        assert_eq!(meant(c"cuGetProcAddress", 12_000, false), Some(c"cuGetProcAddress_v2"));
        assert_eq!(
            meant(c"cuStreamBeginCapture", 12_000, true),
            Some(c"cuStreamBeginCapture_v2_ptsz")
        );
        assert_eq!(meant(c"cuCtxSynchronize", 12_090, false), Some(c"cuCtxSynchronize"));
        assert_eq!(meant(c"cuCtxSynchronize", 13_000, false), Some(c"cuCtxSynchronize_v2"));
        assert_eq!(meant(c"cuStreamDestroy", 12_000, true), Some(c"cuStreamDestroy_v2"));
        assert_eq!(meant(c"cuCtxDestroy", 13_000, false), Some(c"cuCtxDestroy_v2"));
        for is_per_thread in [false, true] {
            for name in [c"cuMemcpy", c"cuStreamWaitEvent", c"cuMemsetD8Async"] {
                assert_eq!(meant(name, 13_000, is_per_thread), None);
            }
        }
    }
}
