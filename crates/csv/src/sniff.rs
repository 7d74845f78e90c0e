//! Detects the dialect by trials: it is the delimiter and quote that split most of the text into records of one
//! width.

use crate::{
    detect::{is_blank, last_record_end, most_frequent, skip_lines},
    dialect::Dialect,
    error::Flaw,
    options::Options,
    tokenize::{Records, Tokenizer},
};

/// Delimiters in the order of preference. The first four are usual; the others are taken only where every record
/// agrees. Blank and colon are left out: they split times and prose.
const USUAL: [u8; 4] = [b',', b'\t', b';', b'|'];
const RARE: [u8; 4] = [0x01, 0x1F, b'~', b'^'];

/// The most bytes of text that are tried.
const TRIED_BYTES: usize = 128 << 10;
/// Lines above the table that are not part of it, at most.
const MAX_PREAMBLE_LINES: usize = 20;

/// Finds the dialect; options override detection. `header` is decided later, with the types.
pub(crate) fn sniff(sample: &[u8], whole: bool, options: &Options) -> Dialect {
    let mut dialect = Dialect {
        delimiter: options.delimiter.unwrap_or(b','),
        quote: options.quote.unwrap_or(Some(b'"')),
        escape: None,
        comment: options.comment.flatten(),
        header: options.header.unwrap_or(false),
        skip_lines: options.skip_lines.unwrap_or(0),
    };
    let mut text = skip_lines(sample, dialect.skip_lines);
    // Leading lines with `#` are judged below, when the width of the others is known.
    let marked_lines = if options.comment.is_none() { leading_marked_lines(text) } else { 0 };
    let marked = text;
    text = skip_lines(text, marked_lines);
    let whole = whole && text.len() <= TRIED_BYTES;
    text = &text[..text.len().min(TRIED_BYTES)];

    let (best, trial) = choose_delimiter(text, whole, dialect, options);
    dialect = best;
    if marked_lines > 0 {
        let last = skip_lines(marked, marked_lines - 1);
        let line_end = memchr::memchr2(b'\n', b'\r', last).unwrap_or(last.len());
        let width = Trial::new(&last[..line_end], true, dialect).width;
        if text.is_empty() || width == trial.width && trial.width > 1 {
            // The last marked line is a header such as `#id,name`; the lines above it are skipped.
            if options.skip_lines.is_none() {
                dialect.skip_lines = marked_lines - 1;
            }
        } else {
            dialect.comment = Some(b'#');
        }
    } else if options.skip_lines.is_none() && !(options.null_padding && options.header == Some(false)) {
        // Where short lines are filled up and there is no header, they are rows.
        dialect.skip_lines = trial.preamble_lines as u64;
    }
    dialect
}

fn leading_marked_lines(text: &[u8]) -> u64 {
    let mut count = 0;
    let mut rest = text;
    while rest.first() == Some(&b'#') && count < 1000 {
        rest = skip_lines(rest, 1);
        count += 1;
    }
    count
}

fn choose_delimiter(text: &[u8], whole: bool, dialect: Dialect, options: &Options) -> (Dialect, Trial) {
    let delimiters: &[u8] = match &options.delimiter {
        Some(given) => std::slice::from_ref(given),
        None => &USUAL,
    };
    let mut best: Option<(Dialect, Trial)> = None;
    for &delimiter in delimiters {
        if !memchr::memchr(delimiter, text).is_some_and(|_| free(delimiter, options))
            && options.delimiter.is_none()
        {
            continue;
        }
        let candidate = choose_quote(text, whole, Dialect { delimiter, ..dialect }, options);
        let better = match &best {
            None => options.delimiter.is_some() || candidate.1.is_table(),
            Some((_, best)) => candidate.1.is_table() && candidate.1.beats(best),
        };
        if better {
            best = Some(candidate);
        }
    }
    if best.is_none() {
        for &delimiter in RARE.iter().filter(|&&delimiter| free(delimiter, options)) {
            let candidate = choose_quote(text, whole, Dialect { delimiter, ..dialect }, options);
            if candidate.1.width > 1 && candidate.1.good_bytes == candidate.1.bytes {
                best = Some(candidate);
                break;
            }
        }
    }
    // One column: the delimiter is the first usual one that nothing else uses.
    best.unwrap_or_else(|| {
        let delimiter = USUAL.into_iter().find(|&delimiter| free(delimiter, options)).unwrap_or(b',');
        // A comma inside the text of a single column would split it, so take a delimiter that does not occur.
        let unused =
            USUAL.into_iter().chain(RARE).find(|&d| free(d, options) && memchr::memchr(d, text).is_none());
        choose_quote(text, whole, Dialect { delimiter: unused.unwrap_or(delimiter), ..dialect }, options)
    })
}

/// Whether no other option uses the byte.
fn free(byte: u8, options: &Options) -> bool {
    ![options.quote, options.escape, options.comment].contains(&Some(Some(byte)))
}

