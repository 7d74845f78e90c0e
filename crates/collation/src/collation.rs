//! Which collations there are, and their properties as MySQL and TiDB have them.

use std::fmt;

use crate::weighing::Weights;

/// How texts are ordered. [`Keys`](crate::Keys) applies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Collation(u16);

/// What a collation compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Bytes of UTF-8, whose order is that of code points.
    Bytes,
    /// Weights, up to a level.
    Weights(Weights, usize),
    /// Sort keys of a locale.
    #[cfg(feature = "icu")]
    Icu(&'static str),
}

struct Definition {
    name: &'static str,
    /// The number by which MySQL's protocol knows it; 0: none.
    id: u16,
    charset: &'static str,
    /// Whether trailing spaces do not count.
    pads: bool,
    method: Method,
}

const fn define(
    name: &'static str,
    id: u16,
    charset: &'static str,
    pads: bool,
    method: Method,
) -> Definition {
    Definition { name, id, charset, pads, method }
}

const GENERAL: Method = Method::Weights(Weights::General, 1);
const UNICODE: Method = Method::Weights(Weights::Uca4, 1);

const DEFINITIONS: &[Definition] = &[
    define("binary", 63, "binary", false, Method::Bytes),
    define("utf8mb4_bin", 46, "utf8mb4", true, Method::Bytes),
    define("utf8mb3_bin", 83, "utf8mb3", true, Method::Bytes),
    define("latin1_bin", 47, "latin1", true, Method::Bytes),
    define("ascii_bin", 65, "ascii", true, Method::Bytes),
    define("utf8mb4_0900_bin", 309, "utf8mb4", false, Method::Bytes),
    define("utf8mb4_general_ci", 45, "utf8mb4", true, GENERAL),
    define("utf8mb3_general_ci", 33, "utf8mb3", true, GENERAL),
    define("utf8mb4_unicode_ci", 224, "utf8mb4", true, UNICODE),
    define("utf8mb3_unicode_ci", 192, "utf8mb3", true, UNICODE),
    define("utf8mb4_0900_ai_ci", 255, "utf8mb4", false, Method::Weights(Weights::Uca9, 1)),
    define("utf8mb4_0900_as_cs", 278, "utf8mb4", false, Method::Weights(Weights::Uca9, 3)),
    define("utf8mb4_0900_as_ci", 305, "utf8mb4", false, Method::Weights(Weights::Uca9, 2)),
];

/// Names in older versions.
const ALIASES: &[(&str, &str)] = &[
    ("utf8_bin", "utf8mb3_bin"),
    ("utf8_general_ci", "utf8mb3_general_ci"),
    ("utf8_unicode_ci", "utf8mb3_unicode_ci"),
];

/// Locales are part of the name, so that a collation is a number.
#[cfg(feature = "icu")]
macro_rules! locales {
    ($($locale:literal)*) => {
        const LOCALES: &[Definition] =
            &[$(define(concat!("icu:", $locale), 0, "utf8mb4", false, Method::Icu($locale))),*];
    };
}
#[cfg(feature = "icu")]
#[rustfmt::skip]
locales! {
    "und" "af" "am" "ar" "as" "az" "be" "bg" "bn" "br" "bs" "ca" "ceb" "cs" "cy" "da" "de" "dsb" "ee" "el"
    "en" "eo" "es" "et" "fa" "fi" "fil" "fo" "fr" "fy" "ga" "gl" "gu" "ha" "haw" "he" "hi" "hr" "hsb" "hu"
    "hy" "id" "ig" "is" "it" "ja" "ka" "kk" "kl" "km" "kn" "ko" "ku" "ky" "lb" "ln" "lo" "lt" "lv" "mk" "ml"
    "mn" "mr" "ms" "mt" "my" "nb" "ne" "nl" "nn" "no" "om" "or" "pa" "pl" "ps" "pt" "ro" "ru" "se" "si" "sk"
    "sl" "smn" "sq" "sr" "sv" "sw" "ta" "te" "th" "tk" "to" "tr" "ug" "uk" "ur" "uz" "vi" "wo" "yi" "yo"
    "zh" "zu" "de-u-co-phonebk" "de-AT-u-co-phonebk" "es-u-co-trad" "sv-u-co-trad" "fi-u-co-trad"
    "bn-u-co-trad" "ja-u-co-unihan" "ko-u-co-unihan" "zh-u-co-stroke" "zh-u-co-zhuyin" "zh-u-co-unihan"
}
#[cfg(not(feature = "icu"))]
const LOCALES: &[Definition] = &[];

/// The most names that an error suggests.
const NEAREST_COUNT: usize = 3;

/// There is no collation of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCollation {
    /// The name that was asked for.
    pub name: String,
    /// The names that are most like it, the nearest first.
    pub nearest: Vec<&'static str>,
}

impl fmt::Display for UnknownCollation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown collation {:?}; the nearest are {}", self.name, self.nearest.join(", "))
    }
}

impl std::error::Error for UnknownCollation {}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collation").field(&self.name()).finish()
    }
}

impl fmt::Display for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Collation {
    /// The collation of a name, whose case does not matter.
    ///
    /// # Errors
    /// If there is none; the error suggests others.
    pub fn find(name: &str) -> Result<Self, UnknownCollation> {
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let known = alias.map_or(name, |(_, known)| known);
        Self::all().find(|collation| collation.name().eq_ignore_ascii_case(known)).ok_or_else(|| {
            let lower = name.to_ascii_lowercase();
            let mut nearest: Vec<&'static str> = Self::all().map(Self::name).collect();
            nearest.sort_by_cached_key(|known| edit_count(&lower, known));
            nearest.truncate(NEAREST_COUNT);
            UnknownCollation { name: name.to_owned(), nearest }
        })
    }

    /// All collations: those of MySQL, then those of languages.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).take(DEFINITIONS.len() + LOCALES.len()).map(Self)
    }

    fn definition(self) -> &'static Definition {
        let index = usize::from(self.0);
        DEFINITIONS.get(index).unwrap_or_else(|| &LOCALES[index - DEFINITIONS.len()])
    }

    /// Its name in lower case; of several the newest.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The number by which MySQL's protocol knows it; `None` for those that MySQL does not have.
    #[must_use]
    pub fn id(self) -> Option<u16> {
        Some(self.definition().id).filter(|id| *id != 0)
    }

    /// The character set that it belongs to. All text is UTF-8 here; the name matters to clients.
    #[must_use]
    pub fn charset(self) -> &'static str {
        self.definition().charset
    }

    /// Whether trailing spaces do not count (`PAD SPACE`).
    #[must_use]
    pub fn pads(self) -> bool {
        self.definition().pads
    }

    /// Whether bytes are compared, after trailing spaces are cut off where [`Self::pads`].
    #[must_use]
    pub fn is_bytes(self) -> bool {
        self.method() == Method::Bytes
    }

    /// Whether letters are equal that differ in case only.
    #[must_use]
    pub fn is_case_insensitive(self) -> bool {
        matches!(self.method(), Method::Weights(_, 1 | 2))
    }

    pub(crate) fn method(self) -> Method {
        self.definition().method
    }
}

/// How many characters must be inserted, removed or replaced (Levenshtein 1965).
fn edit_count(left: &str, right: &str) -> usize {
    let mut counts: Vec<usize> = (0..=right.len()).collect();
    for (row, byte) in left.bytes().enumerate() {
        let mut diagonal = row;
        counts[0] = row + 1;
        for (column, other) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = counts[column + 1];
            counts[column + 1] = replaced.min(diagonal + 1).min(counts[column] + 1);
        }
    }
    counts[right.len()]
}
