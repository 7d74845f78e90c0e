//! Integers as differences to those before them, packed in blocks of as many bits as each needs.
//!
//! (parquet-format: Encodings.md, "Delta Encoding".)

use bytes::Bytes;

const CUT_OFF: &str = "the deltas of a page are cut off";
const DAMAGED: &str = "the deltas of a page are damaged";
/// The values of a miniblock are a multiple of it.
const MINIBLOCK_UNIT: usize = 32;
/// Values that are passed over at a time.
const SKIPPED: usize = 256;

/// The integers of a page that are not read. Those of 32 bits have any higher bits.
#[derive(Clone)]
pub(super) struct Deltas {
    bytes: Bytes,
    /// Behind the miniblock.
    at: usize,
    /// How many miniblocks a block has, and how many values each.
    miniblocks: usize,
    miniblock_values: usize,
    /// How many integers are left.
    left: usize,
    /// Whether the first one is left, which has no delta.
    is_first: bool,
    /// The last one, or the first.
    value: i64,
    /// Of the block.
    least_delta: i64,
    /// The widths of the block's miniblocks that have not begun.
    widths: std::ops::Range<usize>,
    miniblock: Miniblock,
}

/// A miniblock, of which so many values are done.
#[derive(Clone, Copy, Default)]
struct Miniblock {
    start: usize,
    width: usize,
    done: usize,
    left: usize,
}

impl Deltas {
    pub(super) fn new(bytes: Bytes) -> Result<Self, &'static str> {
        let mut at = 0;
        let [block_values, miniblocks, left] = [(); 3].map(|()| varint(&bytes, &mut at).map(usize::try_from));
        let size = |number: Result<Result<usize, _>, _>| number?.map_err(|_| DAMAGED);
        let (block_values, miniblocks, left) = (size(block_values)?, size(miniblocks)?, size(left)?);
        let value = zigzag(&bytes, &mut at)?;
        let miniblock_values = block_values.checked_div(miniblocks).ok_or(DAMAGED)?;
        if miniblock_values == 0 || !miniblock_values.is_multiple_of(MINIBLOCK_UNIT) {
            return Err(DAMAGED);
        }
        let (least_delta, widths, miniblock) = (0, 0..0, Miniblock::default());
        let is_first = true;
        Ok(Self {
            bytes,
            at,
            miniblocks,
            miniblock_values,
            left,
            is_first,
            value,
            least_delta,
            widths,
            miniblock,
        })
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Begins the next miniblock.
    fn next_miniblock(&mut self) -> Result<(), &'static str> {
        if self.widths.is_empty() {
            self.least_delta = zigzag(&self.bytes, &mut self.at)?;
            let end = self.at.checked_add(self.miniblocks).filter(|end| *end <= self.bytes.len());
            self.widths = self.at..end.ok_or(CUT_OFF)?;
            self.at = self.widths.end;
        }
        let width = self.widths.next().map_or(0, |place| self.bytes[place].into());
        if width > 64 {
            return Err(DAMAGED);
        }
        // The last one is filled up, by some writers.
        let count = self.left.min(self.miniblock_values);
        let bytes = |count: usize| count.saturating_mul(width).div_ceil(8);
        let rest = self.bytes.len() - self.at;
        if bytes(count) > rest {
            return Err(CUT_OFF);
        }
        self.miniblock = Miniblock { start: self.at, width, done: 0, left: count };
        self.at += bytes(self.miniblock_values).min(rest);
        Ok(())
    }

    /// The next ones.
    pub(super) fn read(&mut self, mut out: &mut [i64]) -> Result<(), &'static str> {
        if out.len() > self.left {
            return Err(CUT_OFF);
        }
        if self.is_first && !out.is_empty() {
            out[0] = self.value;
            out = &mut out[1..];
            self.is_first = false;
            self.left -= 1;
        }
        while !out.is_empty() {
            if self.miniblock.left == 0 {
                self.next_miniblock()?;
            }
            let Miniblock { start, width, done, left } = &mut self.miniblock;
            let count = out.len().min(*left);
            let (now, later) = out.split_at_mut(count);
            let packed = &self.bytes[*start..];
            for (place, out) in (*done..).zip(now) {
                let delta = self.least_delta.wrapping_add(bits(packed, place * *width, *width));
                self.value = self.value.wrapping_add(delta);
                *out = self.value;
            }
            *done += count;
            *left -= count;
            self.left -= count;
            out = later;
        }
        Ok(())
    }

    /// Passes over the next ones.
    pub(super) fn skip(&mut self, mut count: usize) -> Result<(), &'static str> {
        let mut passed = [0; SKIPPED];
        while count > 0 {
            let some = count.min(SKIPPED);
            self.read(&mut passed[..some])?;
            count -= some;
        }
        Ok(())
    }

    /// What follows the integers.
    pub(super) fn rest(&self) -> Result<Bytes, &'static str> {
        let mut all = self.clone();
        let is_first = usize::from(all.is_first).min(all.left);
        all.left -= is_first;
        all.left -= all.miniblock.left;
        while all.left > 0 {
            all.next_miniblock()?;
            all.left -= all.miniblock.left;
        }
        Ok(self.bytes.slice(all.at..))
    }
}

