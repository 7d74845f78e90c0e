//! Group numbers of strings.
//!
//! A group has the 16-byte form of its string. Up to 12 bytes the form is the string: a comparison is two words, and
//! no pointer is followed. The form of a longer string is its length, its first 4 bytes and its place in an arena
//! that the table owns; bytes there are compared only if half of the hash is equal. German-style strings: Neumann, Freitag, "Umbra", CIDR 2020, section 3.1.
//! The arena grows by parts, so that nothing is copied and forms are Arrow's views.

use crate::group_table::slots::Probe;
use crate::group_table::views::Repeated;
use crate::group_table::{BLOCK_ROWS, NO_GROUP, Slot, Slots, Ticket};
use crate::hash::{INLINE_BYTES, Seed, Strings, hash_bytes, hash_inline};
use crate::region::prefetch_ptr;
use crate::{Bits, Level};

/// The bytes of the first part of an arena. Each is twice as large as the one before, up to the size of the largest.
const FIRST_PART_BYTES: usize = 4 << 10;
const PART_BYTES: usize = 1 << 20;

/// Forms that take no more bytes are in the near caches.
const NEAR_BYTES: usize = 256 << 10;

/// Maps strings (or rows encoded as bytes) to group numbers, in order of first occurrence.
pub struct StringGroupTable {
    seed: Seed,
    slots: Slots<Ticket>,
    /// The form of each group's string.
    forms: Vec<u128>,
    arena: Arena,
    null_group: Option<u32>,
}

/// The bytes of long strings. They never move.
#[derive(Default)]
struct Arena {
    parts: Vec<Vec<u8>>,
}

impl Arena {
    /// Where these bytes are now: the upper half of the form of their string.
    fn push(&mut self, bytes: &[u8]) -> u64 {
        if self.parts.last().is_none_or(|part| part.capacity() - part.len() < bytes.len()) {
            let doubled = FIRST_PART_BYTES << self.parts.len().min(PART_BYTES.ilog2() as usize);
            self.parts.push(Vec::with_capacity(doubled.min(PART_BYTES).max(bytes.len())));
        }
        let part = self.parts.last_mut().expect("there is one now");
        let offset = part.len();
        part.extend_from_slice(bytes);
        (self.parts.len() - 1) as u64 | (offset as u64) << 32
    }

    /// The bytes of a long string.
    #[inline(always)]
    fn get(&self, form: [u64; 2]) -> &[u8] {
        let start = (form[1] >> 32) as usize;
        &self.parts[form[1] as u32 as usize][start..start + form[0] as u32 as usize]
    }

    /// Prefetches the first bytes of what may be a long string.
    #[inline(always)]
    fn prefetch(&self, form: [u64; 2]) {
        if let Some(part) = self.parts.get(form[1] as u32 as usize) {
            prefetch_ptr(part.as_ptr().wrapping_add((form[1] >> 32) as usize));
        }
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.capacity() + size_of::<Vec<u8>>()).sum()
    }
}

/// A string to look for.
#[derive(Clone, Copy, Default)]
struct Wanted<'a> {
    /// The form; without the arena position of a long string.
    form: u128,
    hash: u64,
    /// The bytes of a long string.
    long: &'a [u8],
}

