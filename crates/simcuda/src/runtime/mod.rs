//! The runtime API: the symbols that a program linked against `libcudart.so` wants.
//!
//! As with `driver`: signatures are those of `cuda_runtime_api.h` of CUDA 13, handles are
//! integers, a translation each. Functions that are not here are stubs that fail by name.
//!
//! SAFETY of the whole module: every pointer is an argument of a C function, and is null or
//! valid for what the header says the function does with it; `put` and its like check for null.

mod copies;
mod device;
mod entry;
mod error;
mod event;
mod graph;
mod kernel;
mod memory;
mod pool;
mod properties;
mod stream;
