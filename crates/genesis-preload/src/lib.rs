//! Genesis for unmodified CUDA programs: `LD_PRELOAD=libgenesis_preload.so program`.
//!
//! The library defines CUDA's functions for memory, so that the loader binds a program's calls to
//! it, and takes over `dlsym` and `cuGetProcAddress` for callers that find the driver by name. It
//! holds no memory itself: it opens `libgenesis.so`, of which there is one in the process, at the
//! first call that can be served. A program that does not use CUDA pays two comparisons for each
//! name that it looks up.
//!
//! ```text
//! what programs call    lookups (dlsym, dlvsym)
//!                       replacements: the list of all others, cuGetProcAddress
//!                       runtime · driver · passed · watched · peers
//! what a call means     memory: served, or passed to CUDA
//!                       opening: libgenesis.so, at the first call that can be served
//!                       call, last_error: the answer
//! what is kept          fence · streams: waits for freed blocks, ends of streams
//!                       capture · device · freed · handed
//! what is called        process, genesis: libgenesis.so
//!                       runtime_api, driver_api, next: CUDA's own functions
//! what all use          report, symbols · real_dlsym, elf, loader · inside · short_lock,
//!                       environment
//! ```
//!
//! Each file uses only those below it.
//!
//! **Fail open.** What cannot be served passes to CUDA's own function: another context than a
//! device's primary one, a pointer that is not Genesis's, a driver that refuses, a missing
//! `libgenesis.so`, the child of a fork, `GENESIS_PRELOAD=off`.
//!
//! **`cudaFree` does not wait** for the device, while CUDA's own does. Instead no freed block is
//! used again before the device was waited for (`fence`).
//!
//! **What it does not do**: a program that is linked statically, or set-uid, ignores LD_PRELOAD.
//! Pointers that a program got before the library was loaded, and functions found through
//! `cuGetExportTable`, are not seen. Managed memory, arrays and host memory are CUDA's (`passed`).

mod call;
mod capture;
mod device;
mod driver;
mod driver_api;
mod elf;
mod environment;
mod fence;
mod freed;
mod genesis;
mod handed;
mod inside;
mod last_error;
mod loader;
mod lookups;
mod memory;
mod next;
mod opening;
mod passed;
mod peers;
mod process;
mod real_dlsym;
mod replacements;
mod report;
mod runtime;
mod runtime_api;
mod short_lock;
mod streams;
mod symbols;
mod watched;