impl StringGroupTable {
    /// An empty table.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed, slots: Slots::new(0), forms: Vec::new(), arena: Arena::default(), null_group: None }
    }

    /// An empty table for strings of one of the 2^`bits` partitions of the hash space with this seed
    /// ([`GroupTable::for_partition`](super::GroupTable::for_partition) says why).
    ///
    /// # Panics
    /// When `bits` is above 16.
    #[must_use]
    pub fn for_partition(seed: Seed, bits: u32) -> Self {
        assert!(bits <= 16, "2^{bits} partitions");
        Self { slots: Slots::new(bits), ..Self::new(seed) }
    }

    /// Count of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.forms.len()
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The string of a group; `None` for the group of NULLs.
    ///
    /// # Panics
    /// When there is no such group.
    #[must_use]
    pub fn get(&self, group: u32) -> Option<&[u8]> {
        let form = &self.forms[group as usize];
        (self.null_group != Some(group)).then(|| bytes_of(form, &self.arena))
    }

    /// The strings of all groups as 16-byte views into the parts beside them: the length in the low 32 bits, then either
    /// up to 12 bytes, or 4 bytes, the number of the part and the offset there. Nothing is copied. Parts are in the order
    /// of groups; the view of the group of nulls is empty. The table has no groups then, and memory for new ones.
    #[must_use]
    pub fn take_views(&mut self) -> (Vec<u128>, Vec<Vec<u8>>) {
        self.slots.clear();
        self.null_group = None;
        (std::mem::take(&mut self.forms), std::mem::take(&mut self.arena.parts))
    }

    /// The group of rows without a value, if there is one.
    #[must_use]
    pub fn null_group(&self) -> Option<u32> {
        self.null_group
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.forms.capacity() * size_of::<u128>() + self.arena.bytes()
    }

    /// Writes the group of each row; new strings get new groups. All NULLs are one group.
    ///
    /// # Panics
    /// When lengths differ, a string is not within its buffer or has 4 GiB or more, or there are more than
    /// 2^32 - 2 groups.
    pub fn find_or_insert(
        &mut self,
        level: Level,
        strings: Strings<'_>,
        validity: Option<Bits<'_>>,
        groups: &mut [u32],
    ) {
        check_lengths(strings, validity, groups);
        if let Strings::Views(views, buffers) = strings
            && let Some(repeated) = Repeated::new(level, views, validity)
        {
            let mut found = vec![0; repeated.rows.len()];
            let views: Vec<u128> = repeated.rows.iter().map(|row| views[*row as usize]).collect();
            let valid = repeated.validity();
            let valid = valid.as_ref().map(crate::BitBuffer::as_bits);
            insert(level, self, Strings::Views(&views, buffers), valid, &mut found);
            groups
                .iter_mut()
                .zip(&repeated.places)
                .for_each(|(group, place)| *group = found[*place as usize]);
            return;
        }
        insert(level, self, strings, validity, groups);
    }

    /// Sets the places of `rows` in `groups` to the groups of these rows; new strings get new groups. No row is NULL.
    /// `hashes` has the [`hash_strings`](crate::hash::hash_strings) of all strings with the seed of the table.
    ///
    /// # Panics
    /// When there is no such row, lengths differ, a string is not within its buffer or has 4 GiB or more, or there are
    /// more than 2^32 - 2 groups.
    pub fn find_or_insert_rows(
        &mut self,
        level: Level,
        strings: Strings<'_>,
        rows: &[u32],
        hashes: &[u64],
        groups: &mut [u32],
    ) {
        check_lengths(strings, None, groups);
        assert_eq!(hashes.len(), groups.len(), "a hash a string");
        insert_rows(level, self, strings, rows, hashes, groups);
    }

    /// Writes the group of each row, [`NO_GROUP`] for strings that are not in the table. NULLs are found if
    /// the table has a group of NULLs.
    ///
    /// # Panics
    /// When lengths differ, or a string is not within its buffer.
    pub fn find(&self, level: Level, strings: Strings<'_>, validity: Option<Bits<'_>>, groups: &mut [u32]) {
        check_lengths(strings, validity, groups);
        find(level, self, strings, validity, groups);
    }

    /// Prefetches the bytes that long strings may be compared with.
    #[inline(always)]
    fn prefetch_long(&self, probe: &Probe<&[Ticket]>, wanted: &[Wanted<'_>]) {
        for wanted in wanted.iter().filter(|wanted| !wanted.long.is_empty()) {
            let ticket = probe.home_slot(wanted.hash);
            if ticket.may_have(probe.tag(wanted.hash))
                && let Some(form) = self.forms.get(ticket.group() as usize)
            {
                self.arena.prefetch(halves(*form));
            }
        }
    }

    /// The group of a string, a new one if there is none; `taken` counts the slots that are in use.
    #[inline(always)]
    fn place(&mut self, wanted: &Wanted<'_>, taken: &mut usize) -> u32 {
        let mut probe = self.slots.probe_mut();
        let tag = probe.tag(wanted.hash);
        let difference = |ticket: &Ticket| wanted.difference(tag, *ticket, &self.forms, &self.arena);
        let ticket = probe.slot_mut(wanted.hash, difference);
        if ticket.is_free() {
            let mut form = wanted.form;
            if !wanted.long.is_empty() {
                form |= u128::from(self.arena.push(wanted.long)) << 64;
            }
            *ticket = Ticket::new(tag, self.forms.len() as u32);
            self.forms.push(form);
            *taken += 1;
        }
        ticket.group()
    }

    /// Makes room for a block of strings.
    #[inline(always)]
    fn make_room(&mut self) {
        while self.slots.is_full() {
            self.slots.grow_tickets();
        }
        assert!(self.forms.len() < (NO_GROUP as usize - 1) - BLOCK_ROWS, "group numbers have 32 bits");
    }

    /// Prefetches what a block of strings will be compared with.
    #[inline(always)]
    fn prefetch(&self, wanted: &[Wanted<'_>], hashes: &[u64]) {
        let probe = self.slots.probe();
        probe.prefetch(hashes);
        if size_of_val(&self.forms[..]) > NEAR_BYTES {
            for hash in hashes {
                prefetch_ptr(self.forms.as_ptr().wrapping_add(probe.home_slot(*hash).group() as usize));
            }
            self.prefetch_long(&probe, wanted);
        }
    }

    fn new_null_group(&mut self) -> u32 {
        *self.null_group.get_or_insert_with(|| {
            self.forms.push(0);
            (self.forms.len() - 1) as u32
        })
    }
}

impl<'a> Wanted<'a> {
    /// The short form of a string or its bytes, and its hash.
    #[inline(always)]
    fn with_hash(string: Result<u128, &'a [u8]>, hash: u64) -> Self {
        match string {
            Ok(form) => Self { form, hash, long: &[] },
            Err(long) => {
                let len = u32::try_from(long.len()).expect("strings are shorter than 4 GiB");
                let prefix = u32::from_le_bytes([long[0], long[1], long[2], long[3]]);
                Self { form: u128::from(len) | u128::from(prefix) << 32, hash, long }
            }
        }
    }

    /// Zero for the ticket of the group of the string.
    #[inline(always)]
    fn difference(&self, tag: u32, ticket: Ticket, forms: &[u128], arena: &Arena) -> u64 {
        if !ticket.may_have(tag) {
            return 1;
        }
        let Some(form) = forms.get(ticket.group() as usize) else { return 0 };
        if self.long.is_empty() {
            return u64::from(*form != self.form);
        }
        let [low, high] = halves(*form);
        u64::from(low != self.form as u64 || arena.get([low, high]) != self.long)
    }
}

fn check_lengths(strings: Strings<'_>, validity: Option<Bits<'_>>, groups: &[u32]) {
    assert_eq!(strings.len(), groups.len(), "a group a string");
    assert!(validity.is_none_or(|validity| validity.len() == groups.len()), "a bit a string");
}

#[inline(always)]
fn halves(form: u128) -> [u64; 2] {
    [form as u64, (form >> 64) as u64]
}

fn bytes_of<'a>(form: &'a u128, arena: &'a Arena) -> &'a [u8] {
    let len = *form as u32 as usize;
    if len > INLINE_BYTES {
        return arena.get(halves(*form));
    }
    const { assert!(cfg!(target_endian = "little"), "forms lie in memory as Arrow's views do") };
    // SAFETY: the 16 bytes of an integer, behind a shared borrow of it.
    let bytes: &[u8; 16] = unsafe { &*std::ptr::from_ref(form).cast() };
    &bytes[4..4 + len]
}

/// The forms and hashes of a block; those of NULLs are left as they were.
#[inline(always)]
fn prepare<'a>(
    seed: &Seed,
    strings: Strings<'a>,
    validity: Option<Bits<'_>>,
    first: usize,
    wanted: &mut [Wanted<'a>],
    hashes: &mut [u64],
) {
    for (index, (wanted, hash)) in wanted.iter_mut().zip(hashes).enumerate() {
        if validity.is_some_and(|validity| !validity.get(first + index)) {
            continue;
        }
        let string = strings.word_or_bytes(first + index);
        let string_hash = match string {
            Ok(form) => hash_inline(seed, form, 0),
            Err(long) => hash_bytes(seed, long, 0),
        };
        *wanted = Wanted::with_hash(string, string_hash);
        *hash = wanted.hash;
    }
}

kernel! {
    fn insert(
        table: &mut StringGroupTable, strings: Strings<'_>, validity: Option<Bits<'_>>, groups: &mut [u32],
    ) = insert_plain;
}

#[inline(always)]
fn insert_plain(
    table: &mut StringGroupTable,
    strings: Strings<'_>,
    validity: Option<Bits<'_>>,
    groups: &mut [u32],
) {
    let mut wanted = [Wanted::default(); BLOCK_ROWS];
    let mut hashes = [0; BLOCK_ROWS];
    for (block, groups) in groups.chunks_mut(BLOCK_ROWS).enumerate() {
        table.make_room();
        let first = block * BLOCK_ROWS;
        let (wanted, hashes) = (&mut wanted[..groups.len()], &mut hashes[..groups.len()]);
        prepare(&table.seed, strings, validity, first, wanted, hashes);
        table.prefetch(wanted, hashes);
        let mut taken = table.slots.len();
        for (index, (wanted, group)) in wanted.iter().zip(groups).enumerate() {
            if validity.is_some_and(|validity| !validity.get(first + index)) {
                *group = table.new_null_group();
                continue;
            }
            *group = table.place(wanted, &mut taken);
        }
        table.slots.set_len(taken);
    }
}

kernel! {
    fn insert_rows(
        table: &mut StringGroupTable, strings: Strings<'_>, rows: &[u32], hashes: &[u64], groups: &mut [u32],
    ) = insert_rows_plain;
}

#[inline(always)]
fn insert_rows_plain(
    table: &mut StringGroupTable,
    strings: Strings<'_>,
    rows: &[u32],
    hashes: &[u64],
    groups: &mut [u32],
) {
    let mut wanted = [Wanted::default(); BLOCK_ROWS];
    let mut block_hashes = [0; BLOCK_ROWS];
    for rows in rows.chunks(BLOCK_ROWS) {
        table.make_room();
        for ((wanted, block_hash), row) in wanted.iter_mut().zip(&mut block_hashes).zip(rows) {
            let hash = hashes[*row as usize];
            *wanted = Wanted::with_hash(strings.word_or_bytes(*row as usize), hash);
            *block_hash = hash;
        }
        let wanted = &wanted[..rows.len()];
        table.prefetch(wanted, &block_hashes[..rows.len()]);
        let mut taken = table.slots.len();
        for (wanted, row) in wanted.iter().zip(rows) {
            groups[*row as usize] = table.place(wanted, &mut taken);
        }
        table.slots.set_len(taken);
    }
}

kernel! {
    fn find(
        table: &StringGroupTable, strings: Strings<'_>, validity: Option<Bits<'_>>, groups: &mut [u32],
    ) = find_plain;
}

#[inline(always)]
fn find_plain(
    table: &StringGroupTable,
    strings: Strings<'_>,
    validity: Option<Bits<'_>>,
    groups: &mut [u32],
) {
    let mut wanted = [Wanted::default(); BLOCK_ROWS];
    let mut hashes = [0; BLOCK_ROWS];
    for (block, groups) in groups.chunks_mut(BLOCK_ROWS).enumerate() {
        let first = block * BLOCK_ROWS;
        let (wanted, hashes) = (&mut wanted[..groups.len()], &mut hashes[..groups.len()]);
        prepare(&table.seed, strings, validity, first, wanted, hashes);
        let probe = table.slots.probe();
        probe.prefetch(hashes);
        if size_of_val(&table.forms[..]) > NEAR_BYTES {
            for hash in &*hashes {
                prefetch_ptr(table.forms.as_ptr().wrapping_add(probe.home_slot(*hash).group() as usize));
            }
        }
        for (index, (wanted, group)) in wanted.iter().zip(groups).enumerate() {
            *group = if validity.is_some_and(|validity| !validity.get(first + index)) {
                table.null_group.unwrap_or(NO_GROUP)
            } else {
                let tag = probe.tag(wanted.hash);
                let difference =
                    |ticket: &Ticket| wanted.difference(tag, *ticket, &table.forms, &table.arena);
                probe.slot(wanted.hash, difference).group()
            };
        }
    }
}

impl std::fmt::Debug for StringGroupTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StringGroupTable").field("groups", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
