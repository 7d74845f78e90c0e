//! Forged files: checksums match, the content is wrong. They must cause no panic, no wrong shape, and no memory
//! beyond the limits.

#![allow(clippy::cast_possible_truncation, reason = "all numbers are small")]

use std::sync::Arc;

use keirin_codecs::blocks::Codec;
use keirin_kernels::{Level, Selection};

use crate::deletions::DeletionVector;
use crate::fuzzing::read_all;
use crate::header::{self, FileKind, HEADER_BYTES, Identity};
use crate::io::{Disk, Io};
use crate::log::Record;
use crate::part::{ColumnCodec, PartReader, Verify, WriteOptions};
use crate::simulated_disk::{Random, Unreliable};
use crate::state::{Part, State};
use crate::store::{Store, part_path};
use crate::tests::simulation::{Run, columns, definition, for_seeds};
use crate::{Access, Database, Options};

/// Changes a few bytes to others, often to extremes.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        let extremes = [0, 1, 0x7f, 0x80, 0xff];
        let byte = if random.once_in(2) { extremes[random.below(5)] } else { random.next() as u8 };
        let count = [1, 1, 2, 4, 8][random.below(5)];
        bytes[at..].iter_mut().take(count).for_each(|there| *there = byte);
    }
}

#[test]
fn records_that_lie_are_errors() {
    let run = Run::without_faults(3, 30);
    let paths = run.io().paths().into_iter().map(|(path, _)| path);
    let records: Vec<Vec<u8>> = paths
        .filter(|path| path.ends_with(".commit") || path.ends_with(".checkpoint"))
        .map(|path| run.io().bytes(&path)[HEADER_BYTES..].to_vec())
        .collect();
    for_seeds(0..20_000, |seed| {
        let mut random = Random::new(seed);
        let mut bytes = records[random.below(records.len())].clone();
        mutate(&mut bytes, &mut random);
        if let Ok(Ok(record)) = Record::read(&bytes) {
            let mut state = State::default();
            // An error is fine; the actions that were applied must survive writing and reading.
            _ = record.actions.iter().try_for_each(|action| state.apply(action));
            let again = Record { actions: state.actions(), ..record };
            assert_eq!(Record::read(&again.write()), Ok(Ok(again)));
        }
    });
}

#[test]
fn deletions_that_lie_are_errors() {
    let level = Level::best();
    let mut vector = DeletionVector::default();
    for stripe in [0, 2, 5] {
        let rows =
            (0..1000).map(|row| row % (stripe as usize + 7) == 0).collect::<keirin_kernels::BitBuffer>();
        vector.delete(level, stripe, rows.as_bits());
    }
    let bytes = vector.write(level, 1, 6000).unwrap();
    for_seeds(0..5_000, |seed| {
        let mut random = Random::new(seed);
        let mut bytes = bytes.clone();
        mutate(&mut bytes, &mut random);
        if let Ok(vector) = DeletionVector::read(level, &bytes, 1, 6000) {
            assert!(vector.stripes().all(|(_, rows)| rows == 1000));
        }
    });
}

/// A database with one part of a few hundred rows.
pub(crate) fn one_part() -> (Arc<Unreliable>, Identity, Part) {
    let io = Arc::new(Unreliable::new(1));
    let database = Database::open(Arc::<Unreliable>::clone(&io), Access::Write, Options::default()).unwrap();
    let mut transaction = database.begin().unwrap();
    let table = transaction.create_table(definition("t")).unwrap();
    let mut writer = transaction.write_part(table, WriteOptions::default()).unwrap();
    let rows: Vec<_> = (0..500).map(|row| (row, (row % 3 > 0).then_some((row % 5) as u8))).collect();
    writer.push(&columns(&rows)).unwrap();
    let part = writer.finish().unwrap();
    transaction.add_part(table, part.clone()).unwrap();
    transaction.commit().unwrap();
    let identity = Identity { database: database.snapshot().database, table, number: part.number };
    (io, identity, part)
}

/// Blocks and footer are changed; the checksums of the headers match.
#[test]
fn parts_that_lie_are_errors() {
    let (io, identity, part) = one_part();
    let path = part_path(identity.table, part.number);
    let file = io.bytes(&path);
    let footer_at = file.len() - HEADER_BYTES - part.footer_bytes as usize;
    for_seeds(0..3_000, |seed| {
        let mut random = Random::new(seed);
        let mut changed = file[..file.len() - HEADER_BYTES].to_vec();
        let (blocks, footer) = changed.split_at_mut(footer_at);
        mutate(if random.once_in(4) { blocks } else { footer }, &mut random);
        let (last, hash) = header::write(FileKind::Footer, identity, footer);
        changed.extend(last);
        let io = Arc::new(io.fork());
        io.tamper(&path, |bytes| *bytes = changed);
        let part = Part { hash, ..part.clone() };
        // Without verification, bytes are decoded that a checksum would have refused.
        let verify = [Verify::Always, Verify::Once, Verify::Never][random.below(3)];
        let options = Options { verify, ..Options::default() };
        if let Ok(reader) = PartReader::open(Arc::new(Store::new(io, options)), identity, &part) {
            read_all(&reader);
        }
    });
}

