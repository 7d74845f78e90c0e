//! Numbers of few bits in runs: codes of dictionaries, and levels.
//!
//! Runs of files are short, often of eight numbers: such are taken word by word, and longer ones by the kernels.
//! (parquet-format: Encodings.md, "RLE/Bit-Packing Hybrid".)

use bytes::Bytes;
use keirin_kernels::Level;
use keirin_kernels::bitpack::{Packed, unpack_into};
use keirin_kernels::compare::Comparable;
use keirin_kernels::gather::gather_into;

/// Numbers that are unpacked at a time: they stay in the nearest cache.
pub(super) const BLOCK_ROWS: usize = 1024;
const CUT_OFF: &str = "the codes or levels of a page are cut off";
const NO_ENTRY: &str = "a code is none of its dictionary";
/// Fewer packed numbers are taken one by one.
const PACKED_MIN: usize = 64;

/// Numbers of up to 32 bits in runs: of the same one, or of packed ones.
pub(super) struct Hybrid {
    bytes: Bytes,
    /// Behind the run.
    at: usize,
    width: u32,
    run: Run,
    /// What is left of the run.
    left: usize,
}

#[derive(Clone, Copy)]
enum Run {
    Repeated(u32),
    /// From this byte on, of which so many numbers are done.
    Packed(usize, usize),
}

impl Hybrid {
    pub(super) fn new(bytes: Bytes, width: u32) -> Self {
        Self { bytes, at: 0, width, run: Run::Repeated(0), left: 0 }
    }

    /// The next number and how often it is repeated, if the next run is such.
    pub(super) fn repeated(&mut self) -> Result<Option<(u32, usize)>, &'static str> {
        self.next_run()?;
        Ok(match self.run {
            Run::Repeated(value) => Some((value, self.left)),
            Run::Packed(..) => None,
        })
    }

    fn next_run(&mut self) -> Result<(), &'static str> {
        while self.left == 0 {
            let mut header = 0_u64;
            let mut digits = 0;
            loop {
                let byte = *self.bytes.get(self.at).ok_or(CUT_OFF)?;
                self.at += 1;
                header |= u64::from(byte & 0x7f) << (7 * digits);
                digits += 1;
                if byte & 0x80 == 0 {
                    break;
                }
                if digits == 5 {
                    return Err("a run of codes or levels is too long");
                }
            }
            let length = usize::try_from(header >> 1).map_err(|_| CUT_OFF)?;
            let rest = self.bytes.len() - self.at;
            if header & 1 == 1 {
                // Eight numbers take as many bytes as each has bits. The last ones may be missing.
                let bytes = length.saturating_mul(self.width as usize).min(rest);
                self.left = match self.width {
                    0 => length.saturating_mul(8),
                    width => (8 * bytes / width as usize).min(length.saturating_mul(8)),
                };
                self.run = Run::Packed(self.at, 0);
                self.at += bytes;
            } else {
                let bytes = self.width.div_ceil(8) as usize;
                if rest < bytes {
                    return Err(CUT_OFF);
                }
                let mut value = [0; 4];
                value[..bytes].copy_from_slice(&self.bytes[self.at..self.at + bytes]);
                self.run = Run::Repeated(u32::from_le_bytes(value));
                self.left = length;
                self.at += bytes;
            }
        }
        Ok(())
    }

    /// Passes over numbers of the run.
    fn pass(&mut self, count: usize) {
        self.left -= count;
        if let Run::Packed(_, done) = &mut self.run {
            *done += count;
        }
    }

    /// Numbers of a packed run.
    #[inline(always)]
    fn few(&self, start: usize, done: usize) -> impl Iterator<Item = u32> {
        // A word may reach beyond the run: its bits are cut off.
        let (bytes, width) = (&self.bytes[start..], self.width as usize);
        #[expect(clippy::cast_possible_truncation, reason = "numbers have up to 32 bits")]
        (done..).map(move |number| {
            let bit = number * width;
            let rest = &bytes[bit / 8..];
            let word = rest.first_chunk::<8>().copied().unwrap_or_else(|| {
                let mut last = [0; 8];
                let count = rest.len().min(8);
                last[..count].copy_from_slice(&rest[..count]);
                last
            });
            (u64::from_le_bytes(word) >> (bit % 8)) as u32
                & u32::MAX.checked_shr(32 - width as u32).unwrap_or(0)
        })
    }

    fn unpack(&self, level: Level, start: usize, done: usize, out: &mut [u32]) {
        let packed = Packed::new(&self.bytes[start..self.at], self.width, done + out.len(), 0);
        unpack_into(level, packed, done, out);
    }

    /// The next numbers.
    pub(super) fn read(&mut self, level: Level, mut out: &mut [u32]) -> Result<(), &'static str> {
        while !out.is_empty() {
            self.next_run()?;
            let count = self.left.min(out.len());
            let (now, later) = out.split_at_mut(count);
            match self.run {
                Run::Repeated(value) => now.fill(value),
                Run::Packed(start, done) if count < PACKED_MIN => {
                    now.iter_mut().zip(self.few(start, done)).for_each(|(out, number)| *out = number);
                }
                Run::Packed(start, done) => self.unpack(level, start, done, now),
            }
            self.pass(count);
            out = later;
        }
        Ok(())
    }

    /// The entries of a dictionary with the next numbers.
    pub(super) fn read_entries<T: Comparable>(
        &mut self,
        level: Level,
        dictionary: &[T],
        mut out: &mut [T],
    ) -> Result<(), &'static str> {
        while !out.is_empty() {
            self.next_run()?;
            let count = self.left.min(out.len());
            let count = if matches!(self.run, Run::Packed(..)) { count.min(BLOCK_ROWS) } else { count };
            let (now, later) = out.split_at_mut(count);
            match self.run {
                Run::Repeated(code) => now.fill(*dictionary.get(code as usize).ok_or(NO_ENTRY)?),
                Run::Packed(start, done) if count < PACKED_MIN => {
                    for (out, code) in now.iter_mut().zip(self.few(start, done)) {
                        *out = *dictionary.get(code as usize).ok_or(NO_ENTRY)?;
                    }
                }
                Run::Packed(start, done) => {
                    let codes = &mut [0; BLOCK_ROWS][..count];
                    self.unpack(level, start, done, codes);
                    if !gather_into(level, dictionary, codes, now) {
                        return Err(NO_ENTRY);
                    }
                }
            }
            self.pass(count);
            out = later;
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, mut numbers: usize) -> Result<(), &'static str> {
        while numbers > 0 {
            self.next_run()?;
            let count = self.left.min(numbers);
            self.pass(count);
            numbers -= count;
        }
        Ok(())
    }

    /// How many of the next numbers, which are passed over, are ones.
    pub(super) fn count(&mut self, level: Level, mut numbers: usize) -> Result<usize, &'static str> {
        let (mut block, mut count) = ([0; BLOCK_ROWS], 0);
        while numbers > 0 {
            if let Some((number, repeated)) = self.repeated()? {
                let repeated = repeated.min(numbers);
                self.skip(repeated)?;
                numbers -= repeated;
                count += if number == 1 { repeated } else { 0 };
                continue;
            }
            let block = &mut block[..numbers.min(BLOCK_ROWS)];
            self.read(level, block)?;
            (numbers, count) = (numbers - block.len(), count + ones(block));
        }
        Ok(count)
    }
}

