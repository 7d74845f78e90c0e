//! Differences of neighbours, with a restart every 1,024 rows.
//!
//! ```text
//! | starts: values 0, 1024, 2048, ... | differences: one a row, around the end of the type, with sign |
//!   `--- a column -----------------'    `--- a column; those of the starts say nothing -------------'
//! ```
//! Good for values that grow or move by small steps: keys, times, offsets. A range is decoded from the last
//! restart before it. Sums and comparisons decode.

use std::fmt;

use keirin_kernels::Level;

use super::{BoxNode, Explain, Int, Node};
use crate::Result;
use crate::encodings::BLOCK;
use crate::reader::Reader;
use crate::writer::Writer;

pub(super) fn write<T: Int>(writer: &mut Writer, values: &[T]) -> bool {
    if values.len() < 2 || !writer.may_nest() {
        return false;
    }
    let starts: Vec<T> = values.iter().step_by(BLOCK).copied().collect();
    let mut deltas = Vec::with_capacity(values.len());
    for block in values.chunks(BLOCK) {
        let differences = block.windows(2).map(|pair| pair[1].minus(pair[0]).signed());
        // The unused difference at a restart repeats its neighbour, which costs nothing in any encoding.
        let first = block
            .get(1)
            .map_or(deltas.last().copied().unwrap_or_default(), |next| next.minus(block[0]).signed());
        deltas.push(first);
        deltas.extend(differences);
    }
    writer.nested(|writer| {
        super::write(writer, &starts);
        super::write(writer, &deltas);
    });
    true
}

#[derive(Debug)]
pub(super) struct Delta<'a, T: Int> {
    starts: Vec<T>,
    deltas: BoxNode<'a, T::Signed>,
}

impl<'a, T: Int> Delta<'a, T> {
    pub(super) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        let starts = super::read(reader, count.div_ceil(BLOCK))?;
        Ok(Self { starts, deltas: super::open(reader, count)? })
    }

    /// Decodes the first `out.len()` rows of a block.
    fn block(&self, level: Level, block: usize, out: &mut [T]) -> Result<()> {
        let mut deltas = [T::Signed::default(); BLOCK];
        let deltas = &mut deltas[..out.len()];
        self.deltas.decode_into(level, block * BLOCK, deltas)?;
        if let Some(first) = deltas.first_mut() {
            *first = T::Signed::default();
        }
        T::prefix_sums(level, self.starts[block], deltas, out);
        Ok(())
    }
}

impl<T: Int> Node<T> for Delta<'_, T> {
    fn len(&self) -> usize {
        self.deltas.len()
    }

    fn decode_into(&self, level: Level, first: usize, out: &mut [T]) -> Result<()> {
        let mut rest = out;
        let mut row = first;
        while !rest.is_empty() {
            let (block, offset) = (row / BLOCK, row % BLOCK);
            let count = rest.len().min(BLOCK - offset);
            let (part, behind) = rest.split_at_mut(count);
            if offset == 0 {
                self.block(level, block, part)?;
            } else {
                let mut values = [T::default(); BLOCK];
                self.block(level, block, &mut values[..offset + count])?;
                part.copy_from_slice(&values[offset..offset + count]);
            }
            rest = behind;
            row += count;
        }
        Ok(())
    }

    fn take(&self, level: Level, rows: &[u32], out: &mut Vec<T>) -> Result<()> {
        let mut values = [T::default(); BLOCK];
        let mut known = None;
        for row in rows {
            let (block, offset) = (*row as usize / BLOCK, *row as usize % BLOCK);
            if known != Some(block) {
                let count = BLOCK.min(self.len() - block * BLOCK);
                self.block(level, block, &mut values[..count])?;
                known = Some(block);
            }
            out.push(values[offset]);
        }
        Ok(())
    }

    fn decode_ns(&self) -> f64 {
        self.len() as f64 * 0.35 + self.deltas.decode_ns()
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta + {}", Explain(&*self.deltas))
    }
}
