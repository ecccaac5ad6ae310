//! Caching holds no more memory than PyTorch's own allocator on any recorded program.
//!
//! The figures of the peer are the peaks of physical memory that PyTorch 2.11's native
//! allocator reserves for the same traces, over the peak of live bytes, to three decimals: see
//! `traces/README.md`. Memory, unlike time, is the same on every machine, so it may be asserted.

mod support;

use genesis::config::PoolType;

use support::replay::{Replay, recorded};

/// Reserved over live, by program, of PyTorch's native allocator.
const NATIVE_RATIOS: [(&str, f64); 8] = [
    ("gpt2_train", 1.072),
    ("llama7b_lora_ckpt", 1.386),
    ("llama1b_full_var", 1.290),
    ("opt13_recompute_var", 2.001),
    ("bert_large_var", 1.191),
    ("diffusion_buckets", 1.197),
    ("fsdp_streams", 1.064),
    ("alternating", 3.367),
];

#[test]
fn caching_reserves_no_more_than_pytorch() {
    for (name, native_ratio) in NATIVE_RATIOS {
        let program = recorded(name);
        let mut replay = Replay::new(&program, PoolType::Caching);
        replay.run().unwrap();
        let reserved_bytes = replay.rig.statistics().reserved_bytes.peak;
        let ratio = reserved_bytes as f64 / program.live_peak_bytes as f64;
        // Half a unit of the last decimal of the published figure.
        assert!(ratio <= native_ratio + 0.0005, "{name}: {ratio:.4}, PyTorch {native_ratio}");
        replay.rig.finish();
    }
}
