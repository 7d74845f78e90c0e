//! What the choice among encodings is for.

/// The trade between bytes and time: what a byte saved is worth in time of decoding.
///
/// A way to store values costs its bytes, each worth so many nanoseconds, and the time in which it is decoded.
/// The cheapest wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// A byte is worth 100 ns: the fewest bytes, nearly whatever decoding takes.
    Smallest,
    /// A byte is worth 1 ns, the time in which a good disk reads it.
    #[default]
    Balanced,
    /// A byte is worth 0.05 ns, the time in which memory is read.
    Fastest,
}

impl Goal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Smallest, Self::Balanced, Self::Fastest];

    fn ns_per_byte(self) -> f64 {
        match self {
            Self::Smallest => 100.0,
            Self::Balanced => 1.0,
            Self::Fastest => 0.05,
        }
    }

    /// What so many bytes and so long a decoding cost.
    pub(crate) fn cost(self, bytes: f64, decode_ns: f64) -> f64 {
        bytes * self.ns_per_byte() + decode_ns
    }
}

/// Where times of decoding come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// A sample is decoded, then and there. Values whose best encodings cost nearly the same may be stored in one or
    /// the other. Columns that are shorter than a sample are too short for a clock, and modelled.
    #[default]
    Measured,
    /// From what was once measured: the same values are the same bytes on every day and machine.
    Modelled,
}

/// How to choose: for what, by which times, and among what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The trade.
    pub goal: Goal,
    /// The times.
    pub clock: Clock,
    /// Whether frames may be compressed, too: then who reads must have a decoder
    /// ([`Frame::decompress`](crate::frame::Frame::decompress)).
    pub may_compress: bool,
}

impl From<Goal> for Choice {
    fn from(goal: Goal) -> Self {
        Self { goal, ..Self::default() }
    }
}
