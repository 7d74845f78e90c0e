//! Page headers: `PageHeader` of parquet-format's `parquet.thrift`, in Thrift's compact protocol
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).
//!
//! The parquet crate reads them too, but does not expose the sizes that a decoder needs. The bytes come from
//! a file, so any of them may be damaged.

use parquet::basic::Encoding;

/// The most levels of nested structs; the format has two.
const DEPTH_MAX: usize = 8;

/// The most bytes of a header, statistics included.
const HEADER_BYTES_MAX: usize = 16 << 20;

/// A parsed value, or why the header cannot be read.
pub(super) type Parsed<T> = Result<T, &'static str>;

/// The header in front of a page.
#[derive(Debug, PartialEq)]
pub(super) struct PageHeader {
    /// The size of the header itself.
    pub(super) header_bytes: usize,
    /// The size of the stored page behind the header.
    pub(super) stored_bytes: usize,
    /// The size of the page's levels and values when decompressed.
    pub(super) decoded_bytes: usize,
    /// The CRC-32 of the page as stored.
    pub(super) checksum: Option<u32>,
    pub(super) kind: PageKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PageKind {
    Dictionary {
        values: u32,
        encoding: Encoding,
        is_sorted: bool,
    },
    V1 {
        values: u32,
        encoding: Encoding,
        definition_levels: Encoding,
        repetition_levels: Encoding,
    },
    V2 {
        values: u32,
        nulls: u32,
        rows: u32,
        encoding: Encoding,
        /// Sizes of the levels, which come first and are never compressed.
        definition_bytes: u32,
        repetition_bytes: u32,
        is_compressed: bool,
    },
    /// A page of an index, which is skipped.
    Index,
}

impl PageHeader {
    /// Parses the header at the start of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut input = Input { bytes: &bytes[..bytes.len().min(HEADER_BYTES_MAX)], at: 0 };
        let header = input.fields(0)?;
        let size = |id| {
            let size = header.integer(id)?;
            usize::try_from(size).map_err(|_| "its header declares a negative size")
        };
        let kind = match header.integer(1)? {
            0 => {
                let page = header.child(5)?;
                PageKind::V1 {
                    values: page.count(1)?,
                    encoding: page.encoding(2)?,
                    definition_levels: page.encoding(3)?,
                    repetition_levels: page.encoding(4)?,
                }
            }
            2 => {
                let page = header.child(7)?;
                PageKind::Dictionary {
                    values: page.count(1)?,
                    encoding: page.encoding(2)?,
                    is_sorted: page.flags[3].unwrap_or(false),
                }
            }
            3 => {
                let page = header.child(8)?;
                PageKind::V2 {
                    values: page.count(1)?,
                    nulls: page.count(2)?,
                    rows: page.count(3)?,
                    encoding: page.encoding(4)?,
                    definition_bytes: page.count(5)?,
                    repetition_bytes: page.count(6)?,
                    is_compressed: page.flags[7].unwrap_or(true),
                }
            }
            1 => PageKind::Index,
            _ => return Err("its type is unknown"),
        };
        Ok(Self {
            decoded_bytes: size(2)?,
            stored_bytes: size(3)?,
            checksum: header.integers[4].map(i32::cast_unsigned),
            kind,
            header_bytes: input.at,
        })
    }
}

/// The fields of a struct that a page header uses, by their numbers; the others are skipped.
#[derive(Default)]
struct Fields {
    integers: [Option<i32>; 9],
    flags: [Option<bool>; 9],
    children: Vec<(usize, Self)>,
}

impl Fields {
    fn integer(&self, id: usize) -> Parsed<i32> {
        self.integers[id].ok_or("its header lacks a field")
    }

    fn count(&self, id: usize) -> Parsed<u32> {
        u32::try_from(self.integer(id)?).map_err(|_| "its header declares a negative count")
    }

    fn encoding(&self, id: usize) -> Parsed<Encoding> {
        Ok(match self.integer(id)? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            #[expect(deprecated, reason = "old files have it")]
            4 => Encoding::BIT_PACKED,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return Err("its encoding is unknown"),
        })
    }

    fn child(&self, id: usize) -> Parsed<&Self> {
        let found = self.children.iter().find(|(child, _)| *child == id);
        found.map(|(_, child)| child).ok_or("its header lacks the part for its kind")
    }
}

/// Types of the compact protocol.
mod wire {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn byte(&mut self) -> Parsed<u8> {
        let byte = *self.bytes.get(self.at).ok_or("its header is cut off")?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Parsed<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("its header has a number that is too long")
    }

    fn integer(&mut self) -> Parsed<i32> {
        let zigzag = self.varint()?;
        let value = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        i32::try_from(value).map_err(|_| "its header has a number that is too large")
    }

