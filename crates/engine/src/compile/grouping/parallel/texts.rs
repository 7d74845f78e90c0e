//! The texts of a key by their numbers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, DictionaryArray, UInt32Array};
use arrow::buffer::Buffer;
use arrow::compute::take;
use arrow::datatypes::UInt32Type;
use datafusion::common::internal_err;
use datafusion::error::Result;
use keirin_kernels::gather::gather;
use keirin_kernels::hash::Strings;
use keirin_kernels::{Bits, Level};
use keirin_operators::KeyValues;
use keirin_operators::texts::{NULL_TEXT, SHARD_BITS, SHARDS, Texts, TooManyTexts};

use super::groups::unfit;
use crate::compile::grouping::keys::Held;

/// Adds the numbers of texts to `numbers`.
pub(super) fn number_texts(
    level: Level,
    texts: &Texts,
    strings: Strings<'_>,
    validity: Option<Bits<'_>>,
    numbers: &mut Vec<u32>,
) -> Result<()> {
    match texts.number(level, strings, validity, numbers) {
        Ok(()) => Ok(()),
        Err(TooManyTexts) => unfit("more texts than have numbers of 32 bits"),
    }
}

/// The entries of a dictionary, which the batches of a stripe or a row group share.
pub(super) struct Entries {
    values: ArrayRef,
    /// Of each; [`NULL_TEXT`] as long as no row had it, for which none is asked for.
    numbers: Vec<u32>,
}

impl Entries {
    /// What is known of the entries `values`, in the place of what is known of others.
    pub(super) fn of<'a>(known: &'a mut Option<Self>, values: &ArrayRef) -> &'a mut Self {
        known.take_if(|known| !Arc::ptr_eq(&known.values, values));
        let new = || Self { values: values.clone(), numbers: vec![NULL_TEXT; values.len()] };
        known.get_or_insert_with(new)
    }

    /// The numbers of the texts of rows with these entries.
    pub(super) fn numbers(
        &mut self,
        level: Level,
        texts: &Texts,
        rows: &DictionaryArray<UInt32Type>,
    ) -> Result<UInt32Array> {
        let (codes, nulls) =
            (rows.keys().values(), rows.keys().nulls().filter(|nulls| nulls.null_count() > 0));
        let mut new = Vec::new();
        let mut find = |code: u32| {
            let number = &mut self.numbers[code as usize];
            if *number == NULL_TEXT {
                // It has one below, and is found once.
                *number = 0;
                new.push(code);
            }
        };
        match nulls {
            None => codes.iter().for_each(|code| find(*code)),
            Some(nulls) => nulls.valid_indices().for_each(|row| find(codes[row])),
        }
        if !new.is_empty() {
            let (new, entries) = match new.len() == self.values.len() {
                true => (UInt32Array::from_iter_values((0..).take(new.len())), self.values.clone()),
                false => {
                    let new = UInt32Array::from(new);
                    let entries = take(&self.values, &new, None)?;
                    (new, entries)
                }
            };
            let entries = Held::new(&entries);
            let (buffers, mut of_new) = (entries.texts(), Vec::with_capacity(new.len()));
            let KeyValues::Text(strings) = entries.key(&buffers).values else {
                return internal_err!("entries of a dictionary that are no texts");
            };
            number_texts(level, texts, strings, None, &mut of_new)?;
            new.values().iter().zip(of_new).for_each(|(code, number)| self.numbers[*code as usize] = number);
        }
        // Without entries all rows are without a value.
        let mut numbers = match self.numbers.is_empty() || codes.is_empty() {
            true => vec![NULL_TEXT; codes.len()],
            false => gather(level, &self.numbers, codes),
        };
        if let Some(nulls) = nulls {
            let rows = numbers.iter_mut().enumerate().filter(|(row, _)| nulls.is_null(*row));
            rows.for_each(|(_, number)| *number = NULL_TEXT);
        }
        Ok(UInt32Array::from(numbers))
    }
}

/// All texts of a key, when no more come.
pub(super) struct KnownTexts {
    /// By shard.
    views: Vec<Vec<u128>>,
    /// The number of the first part of each shard.
    first_parts: Vec<u32>,
    parts: Vec<Buffer>,
}

impl KnownTexts {
    /// Takes them.
    pub(super) fn new(texts: &Texts) -> Self {
        let mut known =
            Self { views: Vec::with_capacity(SHARDS), first_parts: Vec::new(), parts: Vec::new() };
        for (views, parts) in texts.take() {
            known.views.push(views);
            known.first_parts.push(u32::try_from(known.parts.len()).expect("few parts"));
            known.parts.extend(parts.into_iter().map(Buffer::from_vec));
        }
        known
    }

    /// How many texts a shard has.
    pub(super) fn count(&self, shard: usize) -> usize {
        self.views[shard].len()
    }

    /// What views point into.
    pub(super) fn parts(&self) -> &[Buffer] {
        &self.parts
    }

    /// The views of texts; that of no text is empty.
    pub(super) fn views(&self, numbers: &[u32]) -> Vec<u128> {
        /// The bytes of the longest text that is in its view.
        const INLINE_BYTES: u32 = 12;
        let view = |number: &u32| {
            if *number == NULL_TEXT {
                return 0;
            }
            let shard = *number as usize % SHARDS;
            let view = self.views[shard][(number >> SHARD_BITS) as usize];
            #[expect(clippy::cast_possible_truncation, reason = "the low bits are the length")]
            let is_long = view as u32 > INLINE_BYTES;
            if is_long { view + (u128::from(self.first_parts[shard]) << u64::BITS) } else { view }
        };
        numbers.iter().map(view).collect()
    }
}
