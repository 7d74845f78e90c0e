//! Texts by number, shared by the threads of a query.
//!
//! Grouping by text compares each text once, where a thread meets it: from there on it is a number of four bytes, which
//! all threads know. The texts are spread over shards by the highest bits of their hash, each behind a lock. A thread
//! sorts some thousand rows by shard and then looks up all rows of a shard at once, so that locks cost little and
//! the table of the shard is in the caches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use keirin_kernels::group_table::{Repeated, StringGroupTable, partition_rows};
use keirin_kernels::hash::{Seed, Strings, hash_strings};
use keirin_kernels::{Bits, Level};

/// The low bits of a number name its shard.
pub const SHARD_BITS: u32 = 6;
/// Count of shards.
pub const SHARDS: usize = 1 << SHARD_BITS;
/// The number of rows without a value.
pub const NULL_TEXT: u32 = u32::MAX;

/// Rows that are looked up together: their hashes stay in the second cache.
const CHUNK_ROWS: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug)]
pub struct Texts {
    seed: Seed,
    shards: Vec<Mutex<Option<StringGroupTable>>>,
    bytes: AtomicUsize,
    /// Where the next thread begins, so that threads meet in few shards.
    turn: AtomicUsize,
}

/// More texts than numbers of 32 bits have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTexts;

/// The texts of a shard: views into parts, as [`StringGroupTable::take_views`] gives them.
pub type ShardTexts = (Vec<u128>, Vec<Vec<u8>>);

impl Default for Texts {
    fn default() -> Self {
        Self {
            seed: Seed::random(),
            shards: (0..SHARDS).map(|_| Mutex::new(None)).collect(),
            bytes: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
        }
    }
}

impl Texts {
    /// Appends the number of each row to `numbers`, [`NULL_TEXT`] for rows without a value; new texts get new numbers.
    ///
    /// # Errors
    /// When a shard would have more than 2^26 texts.
    ///
    /// # Panics
    /// When lengths differ, or a text is not within its buffer or has 4 GiB or more.
    pub fn number(
        &self,
        level: Level,
        texts: Strings<'_>,
        validity: Option<Bits<'_>>,
        numbers: &mut Vec<u32>,
    ) -> Result<(), TooManyTexts> {
        let first = numbers.len();
        if let Strings::Views(views, buffers) = texts
            && let Some(repeated) = Repeated::new(level, views, validity)
        {
            let rows = repeated.rows.iter().map(|row| *row as usize);
            let valid = validity.map(|validity| rows.clone().map(|row| validity.get(row)).collect());
            let valid: Option<keirin_kernels::BitBuffer> = valid;
            let views: Vec<u128> = rows.map(|row| views[row]).collect();
            let mut found = vec![0; views.len()];
            let valid = valid.as_ref().map(keirin_kernels::BitBuffer::as_bits);
            self.number_chunk(level, Strings::Views(&views, buffers), valid, &mut found)?;
            numbers.extend(repeated.places.iter().map(|place| found[*place as usize]));
            return Ok(());
        }
        numbers.resize(first + texts.len(), 0);
        for start in (0..texts.len()).step_by(CHUNK_ROWS) {
            let rows = start..texts.len().min(start + CHUNK_ROWS);
            let validity = validity.map(|validity| validity.slice(rows.start, rows.len()));
            let numbers = &mut numbers[first + rows.start..first + rows.end];
            self.number_chunk(level, texts.slice(rows), validity, numbers)?;
        }
        Ok(())
    }

