//! Races among simulated arms of known speed: how much is lost, and how often the best arm runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keirin_race::{Choice, Race, Races};
use keirin_testkit::columns::Random;

const CALLS: u32 = 10_000;
const UNITS: u64 = 65_536;
const SEEDS: u64 = 20;

/// Nanoseconds of a block at speed 1.
const BLOCK: f64 = 20_000.0;

/// An arm's time for a block, from the number of the call.
type Simulated<'a> = &'a dyn Fn(u32, &mut Random) -> f64;

/// Ordinary noise: a per cent or two, as measured on blocks.
fn steady(mean: f64) -> impl Fn(u32, &mut Random) -> f64 {
    move |_, random| mean * BLOCK * (1.0 + 0.03 * (random.unit() + random.unit() - 1.0))
}

fn nanoseconds(time: f64) -> Duration {
    Duration::from_secs_f64(time * 1e-9)
}

/// What a race lost, as a share of what the best arm alone would have taken, and that arm's share of calls.
struct Outcome {
    regret: f64,
    best_share: f64,
}

/// Runs `race` on from call `start`; `best` is the best arm and its mean time.
fn go_on(
    race: &Race,
    arms: &[Simulated],
    range: std::ops::Range<u32>,
    best: (usize, f64),
    random: &mut Random,
) -> Outcome {
    let (mut total, mut best_calls) = (0.0, 0);
    let count = f64::from(range.end - range.start);
    for call in range {
        let arm = race.choose();
        let time = arms[arm](call, random);
        race.record(arm, UNITS, nanoseconds(time));
        // Regret counts means, not the luck of single calls.
        total += (0..8).map(|_| arms[arm](call, random)).sum::<f64>() / 8.0;
        best_calls += u32::from(arm == best.0);
    }
    Outcome { regret: total / (best.1 * BLOCK * count) - 1.0, best_share: f64::from(best_calls) / count }
}

/// Asserts mean regret and mean share of the best arm over several seeds.
fn check(arms: &[Simulated], best: (usize, f64), regret_max: f64, best_share_min: f64) {
    let names = &["a", "b", "c", "d", "e", "f"][..arms.len()];
    let outcomes: Vec<Outcome> = (0..SEEDS)
        .map(|seed| go_on(&Race::new(names, seed), arms, 0..CALLS, best, &mut Random::new(seed)))
        .collect();
    let mean = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / SEEDS as f64;
    let (regret, best_share) = (mean(|outcome| outcome.regret), mean(|outcome| outcome.best_share));
    println!("regret {:.3} %, best arm {:.1} %", regret * 100.0, best_share * 100.0);
    assert!(regret <= regret_max, "regret {regret}");
    assert!(best_share >= best_share_min, "share of the best arm {best_share}");
}

#[test]
fn equal_arms_share_the_work_and_cost_nothing() {
    let arms: &[Simulated] = &[&steady(1.0), &steady(1.0), &steady(1.0)];
    check(arms, (0, 1.0), 0.002, 0.2);
}

#[test]
fn five_per_cent_is_seen() {
    check(&[&steady(1.05), &steady(1.0)], (1, 1.0), 0.003, 0.95);
}

#[test]
fn twice_as_fast_wins_nearly_always() {
    check(&[&steady(2.0), &steady(1.0), &steady(2.0), &steady(2.0)], (1, 1.0), 0.004, 0.995);
}

#[test]
fn six_arms_of_all_speeds_cost_less_than_a_per_cent() {
    let arms: &[Simulated] =
        &[&steady(1.3), &steady(1.05), &steady(1.0), &steady(1.1), &steady(3.0), &steady(1.02)];
    check(arms, (2, 1.0), 0.01, 0.75);
}