    fn skip_bytes(&mut self, bytes: u64) -> Parsed<()> {
        let rest = self.bytes.len() - self.at;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= rest);
        self.at += bytes.ok_or("its header is cut off")?;
        Ok(())
    }

    fn fields(&mut self, depth: usize) -> Parsed<Fields> {
        if depth > DEPTH_MAX {
            return Err("its header is nested too deeply");
        }
        let mut fields = Fields::default();
        let mut id = 0_usize;
        loop {
            let byte = self.byte()?;
            let kind = byte & 0x0F;
            if kind == wire::STOP {
                return Ok(fields);
            }
            id = match byte >> 4 {
                0 => usize::try_from(self.integer()?).unwrap_or(usize::MAX),
                delta => id.saturating_add(usize::from(delta)),
            };
            let is_known = id < fields.integers.len();
            match kind {
                wire::I32 if is_known => fields.integers[id] = Some(self.integer()?),
                wire::TRUE | wire::FALSE if is_known => fields.flags[id] = Some(kind == wire::TRUE),
                wire::STRUCT => {
                    let child = self.fields(depth + 1)?;
                    // Children are kept only of the outermost struct: few bytes must not become many structs.
                    if is_known && depth == 0 {
                        if fields.children.iter().any(|(other, _)| *other == id) {
                            return Err("its header repeats a field");
                        }
                        fields.children.push((id, child));
                    }
                }
                wire::TRUE | wire::FALSE => {}
                _ => self.skip(kind, depth)?,
            }
        }
    }

    /// Skips a value. In a list even a boolean takes a byte. Headers have no maps.
    fn skip(&mut self, kind: u8, depth: usize) -> Parsed<()> {
        match kind {
            wire::TRUE | wire::FALSE | wire::BYTE => self.skip_bytes(1),
            wire::I16 | wire::I32 | wire::I64 => self.varint().map(|_| ()),
            wire::DOUBLE => self.skip_bytes(8),
            wire::BINARY => {
                let bytes = self.varint()?;
                self.skip_bytes(bytes)
            }
            wire::LIST | wire::SET if depth < DEPTH_MAX => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                // Each element takes at least a byte, so this ends with the input.
                (0..count).try_for_each(|_| self.skip(head & 0x0F, depth + 1))
            }
            wire::STRUCT => self.fields(depth + 1).map(|_| ()),
            _ => Err("its header has a value of unknown type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// type 0, decoded 300, stored 120, CRC -1; V1: 5 values, PLAIN, RLE, RLE.
    const V1: [u8; 22] = [
        0x15, 0x00, 0x15, 0xD8, 0x04, 0x15, 0xF0, 0x01, 0x15, 0x01, 0x1C, 0x15, 0x0A, 0x15, 0x00, 0x15, 0x06,
        0x15, 0x06, 0x00, 0x00, 0xEE,
    ];

    #[test]
    fn a_header_is_what_was_written() {
        let expected = PageHeader {
            header_bytes: 21,
            stored_bytes: 120,
            decoded_bytes: 300,
            checksum: Some(u32::MAX),
            kind: PageKind::V1 {
                values: 5,
                encoding: Encoding::PLAIN,
                definition_levels: Encoding::RLE,
                repetition_levels: Encoding::RLE,
            },
        };
        assert_eq!(PageHeader::parse(&V1), Ok(expected));
    }

    #[test]
    fn every_truncation_and_every_changed_byte_is_survived() {
        for length in 0..21 {
            assert_eq!(PageHeader::parse(&V1[..length]), Err("its header is cut off"), "{length}");
        }
        for at in 0..21 {
            for byte in 0..=255 {
                let mut damaged = V1;
                damaged[at] = byte;
                if let Ok(header) = PageHeader::parse(&damaged) {
                    assert!(header.header_bytes <= damaged.len());
                }
            }
        }
    }

    #[test]
    fn damage_is_named() {
        let check = |bytes: &[u8], reason| assert_eq!(PageHeader::parse(bytes), Err(reason), "{bytes:?}");
        check(&[0x00], "its header lacks a field");
        check(&[0x15, 0x00, 0x15, 0x00, 0x15, 0x00, 0x00], "its header lacks the part for its kind");
        check(&[0x15, 0x02, 0x15, 0x01, 0x15, 0x00, 0x00], "its header declares a negative size");
        check(&[0x15, 0x08, 0x15, 0x00, 0x15, 0x00, 0x00], "its type is unknown");
        check(&[0x15, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], "its header has a number that is too large");
        check(&[0x15; 1], "its header is cut off");
        check(&[0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F], "its header is cut off");
        check(&[0x1C; 64], "its header is nested too deeply");
        check(&[0x1D, 0x00], "its header has a value of unknown type");
    }
}
