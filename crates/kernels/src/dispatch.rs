//! Detects the level of the CPU, and defines the macro that compiles a loop once for each level.
//!
//! A [`Level`] is proof of support: only detection makes one, so code that holds a level may run the code
//! compiled for it. This is the only file that asks what the CPU can do. The environment variable
//! `KEIRIN_CPU_LEVEL` (`portable`, `avx2`, `avx512`, `vbmi`, `neon`) can lower the level, never raise it; a
//! value that is not a level of the architecture has no effect, so programs report it at their start
//! ([`Level::check_environment`]).

use std::ffi::OsString;
use std::fmt;
use std::sync::LazyLock;

/// A set of instructions that this CPU was detected to have. Pick one once and pass it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Kind);

/// The levels of each architecture, from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The instructions that every CPU of the architecture has.
    Portable,
    /// x86-64-v3: AVX2, BMI, FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Ice Lake, Zen 4 and later: AVX-512 with byte permutes, bit counts and vector carry-less products.
    #[cfg(target_arch = "x86_64")]
    Vbmi,
    /// NEON intrinsics; the plain loops are compiled for NEON at the portable level too.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kind {
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Vbmi,
        #[cfg(target_arch = "aarch64")]
        Self::Neon,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Vbmi => "vbmi",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }
}

/// The environment variable that lowers the level.
const VARIABLE: &str = "KEIRIN_CPU_LEVEL";

/// The error of a value of `KEIRIN_CPU_LEVEL` that is not a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel {
    /// The value.
    pub name: String,
}

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        write!(f, "{VARIABLE} is {:?}, which is no level of CPU; there are {}", self.name, names.join(", "))
    }
}

impl std::error::Error for UnknownLevel {}

fn wanted(value: Option<OsString>) -> Result<Option<Kind>, UnknownLevel> {
    // An empty variable counts as unset.
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    match Kind::ALL.iter().find(|kind| value == kind.name()) {
        Some(kind) => Ok(Some(*kind)),
        None => Err(UnknownLevel { name: value.to_string_lossy().into_owned() }),
    }
}

/// The levels of this machine, lowest first, limited by `KEIRIN_CPU_LEVEL`.
static AVAILABLE: LazyLock<Vec<Level>> = LazyLock::new(|| {
    let mut highest = detect();
    if let Ok(Some(wanted)) = wanted(std::env::var_os(VARIABLE)) {
        highest = highest.min(wanted);
    }
    Kind::ALL.iter().filter(|kind| **kind <= highest).map(|kind| Level(*kind)).collect()
});

impl Level {
    /// The highest level of this machine.
    #[must_use]
    pub fn best() -> Self {
        *AVAILABLE.last().expect("every machine has the portable level")
    }

    /// The level that every machine has.
    #[must_use]
    pub const fn portable() -> Self {
        Self(Kind::Portable)
    }

    /// All levels of this machine, lowest first.
    #[must_use]
    pub fn available() -> &'static [Self] {
        &AVAILABLE
    }

    /// The name that `KEIRIN_CPU_LEVEL` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Fails if `KEIRIN_CPU_LEVEL` is set to something other than a level of this architecture.
    ///
    /// # Errors
    /// When it is; the loops then run as if it were not set.
    pub fn check_environment() -> Result<(), UnknownLevel> {
        wanted(std::env::var_os(VARIABLE)).map(|_| ())
    }

    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Passes the features of a level to `$then!`, so that detection and compilation use the same list.
