//! `genesis/mxnet.hpp`: compiled with the headers of MXNet's own wheels, used as MXNet uses its
//! storage, and put under a real MXNet.
//!
//! The programs are in `c_tests/mxnet`. Headers come from PyPI and are kept in the target folder:
//! `mxnet-headers` has those of 1.9.1 and of 2.0.0b1, whose interfaces differ. What needs MXNet
//! itself or the headers of CUDA has `_real_` in its name; `cargo xtask test-frameworks` installs
//! both and runs it.

#[path = "mxnet/build.rs"]
mod mxnet;
#[path = "support/on_simcuda.rs"]
mod on_simcuda;
#[allow(dead_code)] // what compiles programs of C
#[path = "c_interface/programs.rs"]
mod programs;
#[path = "support/tier.rs"]
mod tier;
#[path = "c_interface/valgrind.rs"]
mod valgrind;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use genesis::config::PoolType;
use genesis_replay::gtr;
use mxnet::{DEFINITIONS, NEWEST, VERSIONS, build, compiler_with, headers, program};
use programs::Language::Cpp17;
use programs::{command, compiler, run, run_silently, sources, text};

/// MXNet's names of its pools.
const POOLS: [&str; 3] = ["Naive", "Round", "Unpooled"];

/// On every change the newest; `cargo xtask test-frameworks` runs a real MXNet of each.
fn versions() -> &'static [&'static str] {
    tier::some_or_all(&[NEWEST], &VERSIONS)
}

/// The same for a build with CUDA.
fn compiler_with_cuda(version: &str) -> Command {
    let with_cuda =
        |definition: &str| definition.replace("CUDA=0", "CUDA=1").replace("ALONE=1", "ALONE=0");
    let mut command = compiler(Cpp17);
    command.args(DEFINITIONS.map(with_cuda));
    command.args(["-DMXNET_USE_CUDNN=0", "-DMSHADOW_USE_CUDNN=0", "-DMSHADOW_USE_NVML=0"]);
    command.arg("-isystem").arg(headers(version));
    command.arg("-isystem").arg(headers_of_cuda());
    command
}

/// The Python environment `name` of `cargo xtask test-frameworks`.
fn environment(name: &str) -> PathBuf {
    let folder = env::var_os("GENESIS_TEST_ENVIRONMENTS");
    Path::new(&folder.expect("set by cargo xtask test-frameworks")).join(name)
}

/// CUDA's headers as PyTorch's wheels bring them.
fn headers_of_cuda() -> PathBuf {
    let pythons = fs::read_dir(environment("torch-venv").join("lib")).unwrap();
    let folders =
        pythons.map(|python| python.unwrap().path().join("site-packages/nvidia/cu13/include"));
    let mut folders = folders.filter(|folder| folder.join("cublas_v2.h").is_file());
    folders.next().expect("PyTorch is installed with CUDA's headers")
}

/// Two devices of 100 MiB in host memory.
fn small_machine(program: &Path) -> Command {
    let mut command = command(program);
    command.env("GENESIS_SIM_MEMORY", "100MiB").env("GENESIS_SIM_DEVICES", "2");
    command
}

/// The environment that asks for a pool of MXNet's.
fn with_pool<'a>(command: &'a mut Command, pool: &str) -> &'a mut Command {
    for kind in ["GPU", "CPU", "CPU_PINNED"] {
        command.env(format!("MXNET_{kind}_MEM_POOL_TYPE"), pool);
    }
    command
}

/// In C++17 it is the first that each program includes, with every warning an error.
#[test]
#[ignore = "nightly"]
fn the_header_compiles_with_every_mxnet() {
    for version in VERSIONS {
        for standard in ["-std=c++11", "-std=c++14", "-std=c++17"] {
            compile_header(compiler_with(version), standard);
        }
    }
}

#[test]
#[ignore = "needs the environments of test-frameworks"]
fn the_header_compiles_with_real_headers_of_cuda() {
    for version in VERSIONS {
        compile_header(compiler_with_cuda(version), "-std=c++17");
    }
}

fn compile_header(mut compiler: Command, standard: &str) {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/genesis/mxnet.hpp");
    compiler.args([standard, "-fsyntax-only", "-include"]).arg(&header).arg("/dev/null");
    assert_eq!(run_silently(&mut compiler), "", "{compiler:?}");
}

#[test]
fn the_storage_does_what_mxnet_asks() {
    for version in versions() {
        let program = program("storage.cpp", version);
        for pool in ["Naive", "Round"] {
            run_silently(with_pool(&mut small_machine(&program), pool));
        }
        for pool_type in PoolType::ALL {
            run_silently(small_machine(&program).env("GENESIS_POOL_TYPE", pool_type.name()));
        }
    }
}

