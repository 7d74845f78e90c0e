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

/// The distribution of lengths and offsets: each is below a random power of two of up to `bits` bits, so that small
/// numbers are common.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// For the count of literals.
    pub literal_bits: u64,
    /// For the length of matches.
    pub length_bits: u64,
    /// For the offset.
    pub offset_bits: u64,
}

impl Shape {
    /// Shapes that together cover every path of a decoder.
    pub const ALL: [Self; 6] = [
        Self { literal_bits: 1, length_bits: 3, offset_bits: 15 },
        Self { literal_bits: 3, length_bits: 4, offset_bits: 6 },
        Self { literal_bits: 5, length_bits: 5, offset_bits: 10 },
        Self { literal_bits: 2, length_bits: 6, offset_bits: 4 },
        Self { literal_bits: 9, length_bits: 3, offset_bits: 8 },
        Self { literal_bits: 3, length_bits: 11, offset_bits: 5 },
    ];

    /// Sequences that decode to `bytes` bytes or a little more; the first has literals.
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

/// What an LZ4 block decodes to; `None` if it is malformed, or decodes to more than `bytes_max`.
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

/// A number in as many bytes as it needs, seven bits in each, the lowest first.
#[must_use]
pub fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The Snappy block of sequences and the literals after them, and what it decodes to. Long matches become several
/// copies; each kind of copy that can hold the offset is used in turn.
#[must_use]
pub fn snappy_block(sequences: &[Sequence], last_literals: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut elements, mut output) = (Vec::new(), Vec::new());
    let literal = |elements: &mut Vec<u8>, output: &mut Vec<u8>, literals: &[u8]| {
        let Some(last) = literals.len().checked_sub(1) else { return };
        match last {
            0..60 => elements.push((last << 2) as u8),
            60..256 => elements.extend([60 << 2, last as u8]),
            _ => elements.extend([61 << 2, last as u8, (last >> 8) as u8]),
        }
        elements.extend(literals);
        output.extend(literals);
    };
    for (index, sequence) in sequences.iter().enumerate() {
        literal(&mut elements, &mut output, &sequence.literals);
        let mut left = sequence.length;
        while left > 0 {
            let (length, offset) = (left.min(64), sequence.offset);
            left -= length;
            if (4..12).contains(&length) && offset < 2_048 && index % 8 > 0 {
                elements.push((offset >> 8 << 5 | (length - 4) << 2 | 1) as u8);
                elements.push(offset as u8);
            } else if index % 32 > 0 {
                elements.push(((length - 1) << 2 | 2) as u8);
                elements.extend((offset as u16).to_le_bytes());
            } else {
                elements.push(((length - 1) << 2 | 3) as u8);
                elements.extend((offset as u32).to_le_bytes());
            }
            let start = output.len() - offset;
            for index in start..start + length {
                output.push(output[index]);
            }
        }
    }
    literal(&mut elements, &mut output, last_literals);
    let mut block = varint(output.len());
    block.extend(elements);
    (block, output)
}

/// What a Snappy block decodes to; `None` if it is malformed, or decodes to more than `bytes_max`.
#[must_use]
pub fn snappy(block: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut input = block.iter().map(|byte| usize::from(*byte));
    let mut declared = 0_u64;
    for index in 0..6 {
        let byte = input.next().filter(|_| index < 5)? as u64;
        declared |= (byte & 127) << (7 * index);
        if byte < 128 {
            break;
        }
    }
    let mut output = Vec::new();
    while let Some(tag) = input.next() {
        let mut number = |bytes: usize| {
            (0..bytes).try_fold(0, |number, index| Some(number | input.next()? << (8 * index)))
        };
        let (offset, length) = match (tag & 3, tag >> 2) {
            (0, high @ 60..) => (0, number(high - 59)? + 1),
            (0, high) => (0, high + 1),
            (1, high) => (high >> 3 << 8 | number(1)?, (high & 7) + 4),
            (2, high) => (number(2)?, high + 1),
            (_, high) => (number(4)?, high + 1),
        };
        if output.len() + length > bytes_max {
            return None;
        }
        if tag & 3 == 0 {
            for _ in 0..length {
                output.push(input.next()? as u8);
            }
        } else {
            let start = output.len().checked_sub(offset).filter(|_| offset > 0)?;
            for index in start..start + length {
                output.push(output[index]);
            }
        }
    }
    (output.len() as u64 == declared).then_some(output)
}
