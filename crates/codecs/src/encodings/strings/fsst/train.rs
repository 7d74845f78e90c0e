//! Finds good symbols: five rounds over a sample.
//!
//! A round encodes the sample with the symbols of the previous round, and counts each symbol and each pair of
//! neighbours. The symbols and concatenated pairs that would cover the most bytes become the symbols of the
//! next round, so their length at most doubles. The last round does not use pairs. (FSST, section 4.)

use std::collections::HashMap;

use keirin_kernels::text::Text;

use super::super::Rows;
use super::symbols::{ESCAPE, Matcher, SYMBOLS_MAX, Symbol, word_at};
use crate::encodings::odd_step;

/// Bytes of the sample: with more the symbols are hardly better.
const SAMPLE_BYTES: usize = 1 << 14;
const ROUNDS: usize = 5;
/// Rarer pairs are not considered.
const PAIR_COUNT_MIN: u32 = 4;
/// Ids of symbols, followed by ids of escaped bytes.
const IDS: usize = 512;

/// The symbols for these rows, those that cover the most bytes first.
pub(super) fn train(rows: Rows<'_>) -> Vec<Symbol> {
    let sample = sample(rows);
    let mut symbols = Vec::new();
    let mut counts = Counts { single: [0; IDS], pairs: vec![0; IDS * IDS] };
    for round in 0..ROUNDS {
        counts.count(&sample, &symbols);
        symbols = counts.best(&symbols, round + 1 < ROUNDS);
    }
    symbols
}

/// Rows spread over the column, cut if they are long.
fn sample<'a>(rows: Rows<'a>) -> Vec<&'a [u8]> {
    /// The most bytes of one row.
    const ROW_BYTES_MAX: usize = 512;
    let count = rows.row_count();
    let (offsets, bytes) = (rows.offsets(), rows.bytes());
    let total = (offsets[count] - offsets[0]) as usize;
    let wanted = (count * SAMPLE_BYTES).checked_div(total).unwrap_or(0).clamp(64, count.max(64));
    let picked = (0..count).step_by(odd_step(count, wanted));
    let mut left = SAMPLE_BYTES;
    let mut sample = Vec::new();
    for row in picked {
        let row = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
        let row = &row[..row.len().min(ROW_BYTES_MAX).min(left)];
        left -= row.len();
        sample.push(row);
    }
    sample
}

/// How often symbols, and pairs of them, occur.
struct Counts {
    single: [u32; IDS],
    pairs: Vec<u32>,
}

impl Counts {
    fn count(&mut self, sample: &[&[u8]], symbols: &[Symbol]) {
        let matcher = Matcher::new(symbols);
        self.single.fill(0);
        self.pairs.fill(0);
        for row in sample {
            let (mut at, mut before) = (0, None);
            while at < row.len() {
                let (code, length) = matcher.find(word_at(row, at), row.len() - at);
                let escaped = 256 + usize::from(row[at]);
                let id = if code == ESCAPE { escaped } else { usize::from(code) };
                self.single[id] += 1;
                if length > 1 {
                    // The first byte alone remains a candidate, for places where longer symbols do not match.
                    self.single[escaped] += 1;
                }
                if let Some(before) = before.replace(id) {
                    self.pairs[before * IDS + id] += 1;
                }
                at += length;
            }
        }
    }

    /// The candidates that cover the most bytes and have a slot.
    fn best(&self, symbols: &[Symbol], has_pairs: bool) -> Vec<Symbol> {
        let bytes: Vec<Symbol> = (0..=u8::MAX).map(Symbol::of_byte).collect();
        let symbol = |id: usize| symbols.get(id).copied().unwrap_or(bytes[id & 255]);
        let mut gains: HashMap<Symbol, u64> = HashMap::new();
        let mut add = |symbol: Symbol, count: u32| {
            *gains.entry(symbol).or_default() += u64::from(count) * u64::from(symbol.length());
        };
        for id in (0..IDS).filter(|id| self.single[*id] > 0) {
            add(symbol(id), self.single[id]);
            if !has_pairs || symbol(id).length() == 8 {
                continue;
            }
            let pairs = self.pairs[id * IDS..][..IDS].iter().enumerate();
            for (next, count) in pairs.filter(|(_, count)| **count >= PAIR_COUNT_MIN) {
                add(symbol(id).followed_by(symbol(next)), *count);
            }
        }
        let mut ranked: Vec<(Symbol, u64)> = gains.into_iter().collect();
        // Ties are broken by the symbol, so that the same rows always give the same symbols.
        ranked.sort_unstable_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(&right.0)));
        let mut matcher = Matcher::new(&[]);
        let fitting =
            ranked.into_iter().map(|(symbol, _)| symbol).filter(|symbol| matcher.insert(*symbol, 0));
        fitting.take(SYMBOLS_MAX).collect()
    }
}
