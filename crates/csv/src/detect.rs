//! Detection from a file's first records: dialect, names and types of the columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::{
    dialect::Dialect,
    error::{Error, Flaw, Reject},
    options::{Nulls, Options},
    reader::text_of_record,
    scan::{Scan, Scanner, count_lines, line_end_bytes},
    sniff::sniff,
    source::Source,
    tokenize::{Record, Records, Tokenizer},
    types::{Evidence, Formats, Reading, looks_typed},
};

/// A column of a file or of a table of several files.
#[derive(Debug, Clone)]
pub struct Column {
    /// The name, unique among the columns.
    pub name: String,
    /// The type.
    pub data_type: DataType,
    pub(crate) reading: Reading,
    pub(crate) evidence: Evidence,
    /// Whether the caller decided the type.
    pub(crate) given: bool,
}

/// What was detected of a file, or of several by [`unify`](crate::unify).
#[derive(Debug, Clone)]
pub struct Detected {
    /// How records are written.
    pub dialect: Dialect,
    /// The columns; none if the file is empty and no columns were given.
    pub columns: Vec<Column>,
    /// The file (the first of several).
    pub file: Arc<str>,
}

impl Detected {
    /// The columns as an Arrow schema; every column may be NULL.
    pub fn schema(&self) -> SchemaRef {
        schema_of(self.columns.iter())
    }
}

pub(crate) fn schema_of<'a>(columns: impl Iterator<Item = &'a Column>) -> SchemaRef {
    let field = |column: &Column| Field::new(&column.name, column.data_type.clone(), true);
    Arc::new(Schema::new(columns.map(field).collect::<Vec<_>>()))
}

/// More columns than this are taken for a wrong delimiter or an attack.
const MAX_COLUMNS: usize = 32_768;

impl Source {
    /// Detects dialect, names and types from the first bytes, without consuming them.
    ///
    /// Names in [`Options::types`] that the file does not have are left to [`unify`](crate::unify) to judge. An
    /// empty file (or one of blank lines) yields no columns. Fails if the options contradict each other or the
    /// file, and if the bytes are not text.
    pub fn detect(&mut self, options: &Options) -> Result<Detected, Error> {
        options.check()?;
        let file = Arc::clone(self.name());
        let mut wanted = options.sample_bytes;
        loop {
            let (sample, whole) = self.look_ahead(wanted)?;
            let dialect = sniff(sample, whole, options);
            let body = skip_lines(sample, dialect.skip_lines);
            let records_end = if whole { body.len() } else { last_record_end(body, &dialect) };
            let body_offset = sample.len() - body.len();
            let at_limit = whole || sample.len() > options.max_line_bytes;
            let detection = Detection {
                file: Arc::clone(&file),
                dialect,
                options,
                body: &body[..records_end],
                body_offset,
                whole,
                nulls: Nulls::new(options.nulls.as_deref()),
                formats: Formats::new(options),
            };
            // If a record is longer than the sample, look further, up to the longest that is allowed.
            let records = detection.sample();
            if records.records.len() > 1 || at_limit && (whole || records_end > 0) {
                return detection.run(&records);
            }
            if at_limit {
                let error = format!("the record has no end within {} bytes", options.max_line_bytes);
                return Err(detection.bad_record(0, body, error, Flaw::TooLong));
            }
            wanted = wanted.saturating_mul(4).min(options.max_line_bytes + 1);
        }
    }

    /// Detects names and types of another file of the same table: its dialect is that of `like`. With
    /// few `sample_rows` this is quick, and enough where only the names matter.
    pub fn detect_like(&mut self, like: &Detected, options: &Options) -> Result<Detected, Error> {
        let Dialect { delimiter, quote, escape, comment, header, skip_lines } = like.dialect;
        self.detect(&Options {
            delimiter: Some(delimiter),
            quote: Some(quote),
            escape: Some(escape),
            comment: Some(comment),
            header: Some(header),
            skip_lines: Some(skip_lines),
            ..options.clone()
        })
    }
}

/// The text after `count` lines.
pub(crate) fn skip_lines(text: &[u8], count: u64) -> &[u8] {
    let mut rest = text;
    for _ in 0..count {
        let Some(at) = memchr::memchr2(b'\n', b'\r', rest) else { return &[] };
        rest = &rest[at + line_end_bytes(&rest[at..], true).unwrap_or(1)..];
    }
    rest
}

/// Where the last whole record of a longer text ends.
pub(crate) fn last_record_end(text: &[u8], dialect: &Dialect) -> usize {
    let mut scanner = Scanner::new(dialect.shape());
    let mut end = 0;
    while let Scan::End(at) = scanner.next(text, false) {
        end = at;
    }
    end
}

/// Whether a record is nothing but blanks; such a line is skipped if there are several columns.
pub(crate) fn is_blank(bytes: &[u8], records: &Records, record: &Record) -> bool {
    let fields = records.fields_of(record);
    fields.len() == 1 && !fields[0].quoted() && fields[0].raw(bytes).trim_ascii().is_empty()
}

