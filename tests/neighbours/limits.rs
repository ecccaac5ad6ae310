//! Limits that are set outside of the program, and the faults that programs with such limits are known
//! for.

use crate::MIB;
use crate::peer::Peer;
use crate::town::Town;

/// HAMi's and MPS's variables.
const SETTINGS: [&[(&str, &str)]; 5] = [
    &[("CUDA_DEVICE_MEMORY_LIMIT", "300m")],
    &[("CUDA_DEVICE_MEMORY_LIMIT", "5g"), ("CUDA_DEVICE_MEMORY_LIMIT_0", "300m")],
    &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=300M,1=1G")],
    &[("CUDA_DEVICE_MEMORY_LIMIT", "400m"), ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=300MB")],
    &[("GENESIS_DEVICE_LIMITS", "300MB"), ("CUDA_DEVICE_MEMORY_LIMIT", "100m")],
];

fn info(peer: &mut Peer) -> (u64, u64) {
    let text = peer.do_it("info");
    let (free, total) = text.split_once(' ').unwrap();
    (free.parse().unwrap(), total.parse().unwrap())
}

fn refused(peer: &mut Peer, bytes: u64) {
    let refusal = peer.ask(&format!("malloc {bytes}")).unwrap_err();
    assert!(refusal.starts_with("OutOfMemory"), "{refusal}");
}

#[test]
fn the_device_seems_to_have_what_the_limit_leaves() {
    for variables in SETTINGS {
        let town = Town::new();
        let mut peer = town.peer(variables);
        assert_eq!(info(&mut peer), (300 * MIB, 300 * MIB), "{variables:?}");
        let block = peer.malloc(200 * MIB);
        assert_eq!(info(&mut peer), (100 * MIB, 300 * MIB), "{variables:?}");
        refused(&mut peer, 101 * MIB);
        peer.free(block);
        assert_eq!(info(&mut peer), (300 * MIB, 300 * MIB), "{variables:?}");
        peer.malloc(300 * MIB);
    }
}

/// HAMi counts the processes of a container together, and so do those that share a device.
#[test]
fn the_limit_of_a_container_is_for_all_of_its_processes() {
    let town = Town::new();
    let container = [("CUDA_DEVICE_MEMORY_LIMIT", "300m")];
    let mut outside = town.peer(&[]);
    let cached = outside.malloc(400 * MIB);
    outside.free(cached);
    let (mut one, mut two) = (town.peer(&container), town.peer(&container));
    let block = one.malloc(200 * MIB);
    assert_eq!(info(&mut two), (100 * MIB, 300 * MIB));
    refused(&mut two, 150 * MIB);
    // What others give back helps only if they are inside.
    assert_eq!(outside.number("reserved"), 400 * MIB);
    assert_eq!(info(&mut outside).1, crate::DEVICE_BYTES);
    one.free(block);
    two.malloc(250 * MIB);
    assert!(one.number("reserved") <= 50 * MIB);
    refused(&mut one, 60 * MIB);
    // What a process has counts no longer once it is gone.
    two.kill();
    one.malloc(290 * MIB);
    assert_eq!(info(&mut one), (10 * MIB, 300 * MIB));
    town.check(&mut [outside, one]);
}

#[test]
fn without_a_name_a_containers_limit_is_each_processs_own() {
    let town = Town::new();
    let alone = [("CUDA_DEVICE_MEMORY_LIMIT", "300m"), ("GENESIS_SHARE", "off")];
    let (mut one, mut two) = (town.peer(&alone), town.peer(&alone));
    one.malloc(300 * MIB);
    assert_eq!(info(&mut two), (300 * MIB, 300 * MIB));
    two.malloc(300 * MIB);
}

/// HAMi-core's issue 1181: more is in use than the limit, and 17 TB seem to be free.
#[test]
fn a_limit_below_what_is_held_leaves_nothing() {
    let town = Town::new();
    let mut peer = town.peer(&[("CUDA_DEVICE_MEMORY_LIMIT", "300m")]);
    let block = peer.malloc(200 * MIB);
    peer.do_it(&format!("limit {}", 100 * MIB));
    assert_eq!(info(&mut peer), (0, 300 * MIB));
    refused(&mut peer, 2 * MIB);
    peer.free(block);
    assert_eq!(info(&mut peer), (100 * MIB, 300 * MIB));
}

/// HAMi keeps the limit in a file, which stays when the limit is changed.
#[test]
fn a_changed_limit_counts_at_the_next_start() {
    let town = Town::new();
    let mut resident = town.peer(&[]);
    resident.malloc(2 * MIB);
    for limit in [300, 500, 200] {
        let text = format!("{limit}m");
        let mut peer = town.peer(&[("CUDA_DEVICE_MEMORY_LIMIT", &text)]);
        assert_eq!(info(&mut peer), (limit * MIB, limit * MIB));
        town.entry(&peer, |entry| entry.limit_bytes == limit * MIB);
        peer.kill();
    }
}

/// HAMi-core's issue 1370: at limits below what a context takes, cudaMemGetInfo fails.
#[test]
fn the_smallest_limits_can_be_asked_about() {
    for bytes in [1, 4096, MIB, 2 * MIB, 3 * MIB] {
        let text = bytes.to_string();
        let town = Town::new();
        let mut peer = town.peer(&[("CUDA_DEVICE_MEMORY_LIMIT", &text)]);
        assert_eq!(info(&mut peer), (bytes, bytes));
        refused(&mut peer, 4 * MIB);
        assert_eq!(peer.ask("malloc 512").is_ok(), bytes >= 2 * MIB, "{bytes}");
    }
}

#[test]
fn a_wrong_limit_is_named() {
    let town = Town::new();
    let mut peer = town.peer(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "plenty")]);
    let refusal = peer.ask("malloc 512").unwrap_err();
    assert!(
        refusal.starts_with("InvalidConfiguration CUDA_DEVICE_MEMORY_LIMIT_0=plenty"),
        "{refusal}"
    );
}