    fn number_chunk(
        &self,
        level: Level,
        texts: Strings<'_>,
        validity: Option<Bits<'_>>,
        numbers: &mut [u32],
    ) -> Result<(), TooManyTexts> {
        let mut hashes = vec![0; texts.len()];
        hash_strings(level, &self.seed, texts, validity, &mut hashes);
        let sorted = partition_rows(&hashes, SHARD_BITS);
        let turn = self.turn.fetch_add(SHARDS / 2 + 1, Ordering::Relaxed);
        let mut valid_rows = Vec::new();
        for shard in (0..SHARDS).map(|shard| (shard + turn) % SHARDS) {
            let mut rows = &sorted.rows[sorted.starts[shard] as usize..sorted.starts[shard + 1] as usize];
            if let Some(validity) = validity {
                valid_rows.clear();
                valid_rows.extend(rows.iter().filter(|row| validity.get(**row as usize)));
                rows = &valid_rows;
            }
            if rows.is_empty() {
                continue;
            }
            let mut table = lock(&self.shards[shard]);
            let table = table.get_or_insert_with(|| StringGroupTable::for_partition(self.seed, SHARD_BITS));
            let before = table.bytes();
            table.find_or_insert_rows(level, texts, rows, &hashes, numbers);
            if table.len() >= 1 << (u32::BITS - SHARD_BITS) {
                return Err(TooManyTexts);
            }
            self.bytes.fetch_add(table.bytes() - before, Ordering::Relaxed);
            for row in rows {
                let number = &mut numbers[*row as usize];
                *number = *number << SHARD_BITS | shard_number(shard);
            }
        }
        if let Some(validity) = validity {
            let nulls = numbers.iter_mut().enumerate().filter(|(row, _)| !validity.get(*row));
            nulls.for_each(|(_, number)| *number = NULL_TEXT);
        }
        Ok(())
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many texts a shard has.
    ///
    /// # Panics
    /// When there is no such shard.
    #[must_use]
    pub fn count(&self, shard: usize) -> usize {
        lock(&self.shards[shard]).as_ref().map_or(0, StringGroupTable::len)
    }

    /// Takes the texts of all shards.
    #[must_use]
    pub fn take(&self) -> Vec<ShardTexts> {
        self.bytes.store(0, Ordering::Relaxed);
        let tables = self.shards.iter().map(|shard| lock(shard).take());
        tables.map(|table| table.map(|mut table| table.take_views()).unwrap_or_default()).collect()
    }
}

/// A thread that panicked has left a table whole: what it was asked for was checked before.
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::cast_possible_truncation, reason = "there are few shards")]
pub(crate) fn shard_number(shard: usize) -> u32 {
    shard as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use keirin_kernels::BitBuffer;

    use super::*;

    fn text(texts: &[ShardTexts], number: u32) -> Vec<u8> {
        let (views, parts) = &texts[number as usize % SHARDS];
        let view = views[(number >> SHARD_BITS) as usize];
        let bytes = view.to_le_bytes();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        if word(0) <= 12 {
            bytes[4..4 + word(0)].to_vec()
        } else {
            parts[word(8)][word(12)..][..word(0)].to_vec()
        }
    }

    /// Several threads number the same texts; each text has one number, and none else has it.
    #[test]
    fn threads_give_a_text_one_number() {
        let rows: Vec<String> = (0..40_000_u32)
            .map(|row| row.wrapping_mul(0x9E37_79B9) % 7_000)
            .map(|key| format!("{key}").repeat(1 + key as usize % 6))
            .collect();
        let bytes = rows.concat().into_bytes();
        let mut offsets = vec![0_i32];
        offsets.extend(rows.iter().scan(0, |end, row| {
            *end += i32::try_from(row.len()).unwrap();
            Some(*end)
        }));
        let validity: BitBuffer = (0..rows.len()).map(|row| row % 17 != 3).collect();
        for is_nullable in [false, true] {
            let texts = Texts::default();
            let numbered = std::thread::scope(|scope| {
                let work = || {
                    let mut numbers = vec![7];
                    let strings = Strings::Offsets32(&offsets, &bytes);
                    let valid = is_nullable.then(|| validity.as_bits());
                    texts.number(Level::best(), strings, valid, &mut numbers).unwrap();
                    numbers
                };
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(texts.bytes() > 0);
            let counts: usize = (0..SHARDS).map(|shard| texts.count(shard)).sum();
            let taken = texts.take();
            let mut known = HashMap::new();
            for numbers in &numbered {
                assert_eq!(numbers[0], 7, "numbers are appended");
                assert_eq!(numbers.len(), rows.len() + 1);
                for (place, (row, number)) in rows.iter().zip(&numbers[1..]).enumerate() {
                    if is_nullable && place % 17 == 3 {
                        assert_eq!(*number, NULL_TEXT);
                        continue;
                    }
                    assert_eq!(text(&taken, *number), row.as_bytes());
                    assert_eq!(known.entry(row).or_insert(*number), number);
                }
            }
            assert_eq!(known.len(), counts);
        }
    }

    #[test]
    fn views_that_repeat_are_the_same_texts() {
        let long = b"a text that is longer than a view";
        let form = |bytes: &[u8]| {
            let mut view = [0; 16];
            view[0] = u8::try_from(bytes.len()).unwrap();
            view[4..4 + bytes.len().min(12)].copy_from_slice(&bytes[..bytes.len().min(12)]);
            if bytes.len() > 12 {
                view[8..].fill(0);
            }
            u128::from_le_bytes(view)
        };
        let entries = [form(b""), form(b"short"), form(long)];
        let views: Vec<u128> = (0..5_000).map(|row| entries[row % 3]).collect();
        let validity: BitBuffer = (0..views.len()).map(|row| row % 5 > 0).collect();
        let (texts, mut numbers) = (Texts::default(), Vec::new());
        let buffers = [&long[..]];
        let strings = Strings::Views(&views, &buffers);
        texts.number(Level::best(), strings, Some(validity.as_bits()), &mut numbers).unwrap();
        let taken = texts.take();
        for (row, number) in numbers.iter().enumerate() {
            match row % 5 {
                0 => assert_eq!(*number, NULL_TEXT),
                _ => assert_eq!(text(&taken, *number), [&b""[..], b"short", long][row % 3]),
            }
        }
    }
}
