//! Lower and upper case of ASCII text, which keeps every length: a whole buffer is mapped at once.

/// The case to change to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum Case {
    Lower,
    Upper,
}

kernel! {
    /// The bytes with ASCII letters in the other case.
    pub(crate) fn change_ascii(text: &[u8], case: Case) -> Vec<u8> = change_ascii_plain;
}

#[inline(always)]
fn change_ascii_plain(text: &[u8], case: Case) -> Vec<u8> {
    match case {
        Case::Lower => text.iter().map(u8::to_ascii_lowercase).collect(),
        Case::Upper => text.iter().map(u8::to_ascii_uppercase).collect(),
    }
}
