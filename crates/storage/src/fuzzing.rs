//! For tests and fuzz targets: reads forged bytes, behind headers whose checksums match, in every possible way.

use std::sync::Arc;

use keirin_codecs::frame::Kind;
use keirin_codecs::strings::Rows;
use keirin_kernels::compare::Comparison;
use keirin_kernels::text::Text as _;
use keirin_kernels::{BitBuffer, Level, Selection};

use crate::Options;
use crate::deletions::DeletionVector;
use crate::header::{self, FileKind, HEADER_BYTES, Identity};
use crate::io::Io;
use crate::log::Record;
use crate::part::{Constant, LengthUnit, PartReader, Predicate, Text, Total, Verify, ZONE_ROWS};
use crate::simulated_disk::Unreliable;
use crate::state::{Part, State};
use crate::store::{Store, part_path};

/// Reads the payload of a commit or checkpoint and applies its actions as far as possible.
pub fn record(payload: &[u8]) {
    if let Ok(Ok(record)) = Record::read(payload) {
        let mut state = State::default();
        _ = record.actions.iter().try_for_each(|action| state.apply(action));
        let again = Record { actions: state.actions(), ..record };
        assert_eq!(Record::read(&again.write()), Ok(Ok(again)), "what was read can be written");
    }
}

/// Reads the payload of a deletion vector of a part with `row_count` rows.
pub fn deletions(payload: &[u8], row_count: u64) {
    if let Ok(vector) = DeletionVector::read(Level::best(), payload, 1, row_count) {
        assert!(vector.stripes().map(|(_, rows)| rows as u64).sum::<u64>() <= row_count);
    }
}

/// Reads a part made of these blocks and this footer.
pub fn part(blocks: &[u8], footer: &[u8], verify: Verify) {
    let identity = Identity { database: [0; 16], table: 1, number: 2 };
    let (first, _) = header::write(FileKind::Part, identity, &[]);
    let (last, hash) = header::write(FileKind::Footer, identity, footer);
    let file = [&first, blocks, footer, &last].concat();
    let io = Unreliable::new(1);
    for directory in ["tables", "tables/1"] {
        io.create_directory(directory).expect("it has no faults");
    }
    io.put(&part_path(identity.table, identity.number), &file);
    let row_count = footer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let part = Part {
        number: identity.number,
        order: identity.number,
        partition: Arc::default(),
        row_count,
        file_bytes: file.len() as u64,
        footer_bytes: u32::try_from(footer.len()).expect("few bytes"),
        hash,
        deletions: None,
    };
    let store = Store::new(Arc::new(io), Options { verify, ..Options::default() });
    debug_assert!(file.len() >= 2 * HEADER_BYTES);
    if let Ok(reader) = PartReader::open(Arc::new(store), identity, &part) {
        read_all(&reader);
    }
}

/// Reads all of a part in every way, and checks that what can be read has the right count of rows.
pub(crate) fn read_all(reader: &PartReader) {
    let even = |rows: u64| (0..rows).map(|row| row % 2 == 0).collect::<BitBuffer>();
    for column in 0..reader.fields().len() {
        let data_type = reader.fields()[column].data_type.clone();
        for stripe in 0..reader.stripe_count() {
            let rows = reader.stripe(stripe);
            let row_count = rows.end - rows.start;
            let some = even(row_count);
            for (selection, expected) in
                [(Selection::All, row_count), (Selection::Bits(some.as_bits()), row_count.div_ceil(2))]
            {
                if let Ok(values) = reader.read(column, stripe, selection) {
                    assert_eq!(values.row_count() as u64, expected);
                }
                if data_type.values() == Some(Kind::Text) {
                    match reader.read_text(column, stripe, selection) {
                        Ok(Text::Rows(values)) => assert_eq!(values.row_count() as u64, expected),
                        Ok(Text::Entries { codes, offsets, .. }) => {
                            assert_eq!(codes.len() as u64, expected);
                            assert!(codes.iter().all(|code| (*code as usize) + 1 < offsets.len()));
                        }
                        Err(_) => {}
                    }
                    for unit in [LengthUnit::Bytes, LengthUnit::Characters] {
                        if let Ok(lengths) = reader.read_lengths(column, stripe, selection, unit) {
                            assert_eq!(lengths.row_count() as u64, expected);
                        }
                    }
                }
            }
            let long = |rows: Rows<'_>| {
                (0..rows.row_count()).map(|row| rows.row(row).len() > 2).collect::<BitBuffer>()
            };
            let predicates = [
                Predicate::IsNull,
                Predicate::Compare(Comparison::Less, Constant::Integer(250)),
                Predicate::Compare(Comparison::Equal, Constant::Text(b"xx")),
                Predicate::Text(&long),
            ];
            for predicate in predicates {
                if let Ok(Some(found)) = reader.filter(column, stripe, &predicate) {
                    assert_eq!(found.len() as u64, row_count);
                }
            }
            _ = reader.explain(column, stripe);
            _ = reader.check(column, stripe);
            _ = reader.may_have(column, stripe, &[0, 1 << 40, u64::MAX]);
            if let Ok(Some(zones)) = reader.zones(column) {
                let zones = zones.of_stripe(stripe).map(|zone| zones.bounds(zone));
                assert_eq!(zones.count() as u64, row_count.div_ceil(ZONE_ROWS as u64));
            }
        }
        if let Ok(Some(sketch)) = reader.sketch(column) {
            let mut merged = sketch.clone();
            merged.merge(sketch);
            assert_eq!(merged.estimate(), sketch.estimate());
        }
        if let Ok(Some(sample)) = reader.sample(column) {
            let rows = reader.sample_rows().expect("they were read before");
            assert_eq!(sample.row_count(), rows.len());
            assert!(rows.iter().all(|row| *row < reader.row_count()));
        }
        _ = reader.sum(column, 0..reader.stripe_count(), &mut Total::default());
    }
}
