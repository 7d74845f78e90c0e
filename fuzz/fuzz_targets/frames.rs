//! Any bytes as a frame, and any bytes in a frame with a good checksum: an error, or as many values as the header
//! says and the limits allow.

#![no_main]

use keirin_codecs::blocks::{Codec, Decoder};
use keirin_codecs::floats::Float;
use keirin_codecs::frame::{self, Compression, Frame, Kind, Limits};
use keirin_codecs::integers::Int;
use keirin_kernels::Level;
use keirin_kernels::text::Text;
use keirin_race::Races;
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { rows: 1 << 12, bytes: 1 << 18 };

fuzz_target!(|input: &[u8]| {
    if let Ok(frame) = Frame::open(input, LIMITS) {
        check(frame);
    }
    let Some((&[kind, compression, low, high, a, b, c], stored)) = input.split_first_chunk::<7>() else {
        return;
    };
    let kinds = [
        (Kind::Flags, 1),
        (Kind::Text, 0),
        (Kind::I8, 8),
        (Kind::I16, 16),
        (Kind::I32, 32),
        (Kind::I64, 64),
        (Kind::I128, 128),
        (Kind::U8, 8),
        (Kind::U16, 16),
        (Kind::U32, 32),
        (Kind::U64, 64),
        (Kind::F32, 32),
        (Kind::F64, 64),
    ];
    let (kind, bits) = kinds[usize::from(kind) % kinds.len()];
    let compressions = [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd];
    let compression = compressions[usize::from(compression) % compressions.len()];
    let rows = usize::from(low) | usize::from(high & 0x1F) << 8;
    let size = usize::from(a) | usize::from(b) << 8 | usize::from(c & 7) << 16;
    let value_bytes = if bits == 0 { size as u64 } else { (rows as u64 * bits).div_ceil(8) };
    let encoded_bytes = if compression == Compression::None { stored.len() } else { size };
    let frame = frame::write(kind, compression, rows, value_bytes, encoded_bytes, stored).expect("few bytes");
    if let Ok(frame) = Frame::open(&frame, LIMITS) {
        check(frame);
    }
});

fn check(frame: Frame<'_>) {
    assert!(frame.row_count() <= LIMITS.rows as usize && frame.value_bytes() <= LIMITS.bytes);
    let codec = match frame.compression() {
        Compression::None => return check_values(frame),
        Compression::Lz4 => Codec::Lz4,
        Compression::Snappy => Codec::Snappy,
        Compression::Zstd => Codec::Zstd(3),
    };
    let mut encoded = vec![0; frame.encoded_bytes()];
    let decoder = Decoder::new(codec, &Races::default(), "fuzz", frame.stored());
    if decoder.decompress(frame.stored(), &mut encoded).is_ok() {
        check_values(frame.decompressed(&encoded));
    } else {
        assert!(encoded.iter().all(|byte| *byte == 0));
    }
}

fn check_values(frame: Frame<'_>) {
    let level = Level::best();
    match frame.kind() {
        Kind::Flags => {
            if let Ok(column) = frame.flags(level) {
                assert_eq!(column.decode().len(), frame.row_count());
            }
        }
        Kind::Text => {
            if let Ok(text) = frame.strings(level).and_then(|column| column.decode(level)) {
                assert_eq!(text.rows(level).row_count(), frame.row_count());
                assert!(text.bytes.len() as u64 <= frame.value_bytes());
            }
        }
        Kind::I8 => integers::<i8>(frame),
        Kind::I16 => integers::<i16>(frame),
        Kind::I32 => integers::<i32>(frame),
        Kind::I64 => integers::<i64>(frame),
        Kind::I128 => integers::<i128>(frame),
        Kind::U8 => integers::<u8>(frame),
        Kind::U16 => integers::<u16>(frame),
        Kind::U32 => integers::<u32>(frame),
        Kind::U64 => integers::<u64>(frame),
        Kind::F32 => floats::<f32>(frame),
        Kind::F64 => floats::<f64>(frame),
    }
}

fn integers<T: Int>(frame: Frame<'_>) {
    let level = Level::best();
    if let Ok(values) = frame.integers::<T>(level).and_then(|column| column.decode(level)) {
        assert_eq!(values.len(), frame.row_count());
    }
}

fn floats<F: Float>(frame: Frame<'_>) {
    let level = Level::best();
    if let Ok(values) = frame.floats::<F>(level).and_then(|column| column.decode(level)) {
        assert_eq!(values.len(), frame.row_count());
    }
}