#[test]
fn heavy_tails_do_not_hide_the_best_arm() {
    // Pareto with exponent 1.5 over the mean: no variance to speak of.
    let tailed = |mean: f64| {
        move |_, random: &mut Random| mean * BLOCK * (0.98 + 0.02 / (1.0 - random.unit()).powf(1.0 / 1.5))
    };
    let arms: &[Simulated] = &[&tailed(1.1), &tailed(1.0)];
    check(arms, (1, 1.04), 0.02, 0.9);
}

#[test]
fn preempted_calls_do_not_poison_an_arm() {
    // One call in a hundred waits for a whole time slice of the scheduler; the best arm suffers as the others do.
    let preempted = |mean: f64| {
        move |_, random: &mut Random| {
            let time = steady(mean)(0, random);
            if random.chance(0.01) { time + 4_000_000.0 } else { time }
        }
    };
    let arms: &[Simulated] = &[&preempted(1.1), &preempted(1.0), &preempted(1.5)];
    let names = &["a", "b", "c"];
    for seed in 0..SEEDS {
        let race = Race::new(names, seed);
        let outcome = go_on(&race, arms, 0..CALLS, (1, 1.0), &mut Random::new(seed));
        assert!(outcome.best_share >= 0.9, "share of the best arm {}, seed {seed}", outcome.best_share);
    }
}

#[test]
fn an_arm_that_was_preempted_in_its_first_calls_is_seen_again() {
    let late =
        |call: u32, random: &mut Random| if call < 4 { 2_000_000.0 } else { steady(1.0)(call, random) };
    for seed in 0..SEEDS {
        let arms: &[Simulated] = &[&late, &steady(1.5)];
        let outcome = go_on(&Race::new(&["a", "b"], seed), arms, 0..CALLS, (0, 1.0), &mut Random::new(seed));
        assert!(outcome.best_share >= 0.9, "share of the best arm {}, seed {seed}", outcome.best_share);
    }
}

#[test]
fn an_arm_that_was_preempted_in_its_second_call_is_believed_to_be_as_fast_as_in_its_first() {
    let race = Race::new(&["a", "b"], 0);
    for nanoseconds in [1000, 1100, 500_000, 1000] {
        let arm = race.choose();
        race.record(arm, UNITS, Duration::from_nanos(nanoseconds));
    }
    let mean = |arm: usize| race.standings()[arm].mean_picoseconds_per_unit.expect("both ran");
    assert!(mean(0) < 1.2 * mean(1), "{} and {}", mean(0), mean(1));
}

#[test]
fn hopeless_arms_wait_for_their_second_call() {
    let arms: &[Simulated] = &[&steady(1.0), &steady(1.7), &steady(1.2)];
    for seed in 0..SEEDS {
        let (race, mut random) = (Race::new(&["a", "b", "c"], seed), Random::new(seed));
        go_on(&race, arms, 0..100, (0, 1.0), &mut random);
        assert_eq!(race.standings()[1].calls, 1, "seed {seed}");
        go_on(&race, arms, 100..200, (0, 1.0), &mut random);
        assert!(race.standings()[1].calls >= 2, "seed {seed}");
    }
}

#[test]
fn a_wrong_arm_that_is_quick_makes_no_other_hopeless() {
    let race = Race::new(&["a", "b", "c"], 0);
    race.quarantine("b").expect("b races");
    go_on(&race, &[&steady(1.0), &steady(0.1), &steady(1.1)], 0..10, (0, 1.0), &mut Random::new(0));
    assert!(race.standings()[2].calls >= 2);
}

#[test]
fn one_call_is_neither_saved_nor_passed_on() {
    let races = Races::with_seed(0);
    let race = races.race("lz4", "text", "t", &["a", "b"]);
    race.record(race.choose(), UNITS, Duration::from_secs(1));
    assert_eq!(races.save("cpu").lines().count(), 2, "a header and a CPU");
    assert!(races.race("lz4", "text", "u", &["a", "b"]).standings()[0].mean_picoseconds_per_unit.is_none());
}

