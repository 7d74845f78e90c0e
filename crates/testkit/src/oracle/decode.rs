//! Encoded columns, one value or one code at a time.

/// Decodes runs, each with a value and the row at which it ends.
#[must_use]
pub fn runs<T: Copy>(values: &[T], ends: &[u32]) -> Vec<T> {
    let row_count = ends.last().copied().unwrap_or(0);
    (0..row_count).map(|row| values[ends.iter().filter(|end| **end <= row).count()]).collect()
}

/// Decodes FSST codes: each stands for a symbol, an unknown one for nothing; 255 escapes the byte after it. `None`
/// if that byte is missing.
#[must_use]
pub fn symbols(symbols: &[Vec<u8>], codes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut codes = codes.iter();
    while let Some(code) = codes.next() {
        if *code == 255 {
            text.push(*codes.next()?);
        } else {
            text.extend(symbols.get(usize::from(*code)).into_iter().flatten());
        }
    }
    Some(text)
}
