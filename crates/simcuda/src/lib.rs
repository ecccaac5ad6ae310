//! CUDA without a GPU: the driver's and the runtime's own symbols over [`simgpu`].
//!
//! One library, `libsimcuda.so`. Found as `libcuda.so.1` it is the driver; preloaded, its
//! symbols take the place of the runtime's, cuBLAS's and cuDNN's, and an unmodified PyTorch
//! runs: allocation, streams, events, captures and copies are the real thing, kernels do
//! nothing. The program `simcuda` beside it sets that up: `simcuda python train.py`.
//!
//! Where to read: `call` (what surrounds every call), `simulation` (the one machine and the
//! tables beside it), `settings` (the environment), then `driver` and `runtime`, an exported
//! function each; `transfers` and `kernels` (what work touches); `control` (what tests ask and
//! tell: violations, what is alive, holding streams back).
//!
//! What is not here fails by name. A driver function that is absent is not found, and standard
//! error says which; every function of the runtime that is absent, and those of other libraries
//! that need a device, are stubs that say their name and answer "not supported" (`stubs`, whose
//! lists lie in `symbols/`).
//!
//! **Not simulated**: address spaces of their own for contexts of one device (all share one, and
//! the attributes of an address name the primary context), managed memory, arrays and textures,
//! sharing between processes, multicast, per-thread default streams by symbol. A program with
//! the runtime linked into it finds only the driver here, and its runtime wants undocumented
//! tables of the driver: such programs do not start. (`tests/frameworks` puts simcuda's functions in
//! the place of such a runtime, where the program still has its symbols.)

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
mod log;
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
