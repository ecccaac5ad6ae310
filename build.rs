//! Makes `include/genesis.h` from `src/ffi`, as `cbindgen.toml` says.
//!
//! The header is committed, so that linking the library needs no Rust. A build rewrites it only if
//! it differs, and CI fails if a build has changed it.

use std::path::Path;
use std::{env, fs};

/// The files of the C interface: its functions and their types.
const SOURCES: &[&str] = &[
    "src/base/backup.rs",
    "src/base/error.rs",
    "src/base/gauge.rs",
    "src/config/settings.rs",
    "src/config/strategy.rs",
    "src/ffi/allocation.rs",
    "src/ffi/annotations.rs",
    "src/ffi/arenas.rs",
    "src/ffi/callbacks.rs",
    "src/ffi/communication_pools.rs",
    "src/ffi/cupy.rs",
    "src/ffi/dlpack.rs",
    "src/ffi/fixed_pools.rs",
    "src/ffi/forecasts.rs",
    "src/ffi/library.rs",
    "src/ffi/live.rs",
    "src/ffi/managed.rs",
    "src/ffi/memory.rs",
    "src/ffi/memory_managers.rs",
    "src/ffi/neighbours.rs",
    "src/ffi/objects.rs",
    "src/ffi/onnxruntime.rs",
    "src/ffi/peers.rs",
    "src/ffi/private_pools.rs",
    "src/ffi/profile.rs",
    "src/ffi/sharing.rs",
    "src/ffi/statistics.rs",
    "src/ffi/streams.rs",
    "src/ffi/host.rs",
    "src/ffi/tags.rs",
    "src/ffi/torch/adoption.rs",
    "src/ffi/torch/hooks.rs",
    "src/ffi/torch/history.rs",
    "src/ffi/torch/report.rs",
    "src/ffi/torch/pinned.rs",
    "src/ffi/torch/pool_functions.rs",
    "src/ffi/torch/pools.rs",
    "src/ffi/trace.rs",
    "src/observe/stats.rs",
];

fn main() {
    println!("cargo:rerun-if-changed=cbindgen.toml");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=packaging/wrapped");
    tell_where_std_function_is_known();
    wrap_host_allocation();
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo names the package's folder");
    let root = Path::new(&root);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml"))
        .unwrap_or_else(|error| panic!("cbindgen.toml: {error}"));
    let mut header = Vec::new();
    let builder = cbindgen::Builder::new().with_config(config);
    SOURCES
        .iter()
        .fold(builder, |builder, source| builder.with_src(root.join(source)))
        .generate()
        .unwrap_or_else(|error| panic!("the header cannot be made: {error}"))
        .write(&mut header);
    // Rust's heading for the caller's part, which C programmers do not know.
    let header = String::from_utf8(header).expect("cbindgen writes UTF-8");
    let header = header.replace("// # Safety\n", "// The caller's part:\n").into_bytes();
    let path = root.join("include/genesis.h");
    if fs::read(&path).ok().as_deref() != Some(&header) {
        // A read-only source tree has the header of its release.
        let _ = fs::write(&path, &header);
    }
}

/// Links the shared library with what stands in for malloc and its like (`src/base/host_malloc.rs`).
fn wrap_host_allocation() {
    for name in include_str!("packaging/wrapped").lines() {
        println!("cargo:rustc-link-arg-cdylib=-Wl,--wrap={name}");
    }
}

/// Sets `std_function_known` where the layout of libstdc++'s `std::function` and the way it is
/// passed are known; `cbindgen.toml` says the same to C programmers.
fn tell_where_std_function_is_known() {
    println!("cargo:rustc-check-cfg=cfg(std_function_known)");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("OS") == "linux" && ["x86_64", "aarch64"].contains(&target("ARCH").as_str()) {
        println!("cargo:rustc-cfg=std_function_known");
    }
}
