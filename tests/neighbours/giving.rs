//! A process that is short gets what others have cached.

use std::time::{Duration, Instant};
use std::{fs, thread};

use genesis::config::PoolType;

use crate::peer::Peer;
use crate::town::Town;
use crate::{DEVICE_BYTES, MIB};

/// A peer that has `bytes` cached.
fn with_cache(town: &Town, bytes: u64, variables: &[(&str, &str)]) -> Peer {
    let mut peer = town.peer(variables);
    let block = peer.malloc(bytes);
    peer.free(block);
    peer
}

fn refused(peer: &mut Peer, bytes: u64) -> String {
    let refusal = peer.ask(&format!("malloc {bytes}")).unwrap_err();
    assert!(refusal.starts_with("OutOfMemory"), "{refusal}");
    refusal
}

#[test]
fn what_is_cached_and_idle_is_given_back() {
    let town = Town::new();
    let mut here = with_cache(&town, 700 * MIB, &[]);
    here.malloc(100 * MIB);
    let mut there = town.peer(&[]);
    there.malloc(800 * MIB);
    town.check(&mut [here, there]);
}

#[test]
fn without_the_option_nothing_is_given_back_and_nothing_is_made() {
    let town = Town::new();
    let off = [("GENESIS_SHARE", "off")];
    let _here = with_cache(&town, 700 * MIB, &off);
    let mut there = town.peer(&off);
    refused(&mut there, 600 * MIB);
    assert_eq!(town.register(), None);
    let threads = fs::read_dir(format!("/proc/{}/task", there.id())).unwrap();
    let names = threads.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    assert!(!names.into_iter().any(|name| name.contains("genesis")));
}

#[test]
fn several_give_together_and_each_serves_the_others_later() {
    let town = Town::new();
    let mut peers: Vec<Peer> = (0..4).map(|_| with_cache(&town, 230 * MIB, &[])).collect();
    for turn in 0..12 {
        let peer = &mut peers[turn % 4];
        let block = peer.malloc(900 * MIB);
        peer.free(block);
    }
    town.check(&mut peers);
}

#[test]
fn live_memory_and_memory_of_running_work_stay() {
    let town = Town::new();
    let mut here = town.peer(&[]);
    let (live, busy) = (here.malloc(300 * MIB), here.malloc(300 * MIB));
    here.do_it(&format!("work {busy} {MIB}"));
    here.free(busy);
    let mut there = town.peer(&[]);
    let refusal = refused(&mut there, 500 * MIB);
    assert!(refusal.contains("held by others"), "{refusal}");
    assert_eq!(here.number("reserved"), 600 * MIB);
    // Nothing of the neighbour's was waited for: its work is where it was.
    assert_eq!(here.number("calls cuCtxSynchronize"), 0);
    here.do_it("empty");
    let block = there.malloc(500 * MIB);
    there.free(block);
    here.free(live);
}

/// A `cuMemFree` waits for all streams, so only mapped memory can be given back without.
#[test]
fn who_would_have_to_wait_gives_nothing() {
    let town = Town::new();
    let mut here = town.peer_of(PoolType::Caching, &[]);
    let block = here.malloc(700 * MIB);
    here.free(block);
    let mut there = town.peer_of(PoolType::Caching, &[]);
    refused(&mut there, 600 * MIB);
    assert_eq!(here.number("reserved"), 700 * MIB);
    here.do_it("empty");
    let block = there.malloc(600 * MIB);
    there.free(block);
}

#[test]
fn segments_are_made_of_what_others_give() {
    let town = Town::new();
    let here = with_cache(&town, 1000 * MIB, &[]);
    let mut there = town.peer_of(PoolType::Caching, &[]);
    for size in [5, 30, 700] {
        there.malloc(size * MIB);
    }
    town.check(&mut [here, there]);
}