#[test]
#[ignore = "nightly"]
fn the_storage_is_clean_under_valgrind() {
    let program = program("storage.cpp", NEWEST);
    let mut checked = small_machine(Path::new("valgrind"));
    checked.args(valgrind::ARGUMENTS).arg(program);
    if !tier::is_full() {
        // To name them is to read the library's debug information: most of the time.
        checked.env("GENESIS_CALL_SITES", "off");
    }
    run_silently(&mut checked);
}

#[test]
fn the_reserve_stays_free_of_cached_memory() {
    let program = program("storage.cpp", NEWEST);
    for pool in ["Naive", "Round"] {
        for (case, percent) in [("no reserve", "10"), ("reserve", "15")] {
            let mut command = small_machine(&program);
            // Powers of two end at 2 MiB, so that Round's sizes are Naive's here.
            with_pool(&mut command, pool).env("MXNET_GPU_MEM_POOL_ROUND_LINEAR_CUTOFF", "21");
            command.env("MXNET_GPU_MEM_POOL_RESERVE", percent).arg(case);
            run_silently(&mut command);
        }
    }
}

#[test]
fn names_of_handles_are_call_sites() {
    for version in versions() {
        let program = program("storage.cpp", version);
        let profile = program.with_extension(format!("{}.json", std::process::id()));
        let mut command = small_machine(&program);
        run_silently(
            command.args(["names".as_ref(), profile.as_os_str()]).env("GENESIS_DEBUG", "poison"),
        );
        let profile = genesis_profile::json::read(&fs::read(profile).unwrap()).unwrap();
        let summary = |wanted: &[&str]| {
            profile.call_sites.iter().find(|summary| {
                let frames = &profile.sites[summary.site as usize].frames;
                frames.iter().map(|frame| frame.function.as_str()).eq(wanted.iter().copied())
            })
        };
        let named = summary(&["conv0_weight", "resnet0:"]);
        let unnamed = summary(&["unknown", "<unk>:"]);
        if version.starts_with('1') {
            assert!(named.is_none() && unnamed.is_none());
            continue;
        }
        let (named, unnamed) = (named.expect("a site").counts, unnamed.expect("a site").counts);
        assert_eq!((named.allocations, named.frees, named.requested_bytes), (1, 0, 100_000));
        assert_eq!((unnamed.allocations, unnamed.frees, unnamed.requested_bytes), (1, 1, 1000));
    }
}

/// What MXNet's sources and PyTorch's make of a request, through the storage.
#[test]
fn sizes_are_mxnets() {
    let program = program("sizes.cpp", NEWEST);
    for pool in POOLS {
        let mut command = command(&program);
        with_pool(&mut command, pool).env("GENESIS_BACKEND", "sim").arg(pool);
        run_silently(&mut command);
    }
    let mut command = command(&program);
    command.env("GENESIS_BACKEND", "sim").env("GENESIS_POOL_TYPE", "Caching");
    run_silently(command.arg("Caching"));
}

/// A recorded program in a file that the replaying program reads.
fn uncompressed(name: &str) -> PathBuf {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.gtr.zst"));
    let records = gtr::read_file(&trace).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mxnet-{name}-{}.gtr", std::process::id()));
    gtr::write(&mut File::create(&path).unwrap(), &records).unwrap();
    path
}

/// Round and Exact are MXNet's Round and Naive: byte for byte and call for call, at each step of
/// programs that fit and of one that lives at the reserve.
#[test]
fn pools_hold_what_mxnets_would() {
    let program = program("replay.cpp", NEWEST);
    let programs = [
        ("diffusion_buckets", "6GiB"),
        ("alternating", "80GiB"),
        ("diffusion_buckets", "80GiB"),
        ("fsdp_streams", "80GiB"),
        ("bert_large_var", "80GiB"),
    ];
    for (name, memory) in &programs[..tier::some_or_all(2, 5)] {
        let trace = uncompressed(name);
        for pool in ["Naive", "Round"] {
            let mut command = command(&program);
            with_pool(&mut command, pool).env("GENESIS_BACKEND", "sim");
            command.env("GENESIS_SIM_MEMORY", memory).arg(&trace).args(["--same-as", pool]);
            run_silently(&mut command);
        }
        fs::remove_file(trace).unwrap();
    }
}

