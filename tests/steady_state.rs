//! The steady state costs arithmetic and nothing else.
//!
//! Recorded programs are replayed until the heap knows them, then once more under three
//! instruments: the driver's count of calls, an allocator that counts what this thread asks of
//! the host, and a process that the kernel kills at its first system call. A program on one
//! stream passes all three; one that shares blocks between streams must ask for events, so it
//! is held to no memory call and no host memory. Naive is the exception by design.

mod support;

use genesis::config::{ElasticPolicy, PoolType};
use genesis_replay::program::Kind;
use simgpu::Prices;

use support::host_memory::{self, Counting};
use support::replay::{Replay, recorded, rig_for};
use support::{A, tier};

#[global_allocator]
static COUNTING: Counting = Counting;

const CACHING: [PoolType; 3] = [PoolType::Round, PoolType::Exact, PoolType::Caching];
/// In the first pass Elastic learns how much a program needs, in the second it moves memory to hold no
/// more, and from the third or fourth on it takes the same windows each time.
const ELASTIC_WARM_UP_PASSES: usize = 3;
/// Passes after that: on every change, and nightly.
const ELASTIC_PASSES: usize = 8;
const ALL_ELASTIC_PASSES: usize = 30;
/// After so many passes Elastic is at rest, …
const AT_REST_PASSES: usize = 11;
/// … and calls the driver at most once in so many of the program's calls.
const LEAST_CALLS_BETWEEN: u64 = 10_000;
/// The most that the tables of a heap and of the simulated machine may be, as a part of the
/// memory of the device that the heap holds.
const TABLES_PART: f64 = 0.01;
/// The most that they may still grow by after that, in bytes.
const TABLES_GROWTH_BYTES: i64 = 64 << 10;
/// The recorded programs that use one stream.
const ON_ONE_STREAM: [&str; 7] = [
    "alternating",
    "bert_large_var",
    "diffusion_buckets",
    "gpt2_train",
    "llama1b_full_var",
    "llama7b_lora_ckpt",
    "opt13_recompute_var",
];

#[test]
fn one_stream_asks_nothing_of_anybody() {
    for name in ON_ONE_STREAM {
        let program = recorded(name);
        for pool_type in CACHING {
            let mut replay = Replay::warm(&program, pool_type);
            let (calls, host_allocations) = (replay.rig.calls(), host_memory::allocations());
            replay.pass().unwrap();
            let host_allocations = host_memory::allocations() - host_allocations;
            assert_eq!(host_allocations, 0, "{name}, {pool_type:?}: host memory");
            assert_eq!(replay.rig.calls(), calls, "{name}, {pool_type:?}: driver calls");
            replay.rig.finish();
        }
    }
}

#[test]
fn streams_that_share_ask_for_events_only() {
    let program = recorded("fsdp_streams");
    for pool_type in CACHING {
        let mut replay = Replay::warm(&program, pool_type);
        let memory_calls = replay.rig.statistics().driver_memory_calls;
        let host_waits = replay.rig.usage().host_waits;
        let host_allocations = host_memory::allocations();
        replay.pass().unwrap();
        let host_allocations = host_memory::allocations() - host_allocations;
        assert_eq!(host_allocations, 0, "{pool_type:?}: host memory");
        assert_eq!(replay.rig.usage().host_waits, host_waits, "{pool_type:?}: host waits");
        let after = replay.rig.statistics().driver_memory_calls;
        assert_eq!(after, memory_calls, "{pool_type:?}: driver calls for memory");
        replay.rig.finish();
    }
}

/// Of the events that a stream records ahead of need, in case that another one wants its memory,
/// few are recorded if nobody does.
#[test]
fn elastic_records_hardly_an_event_that_nobody_waits_for() {
    let program = recorded("fsdp_streams");
    let mut replay = Replay::warm(&program, PoolType::Elastic);
    let recorded = |replay: &Replay<'_>| replay.rig.usage().count(simgpu::Call::EventRecord);
    let before = recorded(&replay);
    replay.pass().unwrap();
    let count = recorded(&replay) - before;
    let needed = program.count(Kind::RecordStream) as u64;
    assert!((needed..needed + needed / 50).contains(&count), "{count} events, {needed} needed");
    replay.rig.finish();
}