struct Detection<'a> {
    file: Arc<str>,
    dialect: Dialect,
    options: &'a Options,
    /// Whole records, after the skipped lines.
    body: &'a [u8],
    body_offset: usize,
    whole: bool,
    nulls: Nulls,
    formats: Formats,
}

impl Detection<'_> {
    fn run(mut self, records: &Records) -> Result<Detected, Error> {
        let width = self.check_width(records)?;
        let (first, mut evidence) = self.evidence(records, width);
        let header = self.options.header.unwrap_or_else(|| self.has_header(records, &first, &evidence));
        self.dialect.header = header && !records.records.is_empty();
        let rows = records.records.len() - usize::from(self.dialect.header);
        let mut names = first;
        if !self.dialect.header {
            let widths = records.records.iter().map(|record| record.field_count);
            names = vec![String::new(); most_frequent(widths)];
            if let Some(record) = records.records.first() {
                self.observe(records, record, &mut evidence);
            }
        }
        evidence.resize(names.len(), Evidence::NONE);
        if self.has_empty_last_column(records, &names, rows) {
            names.pop();
            evidence.pop();
        }
        self.give_names(&mut names, &mut evidence)?;
        make_unique(&mut names);
        let columns = self.give_types(names, evidence);
        Ok(Detected { dialect: self.dialect, columns, file: self.file })
    }

    /// The sampled records without blank ones; in a file of one column, without those at the beginning only.
    fn sample(&self) -> Records {
        let mut sample = Records::default();
        let count = self.options.sample_rows.saturating_add(1);
        Tokenizer::new(self.body, self.dialect.shape(), false).next(count, &mut sample);
        let mut records = std::mem::take(&mut sample.records);
        let several = records.iter().any(|record| record.field_count > 1);
        let mut begun = false;
        records.retain(|record| {
            let blank = is_blank(self.body, &sample, record);
            begun |= !blank;
            !blank || begun && !several
        });
        sample.records = records;
        sample
    }

    /// The greatest width that the table may have; the header decides which of the candidates it is.
    fn check_width(&self, records: &Records) -> Result<usize, Error> {
        let Some(first) = records.records.first() else { return Ok(0) };
        if let (Some(flaw), true) = (first.flaw, self.options.header != Some(false)) {
            // A flawed first record may be the header, so nothing can be detected. If it is data for certain,
            // reading it will report the flaw.
            let error = match flaw {
                Flaw::Unterminated => "the quoted field is not closed",
                _ => "there is text between the closing quote and the next delimiter",
            };
            let text = &self.body[first.start..first.end];
            return Err(self.bad_record(first.start, text, error.to_string(), flaw));
        }
        let width =
            first.field_count.max(most_frequent(records.records.iter().map(|record| record.field_count)));
        if width > MAX_COLUMNS {
            return Err(self.columns_error(format!("has {width} columns; at most {MAX_COLUMNS} can be read")));
        }
        Ok(width)
    }

    /// The texts of the first record, and the evidence of the other records for the types.
    fn evidence(&self, records: &Records, width: usize) -> (Vec<String>, Vec<Evidence>) {
        let mut evidence = vec![Evidence::NONE; width];
        let Some((first, others)) = records.records.split_first() else { return (Vec::new(), evidence) };
        for record in others {
            self.observe(records, record, &mut evidence);
        }
        let shape = self.dialect.shape();
        let names = records.fields_of(first).iter().map(|field| {
            let mut name = Vec::new();
            field.unescape(self.body, &shape, &mut name);
            String::from_utf8_lossy(&name).trim().to_string()
        });
        (names.collect(), evidence)
    }

    fn observe(&self, records: &Records, record: &Record, evidence: &mut [Evidence]) {
        if record.flaw.is_some() {
            return;
        }
        for (field, evidence) in records.fields_of(record).iter().zip(evidence) {
            let cell = field.raw(self.body);
            if !self.nulls.typed(cell) {
                evidence.observe(cell, &self.formats);
            }
        }
    }

    /// Whether the first record is a header: its texts do not fit the types below them; or, if all columns are
    /// text, they are distinct words that do not come again, or known names.
    fn has_header(&self, records: &Records, first: &[String], evidence: &[Evidence]) -> bool {
        let Some((_, others)) = records.records.split_first() else { return false };
        let given = &self.options.columns;
        if !given.is_empty() && given.iter().eq(first.iter().take(given.len())) {
            return true;
        }
        let names = &self.options.header_names;
        let place = |text: &String| names.iter().position(|name| name.eq_ignore_ascii_case(text.trim()));
        let mut places: Vec<Option<usize>> = first.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() == first.len() && places.iter().all(Option::is_some) {
            return true;
        }
        let (formats, nulls) = (&self.formats, &self.nulls);
        let mut misfits = 0;
        let mut fits = 0;
        for (text, evidence) in first.iter().zip(evidence) {
            let below = evidence.choose(formats).0;
            if below == DataType::Utf8 || nulls.typed(text.as_bytes()) {
                continue;
            }
            let mut with_first = *evidence;
            with_first.observe(text.as_bytes(), formats);
            if with_first.choose(formats).0 == DataType::Utf8 { misfits += 1 } else { fits += 1 }
        }
        if misfits + fits > 0 {
            return misfits > 0;
        }
        if self.options.no_other_header {
            return false;
        }
        let is_word = |text: &String| {
            !looks_typed(text.as_bytes())
                && !nulls.typed(text.as_bytes())
                && !text.starts_with(|c: char| c.is_ascii_digit())
        };
        let words = first.iter().all(is_word);
        let mut distinct: Vec<&str> = first.iter().map(String::as_str).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let again = others.iter().any(|record| {
            let fields = records.fields_of(record);
            fields.iter().zip(first).any(|(field, text)| field.raw(self.body) == text.as_bytes())
        });
        words && distinct.len() == first.len() && !again
    }

    /// Whether every line ends with a delimiter that begins no column.
    fn has_empty_last_column(&self, records: &Records, names: &[String], rows: usize) -> bool {
        let width = names.len();
        let data = &records.records[records.records.len() - rows..];
        let last_is_empty = |record: &Record| {
            let last = records.fields_of(record).get(width - 1);
            last.is_none_or(|field| !field.quoted() && field.raw(self.body).is_empty())
        };
        width > 1
            && self.options.columns.len() < width
            && names.last().is_some_and(String::is_empty)
            // Without a header, a last column of NULLs looks the same; trailing delimiters are common only with
            // `|`.
            && (self.dialect.header || rows > 0 && self.dialect.delimiter == b'|')
            && data.iter().all(last_is_empty)
    }

    /// Replaces names of the file by those of the options.
    fn give_names(&self, names: &mut Vec<String>, evidence: &mut Vec<Evidence>) -> Result<(), Error> {
        let given = &self.options.columns;
        if names.is_empty() && self.whole {
            names.resize(given.len(), String::new());
            evidence.resize(given.len(), Evidence::NONE);
        }
        if given.len() > names.len() {
            let problem = format!("has {} columns, but {} names were given", names.len(), given.len());
            return Err(self.columns_error(problem));
        }
        names.iter_mut().zip(given).for_each(|(name, given)| name.clone_from(given));
        Ok(())
    }

    fn give_types(&self, names: Vec<String>, evidence: Vec<Evidence>) -> Vec<Column> {
        let column = |(name, evidence): (String, Evidence)| {
            let evidence = if self.options.all_text { Evidence::TEXT } else { evidence };
            let (data_type, reading) = evidence.choose(&self.formats);
            Column { name, data_type, reading, evidence, given: false }
        };
        let mut columns: Vec<Column> = names.into_iter().zip(evidence).map(column).collect();
        for (wanted, data_type) in &self.options.types {
            if let Some(found) = find_column(&columns, wanted) {
                let column = &mut columns[found];
                column.reading = column.evidence.reading(data_type, &self.formats);
                column.data_type = data_type.clone();
                column.given = true;
            }
        }
        columns
    }

    fn bad_record(&self, start: usize, text: &[u8], error: String, flaw: Flaw) -> Error {
        Error::Record(Box::new(Reject {
            file: Arc::clone(&self.file),
            line: self.dialect.skip_lines + 1 + count_lines(&self.body[..start]),
            byte_offset: (self.body_offset + start) as u64,
            column_number: None,
            column: None,
            value: None,
            expected: None,
            error,
            text: text_of_record(text),
            flaw,
        }))
    }

    fn columns_error(&self, problem: String) -> Error {
        Error::Columns { file: Arc::clone(&self.file), problem }
    }
}

/// The column that an option names, whatever the case of letters; an exact match comes first.
pub(crate) fn find_column(columns: &[Column], name: &str) -> Option<usize> {
    let exact = columns.iter().position(|column| column.name == name);
    exact.or_else(|| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)))
}

/// The value that comes most often; the first of them where several do.
pub(crate) fn most_frequent(values: impl Iterator<Item = usize>) -> usize {
    let mut sorted: Vec<usize> = values.collect();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a == b);
    runs.max_by_key(|run| run.len()).map_or(0, |run| run[0])
}

/// Names unnamed columns by their position, and numbers repeated names.
fn make_unique(names: &mut [String]) {
    let mut taken = std::collections::HashSet::new();
    let mut next_number = std::collections::HashMap::new();
    for (position, name) in names.iter_mut().enumerate() {
        if name.is_empty() {
            *name = format!("column{}", position + 1);
        }
        let base = name.clone();
        while !taken.insert(name.clone()) {
            let number = next_number.entry(base.clone()).or_insert(2u32);
            *name = format!("{base}_{number}");
            *number += 1;
        }
    }
}
