//! How the values of a column become bytes, as users write it: `CODEC(Delta, ZSTD(3))`.
//!
//! | written | stored |
//! |---|---|
//! | `Auto`, `Default`, `Smallest`, `Fastest` | what suits the goal |
//! | `NONE`, `LZ4`, `LZ4HC(1 to 12)`, `ZSTD(1 to 22)`, `Snappy` | raw values, compressed with this codec |
//! | `Delta` and one of these | differences of neighbours, packed, compressed with that codec |
//! | `T64`, `DoubleDelta`, `Gorilla`, `FPC`, `GCD`, `ALP`, `FSST`, `Dictionary`, alone or with a compression | what suits the goal; it includes what these do |
//!
//! Names of other databases' codecs are understood so that their table definitions can be used. Sizes of values, as
//! in `Delta(8)`, are ignored, because the type has them.

use std::fmt;
use std::str::FromStr;

use keirin_codecs::Goal;
use keirin_codecs::blocks::Codec;

use crate::error::Error;

/// How the values of a column become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnCodec {
    /// The encoding that suits the goal best.
    Auto(Goal),
    /// Raw values, compressed with this codec.
    Raw(Codec),
    /// Integers as differences of neighbours, compressed with this codec; other types as [`ColumnCodec::Raw`].
    Delta(Codec),
}

impl Default for ColumnCodec {
    fn default() -> Self {
        Self::Auto(Goal::default())
    }
}

/// One name in the brackets of `CODEC(...)`.
enum Link {
    Whole(ColumnCodec),
    Delta,
    Compressed(Codec),
}

impl Link {
    fn parse(text: &str) -> Result<Self, Error> {
        let unknown = |reason: &str| Error::Invalid(format!("no codec '{text}': {reason}"));
        let (name, argument) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let argument = rest.strip_suffix(')').ok_or_else(|| unknown("a ')' is missing"))?;
                let number = argument.trim().parse::<i32>();
                (name, Some(number.map_err(|_| unknown("what stands in brackets is a number"))?))
            }
        };
        let level = |levels: std::ops::RangeInclusive<i32>, default: i32| {
            let level = argument.unwrap_or(default);
            let (least, most) = (levels.start(), levels.end());
            let wrong = || unknown(&format!("levels are {least} to {most}"));
            levels.contains(&level).then_some(level).ok_or_else(wrong)
        };
        let auto = |goal| Self::Whole(ColumnCodec::Auto(goal));
        Ok(match name.trim().to_ascii_lowercase().as_str() {
            "auto" | "default" | "balanced" | "alp" | "dictionary" | "doubledelta" | "fpc" | "fsst"
            | "gcd" | "gorilla" | "t64" => auto(Goal::Balanced),
            "smallest" => auto(Goal::Smallest),
            "fastest" => auto(Goal::Fastest),
            "delta" => Self::Delta,
            "none" => Self::Compressed(Codec::None),
            "lz4" => Self::Compressed(Codec::Lz4),
            "lz4hc" => Self::Compressed(Codec::Lz4Hc(level(1..=12, 9)?)),
            "snappy" => Self::Compressed(Codec::Snappy),
            "zstd" => Self::Compressed(Codec::Zstd(level(1..=22, 1)?)),
            _ => {
                return Err(unknown(
                    "there are Auto, Smallest, Fastest, NONE, LZ4, LZ4HC, ZSTD, Snappy, Delta",
                ));
            }
        })
    }
}

impl FromStr for ColumnCodec {
    type Err = Error;

    /// Parses what stands in the brackets of `CODEC(...)`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let links = text.split(',').map(|link| Link::parse(link.trim())).collect::<Result<Vec<_>, _>>()?;
        match &links[..] {
            [Link::Whole(codec)] | [Link::Whole(codec), Link::Compressed(_)] => Ok(*codec),
            [Link::Compressed(codec)] => Ok(Self::Raw(*codec)),
            [Link::Delta] => Ok(Self::Delta(Codec::None)),
            [Link::Delta, Link::Compressed(codec)] => Ok(Self::Delta(*codec)),
            _ => Err(Error::Invalid(format!("no codecs '{text}': at most one encoding and one compression"))),
        }
    }
}

impl fmt::Display for ColumnCodec {
    /// Writes it as it can be parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codec = match self {
            Self::Auto(Goal::Smallest) => return f.write_str("Smallest"),
            Self::Auto(Goal::Balanced) => return f.write_str("Auto"),
            Self::Auto(Goal::Fastest) => return f.write_str("Fastest"),
            Self::Raw(codec) => codec,
            Self::Delta(codec) => {
                f.write_str("Delta, ")?;
                codec
            }
        };
        match codec {
            Codec::None => f.write_str("NONE"),
            Codec::Lz4 => f.write_str("LZ4"),
            Codec::Lz4Hc(level) => write!(f, "LZ4HC({level})"),
            Codec::Snappy => f.write_str("Snappy"),
            Codec::Zstd(level) => write!(f, "ZSTD({level})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_read_as_users_write_them() {
        let check = |text: &str, expected: ColumnCodec| {
            assert_eq!(text.parse::<ColumnCodec>().unwrap(), expected, "{text}");
            assert_eq!(expected.to_string().parse::<ColumnCodec>().unwrap(), expected);
        };
        check("NONE", ColumnCodec::Raw(Codec::None));
        check("lz4", ColumnCodec::Raw(Codec::Lz4));
        check("LZ4HC", ColumnCodec::Raw(Codec::Lz4Hc(9)));
        check(" ZSTD( 3 )", ColumnCodec::Raw(Codec::Zstd(3)));
        check("Snappy", ColumnCodec::Raw(Codec::Snappy));
        check("Delta", ColumnCodec::Delta(Codec::None));
        check("Delta(8), LZ4", ColumnCodec::Delta(Codec::Lz4));
        check("Delta,ZSTD", ColumnCodec::Delta(Codec::Zstd(1)));
        check("Default", ColumnCodec::default());
        check("Smallest", ColumnCodec::Auto(Goal::Smallest));
        check("Fastest", ColumnCodec::Auto(Goal::Fastest));
        for text in ["T64", "T64, LZ4", "DoubleDelta, ZSTD(1)", "Gorilla", "FPC(12), LZ4"] {
            check(text, ColumnCodec::default());
        }
    }

    #[test]
    fn what_is_no_codec_is_named() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<ColumnCodec>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("", "no codec ''");
        check("LZO", "no codec 'LZO'");
        check("ZSTD(23)", "levels are 1 to 22");
        check("ZSTD(x)", "is a number");
        check("ZSTD(3", "')' is missing");
        check("LZ4, ZSTD", "at most one encoding and one compression");
        check("Delta, Delta, LZ4", "at most one encoding");
    }
}
