//! Bytes that nobody meant as a table: rows, rejects or an error, never a panic, whatever the chunks.

use std::io::Read;

use keirin_csv::{ChunkParser, ChunkReader, Options, Source};
use proptest::prelude::*;

use crate::read;

/// Reads with detection, ignoring errors, in tiny and in large chunks; both must agree.
fn parse_hostile(text: &[u8], options: &Options) {
    let at = |chunk_bytes| read(text, &Options { ignore_errors: true, chunk_bytes, ..options.clone() });
    match (at(3), at(1 << 20)) {
        (Ok(tiny), Ok(whole)) => assert_eq!(tiny, whole),
        (Err(tiny), Err(whole)) => assert_eq!(tiny.to_string(), whole.to_string()),
        (tiny, whole) => panic!("{:?} {:?} of {}", tiny.err(), whole.err(), text.escape_ascii()),
    }
    let strict = |chunk_bytes| read(text, &Options { chunk_bytes, ..options.clone() });
    let (tiny, whole) = (strict(3), strict(1 << 20));
    assert_eq!(tiny.err().map(|e| e.to_string()), whole.err().map(|e| e.to_string()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse_hostile(&bytes, &Options::default());
    }

    #[test]
    fn random_punctuation_does_no_harm(
        bytes in prop::collection::vec(prop::sample::select(b"a1,;\t|\"'\n\r \\#.-:\xC3\xA9\0".to_vec()), 0..400),
        sample_bytes in 1usize..500,
        max_line_bytes in prop::sample::select(vec![1, 5, 20, 100, 1 << 20]),
        null_padding in any::<bool>(),
    ) {
        parse_hostile(&bytes, &Options { sample_bytes, max_line_bytes, null_padding, ..Options::default() });
    }

    #[test]
    fn random_text_of_data_does_no_harm(
        text in "(([0-9]{1,3}|-?[0-9]{1,2}\\.[0-9]|2024-0[1-4]-[0-3][0-9]|true|NA|\"[a,\n]\"|[ab]?)[,\n]){0,80}",
        sample_rows in 1usize..30,
    ) {
        parse_hostile(text.as_bytes(), &Options { sample_rows, ..Options::default() });
    }
}

/// A stream without end of one pattern, that counts what is taken from it.
struct Endless(&'static [u8], usize);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for byte in buffer.iter_mut() {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(buffer.len())
    }
}

#[test]
fn memory_stays_bounded_whatever_does_not_end() {
    let options = Options {
        max_line_bytes: 10_000,
        sample_bytes: 1000,
        chunk_bytes: 1000,
        ignore_errors: true,
        ..Options::default()
    };
    let header = &b"a,b\n1,x\n2,y\n"[..];
    for pattern in [&b"x"[..], b"\"", b"x,", b"\"x\",", b"\"\"", b"\"x\n\\"] {
        let mut source =
            Source::new("endless", header.chain(Endless(pattern, 0)).take(1_000_000), None).unwrap();
        let detected = source.detect(&Options { quote: Some(Some(b'"')), ..options.clone() }).unwrap();
        let parser = ChunkParser::new(&detected, &detected, None, &options).unwrap();
        let mut reader = ChunkReader::new(source, &detected, &options);
        while let Some(chunk) = reader.next_chunk().unwrap() {
            assert!(chunk.bytes.len() <= 11_000, "{}", chunk.bytes.len());
            parser.parse(&chunk).unwrap();
        }
        assert_eq!(reader.source_bytes(), 1_000_000);
    }
    // Without a first record nothing is known, and the file is refused after the limit.
    let mut source = Source::new("endless", Endless(b"x,", 0), None).unwrap();
    let error = source.detect(&options).unwrap_err();
    assert_eq!(error.to_string(), "endless, line 1: the record has no end within 10000 bytes");
    assert!(source.consumed_bytes() < 1 << 20);
}

#[test]
fn a_line_of_very_many_delimiters_is_refused() {
    let error = read(&b",".repeat(100_000), &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "t.csv: has 100001 columns; at most 32768 can be read");
}