#[test]
fn a_call_that_says_nothing_does_not_use_up_a_first_call() {
    let race = Race::new(&["a", "b"], 0);
    for _ in 0..10 {
        race.record(race.choose(), 0, Duration::from_micros(1));
    }
    go_on(&race, &[&steady(1.5), &steady(1.0)], 0..100, (1, 1.0), &mut Random::new(0));
    assert!(race.standings()[1].calls > 90);
}

#[test]
fn a_race_changes_its_mind_when_the_best_arm_gets_slow() {
    let half = CALLS / 2;
    let slowing = |call: u32, random: &mut Random| steady(if call < half { 1.0 } else { 2.0 })(call, random);
    let arms: &[Simulated] = &[&slowing, &steady(1.2)];
    for seed in 0..SEEDS {
        let (race, mut random) = (Race::new(&["a", "b"], seed), Random::new(seed));
        let before = go_on(&race, arms, 0..half, (0, 1.0), &mut random);
        let after = go_on(&race, arms, half..CALLS, (1, 1.2), &mut random);
        assert!(
            before.best_share >= 0.95 && after.best_share >= 0.97,
            "seed {seed}: {} {}",
            before.best_share,
            after.best_share
        );
        assert!(after.regret <= 0.01, "seed {seed}: regret {}", after.regret);
    }
}

#[test]
fn a_race_changes_its_mind_when_another_arm_gets_fast() {
    let (half, end) = (CALLS / 2, CALLS * 5);
    let quickening =
        |call: u32, random: &mut Random| steady(if call < half { 2.0 } else { 0.5 })(call, random);
    let arms: &[Simulated] = &[&quickening, &steady(1.0)];
    for seed in 0..SEEDS {
        let (race, mut random) = (Race::new(&["a", "b"], seed), Random::new(seed));
        go_on(&race, arms, 0..half, (1, 1.0), &mut random);
        let after = go_on(&race, arms, half..end, (0, 0.5), &mut random);
        assert!(after.best_share >= 0.5, "seed {seed}: {}", after.best_share);
    }
}

#[test]
fn the_same_seed_and_times_give_the_same_choices() {
    let choices = |seed| {
        let (race, mut random) = (Race::new(&["a", "b", "c"], seed), Random::new(1));
        let arms: &[Simulated] = &[&steady(1.0), &steady(1.01), &steady(1.02)];
        let choice = |call| {
            let arm = race.choose();
            race.record(arm, UNITS, nanoseconds(arms[arm](call, &mut random)));
            arm
        };
        (0..1000).map(choice).collect::<Vec<_>>()
    };
    assert_eq!(choices(7), choices(7));
    assert_ne!(choices(7), choices(8));
}

/// Threads call one race; every call must be counted and the best arm win.
fn check_threads(thread_count: u64) {
    const CALLS_EACH: u64 = 2_000;
    let race = Race::new(&["slow", "fast"], 3);
    let units = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..thread_count {
            let (race, units) = (&race, &units);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for call in 0..CALLS_EACH {
                    let arm = race.choose();
                    let time = steady(if arm == 0 { 1.5 } else { 1.0 })(0, &mut random);
                    race.record(arm, UNITS + call, nanoseconds(time));
                    units.fetch_add(UNITS + call, Ordering::Relaxed);
                }
            });
        }
    });
    let standings = race.standings();
    assert_eq!(standings.iter().map(|arm| arm.calls).sum::<u64>(), thread_count * CALLS_EACH);
    assert_eq!(standings.iter().map(|arm| arm.units).sum::<u64>(), units.into_inner());
    assert!(standings[1].calls > standings[0].calls * 10, "{standings:?}");
    let mean = standings[1].mean_picoseconds_per_unit.expect("it ran");
    assert!((200.0..400.0).contains(&mean), "{mean} ps a unit");
}

#[test]
fn threads_lose_nothing() {
    check_threads(2);
    check_threads(64);
}

