//! Tests of the form: what is written is read back, and what is wrong is refused.

use super::*;

fn plan() -> Plan {
    let model = DeviceModel {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        total_bytes: 80 << 30,
        pool_type: PoolType::Elastic,
        granule_bytes: 2 << 20,
    };
    let view = |area, offset_bytes| ViewPlan { lane: 0, area, offset_bytes };
    let levels = Levels { peak: 9, high: 8, low: 1, usual: 2, is_falling: true, is_ahead: false };
    let lane = LanePlan {
        levels,
        areas: vec![(SizeClass::Large, 64 << 20), (SizeClass::Small, 32 << 20)],
        segments: Vec::new(),
    };
    let extents = vec![ExtentPlan {
        bytes: 32 << 20,
        views: vec![view(0, 0), view(0, 32 << 20), view(1, 0)],
        home_view: 1,
    }];
    let lanes = vec![lane, LanePlan::default()];
    let (device, peak_bytes) = (DeviceOrdinal(0), 1 << 30);
    let elastic = DevicePlan { device, model, peak_bytes, needs_finer: true, lanes, extents };
    let mut caching = elastic.clone();
    caching.device = DeviceOrdinal(1);
    caching.model.pool_type = PoolType::Caching;
    caching.model.granule_bytes = 1;
    caching.needs_finer = false;
    caching.extents.clear();
    caching.lanes = vec![LanePlan {
        segments: vec![(SizeClass::Small, 2 << 20), (SizeClass::Large, 20 << 20)],
        ..LanePlan::default()
    }];
    let identity = Identity {
        version: "1.2.3".to_owned(),
        rank: Some(3),
        program: "python train.py --layers 2".to_owned(),
    };
    Plan { identity, devices: vec![elastic, caching] }
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let plan = plan();
    assert_eq!(Plan::of_text(&plan.text()), Ok(plan.clone()));
    let empty = Plan::default();
    assert_eq!(Plan::of_text(&empty.text()), Ok(empty));
}

/// A segment that is one block has the block's class; one that blocks are cut from has theirs.
#[test]
fn the_class_of_a_segment_is_that_of_its_blocks() {
    let text = plan().text();
    for (pool_type, is_right) in [("Caching", true), ("Exact", false), ("Round", false)] {
        let text = text.replacen("device 1 Caching", &format!("device 1 {pool_type}"), 1);
        assert_eq!(Plan::of_text(&text).is_ok(), is_right, "{pool_type}: a small one of 2 MiB");
        let text = text.replacen("segment small 2097152", "segment small 1048575", 1);
        assert_eq!(Plan::of_text(&text).is_ok(), !is_right, "{pool_type}: one below 1 MiB");
    }
}

#[test]
fn a_text_that_ends_early_is_refused() {
    let text = plan().text();
    for end in 0..text.len() - 1 {
        assert!(Plan::of_text(&text[..end]).is_err(), "{end}");
    }
}

#[test]
fn wrong_numbers_are_refused() {
    let text = plan().text();
    for (right, wrong) in [
        ("genesis plan 3", "genesis plan 2"),
        ("extent 33554432 1", "extent 33554431 1"),
        ("extent 33554432 1", "extent 0 1"),
        ("extent 33554432 1", "extent 18446744073707454464 1"),
        ("extent 33554432 1", "extent 33554432 3"),
        ("extent 33554432 1", "extent 33554432 -1"),
        (" 0:0:33554432", " 0:0:33554433"),
        (" 0:0:33554432", " 0:0:18446744073707454464"),
        (" 0:0:33554432", " 7:0:33554432"),
        (" 0:0:33554432", " 0:7:33554432"),
        (" 0:0:33554432", " 0:0"),
        (" 0:0:0 0:0:33554432 0:1:0", ""),
        ("area large 67108864", "area large 67108863"),
        ("area large 67108864", "area large 18446744073707454464"),
        ("area large", "area huge"),
        ("segment large 20971520", "segment large 0"),
        ("segment large 20971520", "segment large 20971521"),
        ("segment small 2097152", "segment small 2097408"),
        ("segment large 20971520", "segment large 85899345921"),
        ("lane 9", "lane 85899345921"),
        ("device 0 Elastic 85899345920 2097152", "device 0 Elastic 85899345920 0"),
        ("device 0 Elastic", "device 0 Plastic"),
        ("1073741824 finer NVIDIA", "85899345921 finer NVIDIA"),
        ("finer NVIDIA", "NVIDIA"),
    ] {
        assert!(text.contains(right), "{right}");
        let text = text.replacen(right, wrong, 1);
        assert!(Plan::of_text(&text).is_err(), "{wrong}");
    }
    for line in ["lane 1 1 1 1 rising past", "area large 1", "extent 1 0 0:0:0", "nonsense"] {
        assert!(Plan::of_text(&format!("{FIRST_LINE}\n{line}\nend\n")).is_err(), "{line}");
    }
}

/// Seeds of another form would reach nothing behind their first line.
#[test]
fn the_seeds_of_fuzzing_are_of_this_form() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/plan");
    let mut plans = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        let path = seed.unwrap().path();
        match Plan::of_text(&std::fs::read_to_string(&path).unwrap()) {
            Ok(_) => plans += 1,
            // Each line could be read.
            Err(error) => assert!(error.starts_with("device "), "{path:?}: {error}"),
        }
    }
    assert!(plans >= 4, "only {plans} plans");
}

#[test]
fn no_text_makes_it_panic() {
    let text = plan().text();
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] = b"0123456789 :\nx-"[(seed >> 20) as usize % 15];
        }
        if let Ok(text) = String::from_utf8(bytes) {
            drop(Plan::of_text(&text));
        }
    }
}

#[test]
fn a_plan_of_another_process_is_told() {
    let here = plan().identity;
    assert_eq!(here.difference(&here), None);
    let others = [
        Identity { version: "1.2.4".to_owned(), ..here.clone() },
        Identity { rank: None, ..here.clone() },
        Identity { program: "python other.py".to_owned(), ..here.clone() },
    ];
    for (other, what) in others.iter().zip(["version", "rank", "program"]) {
        let difference = other.difference(&here).unwrap();
        assert!(difference.starts_with(&format!("it is of {what} ")), "{difference}");
    }
}