#[cfg(target_arch = "x86_64")]
macro_rules! with_features {
    (avx2, $then:ident! $($rest:tt)*) => {
        $then! { ["avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe" "popcnt"] $($rest)* }
    };
    (avx512, $then:ident! $($rest:tt)*) => {
        $then! {
            ["avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe" "popcnt"
             "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"] $($rest)*
        }
    };
    (vbmi, $then:ident! $($rest:tt)*) => {
        $then! {
            ["avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe" "popcnt"
             "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"
             "avx512vbmi" "avx512vbmi2" "avx512bitalg" "avx512vpopcntdq" "gfni" "vaes" "vpclmulqdq"] $($rest)*
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Kind {
    macro_rules! has_all {
        ([$($feature:tt)*]) => { $(is_x86_feature_detected!($feature))&&* };
    }
    if with_features!(vbmi, has_all!) {
        Kind::Vbmi
    } else if with_features!(avx512, has_all!) {
        Kind::Avx512
    } else if with_features!(avx2, has_all!) {
        Kind::Avx2
    } else {
        Kind::Portable
    }
}

/// Whether `pext`, which extracts bits from a word, is a fast instruction. Up to Zen 2, AMD's CPUs implement
/// it in microcode at some eight cycles a bit, and a loop is faster.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_fast_pext() -> bool {
    // Excavator, Zen to Zen 2, and Hygon's copy of Zen.
    !matches!(*AMD_FAMILY, Some(0x15..=0x18))
}

/// How far ahead of its use a column is worth prefetching that CPUs prefetch by themselves, too, but not across
/// pages: 4096 bytes, or none, which is written as zero. Sums from memory with that, relative to none: 1.2 on
/// Intel's Emerald Rapids; 0.65 to 0.95 on Zen 4, whose own prefetching it disturbs. On Zen 5, exact sums of
/// doubles reached 0.93 of a plain read with 2048 bytes, 0.98 with 3072, 1.0 with 4096, 0.95 with 5120.
#[cfg(target_arch = "x86_64")]
pub(crate) fn stream_ahead_bytes() -> usize {
    // Zen 3 and 4.
    if *AMD_FAMILY == Some(0x19) { 0 } else { 4096 }
}

/// As on other CPUs.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn stream_ahead_bytes() -> usize {
    4096
}

/// The family of a CPU of AMD, or of Hygon, which builds them.
#[cfg(target_arch = "x86_64")]
static AMD_FAMILY: LazyLock<Option<u32>> = LazyLock::new(|| {
    use std::arch::x86_64::__cpuid;
    if cfg!(miri) {
        return None; // has no such instruction
    }
    let maker = __cpuid(0);
    let maker = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes);
    let is_amd = matches!(maker.as_flattened(), b"AuthenticAMD" | b"HygonGenuine");
    is_amd.then(|| family(__cpuid(1).eax))
});

/// The family in a CPU's signature.
#[cfg(target_arch = "x86_64")]
fn family(signature: u32) -> u32 {
    match signature >> 8 & 0xF {
        0xF => 0xF + (signature >> 20 & 0xFF),
        family => family,
    }
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Kind {
    if std::arch::is_aarch64_feature_detected!("neon") { Kind::Neon } else { Kind::Portable }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Kind {
    Kind::Portable
}

/// Compiles a loop once for each level and calls the version for the level that is passed as the first
/// argument.
///
/// ```text
/// kernel! {
///     /// The sum of `values`.
///     pub fn sum[T: Float][T](values: &[T]) -> f64 = plain::sum, avx512 = x86::sum_avx512;
/// }
/// ```
/// makes `pub fn sum<T: Float>(level: Level, values: &[T]) -> f64`. The first bracket declares generics, the
/// second names them; both are left out where there are none. `plain::sum` is a safe `#[inline(always)]`
/// function. After it, a level may name a function of its own with the same signature; that one is either
/// safe and plain, too, or has a `#[target_feature]` attribute with features of that level, and it is used
/// for the levels above unless they name their own. If it counts bits, name `popcnt` and `bmi1` there, too:
/// AVX-512 does not imply them, and without them a loop that counts is half as fast.
macro_rules! kernel {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$($generic:tt)*] [$($pass:ident),*])? ($($arg:ident: $type:ty),* $(,)?)
        $(-> $return:ty)? = $body:path $(, $level:ident = $special:path)* ;
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "the level is one more")]
        $vis fn $name $(<$($generic)*>)? (level: $crate::Level, $($arg: $type),*) $(-> $return)? {
            #[cfg(target_arch = "x86_64")]
            {
                with_features!(avx2, compiled!
                    fn avx2 $(<$($generic)*>)? ($($arg: $type),*) $(-> $return)? {
                        special!(($($arg),*) [avx2] [$($level = $special,)*] $body)
                    }
                );
                with_features!(avx512, compiled!
                    fn avx512 $(<$($generic)*>)? ($($arg: $type),*) $(-> $return)? {
                        special!(($($arg),*) [avx512 avx2] [$($level = $special,)*] $body)
                    }
                );
                with_features!(vbmi, compiled!
                    fn vbmi $(<$($generic)*>)? ($($arg: $type),*) $(-> $return)? {
                        special!(($($arg),*) [vbmi avx512 avx2] [$($level = $special,)*] $body)
                    }
                );
                match level.kind() {
                    $crate::dispatch::Kind::Portable => $body($($arg),*),
                    // SAFETY: a level is made by detection alone, from the list that `avx2` is compiled with.
                    $crate::dispatch::Kind::Avx2 => unsafe { avx2 $(::<$($pass),*>)? ($($arg),*) },
                    // SAFETY: a level is made by detection alone, from the list that `avx512` is compiled
                    // with.
                    $crate::dispatch::Kind::Avx512 => unsafe { avx512 $(::<$($pass),*>)? ($($arg),*) },
                    // SAFETY: a level is made by detection alone, from the list that `vbmi` is compiled with.
                    $crate::dispatch::Kind::Vbmi => unsafe { vbmi $(::<$($pass),*>)? ($($arg),*) },
                }
            }
            #[cfg(target_arch = "aarch64")]
            {
                #[target_feature(enable = "neon")]
                fn neon $(<$($generic)*>)? ($($arg: $type),*) $(-> $return)? {
                    special!(($($arg),*) [neon] [$($level = $special,)*] $body)
                }
                match level.kind() {
                    $crate::dispatch::Kind::Portable => $body($($arg),*),
                    // SAFETY: a level is made by detection alone.
                    $crate::dispatch::Kind::Neon => unsafe { neon $(::<$($pass),*>)? ($($arg),*) },
                }
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                let _ = level;
                $body($($arg),*)
            }
        }
    };
}