#[test]
fn a_forced_arm_runs_alone_until_released() {
    let race = Race::new(&["a", "b"], 0);
    race.force("b").expect("b races");
    assert!((0..100).all(|_| race.choose() == 1));
    race.release();
    go_on(&race, &[&steady(1.0), &steady(3.0)], 0..100, (0, 1.0), &mut Random::new(0));
    assert!((0..20).filter(|_| race.choose() == 0).count() > 15);
    assert_eq!(race.force("c").unwrap_err().to_string(), "no variant \"c\"; there are a, b");
}

#[test]
fn a_frozen_race_runs_the_best_arm_and_learns_nothing() {
    let race = Race::new(&["a", "b"], 0);
    go_on(&race, &[&steady(1.0), &steady(1.1)], 0..1000, (0, 1.0), &mut Random::new(0));
    race.freeze();
    let before = race.standings();
    let outcome = go_on(&race, &[&steady(3.0), &steady(1.1)], 0..1000, (0, 1.0), &mut Random::new(0));
    assert_eq!(outcome.best_share, 1.0);
    assert_eq!(
        before.iter().map(|arm| arm.calls).collect::<Vec<_>>(),
        race.standings().iter().map(|arm| arm.calls).collect::<Vec<_>>()
    );
}

#[test]
fn a_quarantined_arm_runs_no_more_and_the_reference_always_may() {
    let race = Race::new(&["a", "b"], 0);
    go_on(&race, &[&steady(2.0), &steady(1.0)], 0..1000, (1, 1.0), &mut Random::new(0));
    race.force("b").expect("b races");
    race.quarantine("b").expect("b races");
    assert!(!race.quarantine("a").expect("a races"), "none would be left");
    assert!((0..100).all(|_| race.choose() == 0));
    assert!(race.standings()[1].is_quarantined && !race.standings()[0].is_quarantined);
}

#[test]
fn what_was_learned_is_saved_loaded_and_passed_on_to_races_alike() {
    let arms: &[Simulated] = &[&steady(1.4), &steady(1.0), &steady(2.0)];
    let names = &["a", "b", "c"];
    let first = Races::with_seed(1);
    go_on(&first.race("lz4", "text", "t.\ta\\", names), arms, 0..1000, (1, 1.0), &mut Random::new(0));
    let text = first.save("some CPU");

    let best_share_of_first_calls = |races: &Races, class: &str, stream: &str| {
        let race = races.race("lz4", class, stream, names);
        go_on(&race, arms, 0..20, (1, 1.0), &mut Random::new(5)).best_share
    };
    let second = Races::with_seed(2);
    second.load(&text, "some CPU").expect("what was saved can be loaded");
    assert_eq!(second.save("some CPU").lines().count(), text.lines().count(), "what has no race yet is kept");
    assert!(best_share_of_first_calls(&second, "text", "t.\ta\\") > 0.9);
    assert!(best_share_of_first_calls(&second, "text", "another column") > 0.9);
    // Each of the two others runs once at least, where nothing is known.
    assert!(best_share_of_first_calls(&second, "numbers", "n") <= 0.9, "another class has to learn");

    let third = Races::with_seed(2);
    third.load(&text, "another CPU").expect("another CPU's text is no error");
    assert!(best_share_of_first_calls(&third, "text", "t.\ta\\") <= 0.9);
}

/// The share of the best arm in the first `calls` of a stream that begins from what another of its class has learned.
fn best_share_after(veteran: [f64; 3], newcomer: [f64; 3], calls: u32, seed: u64) -> f64 {
    let names = &["a", "b", "c"];
    let best = (0..3).min_by(|a, b| newcomer[*a].total_cmp(&newcomer[*b])).expect("three arms");
    let arms = |means: [f64; 3]| means.map(steady);
    let (races, mut random) = (Races::with_seed(seed), Random::new(seed));
    let [a, b, c] = arms(veteran);
    let first = races.race("lz4", "blocks", "t.veteran", names);
    go_on(&first, &[&a, &b, &c], 0..500, (0, 1.0), &mut random);
    let [a, b, c] = arms(newcomer);
    let second = races.race("lz4", "blocks", "t.newcomer", names);
    go_on(&second, &[&a, &b, &c], 0..calls, (best, newcomer[best]), &mut random).best_share
}

