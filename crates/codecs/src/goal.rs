//! The goal of the choice among encodings.

/// The trade-off between bytes and time: how much decoding time a saved byte is worth.
///
/// The cost of an encoding is its bytes, each counted as some nanoseconds, plus its decoding time. The
/// cheapest wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// A byte is worth 100 ns: the fewest bytes, nearly regardless of decoding time.
    Smallest,
    /// A byte is worth 1 ns, the time in which a good disk reads it.
    #[default]
    Balanced,
    /// A byte is worth 0.05 ns, the time in which memory is read.
    Fastest,
}

impl Goal {
    /// All goals.
    pub const ALL: [Self; 3] = [Self::Smallest, Self::Balanced, Self::Fastest];

    fn ns_per_byte(self) -> f64 {
        match self {
            Self::Smallest => 100.0,
            Self::Balanced => 1.0,
            Self::Fastest => 0.05,
        }
    }

    /// The cost of this many bytes with this decoding time.
    pub(crate) fn cost(self, bytes: f64, decode_ns: f64) -> f64 {
        bytes * self.ns_per_byte() + decode_ns
    }
}

/// The source of decoding times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// A sample is decoded and timed. Values whose best encodings cost nearly the same may get different ones
    /// each time. Columns shorter than a sample are too short for the clock, and use the model.
    #[default]
    Measured,
    /// A model from earlier measurements: the same values always give the same bytes, on every machine.
    Modelled,
}

/// How to choose an encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The trade-off.
    pub goal: Goal,
    /// The source of decoding times.
    pub clock: Clock,
    /// Whether frames may also be compressed: then readers need a decoder
    /// ([`Frame::decompress`](crate::frame::Frame::decompress)).
    pub may_compress: bool,
}

impl From<Goal> for Choice {
    fn from(goal: Goal) -> Self {
        Self { goal, ..Self::default() }
    }
}
