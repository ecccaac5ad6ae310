//! CUDA without a GPU: the driver's and the runtime's own symbols over [`simgpu`].
//!
//! One library, `libsimcuda.so`. Found as `libcuda.so.1`, it is the driver; as
//! `libnvidia-ml.so.1`, what of its management library PyTorch asks. Preloaded, its symbols
//! replace those of the runtime, cuBLAS and cuDNN, and an unmodified PyTorch runs: allocation,
//! streams, events, captures and copies are the real thing, kernels do nothing. The program
//! `simcuda` in the same folder sets that up: `simcuda python train.py`.
//!
//! The files, from the ground up:
//!
//! | files | what |
//! |---|---|
//! | `answer`, `code`, `device`, `log`, `settings` | results, codes, attributes, the environment |
//! | `script`, `violations`, `current` | faults, what was found wrong, the thread's contexts |
//! | `streams`, `graphs`, `host_memory`, `host_functions`, `pools` | tables `simgpu` has not |
//! | `touches`, `kernels` | what kernels there are, and what a launch touches |
//! | `simulation` | the one machine with its tables |
//! | `call`, `capture`, `transfers`, `launch` | what surrounds every call; what calls share |
//! | `driver`, `runtime`, `nvml`, `stubs`, `control` | the exported functions |
//!
//! What is not here fails by name. A driver function that is absent is not found, and standard
//! error names it. Every absent function of the runtime, and those of other libraries that need a
//! device, are stubs that print their name and return "not supported" (`stubs`, whose lists lie in
//! `symbols/`).
//!
//! **Not simulated**: separate address spaces for contexts of one device (all share one, and the
//! attributes of an address name the primary context), arrays and textures,
//! multicast, per-thread default streams by symbol. A program with the
//! runtime linked into it finds only the driver here, but its runtime needs undocumented tables of
//! the driver: such programs do not start. (`tests/frameworks` replaces the functions of such a
//! runtime by simcuda's, where the program still has its symbols.)

mod answer;
mod call;
mod capture;
mod code;
mod control;
mod current;
mod device;
mod driver;
mod graphs;
mod host_functions;
mod host_memory;
mod kernels;
mod launch;
mod log;
mod nvml;
mod pools;
mod runtime;
mod script;
mod settings;
mod simulation;
mod streams;
mod stubs;
mod touches;
mod transfers;
mod violations;
