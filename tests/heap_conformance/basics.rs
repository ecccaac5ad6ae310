//! Requests, pointers, sizes, devices.

use std::collections::BTreeMap;

use genesis::base::size::{GIB, KIB, MIB};
use genesis::base::{DeviceOrdinal, Status};
use genesis::config::PoolType;
use simgpu::Call;

use crate::support::{A, B, DEVICE, Random, Subject, is_filled, status_of};

pub fn zero_bytes_are_address_zero(subject: Subject) {
    let rig = subject.plan().start();
    assert_eq!(rig.allocate(0, A), 0);
    rig.free(0);
    assert_eq!(rig.machine.census().allocations, 0);
    rig.finish();
}

pub fn addresses_are_aligned_and_disjoint(subject: Subject) {
    let rig = subject.plan().start();
    let mut random = Random(1);
    let mut live = BTreeMap::new();
    for round in 0..2000 {
        if round % 3 == 2 {
            let address = *live.keys().nth(random.below(live.len() as u64) as usize).unwrap();
            live.remove(&address);
            rig.free(address);
            continue;
        }
        let magnitude = 1 + random.below(19);
        let bytes = 1 + random.below(1 << magnitude);
        let address = rig.allocate(bytes, if round % 2 == 0 { A } else { B });
        let block = rig.heap.block_containing(address).unwrap();
        assert!(block.allocated_bytes >= bytes && block.requested_bytes == bytes, "{block:?}");
        let end = address + block.allocated_bytes;
        if let Some((start, before_end)) = live.range(..end).next_back() {
            assert!(*before_end <= address, "{address:#x} overlaps {start:#x}");
        }
        live.insert(address, end);
    }
    rig.finish();
}

pub fn bytes_survive_what_happens_around_them(subject: Subject) {
    let rig = subject.plan().start();
    let bytes_of = |n: u64| 1 + n * 7919 % (3 * MIB);
    let write = |address: u64, n: u64| {
        // SAFETY: a live block of so many bytes, which nobody else knows.
        unsafe { std::ptr::write_bytes(address as *mut u8, n as u8, bytes_of(n) as usize) };
    };
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for n in 0..150 {
        let address = rig.allocate(bytes_of(n), A);
        write(address, n);
        blocks.push((n, address));
    }
    for round in 1..4 {
        blocks.retain(|&(n, address)| {
            let stays = n % 2 == round % 2;
            if !stays {
                rig.free(address);
            }
            stays
        });
        rig.heap.trim(DEVICE, 0).unwrap();
        for n in (round * 1000)..(round * 1000 + 75) {
            let address = rig.allocate(bytes_of(n), A);
            write(address, n);
            blocks.push((n, address));
        }
    }
    for &(n, address) in &blocks {
        // SAFETY: as above.
        let bytes =
            unsafe { std::slice::from_raw_parts(address as *const u8, bytes_of(n) as usize) };
        assert!(is_filled(bytes, n as u8), "block {n} has changed");
    }
    rig.finish();
}

pub fn absurd_sizes_are_refused(subject: Subject) {
    let rig = subject.plan().start();
    for bytes in [u64::MAX, u64::MAX - 510, u64::MAX / 2, (1 << 47) + 1, 1 << 47, 2 * GIB] {
        assert_eq!(rig.refusal(bytes, A), Status::OutOfMemory, "{bytes}");
        let address = rig.allocate(100, A);
        rig.free(address);
    }
    rig.finish();
}

pub fn unknown_devices_are_refused(subject: Subject) {
    let rig = subject.plan().start();
    for ordinal in [1, 7, u32::MAX].map(DeviceOrdinal) {
        let refused = rig.heap.allocate(512, ordinal, A);
        assert_eq!(status_of(refused), Status::InvalidDevice);
        assert_eq!(status_of(rig.heap.statistics(ordinal)), Status::InvalidDevice);
        assert_eq!(status_of(rig.heap.empty_cache(ordinal)), Status::InvalidDevice);
        assert_eq!(status_of(rig.heap.set_memory_limit(ordinal, None)), Status::InvalidDevice);
        assert_eq!(status_of(rig.heap.device_name(ordinal)), Status::InvalidDevice);
    }
    rig.finish();
}

pub fn foreign_pointers_are_reported_and_harmless(subject: Subject) {
    let rig = subject.plan().start();
    let address = rig.allocate(MIB, A);
    let before = rig.statistics();
    let foreign = [1, 511, 512, 0x1234_5678_9000, u64::MAX, u64::MAX - 511];
    let interior = [address + 1, address + 512, address + MIB - 1];
    for pointer in foreign.into_iter().chain(interior) {
        assert_eq!(status_of(rig.heap.free(pointer)), Status::ForeignPointer, "{pointer:#x}");
        let recorded = rig.heap.record_stream(pointer, B);
        assert_eq!(status_of(recorded), Status::ForeignPointer, "{pointer:#x}");
    }
    for pointer in foreign {
        let found = rig.heap.block_containing(pointer);
        assert_eq!(status_of(found), Status::ForeignPointer, "{pointer:#x}");
    }
    for pointer in interior {
        assert_eq!(rig.heap.block_containing(pointer).unwrap().address, address);
    }
    let after = rig.statistics();
    assert_eq!(after.allocated_bytes, before.allocated_bytes);
    assert_eq!(after.frees, before.frees);
    rig.free(address);
    rig.finish();
}