#[test]
fn elastic_asks_for_no_memory_again_and_its_tables_stay() {
    for name in ON_ONE_STREAM.into_iter().chain(["fsdp_streams"]) {
        let program = recorded(name);
        let held_bytes = host_memory::held_bytes();
        let mut replay = Replay::new(&program, PoolType::Elastic);
        replay.passes(ELASTIC_WARM_UP_PASSES);
        let tables_bytes = host_memory::held_bytes() - held_bytes;
        let memory_calls = replay.rig.statistics().driver_memory_calls;
        replay.passes(tier::some_or_all(ELASTIC_PASSES, ALL_ELASTIC_PASSES));
        assert_eq!(replay.rig.statistics().driver_memory_calls, memory_calls, "{name}");
        let host_waits = replay.rig.usage().host_waits;
        assert_eq!((host_waits.explicit, host_waits.implicit), (0, 0), "{name}");
        let tables_after_bytes = host_memory::held_bytes() - held_bytes;
        let most_bytes = replay.rig.reserved_bytes() as f64 * TABLES_PART;
        assert!((tables_after_bytes as f64) < most_bytes, "{name}: {tables_after_bytes} bytes");
        let growth_bytes = tables_after_bytes - tables_bytes;
        assert!(growth_bytes <= TABLES_GROWTH_BYTES, "{name}: {tables_bytes} + {growth_bytes}");
        replay.rig.finish();
    }
}

#[test]
fn elastic_asks_for_no_memory_again_where_there_is_little_room() {
    // alternating does not fit.
    let on_one_stream = ON_ONE_STREAM.into_iter().filter(|&name| name != "alternating");
    for name in on_one_stream.chain(["fsdp_streams"]) {
        let program = recorded(name);
        let device_bytes = program.live_peak_bytes / 100 * 105;
        let mut replay = Replay::on(&program, PoolType::Elastic, device_bytes);
        replay.passes(ELASTIC_WARM_UP_PASSES);
        let memory_calls = replay.rig.statistics().driver_memory_calls;
        replay.passes(tier::some_or_all(2, ALL_ELASTIC_PASSES));
        assert_eq!(replay.rig.statistics().driver_memory_calls, memory_calls, "{name}");
        replay.rig.finish();
    }
}

/// Windows that a program comes back to are not forgotten before it does, also where extents are
/// small and layouts many.
#[test]
fn streams_that_share_come_to_rest_at_other_prices_too() {
    let program = recorded("fsdp_streams");
    for percent in tier::some_or_all(&[105][..], &[102, 105, 110]) {
        let device_bytes = program.live_peak_bytes / 100 * percent;
        let mut replay =
            Replay::at_prices(&program, ElasticPolicy::Balanced, Prices::B300, device_bytes);
        replay.passes(ELASTIC_WARM_UP_PASSES);
        let memory_calls = replay.rig.statistics().driver_memory_calls;
        replay.passes(2);
        let after = replay.rig.statistics().driver_memory_calls;
        assert_eq!(after, memory_calls, "on {percent} % of the live peak");
        replay.rig.finish();
    }
}

/// Small extents and little slack make for many layouts.
#[test]
fn streams_that_share_come_to_rest_under_the_tight_policy() {
    let program = recorded("fsdp_streams");
    let mut replay = Replay::under(&program, ElasticPolicy::Tight);
    replay.passes(ELASTIC_WARM_UP_PASSES);
    let memory_calls = replay.rig.statistics().driver_memory_calls;
    replay.passes(2);
    assert_eq!(replay.rig.statistics().driver_memory_calls, memory_calls);
    replay.rig.finish();
}

/// Where memory is short views come and go all the time: they and what is known of them stay
/// within bounds.
#[test]
fn elastics_tables_stay_small_on_a_small_device() {
    for name in ["diffusion_buckets", "fsdp_streams"] {
        let program = recorded(name);
        let device_bytes = program.live_peak_bytes / 10 * 11;
        let held_bytes = host_memory::held_bytes();
        let mut replay = Replay::on(&program, PoolType::Elastic, device_bytes);
        replay.passes(4);
        let tables_bytes = host_memory::held_bytes() - held_bytes;
        let reserved_bytes = replay.rig.machine.census().reserved_bytes;
        replay.passes(8);
        let tables_after_bytes = host_memory::held_bytes() - held_bytes;
        assert!((tables_after_bytes as f64) < device_bytes as f64 * TABLES_PART, "{name}");
        let most_bytes = tables_bytes + tables_bytes / 4;
        assert!(tables_after_bytes <= most_bytes, "{name}: {tables_bytes}, {tables_after_bytes}");
        let after_bytes = replay.rig.machine.census().reserved_bytes;
        assert!(after_bytes <= 2 * reserved_bytes, "{name}: {reserved_bytes}, {after_bytes}");
        replay.rig.finish();
    }
}

