//! What the choice among encodings is for.

/// The trade between bytes and time: how fast stored bytes come in.
///
/// An encoding costs the time in which its bytes arrive plus the time in which they are decoded, and the
/// cheapest wins. The slower bytes arrive, the more decoding a smaller encoding may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// The fewest bytes, whatever decoding takes.
    Smallest,
    /// Bytes come at the speed of a good disk.
    #[default]
    Balanced,
    /// Bytes come at the speed of memory.
    Fastest,
}

impl Goal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Smallest, Self::Balanced, Self::Fastest];

    /// Nanoseconds in which a stored byte arrives: 10 MB/s, 2 GB/s and 20 GB/s.
    fn ns_per_byte(self) -> f64 {
        match self {
            Self::Smallest => 100.0,
            Self::Balanced => 0.5,
            Self::Fastest => 0.05,
        }
    }

    /// What so many bytes and so long a decoding cost.
    pub(crate) fn cost(self, bytes: f64, decode_ns: f64) -> f64 {
        bytes * self.ns_per_byte() + decode_ns
    }
}