pub fn double_frees_are_reported_and_harmless(subject: Subject) {
    let rig = subject.plan().start();
    let neighbours = [rig.allocate(4 * KIB, A), rig.allocate(4 * KIB, A), rig.allocate(4 * KIB, A)];
    rig.free(neighbours[1]);
    // What Naive has freed is the driver's again, and unknown.
    let expected = if subject.keeps_blocks() { Status::DoubleFree } else { Status::ForeignPointer };
    for _ in 0..3 {
        assert_eq!(status_of(rig.heap.free(neighbours[1])), expected);
        assert_eq!(status_of(rig.heap.record_stream(neighbours[1], B)), expected);
        assert_eq!(status_of(rig.heap.block_containing(neighbours[1])), expected);
    }
    assert_eq!(rig.statistics().frees, 1);
    assert!(rig.lines().iter().any(|line| line.contains(&format!("{:#x}", neighbours[1]))));
    // The same address, live again, can be freed again.
    let again = rig.allocate(4 * KIB, A);
    rig.free(again);
    rig.check();
    rig.finish();
}

pub fn devices_are_independent(subject: Subject) {
    let rig = subject.plan().devices(3, 64 * MIB).start();
    let on = |n: u32| DeviceOrdinal(n);
    rig.heap.set_memory_limit(on(1), Some(32 * MIB)).unwrap();
    let full = rig.heap.allocate(64 * MIB, on(0), A).unwrap();
    assert_eq!(status_of(rig.heap.allocate(64 * MIB, on(0), A)), Status::OutOfMemory);
    assert_eq!(status_of(rig.heap.allocate(64 * MIB, on(1), A)), Status::OutOfMemory);
    let other = rig.heap.allocate(64 * MIB, on(2), A).unwrap();
    for (address, device) in [(full, on(0)), (other, on(2))] {
        assert_eq!(rig.heap.block_containing(address).unwrap().device, device);
    }
    assert_eq!(rig.heap.memory_limit(on(2)).unwrap(), None);
    rig.free(full);
    rig.heap.empty_cache(on(0)).unwrap();
    let reserved = |n| rig.heap.statistics(on(n)).unwrap().reserved_bytes.current;
    assert_eq!([reserved(0), reserved(1), reserved(2)], [0, 0, 64 * MIB]);
    assert_eq!(rig.heap.statistics(on(2)).unwrap().out_of_memory_events, 0);
    rig.finish();
}

/// What MXNet and PyTorch make of a request, through the whole heap.
pub fn block_sizes_are_the_strategys(subject: Subject) {
    let rig = subject.plan().capacity(64 * GIB).start();
    for (requested, exact, round, caching) in [
        (1, 4096, 4096, 512),
        (4097, 8192, 8192, 4608),
        (1_048_577, 1_052_672, 2_097_152, 1_049_088),
        (2_097_153, 4_194_304, 4_194_304, 2_097_664),
        (10_485_760, 10_485_760, 16_777_216, 10_485_760),
        (16_777_217, 18_874_368, 33_554_432, 16_777_728),
        (34_603_008, 35_651_584, 50_331_648, 34_603_008),
        (17_179_869_185, 17_181_966_336, 17_196_646_400, 17_179_869_696),
    ] {
        let address = rig.allocate(requested, A);
        let block = rig.heap.block_containing(address).unwrap();
        match subject.pool_type {
            PoolType::Exact => assert_eq!(block.allocated_bytes, exact, "{requested}"),
            PoolType::Round => assert_eq!(block.allocated_bytes, round, "{requested}"),
            PoolType::Naive => assert_eq!(block.allocated_bytes, requested),
            PoolType::Arena | PoolType::Elastic => {
                let least = requested.next_multiple_of(512);
                assert!((least..=least + least / 8).contains(&block.allocated_bytes));
            }
            // A large block keeps a rest of up to 1 MiB that is not worth splitting off.
            PoolType::Caching => {
                let kept = block.allocated_bytes - caching;
                assert!(kept == 0 || (caching > MIB && kept <= MIB), "{requested}: {kept}");
            }
        }
    }
    rig.finish();
}

pub fn nothing_is_asked_of_a_device_not_used(subject: Subject) {
    let rig = subject.plan().devices(2, GIB).start();
    assert_eq!(rig.heap.device_count(), 2);
    let address = rig.heap.allocate(512, DeviceOrdinal(1), A).unwrap();
    rig.free(address);
    assert_eq!(rig.calls(), 0);
    rig.finish();
}

/// For NCCL and RDMA: Elastic's blocks are made of many handles unless it is told otherwise.
pub fn large_blocks_have_one_handle_if_asked_for(subject: Subject) {
    let plan = subject.plan().set(|settings| settings.single_handle_size_bytes = Some(16 * MIB));
    let rig = plan.start();
    let creations = || rig.usage().count(Call::Create);
    let block = rig.allocate_and_touch(39 * MIB, A);
    assert_eq!(creations(), 1);
    assert_eq!(rig.heap.block_containing(block).unwrap().allocated_bytes, 40 * MIB);
    let beside = rig.allocate_and_touch(512 * 1024 * 3, A);
    assert_eq!(creations(), 2, "nothing shares the handle");
    rig.free(block);
    assert_eq!(rig.allocate_and_touch(38 * MIB, A), block, "little is wasted");
    rig.free(block);
    let small = rig.allocate_and_touch(16 * MIB, A);
    assert_eq!(creations(), 3, "too much would be");
    rig.free(beside);
    rig.free(small);
    rig.finish();
}