/// A resume is a request, too.
#[test]
fn who_wakes_gets_what_others_have_cached() {
    let town = Town::new();
    let mut there = town.peer(&[]);
    there.do_it("tag push weights");
    there.malloc(600 * MIB);
    there.do_it("tag pause weights");
    let mut here = with_cache(&town, 700 * MIB, &[]);
    here.malloc(100 * MIB);
    there.do_it("tag resume weights");
    assert_eq!(there.number("reserved"), 600 * MIB);
    assert!(here.number("reserved") >= 100 * MIB);
    town.check(&mut [here, there]);
}

#[test]
fn a_limit_of_ones_own_asks_nobody() {
    let town = Town::new();
    let mut here = with_cache(&town, 700 * MIB, &[]);
    let mut there = town.peer(&[("GENESIS_MEMORY_LIMIT", "500MB")]);
    refused(&mut there, 600 * MIB);
    assert_eq!(here.number("reserved"), 700 * MIB);
    there.malloc(450 * MIB);
    assert!(here.number("reserved") <= DEVICE_BYTES - 450 * MIB);
}

#[test]
fn nobody_waits_for_a_process_that_is_stopped() {
    let town = Town::new();
    let mut here = with_cache(&town, 700 * MIB, &[]);
    let mut there = town.peer(&[]);
    stop(&here);
    for _ in 0..3 {
        let begin = Instant::now();
        refused(&mut there, 600 * MIB);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
    signal(&here, libc::SIGCONT);
    // The questions are answered late, and what was given is there.
    let deadline = Instant::now() + Duration::from_secs(30);
    while here.number("reserved") > 424 * MIB {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    }
    there.malloc(600 * MIB);
}

#[test]
fn a_child_of_a_dead_process_does_not_keep_its_share() {
    let town = Town::new();
    let mut here = with_cache(&town, 100 * MIB, &[("GENESIS_SHARE_GUARANTEE", "900MB")]);
    let child = here.number("fork");
    let mut there = town.peer(&[]);
    refused(&mut there, 600 * MIB);
    here.kill();
    there.malloc(600 * MIB);
    assert_eq!(town.entries().len(), 1);
    // SAFETY: the child is a process of this test's.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
}

#[test]
fn letters_of_strangers_change_nothing() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let town = Town::new();
    let mut here = with_cache(&town, 700 * MIB, &[]);
    let entry = town.entry(&here, |entry| entry.cached_bytes > 0);
    let socket = UnixDatagram::unbound().unwrap();
    let name = format!("genesis-door-{:016x}", entry.door);
    let door = SocketAddr::from_abstract_name(name).unwrap();
    let word = |value: u64| value.to_le_bytes();
    let mut state = 1u64;
    for round in 0..2_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let kind = u64::from_le_bytes(*b"GNSQ\x01\0\0\0");
        // All but the key, or the asker, is right.
        let key = if round % 2 == 0 { entry.key } else { state };
        let words = [kind, 1, key, 0, 0, state, u64::MAX, 0];
        let mut letter: Vec<u8> = words.into_iter().flat_map(word).collect();
        letter[24..40].copy_from_slice(b"simcuda-device\0\0");
        if round % 7 == 0 {
            letter.truncate((state % 64) as usize);
        }
        while socket.send_to_addr(&letter, &door).is_err() {
            thread::sleep(Duration::from_micros(50));
        }
    }
    assert_eq!(here.number("reserved"), 700 * MIB);
    let mut there = town.peer(&[]);
    there.malloc(600 * MIB);
}

