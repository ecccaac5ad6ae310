//! What an H200 was measured to charge: `docs/benchmarks/nvidia_h200/gpu.md`. Where a size cost less than a
//! smaller one, it has the price of the smaller.

use super::{Column, GIB, KIB, MIB, flat};
use crate::call::Call;
use crate::cost::Cost;

/// Calls in a row. The page has no price of a further mapping that is larger than 2 MiB: here it is
/// what one of its size costs alone, and at least what 2 MiB cost further.
pub(super) const IN_A_ROW: Column = &[
    (Call::MemoryInfo, flat(&[(0, 6_887)])),
    (Call::StreamGetId, flat(&[(0, 87)])),
    (Call::StreamGetContext, flat(&[(0, 86)])),
    (Call::AddressRange, flat(&[(0, 168)])),
    (
        Call::Allocate,
        flat(&[
            (4 * KIB, 50_310),
            (2 * MIB, 50_310),
            (16 * MIB, 51_025),
            (128 * MIB, 68_021),
            (GIB, 248_106),
            (4 * GIB, 1_747_943),
        ]),
    ),
    (
        Call::Free,
        flat(&[
            (4 * KIB, 40_607),
            (2 * MIB, 40_607),
            (16 * MIB, 56_313),
            (128 * MIB, 125_358),
            (GIB, 690_329),
            (4 * GIB, 2_912_108),
        ]),
    ),
    (
        Call::AllocateManaged,
        flat(&[
            (2 * MIB, 8_800),
            (16 * MIB, 13_742),
            (64 * MIB, 13_742),
            (256 * MIB, 14_676),
            (GIB, 60_879),
        ]),
    ),
    (
        Call::Advise,
        flat(&[
            (2 * MIB, 1_147),
            (16 * MIB, 1_760),
            (64 * MIB, 1_760),
            (256 * MIB, 2_700),
            (GIB, 7_668),
        ]),
    ),
    (
        Call::Prefetch,
        flat(&[
            (2 * MIB, 9_764),
            (16 * MIB, 79_916),
            (64 * MIB, 250_543),
            (256 * MIB, 938_974),
            (GIB, 5_095_753),
        ]),
    ),
    (
        Call::Reserve,
        flat(&[
            (2 * MIB, 584),
            (128 * MIB, 2_544),
            (2 * GIB, 2_544),
            (16 * GIB, 2_600),
            (128 * GIB, 2_600),
        ]),
    ),
    (
        Call::Unreserve,
        flat(&[
            (2 * MIB, 630),
            (128 * MIB, 2_284),
            (2 * GIB, 2_328),
            (16 * GIB, 2_482),
            (128 * GIB, 3_086),
        ]),
    ),
    (
        Call::Create,
        flat(&[
            (2 * MIB, 13_777),
            (16 * MIB, 13_777),
            (64 * MIB, 37_953),
            (256 * MIB, 37_953),
            (GIB, 152_550),
        ])
        .with_tail(100, 25_421),
    ),
    (
        Call::Map,
        flat(&[
            (2 * MIB, 1_062),
            (16 * MIB, 1_062),
            (64 * MIB, 1_262),
            (256 * MIB, 1_968),
            (GIB, 4_119),
        ]),
    ),
    (
        Call::SetAccess,
        Cost {
            points: &[
                (2 * MIB, 28_251),
                (16 * MIB, 29_037),
                (64 * MIB, 48_186),
                (256 * MIB, 56_619),
                (GIB, 110_603),
            ],
            further: &[
                (2 * MIB, 35_535),
                (16 * MIB, 35_535),
                (64 * MIB, 48_186),
                (256 * MIB, 56_619),
                (GIB, 110_603),
            ],
            tail: None,
        }
        .with_tail(100, 46_187),
    ),
    (
        Call::Unmap,
        Cost {
            points: &[
                (2 * MIB, 18_748),
                (16 * MIB, 18_931),
                (64 * MIB, 27_641),
                (256 * MIB, 31_204),
                (GIB, 50_839),
            ],
            further: &[
                (2 * MIB, 24_758),
                (16 * MIB, 24_758),
                (64 * MIB, 27_641),
                (256 * MIB, 31_204),
                (GIB, 50_839),
            ],
            tail: None,
        }
        .with_tail(100, 33_668),
    ),
    (
        Call::Release,
        flat(&[
            (2 * MIB, 14_128),
            (16 * MIB, 28_257),
            (64 * MIB, 49_636),
            (256 * MIB, 158_451),
            (GIB, 625_257),
        ])
        .with_tail(100, 25_760),
    ),
    (Call::EventCreate, flat(&[(0, 292)])),
    (Call::EventRecord, flat(&[(0, 426)])),
    (Call::StreamWait, flat(&[(0, 349)])),
    (Call::EventSynchronize, flat(&[(0, 494)])),
    (Call::EventQuery, flat(&[(0, 427)])),
    (Call::EventDestroy, flat(&[(0, 221)])),
    (Call::StreamCreate, flat(&[(0, 1_999)])),
    (Call::StreamQuery, flat(&[(0, 538)])),
    (Call::StreamSynchronize, flat(&[(0, 543)])),
    (Call::StreamIsCapturing, flat(&[(0, 105)])),
    (Call::BeginCapture, flat(&[(0, 466)])),
    (Call::EndCapture, flat(&[(0, 376)])),
    (Call::StreamDestroy, flat(&[(0, 2_222)])),
    (Call::Synchronize, flat(&[(0, 746)])),
    (
        Call::HostAllocate,
        flat(&[
            (2 * MIB, 967_597),
            (32 * MIB, 18_290_041),
            (256 * MIB, 99_607_925),
            (GIB, 539_536_286),
        ]),
    ),
    (
        Call::HostFree,
        flat(&[
            (2 * MIB, 386_433),
            (32 * MIB, 5_411_220),
            (256 * MIB, 26_431_273),
            (GIB, 154_093_220),
        ]),
    ),
    (
        Call::HostRegister,
        flat(&[(2 * MIB, 93_427), (32 * MIB, 600_456), (256 * MIB, 5_624_422), (GIB, 27_331_721)]),
    ),
    (
        Call::HostUnregister,
        flat(&[(2 * MIB, 75_918), (32 * MIB, 622_215), (256 * MIB, 5_370_676), (GIB, 21_058_955)]),
    ),
    (
        Call::CopyToHost,
        flat(&[(2 * MIB, 46_062), (8 * MIB, 160_498), (32 * MIB, 615_664), (128 * MIB, 2_438_688)]),
    ),
    (
        Call::CopyToDevice,
        flat(&[(2 * MIB, 47_426), (8 * MIB, 161_758), (32 * MIB, 617_741), (128 * MIB, 2_437_356)]),
    ),
];

/// What differs if the host rests before each call.
pub(super) const RESTED: Column = &[
    (
        Call::Create,
        flat(&[(2 * MIB, 121_328), (16 * MIB, 127_830), (64 * MIB, 155_808), (256 * MIB, 231_566)]),
    ),
    (
        Call::Map,
        flat(&[(2 * MIB, 27_935), (16 * MIB, 27_935), (64 * MIB, 27_935), (256 * MIB, 27_935)]),
    ),
    (
        Call::SetAccess,
        Cost::per_mapping(&[
            (2 * MIB, 202_722),
            (16 * MIB, 202_722),
            (64 * MIB, 232_560),
            (256 * MIB, 235_311),
        ]),
    ),
    (
        Call::Unmap,
        Cost::per_mapping(&[
            (2 * MIB, 149_261),
            (16 * MIB, 152_294),
            (64 * MIB, 162_859),
            (256 * MIB, 170_155),
        ]),
    ),
    (
        Call::Release,
        flat(&[(2 * MIB, 124_125), (16 * MIB, 124_125), (64 * MIB, 160_736), (256 * MIB, 285_064)]),
    ),
];
