//! Commits and checkpoints as bytes: `docs/format/log.md`.

use std::sync::Arc;

use crate::header::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
use crate::schema::{Definition, read_bool, read_properties, write_properties};
use crate::state::{Action, Deletions, Part};
use crate::view::View;
use crate::wire::{Reader, Wire, Write};

/// 65,536 stripes of 65,536 rows.
const PART_ROWS_MAX: u64 = 1 << 32;
const PART_BYTES_MAX: u64 = 1 << 48;
/// A header and the largest payload.
const DELETIONS_BYTES_MAX: u64 = (HEADER_BYTES + PAYLOAD_BYTES_MAX) as u64;
/// The greatest number of a kind of action.
pub(crate) const KINDS_MAX: u8 = 9;

/// The content of a commit or checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of a commit: the hash of the one before. Of a checkpoint: the hash of the commit of its version.
    pub(crate) previous: u64,
    pub(crate) time: i64,
    pub(crate) next_number: u64,
    pub(crate) actions: Vec<Action>,
}

impl Record {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u64(self.previous);
        bytes.put_i64(self.time);
        bytes.put_u64(self.next_number);
        bytes.put_count(self.actions.len());
        let mut body = Vec::new();
        for action in &self.actions {
            body.clear();
            bytes.push(write_action(action, &mut body));
            bytes.put_count(body.len());
            bytes.append(&mut body);
        }
        bytes
    }

    /// Reads a record; the inner error is the kind of an action that this version does not know.
    pub(crate) fn read(bytes: &[u8]) -> Wire<Result<Self, u8>> {
        /// The kind (one byte) and the count of bytes (four).
        const ACTION_BYTES_MIN: usize = 5;
        let mut reader = Reader::new(bytes);
        let (previous, time, next_number) = (reader.u64()?, reader.i64()?, reader.u64()?);
        let count = reader.count(ACTION_BYTES_MIN, usize::MAX)?;
        let mut actions = Vec::new();
        for _ in 0..count {
            let kind = reader.u8()?;
            if kind > KINDS_MAX {
                return Ok(Err(kind));
            }
            let byte_count = reader.count(1, usize::MAX)?;
            let mut body = Reader::new(reader.take(byte_count)?);
            let action = read_action(kind, &mut body).and_then(|action| body.end().map(|()| action));
            match action {
                Ok(action) => actions.push(action),
                Err(malformed) => return reader.malformed(format!("action of kind {kind}: {malformed}")),
            }
        }
        reader.end()?;
        Ok(Ok(Self { previous, time, next_number, actions }))
    }
}

/// Writes the fields of an action and returns its kind.
fn write_action(action: &Action, bytes: &mut Vec<u8>) -> u8 {
    match action {
        Action::CreateTable { table, definition } => {
            bytes.put_u64(*table);
            definition.write(bytes);
            1
        }
        Action::DropTable { table } => {
            bytes.put_u64(*table);
            2
        }
        Action::AlterTable { table, definition } => {
            bytes.put_u64(*table);
            definition.write(bytes);
            3
        }
        Action::AddPart { table, part } => {
            [*table, part.number, part.order, part.row_count, part.file_bytes]
                .into_iter()
                .for_each(|value| bytes.put_u64(value));
            bytes.put_u32(part.footer_bytes);
            bytes.put_u64(part.hash);
            bytes.put_text(&part.partition);
            4
        }
        Action::RemovePart { table, part } => {
            bytes.put_u64(*table);
            bytes.put_u64(*part);
            5
        }
        Action::SetDeletions { table, part, deletions } => {
            let none = Deletions { number: 0, row_count: 0, file_bytes: 0, hash: 0 };
            let Deletions { number, row_count, file_bytes, hash } = deletions.unwrap_or(none);
            [*table, *part, number, row_count, file_bytes, hash]
                .into_iter()
                .for_each(|value| bytes.put_u64(value));
            6
        }
        Action::SetProperty { key, value } => {
            bytes.put_text(key);
            bytes.push(u8::from(value.is_some()));
            value.iter().for_each(|value| bytes.put_text(value));
            7
        }
        Action::SetSchema { schema, properties } => {
            bytes.put_text(schema);
            bytes.push(u8::from(properties.is_some()));
            properties.iter().for_each(|properties| write_properties(bytes, properties));
            8
        }
        Action::SetView { view, definition } => {
            bytes.put_u64(*view);
            bytes.push(u8::from(definition.is_some()));
            definition.iter().for_each(|definition| definition.write(bytes));
            9
        }
    }
}