/// Every process of the machine can read the names of mailboxes, and send letters to them.
#[test]
fn answers_of_strangers_promise_nothing() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let town = Town::new();
    let here = with_cache(&town, 700 * MIB, &[]);
    let mut there = town.peer(&[]);
    let door = town.entry(&here, |entry| entry.cached_bytes > 0).door;
    let own = there.id();
    stop(&here);
    there.tell(&format!("malloc {}", 600 * MIB));
    let socket = UnixDatagram::unbound().unwrap();
    let (begin, mut sent, mut is_open) = (Instant::now(), 0, true);
    // The question is open until the neighbour, which is stopped, is waited for no longer.
    while begin.elapsed() < Duration::from_secs(10) && (sent == 0 || is_open) {
        let names = fs::read_to_string("/proc/net/unix").unwrap();
        let names = names.lines().filter_map(|line| line.rsplit_once("@genesis-question-"));
        is_open = false;
        for (_, number) in names {
            is_open = true;
            let address = format!("genesis-question-{number}");
            let Ok(number) = u64::from_str_radix(number, 16) else { continue };
            let kind = u64::from_le_bytes(*b"GNSA\x01\0\0\0");
            let words = [kind, number, door, u64::MAX / 2, 0, 0, 0, 0];
            let letter: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            let address = SocketAddr::from_abstract_name(address).unwrap();
            let is_sent = socket.send_to_addr(&letter, &address).is_ok();
            // Other tests ask, too, also before this neighbour has joined.
            let entries = town.entries();
            if let Some(promised) = entries.iter().find(|entry| entry.process == own) {
                assert_eq!(promised.promised_bytes, 0, "a stranger's promise");
                sent += u32::from(is_sent);
            }
        }
    }
    assert!(there.answer("malloc").is_err());
    assert!(sent > 0, "no question was seen");
    signal(&here, libc::SIGCONT);
}

/// The time of the driver's calls that such a request needs anyway: create, map and access here,
/// unmap and release there.
#[test]
fn what_is_given_back_costs_the_one_who_asked_less_than_a_millisecond() {
    let time = |peer: &mut Peer, bytes: u64| {
        let begin = peer.number("nanoseconds");
        let block = peer.malloc(bytes);
        let end = peer.number("nanoseconds");
        peer.free(block);
        end - begin
    };
    // The same request where memory is free.
    let alone = Town::new();
    let mut lucky = alone.peer(&[]);
    time(&mut lucky, MIB);
    let free_ns = time(&mut lucky, 600 * MIB);
    let town = Town::new();
    let _here = with_cache(&town, 1000 * MIB, &[]);
    let mut there = town.peer(&[]);
    time(&mut there, MIB);
    let asked_ns = time(&mut there, 600 * MIB);
    println!("{} us more than {} us", asked_ns.saturating_sub(free_ns) / 1000, free_ns / 1000);
    assert!(free_ns > 100_000, "{free_ns} ns");
    assert!(asked_ns < free_ns + 1_000_000, "{asked_ns} ns, where it is free {free_ns} ns");
}

/// The driver takes 72 µs to give an extent back, so 0.2 s and more for these.
#[test]
fn what_takes_the_driver_long_is_waited_for() {
    const LARGE: [(&str, &str); 2] = [("SIMCUDA_MEMORY", "8GiB"), ("SIMCUDA_TIME", "real")];
    let town = Town::new();
    let small_extents = [&LARGE[..], &[("GENESIS_ELASTIC_POLICY", "tight")]].concat();
    let here = with_cache(&town, 7 << 30, &small_extents);
    let mut there = town.peer(&LARGE);
    let begin = Instant::now();
    there.malloc(6 << 30);
    assert!(begin.elapsed() > Duration::from_millis(200));
    town.check(&mut [here, there]);
}

/// Stops a peer: a signal takes effect once one of its threads runs.
fn stop(peer: &Peer) {
    signal(peer, libc::SIGSTOP);
    let is_running = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap();
        !stat.rsplit(')').next().unwrap().starts_with(" T")
    };
    let tasks = || fs::read_dir(format!("/proc/{}/task", peer.id())).unwrap();
    while tasks().any(|task| is_running(task.unwrap())) {
        thread::yield_now();
    }
}

fn signal(peer: &Peer, number: i32) {
    // SAFETY: the peer is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(peer.id() as i32, number) }, 0);
}