/// A few bytes may stand for much memory: how much a block takes follows from its rows, whatever its frame says.
#[test]
fn memory_that_the_rows_of_a_block_cannot_need_is_not_asked_for() {
    /// In the header of a frame: how it is compressed, and the bytes after decompression.
    const COMPRESSION: usize = 2;
    const ENCODED_BYTES: usize = 7;
    const ZSTD: u8 = 3;
    let (io, identity, part) = one_part();
    // The numbers are the first block, behind the header.
    io.tamper(&part_path(identity.table, part.number), |bytes| {
        let frame = &mut bytes[HEADER_BYTES..];
        frame[COMPRESSION] = ZSTD;
        frame[ENCODED_BYTES..ENCODED_BYTES + 4].copy_from_slice(&(1_u32 << 29).to_le_bytes());
    });
    for verify in [Verify::Always, Verify::Never] {
        let store = Store::new(Arc::clone(&io) as Arc<dyn Io>, Options { verify, ..Options::default() });
        let reader = PartReader::open(Arc::new(store), identity, &part).unwrap();
        let refused = reader.read(0, 0, Selection::All).unwrap_err().to_string();
        // 500 numbers of up to 16 bytes, twice, and 64 KiB.
        assert!(refused.contains("536870912 rows or bytes of values, 81536 are allowed"), "{refused}");
    }
}

/// Details are changed; nobody looks at their checksums.
#[test]
fn details_that_lie_are_errors() {
    let (io, identity, part) = one_part();
    let path = part_path(identity.table, part.number);
    let file = io.bytes(&path);
    let open = |io: Arc<Unreliable>, verify| {
        let options = Options { verify, ..Options::default() };
        PartReader::open(Arc::new(Store::new(io, options)), identity, &part).unwrap()
    };
    let honest = open(Arc::new(io.fork()), Verify::Always);
    assert!(honest.has_filters(0).unwrap() && honest.zones(0).unwrap().is_some());
    assert!(honest.sketch(1).unwrap().is_some() && honest.sample(1).unwrap().is_some());
    let range = honest.details_range();
    for_seeds(0..3_000, |seed| {
        let mut random = Random::new(seed);
        let io = Arc::new(io.fork());
        io.tamper(&path, |bytes| mutate(&mut bytes[range.clone()], &mut random));
        read_all(&open(Arc::clone(&io), Verify::Never));
        // With checksums, it is as if there were none, or an error.
        let reader = open(Arc::clone(&io), Verify::Always);
        let is_changed = io.bytes(&path) != file;
        let found = (0..3).map(|column| reader.sample(column)).find_map(Result::err);
        assert_eq!(found.is_some(), is_changed, "{found:?}");
    });
}

/// Sums read a file where it is mapped, and compaction reads all columns of a stripe.
#[test]
fn parts_that_lie_are_errors_where_they_are_mapped_and_merged() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { verify: Verify::Never, ..Options::default() };
    let disk = Arc::new(Disk::create(directory.path()).unwrap());
    let database = Database::open(disk, Access::Write, options).unwrap();
    let mut transaction = database.begin().unwrap();
    let table = transaction.create_table(definition("t")).unwrap();
    transaction.commit().unwrap();
    let rows: Vec<_> = (0..500).map(|row| (row, (row % 3 > 0).then_some((row % 5) as u8))).collect();
    for_seeds(0..200, |seed| {
        let mut random = Random::new(seed);
        let mut transaction = database.begin().unwrap();
        let codecs = match random.once_in(2) {
            true => vec![ColumnCodec::Raw(Codec::None); 3],
            false => Vec::new(),
        };
        let options = WriteOptions { codecs, ..WriteOptions::default() };
        let mut writer = transaction.write_part(table, options).unwrap();
        for rows in rows.chunks(125) {
            writer.push(&columns(rows)).unwrap();
            writer.end_stripe().unwrap();
        }
        let part = writer.finish().unwrap();
        let (number, path) = (part.number, directory.path().join(part_path(table, part.number)));
        let mut file = std::fs::read(&path).unwrap();
        let footer_at = file.len() - HEADER_BYTES - part.footer_bytes as usize;
        file.truncate(file.len() - HEADER_BYTES);
        let (blocks, footer) = file.split_at_mut(footer_at);
        mutate(if random.once_in(2) { blocks } else { footer }, &mut random);
        let identity = Identity { database: database.snapshot().database, table, number };
        let (last, hash) = header::write(FileKind::Footer, identity, footer);
        file.extend(last);
        std::fs::write(&path, file).unwrap();
        transaction.add_part(table, Part { hash, ..part }).unwrap();
        let snapshot = transaction.base().clone();
        let found = Arc::clone(transaction.state().table(table).unwrap());
        if let Ok(reader) = snapshot.open_part(&found, found.part(number).unwrap()) {
            read_all(&reader);
        }
        _ = transaction.compact(table, &[number], WriteOptions::default());
    });
}