/// How many of these levels are ones.
pub(super) fn ones(levels: &[u32]) -> usize {
    levels.iter().filter(|level| **level == 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of these numbers as the format has them, of `width` bits.
    fn encoded(runs: &[(bool, &[u32])], width: u32) -> Bytes {
        let mut bytes = Vec::new();
        for (is_packed, numbers) in runs {
            let (length, tag) = if *is_packed { (numbers.len() / 8, 1) } else { (numbers.len(), 0) };
            let mut header = (length << 1) | tag;
            while header >= 0x80 {
                bytes.push(u8::try_from(header & 0x7f).unwrap() | 0x80);
                header >>= 7;
            }
            bytes.push(u8::try_from(header).unwrap());
            if *is_packed {
                bytes.extend(keirin_kernels::bitpack::pack(Level::best(), numbers, width, 0));
            } else {
                bytes.extend_from_slice(&numbers[0].to_le_bytes()[..width.div_ceil(8) as usize]);
            }
        }
        bytes.into()
    }

    #[test]
    fn runs_are_read_and_passed_over() {
        let packed: Vec<u32> = (0..3000).map(|number| number * 7 % 61).collect();
        let repeated = [17; 500];
        let runs: [(bool, &[u32]); 4] =
            [(true, &packed[..2000]), (false, &repeated), (true, &packed[2000..]), (false, &repeated[..1])];
        let all: Vec<u32> = runs.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect();
        let bytes = encoded(&runs, 6);
        for step in [1, 7, 8, 100, 1999, 5000] {
            let mut hybrid = Hybrid::new(bytes.clone(), 6);
            let mut place = 0;
            for turn in 0.. {
                let count = step.min(all.len() - place);
                if count == 0 {
                    break;
                }
                match turn % 3 {
                    0 => {
                        let mut out = vec![0; count];
                        hybrid.read(Level::best(), &mut out).unwrap();
                        assert_eq!(out, all[place..place + count]);
                    }
                    1 => hybrid.skip(count).unwrap(),
                    _ => {
                        let expected =
                            all[place..place + count].iter().filter(|number| **number == 1).count();
                        assert_eq!(hybrid.count(Level::best(), count), Ok(expected));
                    }
                }
                place += count;
            }
            assert_eq!(hybrid.skip(1), Err(CUT_OFF));
        }
    }

    #[test]
    fn any_bytes_give_numbers_or_an_error() {
        let mut state = 7_u64;
        for round in 0..20_000_u32 {
            let bytes: Vec<u8> = (0..round % 40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            let mut hybrid = Hybrid::new(bytes.into(), round % 33);
            let mut out = [0; 300];
            let read = hybrid.read(Level::best(), &mut out);
            assert!(
                read.is_err()
                    || out.iter().all(|number| u64::from(*number) < 1 << (8 * (round % 33).div_ceil(8)))
            );
            let _ = hybrid.count(Level::best(), 5000);
        }
    }
}