/// The default strategy under the same programs: what it is for.
#[test]
#[ignore = "nightly"]
fn elastic_holds_less() {
    let program = program("replay.cpp", NEWEST);
    let names = ["diffusion_buckets", "alternating", "fsdp_streams"];
    for name in &names[..tier::some_or_all(1, 3)] {
        let trace = uncompressed(name);
        let mut command = command(&program);
        let table = run_silently(command.env("GENESIS_BACKEND", "sim").arg(&trace));
        let over_live: Vec<f64> = table
            .lines()
            .skip(2)
            .map(|line| line.split_whitespace().rev().nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(over_live.len(), 3, "{table}");
        assert!(over_live[0] < over_live[1].min(over_live[2]), "{name}: {table}");
        fs::remove_file(trace).unwrap();
    }
}

/// The table of docs/mxnet.md, on a device of 80 GiB with addresses only.
#[test]
#[ignore = "nightly"]
fn the_table_of_the_docs_is_what_is_held() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = fs::read_dir(root.join("traces")).unwrap().filter_map(|entry| {
        Some(entry.unwrap().file_name().to_str()?.strip_suffix(".gtr.zst")?.to_owned())
    });
    let mut rows: Vec<String> = names.map(|name| row_of_the_docs(&name)).collect();
    rows.sort();
    let page = fs::read_to_string(root.join("docs/mxnet.md")).unwrap();
    let head = "| trace | live, MiB | Elastic | MXNet's Naive | MXNet's Round | driver calls |\n";
    let (_, table) = page.split_once(head).expect("the page has the table");
    let told: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(told, rows, "docs/mxnet.md should say:\n{}", rows.join("\n"));
}

fn row_of_the_docs(name: &str) -> String {
    let trace = uncompressed(name);
    let mut command = command(program("replay.cpp", NEWEST));
    let table = run_silently(command.env("GENESIS_BACKEND", "sim").arg(&trace));
    fs::remove_file(trace).unwrap();
    let mut lines = table.lines();
    let live = lines.next().unwrap().split_whitespace().nth(2).unwrap();
    let mib = live.parse::<u64>().unwrap() >> 20;
    let rows: Vec<Vec<&str>> =
        lines.skip(1).map(|line| line.split_whitespace().rev().collect()).collect();
    let over = |row: usize| rows[row][1];
    let calls: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let (elastic, naive, round) = (over(0), over(1), over(2));
    format!("| `{name}` | {mib} | {elastic} | {naive} | {round} | {} |", calls.join(" · "))
}

/// The CUDA side of the header, on simulated GPUs, with a statement of 2.x's interface.
#[test]
fn memory_waits_for_the_events_of_its_handle() {
    let mut stated = compiler(Cpp17);
    stated.arg("-I").arg(sources().join("mxnet/interface"));
    wait_for_events(stated, "events");
}

/// The same with the headers of the wheel and of CUDA.
#[test]
#[ignore = "needs the environments of test-frameworks"]
fn memory_waits_for_the_events_of_a_real_handle() {
    wait_for_events(compiler_with_cuda(NEWEST), "events-real");
}

fn wait_for_events(compiler: Command, name: &str) {
    let simcuda = on_simcuda::folder();
    let path = simcuda.to_str().expect("the build folder's name is UTF-8");
    let options = ["-L", path, "-lsimcuda", &format!("-Wl,-rpath,{path}")];
    let program = build(compiler, "events.cpp", name, &options);
    for pool_type in PoolType::ALL {
        let mut command = command(&program);
        on_simcuda::put_beneath(&mut command);
        command.env("GENESIS_BACKEND", "cuda").env("GENESIS_POOL_TYPE", pool_type.name());
        run(command.env("SIMCUDA_PROGRESS", "manual").env("SIMCUDA_MEMORY", "100MiB"));
    }
}

/// MXNet's wheels as they are, with the storage preloaded: each trains, to the same numbers, and
/// all its memory is Genesis's.
#[test]
#[ignore = "needs the environments of test-frameworks"]
fn a_real_mxnet_trains_on_genesis() {
    for version in VERSIONS {
        let python = environment(&format!("mxnet-venv-{version}")).join("bin/python");
        trains_on_genesis(version, &python);
    }
}

fn trains_on_genesis(version: &str, python: &Path) {
    // The wheels are of a time before C++11's strings, which are in 2.x's handles.
    let options = ["-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=0"];
    let plug = build(compiler_with(version), "plug.cpp", &format!("plug-{version}.so"), &options);
    let train = |preloaded: Option<&Path>| {
        let mut command = command(python);
        command.arg(sources().join("mxnet/train.py"));
        command.envs(preloaded.map(|library| ("LD_PRELOAD", library)));
        text(&run(&mut command).stdout)
    };
    let (own, ours) = (train(None), train(Some(&plug)));
    let (losses, memory) = ours.split_once("genesis: ").expect("Genesis is there");
    assert_eq!(losses, own);
    let numbers: Vec<u64> =
        memory.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [allocations, frees, hits] = numbers[..] else { panic!("{memory}") };
    assert!(allocations > 1000 && frees * 10 > allocations * 9, "{memory}");
    assert!(hits * 10 > allocations * 9, "{memory}");
}
