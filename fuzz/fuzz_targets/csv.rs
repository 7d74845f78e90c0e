//! Any bytes as a text file: detection and parsing must not panic, and tiny chunks must give the rows,
//! rejects and errors that large ones give.

#![no_main]

use keirin_csv::{ChunkParser, ChunkReader, Error, Options, Source};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, chunk_bytes, sample_bytes], text)) = input.split_first_chunk::<3>() else { return };
    let options = Options {
        ignore_errors: flags & 1 != 0,
        null_padding: flags & 2 != 0,
        all_text: flags & 4 != 0,
        max_line_bytes: if flags & 8 != 0 { 64 } else { 1 << 20 },
        comment: if flags & 16 != 0 { Some(Some(b'#')) } else { None },
        header: if flags & 32 != 0 { Some(flags & 64 != 0) } else { None },
        sample_bytes: 1 + usize::from(sample_bytes) * 8,
        ..Options::default()
    };
    let tiny = Options { chunk_bytes: 1 + usize::from(chunk_bytes), batch_rows: 3, ..options.clone() };
    match (read(text, &options), read(text, &tiny)) {
        (Ok(whole), Ok(tiny)) => assert_eq!(whole, tiny),
        (Err(whole), Err(tiny)) => assert_eq!(whole.to_string(), tiny.to_string()),
        (whole, tiny) => panic!("{whole:?} but {tiny:?}"),
    }
});

/// The number of rows, the rejects, and a digest of the cells.
fn read(text: &[u8], options: &Options) -> Result<(usize, Vec<String>, Vec<usize>), Error> {
    let mut source = Source::new("f", std::io::Cursor::new(text.to_vec()), None)?;
    let detected = source.detect(options)?;
    let parser = ChunkParser::new(&detected, &detected, None, options)?;
    let mut reader = ChunkReader::new(source, &detected, options);
    let mut rows = 0;
    let mut rejects = Vec::new();
    let mut nulls = vec![0; detected.columns.len()];
    while let Some(chunk) = reader.next_chunk()? {
        let parsed = parser.parse(&chunk)?;
        rejects.extend(parsed.rejects.iter().map(|reject| format!("{reject} {}", reject.text)));
        for batch in parsed.batches {
            rows += batch.num_rows();
            batch.columns().iter().zip(&mut nulls).for_each(|(column, nulls)| *nulls += column.null_count());
        }
    }
    Ok((rows, rejects, nulls))
}
