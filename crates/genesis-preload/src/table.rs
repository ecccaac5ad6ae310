//! The one table: every symbol that is taken over, and by what.
//!
//! A row is the only place that says that a symbol is taken over. `lookups` and `proc_address`
//! find replacements here by name, `next` keeps the real function of each row, and the report
//! counts by it. An export without a row, or a row without an export, fails a test
//! (`tests/exports.rs`).
//!
//! The driver's functions are asked for under plain names too: `cuGetProcAddress("cuMemAlloc")`
//! means `cuMemAlloc_v2`. Of several that a plain name may mean, the version of CUDA of whoever
//! asks decides: it means the newest that this version knows.
//!
//! **Invariant**, tested: rows are sorted by name, in the order of bytes; every call that the
//! report counts has one.

use std::ffi::{CStr, c_int, c_void};

use crate::{driver, last_error, lookups, passed, peers, proc_address, runtime, watched};

/// A symbol that is taken over.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// What programs get in its place.
    pub(crate) replacement: *const c_void,
    /// The version of CUDA from which the plain name means this symbol; 0: it always has.
    since: c_int,
    /// The number that the report has for it.
    pub(crate) counter: Option<usize>,
}

// SAFETY: the pointer is a function's address.
unsafe impl Sync for Row {}

macro_rules! rows {
    ($($module:ident :: $name:ident $(since $since:literal)?;)*) => {
        /// All rows, sorted by name.
        pub(crate) static ROWS: &[Row] = &[$(Row {
            name: c_name(concat!(stringify!($name), "\0")),
            replacement: $module::$name as *const c_void,
            since: 0 $(+ $since)?,
            counter: position(preload_report::CALLS, stringify!($name)),
        },)*];

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

rows! {
    passed::cuArray3DCreate_v2;
    passed::cuArrayCreate_v2;
    watched::cuCtxDestroy;
    watched::cuCtxDestroy_v2 since 4000;
    peers::cuCtxEnablePeerAccess;
    watched::cuCtxSynchronize;
    watched::cuCtxSynchronize_v2 since 13000;
    watched::cuDevicePrimaryCtxReset;
    watched::cuDevicePrimaryCtxReset_v2 since 11000;
    watched::cuDeviceSetMemPool;
    proc_address::cuGetProcAddress;
    proc_address::cuGetProcAddress_v2 since 12000;
    watched::cuGreenCtxDestroy;
    driver::cuIpcGetMemHandle;
    driver::cuMemAllocAsync;
    driver::cuMemAllocAsync_ptsz;
    driver::cuMemAllocFromPoolAsync;
    driver::cuMemAllocFromPoolAsync_ptsz;
    passed::cuMemAllocHost_v2;
    passed::cuMemAllocManaged;
    driver::cuMemAllocPitch_v2;
    driver::cuMemAlloc_v2;
    driver::cuMemFreeAsync;
    driver::cuMemFreeAsync_ptsz;
    passed::cuMemFreeHost;
    driver::cuMemFree_v2;
    driver::cuMemGetAddressRange_v2;
    driver::cuMemGetInfo_v2;
    passed::cuMemHostAlloc;
    peers::cuMemPoolSetAccess;
    watched::cuMemSetMemPool;
    passed::cuMipmappedArrayCreate;
    driver::cuPointerGetAttribute;
    driver::cuPointerGetAttributes;
    watched::cuStreamBeginCapture;
    watched::cuStreamBeginCaptureToGraph;
    watched::cuStreamBeginCaptureToGraph_ptsz;
    watched::cuStreamBeginCapture_ptsz;
    watched::cuStreamBeginCapture_v2 since 10010;
    watched::cuStreamBeginCapture_v2_ptsz since 10010;
    watched::cuStreamBeginRecaptureToGraph;
    watched::cuStreamBeginRecaptureToGraph_ptsz;
    watched::cuStreamDestroy;
    watched::cuStreamDestroy_v2 since 4000;
    watched::cuStreamEndCapture;
    watched::cuStreamEndCapture_ptsz;
    lookups::cuStreamWaitEvent;
    peers::cudaDeviceEnablePeerAccess;
    watched::cudaDeviceReset;
    watched::cudaDeviceSetMemPool;
    watched::cudaDeviceSynchronize;
    runtime::cudaFree;
    runtime::cudaFreeAsync;
    runtime::cudaFreeAsync_ptsz;
    passed::cudaFreeHost;
    proc_address::cudaGetDriverEntryPoint;
    proc_address::cudaGetDriverEntryPointByVersion;
    proc_address::cudaGetDriverEntryPointByVersion_ptsz;
    proc_address::cudaGetDriverEntryPoint_ptsz;
    last_error::cudaGetLastError;
    passed::cudaHostAlloc;
    runtime::cudaIpcGetMemHandle;
    runtime::cudaMalloc;
    runtime::cudaMalloc3D;
    passed::cudaMalloc3DArray;
    passed::cudaMallocArray;
    runtime::cudaMallocAsync;
    runtime::cudaMallocAsync_ptsz;
    runtime::cudaMallocFromPoolAsync;
    runtime::cudaMallocFromPoolAsync_ptsz;
    passed::cudaMallocHost;
    passed::cudaMallocManaged;
    passed::cudaMallocMipmappedArray;
    runtime::cudaMallocPitch;
    runtime::cudaMemGetInfo;
    peers::cudaMemPoolSetAccess;
    watched::cudaMemSetMemPool;
    last_error::cudaPeekAtLastError;
    watched::cudaStreamBeginCapture;
    watched::cudaStreamBeginCaptureToGraph;
    watched::cudaStreamBeginCaptureToGraph_ptsz;
    watched::cudaStreamBeginCapture_ptsz;
    watched::cudaStreamDestroy;
    watched::cudaStreamEndCapture;
    watched::cudaStreamEndCapture_ptsz;
}

/// The number of the row of that name, which must be there: for constants.
pub(crate) const fn row(name: &str) -> usize {
    position(NAMES, name).expect("a row of that name")
}

/// The number of the row of that name.
pub(crate) fn find(name: &CStr) -> Option<usize> {
    ROWS.binary_search_by(|row| row.name.cmp(name)).ok()
}

/// The number of the row that the driver's name `plain` means for a program of CUDA `version`,
/// with streams per thread as default if it says so.
pub(crate) fn find_plain(plain: &CStr, version: c_int, is_per_thread: bool) -> Option<usize> {
    let meant = ROWS.iter().enumerate().filter(|(_, row)| {
        let name = row.name.to_bytes();
        let (stem, has_suffix) = match name.strip_suffix(b"_ptsz") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let stem = stem.strip_suffix(b"_v2").unwrap_or(stem);
        stem == plain.to_bytes()
            && has_suffix == (is_per_thread && has_stream(plain))
            && row.since <= version
    });
    meant.max_by_key(|(_, row)| row.since).map(|(number, _)| number)
}

/// Whether the function of that plain name has a form for streams per thread.
fn has_stream(plain: &CStr) -> bool {
    let suffixed = [plain.to_bytes(), b"_ptsz"].concat();
    ROWS.iter().any(|row| row.name.to_bytes() == suffixed)
}

/// Where `name` is in `names`.
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
    fn rows_are_sorted() {
        assert!(ROWS.is_sorted_by(|one, other| one.name < other.name));
    }

    #[test]
    fn every_call_that_is_counted_has_a_row() {
        let counted: Vec<&str> = ROWS
            .iter()
            .filter(|row| row.counter.is_some())
            .map(|row| row.name.to_str().unwrap())
            .collect();
        assert_eq!(counted, preload_report::CALLS);
    }

    #[test]
    fn plain_names_mean_the_newest_that_is_known() {
        let meant = |plain: &CStr, version, is_per_thread| {
            find_plain(plain, version, is_per_thread).map(|row| ROWS[row].name)
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
        assert_eq!(meant(c"cuMemcpy", 13_000, false), None);
    }
}