/// A number of up to 64 bits from this bit on.
#[inline(always)]
fn bits(packed: &[u8], bit: usize, width: usize) -> i64 {
    let rest = packed.get(bit / 8..).unwrap_or(&[]);
    let word = rest.first_chunk::<16>().copied().unwrap_or_else(|| {
        let mut last = [0; 16];
        let count = rest.len().min(last.len());
        last[..count].copy_from_slice(&rest[..count]);
        last
    });
    let lowest = (1_u128 << width) - 1;
    #[expect(clippy::cast_possible_truncation, reason = "a number has up to 64 bits")]
    let number = (u128::from_le_bytes(word) >> (bit % 8) & lowest) as u64;
    number.cast_signed()
}

/// A number of seven bits a byte, the lowest ones first.
fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(CUT_OFF)?;
        *at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(DAMAGED)
}

fn zigzag(bytes: &[u8], at: &mut usize) -> Result<i64, &'static str> {
    let number = varint(bytes, at)?;
    Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_varint(mut number: u64, out: &mut Vec<u8>) {
        while number >= 0x80 {
            out.push(u8::try_from(number & 0x7F).unwrap() | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).unwrap());
    }

    fn put_zigzag(number: i64, out: &mut Vec<u8>) {
        put_varint((number << 1 ^ number >> 63).cast_unsigned(), out);
    }

    /// The integers as the format has them, in blocks of four miniblocks of 32.
    fn encoded(values: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        [128, 4, values.len() as u64].into_iter().for_each(|number| put_varint(number, &mut out));
        put_zigzag(values.first().copied().unwrap_or(0), &mut out);
        let deltas: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        for block in deltas.chunks(128) {
            let least = *block.iter().min().unwrap();
            put_zigzag(least, &mut out);
            let miniblocks: Vec<Vec<u64>> = block
                .chunks(32)
                .map(|some| some.iter().map(|delta| delta.wrapping_sub(least).cast_unsigned()).collect())
                .collect();
            let width = |miniblock: &Vec<u64>| {
                64 - miniblock.iter().fold(0, |all, delta| all | delta).leading_zeros()
            };
            let widths: Vec<u32> = miniblocks.iter().map(width).collect();
            out.extend(widths.iter().map(|width| u8::try_from(*width).unwrap()));
            out.resize(out.len() + 4 - widths.len(), 0);
            for (miniblock, width) in miniblocks.iter().zip(widths) {
                let mut packed = vec![0; 4 * width as usize];
                for (place, delta) in miniblock.iter().enumerate() {
                    for bit in (0..width as usize).filter(|bit| delta >> bit & 1 == 1) {
                        let bit = place * width as usize + bit;
                        packed[bit / 8] |= 1 << (bit % 8);
                    }
                }
                out.extend(packed);
            }
        }
        out
    }

    fn integers(count: usize, width: u32) -> Vec<i64> {
        let mut state = 7_u64;
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.cast_signed() >> (64 - width)
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn integers_are_read_and_passed_over_and_what_follows_is_found() {
        for (count, width) in [(0, 1), (1, 8), (2, 64), (33, 3), (129, 64), (1000, 13), (1025, 57)] {
            let values = integers(count, width);
            let mut page = encoded(&values);
            page.extend_from_slice(b"rest");
            let page = Bytes::from(page);
            for step in [1, 31, 32, 500, 2000] {
                let mut deltas = Deltas::new(page.clone()).unwrap();
                let mut place = 0;
                while place < count {
                    let some = step.min(count - place);
                    assert_eq!(deltas.left(), count - place);
                    assert_eq!(deltas.rest().unwrap()[..], b"rest"[..], "{count} values of {width} bits");
                    let mut out = vec![0; some];
                    if place / step % 3 == 1 {
                        deltas.skip(some).unwrap();
                    } else {
                        deltas.read(&mut out).unwrap();
                        assert_eq!(out, values[place..place + some]);
                    }
                    place += some;
                }
                assert_eq!(deltas.rest().unwrap()[..], b"rest"[..]);
                assert_eq!(deltas.skip(1), Err(CUT_OFF));
            }
        }
    }

    #[test]
    fn damaged_pages_are_errors() {
        // Its last miniblock is full.
        let page = encoded(&integers(257, 20));
        for end in 0..page.len() {
            let deltas = Deltas::new(Bytes::copy_from_slice(&page[..end]));
            let read = deltas.and_then(|mut deltas| deltas.read(&mut [0; 257]));
            assert!(read.is_err(), "{end} bytes");
        }
        for header in [[128_u64, 0, 9], [128, 3, 9], [64, 4, 9], [0, 4, 9], [u64::MAX, 1, 9]] {
            let mut page = Vec::new();
            header.into_iter().for_each(|number| put_varint(number, &mut page));
            put_zigzag(0, &mut page);
            let mut page = Deltas::new(page.into());
            assert!(page.as_mut().is_err() || page.is_ok_and(|mut page| page.read(&mut [0; 9]).is_err()));
        }
        let mut state = 3_u64;
        for round in 0..20_000 {
            let mut damaged = page.clone();
            for _ in 0..1 + round % 3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place =
                    usize::try_from(state >> 33).unwrap() % if round % 2 == 0 { 12 } else { page.len() };
                damaged[place] = state.to_le_bytes()[3];
            }
            if let Ok(mut deltas) = Deltas::new(damaged.into()) {
                let _ = deltas.rest();
                let _ = deltas.read(&mut [0; 257]);
                let _ = deltas.skip(10_000);
            }
        }
    }
}
