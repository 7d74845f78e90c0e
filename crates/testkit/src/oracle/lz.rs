//! LZ77 blocks, one byte at a time: what they decode to, and blocks of any shape.

use crate::columns::Random;

/// Literals, then a match.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Bytes that stand in the block.
    pub literals: Vec<u8>,
    /// How far back the match lies.
    pub offset: usize,
    /// How long it is, at least 4.
    pub length: usize,
}

/// How long and how far: `1 << below(bits)` of each, so that small numbers are common.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Of the count of literals.
    pub literal_bits: u64,
    /// Of the length of matches.
    pub length_bits: u64,
    /// Of the offset.
    pub offset_bits: u64,
}

impl Shape {
    /// Shapes that take every way through a decoder.
    pub const ALL: [Self; 6] = [
        Self { literal_bits: 1, length_bits: 3, offset_bits: 15 },
        Self { literal_bits: 3, length_bits: 4, offset_bits: 6 },
        Self { literal_bits: 5, length_bits: 5, offset_bits: 10 },
        Self { literal_bits: 2, length_bits: 6, offset_bits: 4 },
        Self { literal_bits: 9, length_bits: 3, offset_bits: 8 },
        Self { literal_bits: 3, length_bits: 11, offset_bits: 5 },
    ];

    /// Sequences that decode to `bytes` or a little more, the first of which has literals.
    pub fn sequences(self, bytes: usize, random: &mut Random) -> Vec<Sequence> {
        let mut sequences = Vec::new();
        let mut written = 0;
        while written < bytes {
            let size = |random: &mut Random, bits| {
                let most = 1 << random.below(bits + 1);
                random.below(most) as usize
            };
            let count = size(random, self.literal_bits) + usize::from(written == 0);
            let literals: Vec<u8> = (0..count).map(|_| random.below(256) as u8).collect();
            written += count;
            let offset = (1 + size(random, self.offset_bits)).min(written).min(65_535);
            let length = 4 + size(random, self.length_bits);
            written += length;
            sequences.push(Sequence { literals, offset, length });
        }
        sequences
    }
}

/// The LZ4 block of sequences and the literals that must follow them.
#[must_use]
pub fn lz4_block(sequences: &[Sequence], last_literals: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    let extend = |block: &mut Vec<u8>, length: usize| {
        if length >= 15 {
            block.extend(vec![255; (length - 15) / 255]);
            block.push(((length - 15) % 255) as u8);
        }
    };
    for sequence in sequences {
        let (literals, length) = (sequence.literals.len(), sequence.length - 4);
        block.push((literals.min(15) << 4 | length.min(15)) as u8);
        extend(&mut block, literals);
        block.extend(&sequence.literals);
        block.extend((sequence.offset as u16).to_le_bytes());
        extend(&mut block, length);
    }
    block.push((last_literals.len().min(15) << 4) as u8);
    extend(&mut block, last_literals.len());
    block.extend(last_literals);
    block
}

/// What an LZ4 block decodes to; `None` if it is none, or is longer than `bytes_max`.
#[must_use]
pub fn lz4(block: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut input = block.iter().map(|byte| usize::from(*byte));
    let mut output = Vec::new();
    loop {
        let token = input.next()?;
        let length = |first: usize, input: &mut dyn Iterator<Item = usize>| {
            let mut length = first;
            let mut more = if first == 15 { 255 } else { 0 };
            while more == 255 {
                more = input.next()?;
                length += more;
            }
            Some(length)
        };
        for _ in 0..length(token >> 4, &mut input)? {
            output.push(input.next()? as u8);
        }
        if output.len() > bytes_max {
            return None;
        }
        let Some(low) = input.next() else { return Some(output) };
        let offset = low | input.next()? << 8;
        let start = output.len().checked_sub(offset).filter(|_| offset > 0)?;
        let length = length(token & 15, &mut input)? + 4;
        if output.len() + length > bytes_max {
            return None;
        }
        for index in start..start + length {
            output.push(output[index]);
        }
    }
}
