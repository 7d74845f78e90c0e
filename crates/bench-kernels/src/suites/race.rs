//! What a race costs a block, beside a block's work: the bound is half a per cent of 25 µs, 125 ns.

use std::time::{Duration, Instant};

use keirin_race::Race;

use crate::duel::{Lane, Report, Unit};

const ARMS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

pub(super) fn run(report: &mut Report) {
    for arm_count in [2, 4, 8] {
        let race = Race::new(&ARMS[..arm_count], 0);
        // Arms five per cent apart, each known.
        let nanoseconds = |arm: usize| Duration::from_nanos(20_000 + 1_000 * arm as u64);
        for _ in 0..1_000 {
            let arm = race.choose();
            race.record(arm, 65_536, nanoseconds(arm));
        }
        let choose = || {
            let arm = race.choose();
            race.record(arm, 65_536, nanoseconds(arm));
            0
        };
        let timed = || race.run(65_536, |_| 0);
        let clock = || {
            let start = Instant::now();
            std::hint::black_box(start.elapsed());
            0
        };
        report.case(
            &format!("{arm_count} arms"),
            Unit::Calls,
            1,
            vec![
                Lane::new("keirin:choose+record", choose),
                Lane::new("keirin:run", timed),
                Lane::new("clock", clock),
            ],
        );
    }
}
