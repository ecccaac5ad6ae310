//! What `genesis/mxnet.hpp` costs beyond the library: nanoseconds of a cached `Alloc` and `Free` of
//! MXNet's storage, and of `genesis_malloc` and `genesis_free`, for each of MXNet's interfaces.
//!
//! The program is `c_tests/mxnet/pair.cpp`, compiled with the headers of MXNet's wheels.

#[allow(dead_code)] // one program is compiled, and has no pools
#[path = "../tests/mxnet/build.rs"]
mod mxnet;
#[allow(dead_code)] // it is run on addresses only
#[path = "../tests/c_interface/programs.rs"]
mod programs;

fn main() {
    for version in mxnet::VERSIONS {
        let mut pair = programs::command(mxnet::program("pair.cpp", version));
        print!("MXNet {version}\n{}", programs::run_silently(pair.env("GENESIS_BACKEND", "sim")));
    }
}
