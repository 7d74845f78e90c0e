//! Snappy's format for streams (<https://github.com/google/snappy/blob/main/framing_format.txt>): chunks of
//! up to 64 KiB, each with a CRC-32C.

use super::{Codec, Decoder, Error};

const STREAM_START: [u8; 10] = *b"\xFF\x06\x00\x00sNaPpY";
const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
/// Chunks of an unknown kind may be skipped if their kind is at least this.
const SKIPPABLE: u8 = 0x80;
const STREAM_START_KIND: u8 = 0xFF;
/// The most bytes of a decoded chunk.
const CHUNK_BYTES: usize = 65_536;
const CHECKSUM_BYTES: usize = 4;

/// Compresses `bytes` to a stream.
///
/// # Errors
/// When the library fails.
pub fn compress(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut stream = STREAM_START.to_vec();
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let compressed = Codec::Snappy.compress(chunk)?;
        // As google/snappy does: a chunk is stored uncompressed if compression saves less than an eighth.
        let (kind, stored) = if compressed.len() >= chunk.len() - chunk.len() / 8 {
            (UNCOMPRESSED, chunk)
        } else {
            (COMPRESSED, &compressed[..])
        };
        let length = u32::try_from(CHECKSUM_BYTES + stored.len()).expect("a chunk is small");
        stream.push(kind);
        stream.extend(&length.to_le_bytes()[..3]);
        stream.extend(masked_crc32c(chunk).to_le_bytes());
        stream.extend(stored);
    }
    Ok(stream)
}

/// A chunk with data.
struct Chunk<'a> {
    at: usize,
    is_compressed: bool,
    checksum: u32,
    stored: &'a [u8],
    declared: usize,
}

/// The decompressed bytes of a stream. `decoder` must be one for [`Codec::Snappy`].
///
/// # Errors
/// When the stream is damaged, or declares more than `limit` bytes: then nothing is allocated.
pub fn decompress(decoder: &Decoder, stream: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let chunks = chunks(stream)?;
    let total: usize = chunks.iter().map(|chunk| chunk.declared).sum();
    if total > limit {
        return Err(Error::TooLarge { declared: total as u64, limit });
    }
    let mut output = vec![0; total];
    let mut blocks = Vec::new();
    let mut places = Vec::new();
    let mut rest = &mut output[..];
    for chunk in &chunks {
        let (place, behind) = rest.split_at_mut(chunk.declared);
        rest = behind;
        if chunk.is_compressed {
            blocks.push((chunk.stored, place));
            places.push(chunk.at);
        } else {
            place.copy_from_slice(chunk.stored);
        }
    }
    let mut outcome = Ok(());
    decoder.decompress_batch(blocks, |index, error| {
        outcome = Err(Error::Chunk { at: places[index], source: Box::new(error) });
    });
    outcome?;
    let mut done = 0;
    for chunk in &chunks {
        let bytes = &output[done..done + chunk.declared];
        done += chunk.declared;
        if masked_crc32c(bytes) != chunk.checksum {
            return Err(Error::Frame { at: chunk.at, reason: "its checksum is another" });
        }
    }
    Ok(output)
}

/// The chunks with data, in order.
fn chunks(stream: &[u8]) -> Result<Vec<Chunk<'_>>, Error> {
    let mut chunks = Vec::new();
    let mut at = 0;
    if !stream.is_empty() && !stream.starts_with(&STREAM_START) {
        return Err(Error::Frame { at, reason: "it does not begin a stream" });
    }
    while at < stream.len() {
        let frame = |reason| Error::Frame { at, reason };
        let (head, rest) = stream[at..].split_first_chunk::<4>().ok_or(frame("it ends in its length"))?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], 0]) as usize;
        let data = rest.get(..length).ok_or(frame("it ends too early"))?;
        match head[0] {
            COMPRESSED | UNCOMPRESSED => {
                let (checksum, stored) =
                    data.split_first_chunk::<CHECKSUM_BYTES>().ok_or(frame("it ends in its checksum"))?;
                let is_compressed = head[0] == COMPRESSED;
                let declared = if is_compressed {
                    let (declared, _) =
                        keirin_kernels::snappy::decoded_len(stored).ok_or(frame("it declares no size"))?;
                    declared as usize
                } else {
                    stored.len()
                };
                if declared > CHUNK_BYTES {
                    return Err(frame("it declares more than 65,536 bytes"));
                }
                let checksum = u32::from_le_bytes(*checksum);
                chunks.push(Chunk { at, is_compressed, checksum, stored, declared });
            }
            STREAM_START_KIND if data != &STREAM_START[4..] => {
                return Err(frame("it begins no Snappy stream"));
            }
            SKIPPABLE.. => {}
            _ => return Err(frame("its kind is unknown and must not be skipped")),
        }
        at += 4 + length;
    }
    Ok(chunks)
}

/// CRC-32C, rotated and offset as the format requires: a plain CRC of bytes that contain CRCs is problematic.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C (Castagnoli), eight bytes at a time by eight tables (Kounavis, Berry, IEEE ISCC 2005).
fn crc32c(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let by_words = words.iter().fold(!0, |crc: u32, word| {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(crc);
        let parts = mixed.to_le_bytes().into_iter().zip(CRC_TABLES.iter().rev());
        parts.fold(0, |crc, (byte, table)| crc ^ table[usize::from(byte)])
    });
    let add = |crc: u32, byte: &u8| crc >> 8 ^ CRC_TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)];
    !rest.iter().fold(by_words, add)
}

/// Table `n` has the CRC of each byte with `n` zeros behind it.
static CRC_TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut index = 1;
    while index < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[index - 1][byte];
            tables[index][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        index += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        let check = |bytes: &[u8], expected| assert_eq!(crc32c(bytes), expected);
        check(&[0; 32], 0x8A91_36AA);
        check(&[0xFF; 32], 0x62A8_AB43);
        check(&ascending, 0x46DD_794E);
        check(b"123456789", 0xE306_9283);
    }
}
