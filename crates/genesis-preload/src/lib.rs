//! Genesis for unmodified CUDA programs: `LD_PRELOAD=libgenesis_preload.so program`.
//!
//! The library defines CUDA's functions for memory, so that the loader binds a program's calls to
//! it, and takes over `dlsym` and `cuGetProcAddress` for those who find the driver by name. It
//! holds no memory itself: it opens `libgenesis.so`, of which there is one in the process, at the
//! first call that can be served. A program that does not use CUDA pays for looking at two letters
//! of each name that it looks up.
//!
//! ```text
//!  a program, a library            `table`: every symbol that is taken over
//!    │ cudaMalloc     │ dlsym("cuMemAlloc_v2"), cuGetProcAddress
//!    │                ▼
//!    │             lookups, proc_address, elf
//!    ▼                ▼
//!  runtime          driver         passed, watched, peers, …
//!    └──── memory ────┘              │
//!   device │ fence, capture          │
//!          ▼                         ▼
//!     genesis (libgenesis.so)      next (CUDA's own functions)
//! ```
//!
//! **Fail open.** Whatever cannot be served passes to CUDA's own function: another context than a
//! device's primary one, a pointer of somebody else's, a driver that refuses, a missing
//! `libgenesis.so`, the child of a fork, `GENESIS_PRELOAD=off`.
//!
//! **`cudaFree` does not wait** for the device, as CUDA's own does; instead no freed block is used
//! again before the device was waited for (`fence`).
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
mod fence;
mod genesis;
mod inside;
mod last_error;
mod loader;
mod lookups;
mod memory;
mod next;
mod passed;
mod peers;
mod proc_address;
mod process;
mod report;
mod runtime;
mod streams;
mod table;
mod watched;
