//! Smallest and largest texts of groups.
//!
//! The state of one takes two words: the first eight bytes of the text as a number, which decides most comparisons, and
//! where the text lies in the heap of the thread that met it. A better text is written over the one before if it has
//! room there; its place grows twofold otherwise, so that a heap stays in proportion to the texts that are kept.

use std::sync::Arc;

use crate::arguments::{Argument, Numbers};

/// The words of a text.
pub(crate) const TEXT_WORDS: usize = 2;
/// The address of no text.
pub(crate) const NO_TEXT: u64 = u64::MAX;

/// An address has the number of the heap in its highest bits, then that of the part, and an offset there in its lower half.
const HEAP_SHIFT: u32 = 48;
const PART_SHIFT: u32 = 32;
const PART_MASK: u64 = (1 << (HEAP_SHIFT - PART_SHIFT)) - 1;
/// More threads have no numbers for their heaps.
pub(crate) const HEAPS_MAX: usize = (1 << (u64::BITS - HEAP_SHIFT)) - 1;

/// In front of each text: for how many bytes there is room, and how many it has.
const HEADER_BYTES: usize = 8;
const FIRST_PART_BYTES: usize = 1 << 16;
const PART_BYTES_MAX: usize = 1 << 22;
/// Texts are fetched from memory so many rows ahead.
const AHEAD_ROWS: usize = 16;

/// The texts of a thread.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    number: usize,
    parts: Vec<Vec<u8>>,
}

impl Heap {
    /// No texts; no other heap of the grouping has the number.
    pub(crate) fn new(number: usize) -> Self {
        assert!(number < HEAPS_MAX, "fewer threads than {HEAPS_MAX}");
        Self { number, parts: Vec::new() }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Vec::capacity).sum()
    }

    /// Adds a text with room for so many bytes, or its own.
    fn put(&mut self, text: &[u8], room: usize) -> u64 {
        let room = room.max(text.len());
        let needed = HEADER_BYTES + room;
        if self.parts.last().is_none_or(|part| part.capacity() - part.len() < needed) {
            let doubled = FIRST_PART_BYTES << self.parts.len().min(16);
            self.parts.push(Vec::with_capacity(needed.max(doubled.min(PART_BYTES_MAX))));
        }
        let last = self.parts.len() - 1;
        let part = &mut self.parts[last];
        let offset = part.len();
        part.extend_from_slice(&word(room).to_le_bytes());
        part.extend_from_slice(&word(text.len()).to_le_bytes());
        part.extend_from_slice(text);
        part.resize(offset + needed, 0);
        assert!(last as u64 <= PART_MASK, "parts have 16 bits");
        (self.number as u64) << HEAP_SHIFT | (last as u64) << PART_SHIFT | offset as u64
    }

    /// Puts a text in the place of another; the address of both.
    fn replace(&mut self, address: u64, text: &[u8]) -> u64 {
        let (part, offset) = place(address);
        let place = &mut self.parts[part][offset..];
        let room = word_at(place, 0);
        if text.len() > room {
            return self.put(text, (2 * room).min(u32::MAX as usize));
        }
        place[4..HEADER_BYTES].copy_from_slice(&word(text.len()).to_le_bytes());
        place[HEADER_BYTES..][..text.len()].copy_from_slice(text);
        address
    }

    fn get(&self, address: u64) -> &[u8] {
        let (part, offset) = place(address);
        let place = &self.parts[part][offset..];
        &place[HEADER_BYTES..][..word_at(place, 4)]
    }

    /// Takes over the text of another heap, and sets its address.
    pub(crate) fn adopt(&mut self, address: &mut u64, heaps: &Heaps) {
        if *address != NO_TEXT {
            *address = self.put(heaps.get(*address), 0);
        }
    }

    /// Takes texts in; those of rows without one have no address.
    pub(crate) fn keep(&mut self, argument: Argument<'_>, kept: &mut Vec<[u64; TEXT_WORDS]>) {
        let Numbers::Texts(texts) = argument.values else { panic!("texts") };
        let mut inline = [0; 16];
        for row in 0..texts.len() {
            kept.push(match argument.validity {
                Some(validity) if !validity[row] => [0, NO_TEXT],
                _ => {
                    let text = texts.get(row, &mut inline);
                    [first_bytes(text), self.put(text, 0)]
                }
            });
        }
    }

    /// Changes the state of each row's group by its text, where it has one.
    pub(crate) fn add(
        &mut self,
        words: &mut [u64],
        stride: usize,
        word: usize,
        groups: &[u32],
        argument: Argument<'_>,
        is_max: bool,
    ) {
        let Numbers::Texts(texts) = argument.values else { panic!("texts") };
        let mut inline = [0; 16];
        for (row, group) in groups.iter().enumerate() {
            if row + AHEAD_ROWS < groups.len() {
                texts.prefetch(row + AHEAD_ROWS);
            }
            if argument.validity.is_some_and(|validity| !validity[row]) {
                continue;
            }
            let text = texts.get(row, &mut inline);
            let first = first_bytes(text);
            let state = &mut words[*group as usize * stride + word..][..TEXT_WORDS];
            if state[1] == NO_TEXT {
                (state[0], state[1]) = (first, self.put(text, 0));
            } else if is_better(first, || text, state[0], || self.get(state[1]), is_max) {
                (state[0], state[1]) = (first, self.replace(state[1], text));
            }
        }
    }
}