#[test]
fn columns_of_other_speeds_begin_with_the_ratios_of_their_class() {
    let check = |scale: f64, ratios: [f64; 3], calls: u32, least: f64| {
        let newcomer = ratios.map(|ratio| ratio * scale);
        let shares = (0..SEEDS).map(|seed| best_share_after([1.4, 1.0, 2.0], newcomer, calls, seed));
        let share = shares.sum::<f64>() / SEEDS as f64;
        println!("{ratios:?} at {scale}: the best arm has {:.1} %", 100.0 * share);
        assert!(share >= least, "{ratios:?} at {scale}: the best arm has {share}");
    };
    for scale in [0.02, 0.25, 1.0, 4.0, 50.0] {
        // The order of the veteran holds: its best arm runs from the start.
        check(scale, [1.4, 1.0, 2.0], 20, 0.9);
        // It does not: another arm is the best, and found before many megabytes are decoded.
        check(scale, [0.9, 1.0, 2.0], 2000, 0.8);
        check(scale, [0.7, 1.0, 2.0], 2000, 0.9);
        check(scale, [1.4, 1.0, 0.5], 3000, 0.6);
    }
}

#[test]
fn what_is_saved_at_one_speed_serves_at_another() {
    let names = &["a", "b", "c"];
    let first = Races::with_seed(1);
    let arms: &[Simulated] = &[&steady(1.4), &steady(1.0), &steady(2.0)];
    go_on(&first.race("lz4", "blocks", "t.a", names), arms, 0..1000, (1, 1.0), &mut Random::new(0));
    let second = Races::with_seed(2);
    second.load(&first.save("cpu"), "cpu").expect("what was saved can be loaded");
    let race = second.race("lz4", "blocks", "t.a", names);
    assert!(race.standings().iter().all(|arm| arm.mean_picoseconds_per_unit.is_none()), "nothing ran yet");
    let arms: &[Simulated] = &[&steady(0.14), &steady(0.1), &steady(0.2)];
    let outcome = go_on(&race, arms, 0..50, (1, 0.1), &mut Random::new(0));
    assert!(outcome.best_share > 0.9, "{}", outcome.best_share);
}

#[test]
fn a_cold_first_call_does_not_make_every_other_arm_look_slow() {
    let names = &["a", "b", "c"];
    for seed in 0..SEEDS {
        let (races, mut random) = (Races::with_seed(seed), Random::new(seed));
        let arms: &[Simulated] = &[&steady(1.0), &steady(1.1), &steady(2.0)];
        go_on(&races.race("lz4", "blocks", "t.a", names), arms, 0..1000, (0, 1.0), &mut random);
        let race = races.race("lz4", "blocks", "t.b", names);
        // Pages of the output come with the first call. Then the second arm is the best.
        let cold = |mean: f64| {
            move |call: u32, random: &mut Random| steady(if call == 0 { 10.0 } else { mean })(call, random)
        };
        let arms: &[Simulated] = &[&cold(1.0), &cold(0.8), &cold(2.0)];
        let outcome = go_on(&race, arms, 0..2000, (1, 0.8), &mut random);
        assert!(outcome.best_share > 0.6, "seed {seed}: {}", outcome.best_share);
    }
}

