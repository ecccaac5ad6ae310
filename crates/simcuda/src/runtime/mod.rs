//! The runtime API: the symbols that a program linked against `libcudart.so` needs.
//!
//! Signatures are those of `cuda_runtime_api.h` of CUDA 13 with handles as integers, as in
//! `driver`; each function is a translation. What PyTorch calls is also there as CUDA 12 has it.
//! Functions that are not here are stubs that fail and print their name.
//!
//! SAFETY of the whole module: every pointer is an argument of a C function, and is null or
//! valid for what the function does with it by the header; `put` and `put_if` check for null.

mod copies;
mod device;
mod entry;
mod error;
mod event;
mod graph;
mod kernel;
mod managed;
mod memory;
mod pool;
mod properties;
mod sharing;
mod stream;