fn choose_quote(text: &[u8], whole: bool, dialect: Dialect, options: &Options) -> (Dialect, Trial) {
    let attempt = |quote: Option<u8>, escape: Option<u8>| {
        let escape = options.escape.unwrap_or(escape).filter(|_| quote.is_some());
        let dialect = Dialect { quote, escape, ..dialect };
        (dialect, Trial::new(text, whole, dialect))
    };
    let quotes = match options.quote {
        Some(given) => vec![given],
        None => [b'"', b'\''].into_iter().filter(|&byte| free_of(byte, dialect)).map(Some).collect(),
    };
    let first = quotes.first().copied().flatten();
    let mut chosen = attempt(first, first);
    let mut most_quoted = 0;
    for &quote in &quotes {
        if quote == Some(b'\'') && options.quote.is_none() && memchr::memchr(b'\'', text).is_none() {
            continue;
        }
        let mut candidate = attempt(quote, quote);
        if candidate.1.flawed > 0 && options.escape.is_none() && quote.is_some() {
            let escaped = attempt(quote, Some(b'\\'));
            if escaped.1.flawed < candidate.1.flawed {
                candidate = escaped;
            }
        }
        // Apostrophes also begin words: they count as quotes only if they enclose many fields.
        let quoted = candidate.1.quoted;
        let sound = quoted > 3 * candidate.1.flawed;
        let usual = quote == Some(b'"') || 2 * quoted >= candidate.1.records;
        if quote == first || sound && usual && quoted > most_quoted {
            most_quoted = if sound { quoted } else { 0 };
            chosen = candidate;
        }
    }
    // If quotes do not come in pairs and the file is regular without them, they are ordinary text.
    if options.quote.is_none() && chosen.1.flawed > 0 && most_quoted == 0 {
        let plain = attempt(None, None);
        if plain.1.good_bytes * 100 >= plain.1.bytes * 99 && plain.1.width > 1 {
            return plain;
        }
    }
    chosen
}

fn free_of(byte: u8, dialect: Dialect) -> bool {
    byte != dialect.delimiter && Some(byte) != dialect.comment
}

/// How one dialect splits the text.
#[derive(Default)]
struct Trial {
    records: usize,
    /// The width of most records.
    width: usize,
    /// Bytes in records of that width without a flaw, and in all.
    good_bytes: usize,
    bytes: usize,
    first_width: usize,
    /// Fields in quotes, and records with quotes out of place.
    quoted: usize,
    flawed: usize,
    /// Fields that look like numbers or dates, and all.
    typed: usize,
    fields: usize,
    preamble_lines: usize,
}

impl Trial {
    fn new(text: &[u8], whole: bool, dialect: Dialect) -> Trial {
        let mut records = Records::default();
        Tokenizer::new(text, dialect.shape(), false).next(usize::MAX, &mut records);
        // The last record may be cut off by the end of the sample. If it spans lines, it more likely has an
        // unclosed quote, and counts as bad.
        if !whole && records.records.len() > 1 {
            let end = last_record_end(text, &dialect);
            let is_cut =
                |start: usize| start >= end && memchr::memchr2(b'\n', b'\r', &text[start..]).is_none();
            records.records.pop_if(|last| is_cut(last.start));
        }
        let mut rows = std::mem::take(&mut records.records);
        rows.retain(|row| !is_blank(text, &records, row) || rows_of_one(dialect, text));
        let mut trial = Trial { records: rows.len(), ..Trial::default() };
        trial.width = most_frequent(rows.iter().filter(|row| row.flaw.is_none()).map(|row| row.field_count));
        trial.first_width = rows.first().map_or(0, |row| row.field_count);
        if rows.len() < 10 && trial.first_width > 1 {
            // Too few records for a majority: take the width of the first, which may be a header.
            trial.width = trial.first_width;
        }
        let lead = rows.iter().take(MAX_PREAMBLE_LINES + 1).take_while(|row| row.field_count < 2).count();
        if trial.width >= 3 && (1..=MAX_PREAMBLE_LINES).contains(&lead) && rows.len() > 2 * lead {
            let regular = rows[lead..].iter().filter(|row| row.field_count == trial.width).count();
            if regular * 10 >= (rows.len() - lead) * 9 {
                let start = rows[lead].start;
                trial.preamble_lines = usize::try_from(crate::scan::count_lines(&text[..start])).unwrap_or(0);
                rows.drain(..lead);
                trial.first_width = trial.width;
            }
        }
        for row in &rows {
            let bytes = row.end - row.start;
            trial.bytes += bytes;
            match row.flaw {
                Some(Flaw::AfterQuote | Flaw::Unterminated) => trial.flawed += 1,
                _ if row.field_count == trial.width => trial.good_bytes += bytes,
                _ => {}
            }
            for field in records.fields_of(row) {
                trial.fields += 1;
                trial.quoted += usize::from(field.quoted() && row.flaw.is_none());
                let cell = field.raw(text);
                let numeric = |byte: &u8| byte.is_ascii_digit() || b"+-.,:/ eETZ%".contains(byte);
                trial.typed += usize::from(cell.iter().all(numeric) && cell.iter().any(u8::is_ascii_digit));
            }
        }
        trial
    }

    /// Whether this dialect splits the text into several columns.
    fn is_table(&self) -> bool {
        let regular = self.good_bytes * 10 >= self.bytes * 7;
        self.width > 1 && self.first_width > 1 && (regular || self.records < 10)
    }

    /// Whether this trial is more regular, or as regular with more numbers and dates.
    fn beats(&self, other: &Trial) -> bool {
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        let (own, others) = (share(self.good_bytes, self.bytes), share(other.good_bytes, other.bytes));
        if (own - others).abs() > 0.02 {
            return own > others;
        }
        share(self.typed, self.fields) > share(other.typed, other.fields) + 0.05
    }
}

fn rows_of_one(dialect: Dialect, text: &[u8]) -> bool {
    memchr::memchr(dialect.delimiter, text).is_none()
}
