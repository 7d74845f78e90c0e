//! Eight values at a time, without AVX-512: together they take as many whole bytes as a value has bits, so all groups
//! begin at the same bit of a byte, and one plan serves all of them.
//!
//! A load of 16 bytes has four values of up to 25 bits, or two of up to 57. A shuffle of its bytes moves those in which a
//! value begins to the value's lane, a shift by a count for each lane drops the bits in front of the value, and a mask
//! those behind it.

/// Bytes of a load.
pub(super) const LOAD_BYTES: usize = 16;
/// Values of a group.
pub(super) const GROUP_ROWS: usize = 8;
/// The widest values that four bytes hold wherever in a byte they begin.
pub(super) const NARROW_BITS: usize = 25;
/// The widest values that eight bytes hold wherever in a byte they begin.
pub(super) const WIDE_BITS: usize = 57;

/// How the values of a group are taken from its `LOADS` loads, 2 with lanes of four bytes or 4 with lanes of eight.
pub(super) struct Plan<const LOADS: usize> {
    /// Where each load begins in the bytes of the group.
    pub(super) starts: [usize; LOADS],
    /// For each byte of the lanes the byte of the load that it is.
    pub(super) bytes: [[u8; LOAD_BYTES]; LOADS],
    /// The bit of its first byte at which the value of each lane begins; of lanes of eight bytes the first two count.
    pub(super) shifts: [[u8; 4]; LOADS],
}

impl<const LOADS: usize> Plan<LOADS> {
    /// For values of `width` bits, of which the first begins at the bit `offset` of its byte.
    pub(super) fn new(width: usize, offset: usize) -> Self {
        let lanes = GROUP_ROWS / LOADS;
        let lane_bytes = LOAD_BYTES / lanes;
        assert!(width <= if lane_bytes == 4 { NARROW_BITS } else { WIDE_BITS } && offset < 8);
        let mut plan = Self { starts: [0; LOADS], bytes: [[0; LOAD_BYTES]; LOADS], shifts: [[0; 4]; LOADS] };
        for load in 0..LOADS {
            let start = (offset + load * lanes * width) / 8;
            plan.starts[load] = start;
            for lane in 0..lanes {
                let bit = offset + (load * lanes + lane) * width;
                plan.shifts[load][lane] = low_byte(bit % 8);
                for byte in 0..lane_bytes {
                    plan.bytes[load][lane * lane_bytes + byte] = low_byte(bit / 8 - start + byte);
                }
            }
        }
        plan
    }

    /// How many of `count` steps of some groups each, `step_bytes` apart, have all bytes of their loads in `bytes`. The
    /// last group of a step begins `last` bytes behind its first.
    pub(super) fn steps_inside(&self, bytes: &[u8], step_bytes: usize, last: usize, count: usize) -> usize {
        let reach = last + self.starts[LOADS - 1] + LOAD_BYTES;
        bytes.len().checked_sub(reach).map_or(0, |rest| (rest / step_bytes + 1).min(count))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places in a load and in a byte are small")]
fn low_byte(number: usize) -> u8 {
    debug_assert!(number < LOAD_BYTES);
    number as u8
}