/// Mean regret over seeds of a race among arms of nearly one speed whose calls do unlike amounts of work: a call that
/// does a thirtieth of the work is six times as noisy.
#[test]
fn long_calls_weigh_more_than_short_ones() {
    let regret = |seed: u64| {
        let (race, mut random) = (Race::new(&["a", "b"], seed), Random::new(seed));
        let (mut total, mut calls) = (0.0, 0.0);
        for call in 0..CALLS {
            let arm = race.choose();
            let mean = [1.04, 1.0][arm];
            let is_short = call % 2 == 0;
            let noise = if is_short { 0.3 } else { 0.03 } * (random.unit() + random.unit() - 1.0);
            let units = if is_short { UNITS / 32 } else { UNITS };
            race.record(arm, units, nanoseconds(mean * BLOCK * (1.0 + noise) * units as f64 / UNITS as f64));
            total += mean;
            calls += 1.0;
        }
        total / calls - 1.0
    };
    let mean = (0..SEEDS).map(regret).sum::<f64>() / SEEDS as f64;
    println!("regret {:.3} %", 100.0 * mean);
    assert!(mean < 0.003, "regret {mean}");
}

#[test]
fn races_that_nobody_asked_for_are_forgotten_and_new_ones_kept() {
    let races = Races::default();
    let race = |stream: u32| races.race("lz4", "blocks", &stream.to_string(), &["a", "b"]);
    let (first, second) = (race(0), race(1));
    for stream in 2..70_000 {
        race(stream);
        if stream % 1000 == 0 {
            race(0);
        }
    }
    assert!(races.all().len() <= 65_536);
    assert!(std::sync::Arc::ptr_eq(&first, &race(0)), "it is asked for again and again");
    assert!(!std::sync::Arc::ptr_eq(&second, &race(1)), "it was forgotten");
    assert!(std::sync::Arc::ptr_eq(&race(69_999), &race(69_999)), "new ones are kept");
}

#[test]
fn damaged_texts_are_refused_as_a_whole() {
    let check = |text: &str, expected: &str| {
        let error = Races::default().load(text, "cpu").unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check("", "races begin with \"\", expected \"keirin races 1\"");
    check("keirin races 2\ncpu\n", "races begin with \"keirin races 2\", expected \"keirin races 1\"");
    check("keirin races 1\ncpu\nk\tc\ts\ta\t1\n", "line 3 of the races: expected six fields");
    check(
        "keirin races 1\ncpu\nk\tc\ts\ta\tNaN\t1\n",
        "line 3 of the races: mean and variance must be positive times",
    );
    check(
        "keirin races 1\ncpu\nk\tc\ts\ta\t-1\t1\n",
        "line 3 of the races: mean and variance must be positive times",
    );
    check("keirin races 1\ncpu\nk\tc\ts\ta\tx\t1\n", "line 3 of the races: the mean is no number");
    check(
        "keirin races 1\ncpu\nk\\q\tc\ts\ta\t1\t1\n",
        "line 3 of the races: a backslash that escapes nothing",
    );
    let many: String = (0..70_000).map(|stream| format!("k\tc\t{stream}\ta\t1\t1\n")).collect();
    check(&format!("keirin races 1\ncpu\n{many}"), "more than 65536 races");
}

#[test]
fn all_races_of_a_kernel_choose_as_they_are_told_now_and_later() {
    let races = Races::default();
    let early = races.race("sum", "f64", "a", &["plain", "wide"]);
    let forced = |arm: &str| Choice::Forced(arm.to_owned());
    races.set_choice("sum", forced("wide"));
    let late = races.race("sum", "f64", "b", &["plain", "wide"]);
    let other = races.race("max", "f64", "b", &["plain", "wide"]);
    assert_eq!((early.choose(), late.choose(), other.choose()), (1, 1, 0));
    races.set_choice("sum", forced("odd"));
    assert_eq!(early.choose(), 0, "none of its arms is forced");
    races.set_choice("sum", Choice::Frozen);
    early.record(0, 1000, nanoseconds(1000.0));
    assert!(early.standings()[0].mean_picoseconds_per_unit.is_none(), "nothing is learned");
    races.set_choice("sum", Choice::Race);
    assert_eq!((early.choose(), late.choose(), races.choice("sum")), (0, 0, Choice::Race));
    assert_eq!(races.all().len(), 3);
}
