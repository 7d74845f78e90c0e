//! Generators of test data: columns of typical shapes, from a seed.

/// Random numbers that depend on the seed alone (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; each seed has its own sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0 .. 1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `true` with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }
}

/// The ways in which validity or a selection is spread over rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// No row.
    None,
    /// Every row.
    All,
    /// Every other row.
    Alternating,
    /// Each row with this probability.
    Share(f64),
    /// The first half of the rows.
    FirstHalf,
}

impl Spread {
    /// One of each kind.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::All,
        Self::Alternating,
        Self::Share(0.01),
        Self::Share(0.5),
        Self::Share(0.9),
        Self::FirstHalf,
    ];

    /// A flag for each row.
    #[must_use]
    pub fn rows(self, row_count: usize, seed: u64) -> Vec<bool> {
        let mut random = Random::new(seed);
        (0..row_count)
            .map(|row| match self {
                Self::None => false,
                Self::All => true,
                Self::Alternating => row % 2 == 0,
                Self::Share(share) => random.chance(share),
                Self::FirstHalf => row < row_count / 2,
            })
            .collect()
    }
}

/// One of two numbers: the first under Miri, which is a thousand times slower, else the second.
#[must_use]
pub const fn miri_or<T: Copy>(under_miri: T, usual: T) -> T {
    if cfg!(miri) { under_miri } else { usual }
}

/// The lengths that loops are tested at: all short ones, powers of two and their neighbours. Under Miri only a few
/// around 8 and 64.
#[must_use]
pub fn lengths() -> Vec<usize> {
    if cfg!(miri) {
        return vec![0, 1, 9, 65];
    }
    let mut lengths: Vec<usize> = (0..=200).collect();
    for power in 8..=13 {
        lengths.extend([(1 << power) - 1, 1 << power, (1 << power) + 1]);
    }
    lengths
}

/// How keys are spread: the distributions over which grouping is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// Each of this many keys equally often.
    Uniform(u64),
    /// Zipf's law over this many keys.
    Zipf(u64),
    /// Seven keys, one of them with seven rows in ten (passengers in a taxi).
    Skewed,
    /// One key.
    Single,
    /// Runs of this many equal keys.
    Runs(u64),
}

impl Keys {
    /// A key for each row.
    #[must_use]
    pub fn rows(self, row_count: usize, seed: u64) -> Vec<u64> {
        const SKEWED: [f64; 7] = [0.005, 0.71, 0.86, 0.91, 0.94, 0.97, 1.0];
        let mut random = Random::new(seed);
        let zipf = match self {
            Self::Zipf(count) => cumulated_zipf(count),
            _ => Vec::new(),
        };
        let mut run_left = 0;
        let mut run_key = 0;
        (0..row_count)
            .map(|_| match self {
                Self::Uniform(count) => random.below(count),
                Self::Zipf(_) => {
                    let point = random.unit() * zipf.last().copied().unwrap_or_default();
                    zipf.partition_point(|sum| *sum < point) as u64
                }
                Self::Skewed => {
                    let point = random.unit();
                    SKEWED.partition_point(|sum| *sum < point) as u64
                }
                Self::Single => 1,
                Self::Runs(length) => {
                    if run_left == 0 {
                        run_left = 1 + random.below(2 * length);
                        run_key = random.below(256);
                    }
                    run_left -= 1;
                    run_key
                }
            })
            .collect()
    }
}

fn cumulated_zipf(count: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let next = |rank: u64| {
        sum += 1.0 / rank as f64;
        sum
    };
    (1..=count).map(next).collect()
}