/// The heaps of all threads, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Heaps(Vec<Heap>);

impl Heaps {
    /// These, and empty ones between them.
    pub(crate) fn new(heaps: impl IntoIterator<Item = Heap>) -> Arc<Self> {
        let mut all: Vec<Heap> = Vec::new();
        for heap in heaps.into_iter().filter(|heap| !heap.parts.is_empty()) {
            all.resize_with(all.len().max(heap.number + 1), Heap::default);
            let number = heap.number;
            all[number] = heap;
        }
        Arc::new(Self(all))
    }

    /// The only heap that has texts, with the number `number`.
    pub(crate) fn into_heap(self, number: usize) -> Heap {
        self.0.into_iter().nth(number).unwrap_or_else(|| Heap::new(number))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(Heap::bytes).sum()
    }

    pub(crate) fn get(&self, address: u64) -> &[u8] {
        self.0[(address >> HEAP_SHIFT) as usize].get(address)
    }

    /// Changes a state by another.
    pub(crate) fn merge(&self, state: &mut [u64], other: [u64; TEXT_WORDS], is_max: bool) {
        let [first, address] = other;
        if address == NO_TEXT {
            return;
        }
        let of_state = state[1];
        let is_better = of_state == NO_TEXT
            || is_better(first, || self.get(address), state[0], || self.get(of_state), is_max);
        if is_better {
            (state[0], state[1]) = (first, address);
        }
    }
}

/// The part of an address, and the offset there.
#[expect(clippy::cast_possible_truncation, reason = "numbers of 16 and 32 bits")]
fn place(address: u64) -> (usize, usize) {
    ((address >> PART_SHIFT & PART_MASK) as usize, (address as u32) as usize)
}

fn word(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("texts have less than 4 GiB")
}

fn word_at(place: &[u8], at: usize) -> usize {
    u32::from_le_bytes(place[at..at + 4].try_into().expect("four bytes")) as usize
}

/// The first eight bytes as a number that is in their order.
#[inline(always)]
fn first_bytes(text: &[u8]) -> u64 {
    u64::from_be_bytes(match text.first_chunk() {
        Some(first) => *first,
        None => {
            let mut first = [0; 8];
            first[..text.len()].copy_from_slice(text);
            first
        }
    })
}

/// Whether one text is better than another, by their first bytes or all of them.
#[inline(always)]
fn is_better<'a>(
    first: u64,
    text: impl FnOnce() -> &'a [u8],
    other_first: u64,
    other: impl FnOnce() -> &'a [u8],
    is_max: bool,
) -> bool {
    match first.cmp(&other_first).then_with(|| text().cmp(other())) {
        std::cmp::Ordering::Equal => false,
        order => order.is_gt() == is_max,
    }
}