/// A function compiled with the features of a level.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled {
    ([$($feature:tt)*] $($function:tt)*) => {
        #[target_feature($(enable = $feature),*)]
        $($function)*
    };
}

/// Calls the function for the first of the wanted levels that has one of its own, or else the plain one.
macro_rules! special {
    (($($arg:expr),*) [] $specials:tt $body:path) => { $body($($arg),*) };
    ($args:tt [$level:tt $($lower:tt)*] $specials:tt $body:path) => {
        special!(@find $args $level [$($lower)*] $specials $specials $body)
    };
    (@find $args:tt $level:tt [$($lower:tt)*] [] $specials:tt $body:path) => {
        special!($args [$($lower)*] $specials $body)
    };
    (@find ($($arg:expr),*) avx2 $lower:tt [avx2 = $special:path, $($rest:tt)*] $specials:tt $body:path) => {
        $special($($arg),*)
    };
    (@find ($($arg:expr),*) avx512 $lower:tt [avx512 = $special:path, $($rest:tt)*] $specials:tt $body:path) => {
        $special($($arg),*)
    };
    (@find ($($arg:expr),*) vbmi $lower:tt [vbmi = $special:path, $($rest:tt)*] $specials:tt $body:path) => {
        $special($($arg),*)
    };
    (@find ($($arg:expr),*) neon $lower:tt [neon = $special:path, $($rest:tt)*] $specials:tt $body:path) => {
        $special($($arg),*)
    };
    (@find $args:tt $level:tt $lower:tt [$other:ident = $special:path, $($rest:tt)*] $specials:tt $body:path) => {
        special!(@find $args $level $lower [$($rest)*] $specials $body)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(always)]
    fn plain<T: Copy + Into<u64>>(values: &[T]) -> u64 {
        values.iter().map(|value| (*value).into()).sum()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn wide<T: Copy + Into<u64>>(values: &[T]) -> u64 {
        1000 + plain(values)
    }

    kernel! {
        fn sum[T: Copy + Into<u64>][T](values: &[T]) -> u64 = plain;
    }

    #[cfg(target_arch = "x86_64")]
    kernel! {
        fn special_sum(values: &[u32]) -> u64 = plain, avx512 = wide;
    }

    #[test]
    fn every_level_computes_the_same() {
        for level in Level::available() {
            assert_eq!(sum(*level, &[1_u8, 2, 3]), 6, "{level}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_function_of_a_level_serves_the_levels_above() {
        for level in Level::available() {
            let expected = if level.kind() >= Kind::Avx512 { 1006 } else { 6 };
            assert_eq!(special_sum(*level, &[1, 2, 3]), expected, "{level}");
        }
    }

    #[test]
    fn the_portable_level_is_always_there() {
        assert_eq!(Level::available().first(), Some(&Level::portable()));
        assert!(Level::available().is_sorted());
    }

    #[test]
    fn the_level_of_the_environment_is_one() {
        Level::check_environment().expect("tests run at the level that was asked for");
    }

    #[test]
    fn a_name_of_no_level_is_an_error_that_names_all() {
        assert_eq!(wanted(None), Ok(None));
        assert_eq!(wanted(Some("".into())), Ok(None));
        for kind in Kind::ALL {
            assert_eq!(wanted(Some(kind.name().into())), Ok(Some(*kind)));
        }
        let message = wanted(Some("avx-512".into())).expect_err("no level is called so").to_string();
        assert!(
            message
                .starts_with("KEIRIN_CPU_LEVEL is \"avx-512\", which is no level of CPU; there are portable")
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_family_is_in_two_parts_of_the_signature() {
        // Zen 2, Zen 3, Zen 5 and Ice Lake.
        let signatures = [0x0083_0F10, 0x00A0_0F11, 0x00B0_0F21, 0x0006_06A6];
        assert_eq!(signatures.map(family), [0x17, 0x19, 0x1A, 6]);
    }
}