#[test]
fn elastic_asks_nothing_where_everything_repeats() {
    let program = recorded("gpt2_train");
    let mut replay = Replay::new(&program, PoolType::Elastic);
    replay.passes(ELASTIC_WARM_UP_PASSES);
    let (calls, host_allocations) = (replay.rig.calls(), host_memory::allocations());
    replay.pass().unwrap();
    let host_allocations = host_memory::allocations() - host_allocations;
    // Each time a few extents return to their first homes and come again.
    assert!(host_allocations < 100, "host memory: {host_allocations}");
    assert_eq!(replay.rig.calls(), calls, "driver calls");
    replay.rig.finish();
}

/// A window that is not known yet is searched for, and whoever searches may move memory; so it asks
/// first whether the stream is captured.
#[test]
fn elastic_asks_hardly_anything_once_it_is_at_rest() {
    for name in ON_ONE_STREAM {
        let program = recorded(name);
        let mut replay = Replay::new(&program, PoolType::Elastic);
        replay.passes(AT_REST_PASSES);
        let calls = replay.rig.calls();
        replay.pass().unwrap();
        let calls = replay.rig.calls() - calls;
        let most = program.calls.len() as u64 / LEAST_CALLS_BETWEEN;
        assert!(calls <= most, "{name}: {calls} driver calls, {most} allowed");
        replay.rig.finish();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn one_stream_makes_no_system_call() {
    let program = recorded("gpt2_train");
    for pool_type in CACHING.into_iter().chain([PoolType::Arena, PoolType::Elastic]) {
        let mut replay = Replay::warm(&program, pool_type);
        let ended = jail::run(|| replay.pass().is_ok());
        assert_eq!(ended, jail::Ended::Well, "{pool_type:?}");
    }
}

/// The jail itself: one system call is enough, and a failure is told from success.
#[test]
#[cfg(target_os = "linux")]
fn the_jail_holds() {
    assert_eq!(jail::run(|| true), jail::Ended::Well);
    assert_eq!(jail::run(|| false), jail::Ended::Badly);
    // SAFETY: asks for a number.
    let calls_the_system = || unsafe { libc::getppid() } != 0;
    assert_eq!(jail::run(calls_the_system), jail::Ended::AtASystemCall);
}

#[test]
fn naive_asks_the_driver_every_time() {
    let rig = rig_for(PoolType::Naive, 1);
    let before = rig.calls();
    for _ in 0..10 {
        let block = rig.allocate(512, A);
        rig.free(block);
    }
    assert!(rig.calls() >= before + 20);
    rig.finish();
}

#[cfg(target_os = "linux")]
mod jail {
    //! A child process in which the kernel permits nothing but to end.

    /// How a jailed piece of work ended.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Ended {
        /// It said that it went well.
        Well,
        /// It said that it did not.
        Badly,
        /// The kernel killed it.
        AtASystemCall,
        /// The kernel would not build the jail, or something else went wrong: a wait status.
        Otherwise(i32),
    }

    const NO_JAIL: i32 = 77;

    /// Runs `work` in a child that is killed at the first system call but `exit_group`.
    pub fn run(work: impl FnOnce() -> bool) -> Ended {
        // SAFETY: the child touches only what `work` owns, and ends without returning; no
        // other thread of this process holds a lock that `work` takes.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let code = match lock_up() {
                Ok(()) => i32::from(!work()),
                Err(()) => NO_JAIL,
            };
            // SAFETY: ends the child at once, without destructors.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS {
            return Ended::AtASystemCall;
        }
        match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
            Some(0) => Ended::Well,
            Some(1) => Ended::Badly,
            _ => Ended::Otherwise(status),
        }
    }

    /// From now on every system call except `exit_group` is forbidden.
    fn lock_up() -> Result<(), ()> {
        let statement =
            |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let exit_group = libc::SYS_exit_group as u32;
        // Load the call's number; is it exit_group? then allow it, else kill the process.
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: exit_group,
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: plain numbers; concerns this process only.
        let locked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0
            // SAFETY: `program` and the filter it points to live through the call.
            && unsafe {
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
            } == 0;
        if locked { Ok(()) } else { Err(()) }
    }
}