fn read_action(kind: u8, reader: &mut Reader<'_>) -> Wire<Action> {
    Ok(match kind {
        1 => Action::CreateTable { table: reader.u64()?, definition: Arc::new(Definition::read(reader)?) },
        2 => Action::DropTable { table: reader.u64()? },
        3 => Action::AlterTable { table: reader.u64()?, definition: Arc::new(Definition::read(reader)?) },
        4 => {
            let table = reader.u64()?;
            let part = Part {
                number: reader.u64()?,
                order: reader.u64()?,
                row_count: reader.u64()?,
                file_bytes: reader.u64()?,
                footer_bytes: reader.u32()?,
                hash: reader.u64()?,
                partition: reader.text()?.into(),
                deletions: None,
            };
            // Limits that keep sums over parts from overflowing.
            if part.row_count > PART_ROWS_MAX || part.file_bytes > PART_BYTES_MAX {
                let Part { row_count, file_bytes, .. } = part;
                return reader.malformed(format!("a part of {row_count} rows in {file_bytes} bytes"));
            }
            Action::AddPart { table, part }
        }
        5 => Action::RemovePart { table: reader.u64()?, part: reader.u64()? },
        6 => {
            let (table, part) = (reader.u64()?, reader.u64()?);
            let (number, row_count) = (reader.u64()?, reader.u64()?);
            let deletions = Deletions { number, row_count, file_bytes: reader.u64()?, hash: reader.u64()? };
            if number != 0 && deletions.file_bytes > DELETIONS_BYTES_MAX {
                return reader.malformed(format!("deleted rows in {} bytes", deletions.file_bytes));
            }
            Action::SetDeletions { table, part, deletions: (number != 0).then_some(deletions) }
        }
        7 => {
            let key = reader.text()?;
            let value = if read_bool(reader)? { Some(reader.text()?) } else { None };
            Action::SetProperty { key, value }
        }
        8 => {
            let schema = reader.text()?;
            let properties = if read_bool(reader)? { Some(read_properties(reader)?) } else { None };
            Action::SetSchema { schema, properties }
        }
        9 => {
            let view = reader.u64()?;
            let definition = if read_bool(reader)? { Some(Arc::new(View::read(reader)?)) } else { None };
            Action::SetView { view, definition }
        }
        _ => return reader.malformed("there is no such kind"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::every_type;

    #[test]
    fn records_come_back_and_no_prefix_is_one() {
        let definition = Arc::new(every_type());
        let part = Part {
            number: 2,
            order: 1,
            row_count: 3,
            file_bytes: 4,
            footer_bytes: 5,
            hash: 6,
            partition: "2024".into(),
            deletions: None,
        };
        let deletions = Some(Deletions { number: 7, row_count: 1, file_bytes: 8, hash: 9 });
        let view = View { schema: "s".into(), name: "v".into(), text: "SELECT 1".into(), ..View::default() };
        let actions = vec![
            Action::CreateTable { table: 1, definition: Arc::clone(&definition) },
            Action::AlterTable { table: 1, definition },
            Action::AddPart { table: 1, part },
            Action::SetDeletions { table: 1, part: 2, deletions },
            Action::SetDeletions { table: 1, part: 2, deletions: None },
            Action::RemovePart { table: 1, part: 2 },
            Action::DropTable { table: 1 },
            Action::SetProperty { key: "key".into(), value: Some("value".into()) },
            Action::SetProperty { key: "key".into(), value: None },
            Action::SetSchema { schema: "s".into(), properties: Some([("a".into(), "b".into())].into()) },
            Action::SetSchema { schema: "s".into(), properties: None },
            Action::SetView { view: 3, definition: Some(Arc::new(view)) },
            Action::SetView { view: 3, definition: None },
        ];
        let record = Record { previous: 1, time: -2, next_number: 3, actions };
        let bytes = record.write();
        assert_eq!(Record::read(&bytes), Ok(Ok(record)));
        for length in 0..bytes.len() {
            assert!(Record::read(&bytes[..length]).is_err(), "{length} bytes");
        }
        const FIRST_KIND: usize = 28;
        let mut newer = bytes;
        newer[FIRST_KIND] = KINDS_MAX + 1;
        assert_eq!(Record::read(&newer), Ok(Err(KINDS_MAX + 1)), "that is no damage");
        newer[FIRST_KIND] = 0;
        assert!(Record::read(&newer).is_err());
    }
}
