//! The list of assumptions: statements, and their meaning for the design if they hold or fail.

use super::{
    Assumption, aliases, captures, communication, handle_reuse, mappings, neighbours, queue, waits,
};

const TOLD_APART: &str = "Streams are told apart although their handles come again.";
const CONFUSED: &str = "A stream's handle is taken for its identity: programs that destroy streams \
                        are corrupted.";
const FREE_TO_MOVE: &str = "Pages may move between addresses without a wait.";
const BOUND: &str = "Elastic must not move memory that is read this way: use Caching here, \
                     and let a move wait for the device.";

macro_rules! assumptions {
    ($($name:ident, $vital:literal, $run:expr;
       $statement:expr; holds: $holds:expr; fails: $fails:expr;)*) => {
        /// All of them, in the order of the page.
        pub(crate) static ASSUMPTIONS: &[Assumption] = &[$(Assumption {
            name: stringify!($name),
            statement: $statement,
            if_it_holds: $holds,
            if_not: $fails,
            is_vital: $vital,
            run: $run,
        }),*];
    };
}

assumptions! {
    handle_reuse_elastic, true, |bench| handle_reuse::run(bench, c"Elastic");
        "A block freed on a destroyed stream is not overwritten by that stream's work once a new \
         stream has its handle (Elastic)";
        holds: TOLD_APART; fails: CONFUSED;
    handle_reuse_caching, true, |bench| handle_reuse::run(bench, c"Caching");
        "The same (Caching)";
        holds: TOLD_APART; fails: CONFUSED;
    handle_reuse_round, true, |bench| handle_reuse::run(bench, c"Round");
        "The same (Round)";
        holds: TOLD_APART; fails: CONFUSED;
    aliases_plain, true, aliases::plain;
        "Writes through one address are seen through another by plain loads, after the order of a \
         stream or an event alone";
        holds: FREE_TO_MOVE; fails: BOUND;
    aliases_read_only, true, aliases::read_only;
        "The same by loads through the read-only cache (ld.global.nc)";
        holds: FREE_TO_MOVE; fails: BOUND;
    aliases_atomic, true, aliases::atomic;
        "The same by atomic operations, on both sides";
        holds: FREE_TO_MOVE; fails: BOUND;
    aliases_copy_engine, true, aliases::copy_engine;
        "The same by the copy engine, on either side";
        holds: FREE_TO_MOVE; fails: BOUND;
    aliases_graph, true, aliases::graph;
        "The same within and between replays of a graph";
        holds: FREE_TO_MOVE; fails: BOUND;
    aliases_dependent_launch, true, aliases::dependent_launch;
        "The same by programmatic dependent launch: the reader starts early and waits inside";
        holds: FREE_TO_MOVE; fails: BOUND;
    waits_for_stream, true, waits::stream;
        "cuCtxSynchronize and cuMemFree wait for another stream of their context";
        holds: "One wait makes every free block of the context good for every stream.";
        fails: "The wait on the last rung of the ladder proves nothing.";
    waits_for_graph, true, waits::graph;
        "They wait for a launched graph";
        holds: "Graphs need no wait of their own.";
        fails: "Before memory is given back, streams with graphs must be waited for one by one.";
    waits_for_green_context, true, waits::green_context;
        "cuCtxSynchronize of the primary context waits for green contexts";
        holds: "A program may split the device without Genesis knowing.";
        fails: "Streams of green contexts must be waited for by their own events.";
    waits_for_context, false, waits::context;
        "cuCtxSynchronize waits for its own context only";
        holds: "Streams of other contexts must be waited for by themselves, as Genesis and the \
                simulated driver do.";
        fails: "The simulated driver is stricter than this one: Genesis's waits for other contexts \
                cost, and do no harm.";
    waits_for_second_device, false, waits::second_device;
        "cuCtxSynchronize waits for its own device only";
        holds: "Memory that a peer uses is given back only after the peer's streams are waited \
                for.";
        fails: "The simulated driver is stricter than this one: waits for peers cost, and do no \
                harm.";
    mappings_under_load, false, mappings::under_load;
        "All mappings asked for can live at once, made next to memory that a kernel streams \
         through; set-access never costs three times as much as at first, and launches take as \
         long as before";
        holds: "The number of views is bounded by memory of the host and the device alone.";
        fails: "Elastic's bounds on shadows must be set by the table below, and mapping in large \
                extents matters more.";
    queue_of_waiting_work, false, queue::depth;
        "No call on streams and events blocks, however much waits behind held work";
        holds: "Events may be recorded anywhere.";
        fails: "A call that blocks must not be made under a lock that a running stream's thread \
                needs; the simulated driver blocks at the count given.";
    queue_and_other_threads, false, queue::other_threads;
        "While one thread blocks on a full queue, calls of other threads on other streams return";
        holds: "A full queue harms only its own thread.";
        fails: "A full queue stops every thread that calls the driver, also inside a lane's lock: \
                a host function in that queue must never need the lane.";
    captures_of_another_thread, false, captures::from_another_thread;
        "What Genesis calls in relaxed mode never breaks a capture of another thread";
        holds: "A miss may map and allocate during another thread's capture.";
        fails: "The calls that break one must not be made while any capture is known.";
    neighbours_give_back, false, neighbours::give_back;
        "Memory that one process unmaps and releases is another one's at once (GENESIS_SHARE)";
        holds: "A process that is short is served from what others have cached.";
        fails: "Processes that share a device keep guarantees and limits only.";
    memory_for_communication, false, communication::made;
        "Memory for NCCL and RDMA is granted, at least shareable within the machine";
        holds: "Buffers of genesis.torch.nccl_pool can be registered as those of ncclMemAlloc.";
        fails: "NCCL copies through its own buffers.";
}
