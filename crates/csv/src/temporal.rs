//! Dates, times of day and timestamps from bytes.
//!
//! Days are counted in the proleptic Gregorian calendar from 1970-01-01; the arithmetic is that of
//! Howard Hinnant, "chrono-compatible low-level date algorithms".

/// The order and punctuation of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateLayout {
    /// `2024-02-29`
    YearMonthDay,
    /// `2024/02/29`
    YearMonthDaySlash,
    /// `02/29/2024`
    MonthDayYearSlash,
    /// `29/02/2024`
    DayMonthYearSlash,
    /// `29.02.2024`
    DayMonthYearDot,
    /// `29-02-2024`
    DayMonthYear,
    /// `02-29-2024`
    MonthDayYear,
    /// `29-Feb-2024`
    DayNameYear,
    /// `29 Feb 2024`
    DayNameYearBlank,
}

impl DateLayout {
    /// In the order of preference where a file fits several.
    pub(crate) const ALL: [DateLayout; 9] = [
        DateLayout::YearMonthDay,
        DateLayout::YearMonthDaySlash,
        DateLayout::MonthDayYearSlash,
        DateLayout::DayMonthYearSlash,
        DateLayout::DayMonthYearDot,
        DateLayout::DayMonthYear,
        DateLayout::MonthDayYear,
        DateLayout::DayNameYear,
        DateLayout::DayNameYearBlank,
    ];

    /// How the layout is called in messages.
    pub(crate) fn pattern(self) -> &'static str {
        match self {
            DateLayout::YearMonthDay => "YYYY-MM-DD",
            DateLayout::YearMonthDaySlash => "YYYY/MM/DD",
            DateLayout::MonthDayYearSlash => "MM/DD/YYYY",
            DateLayout::DayMonthYearSlash => "DD/MM/YYYY",
            DateLayout::DayMonthYearDot => "DD.MM.YYYY",
            DateLayout::DayMonthYear => "DD-MM-YYYY",
            DateLayout::MonthDayYear => "MM-DD-YYYY",
            DateLayout::DayNameYear => "DD-Mon-YYYY",
            DateLayout::DayNameYearBlank => "DD Mon YYYY",
        }
    }
}

/// A point in time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Days since 1970-01-01.
    pub(crate) days: i32,
    /// Nanoseconds since midnight.
    pub(crate) nanoseconds: i64,
    /// Whether a time of day was written.
    pub(crate) has_time: bool,
    /// Seconds east of Greenwich, if a zone was written.
    pub(crate) offset_seconds: Option<i32>,
}

impl Moment {
    /// Units since 1970-01-01, for units of `1 / per_second` seconds; in UTC if a zone was written.
    /// `None` where that does not fit or would lose digits.
    #[inline]
    pub(crate) fn since_epoch(self, per_second: i64) -> Option<i64> {
        let seconds = i64::from(self.days) * 86_400 - i64::from(self.offset_seconds.unwrap_or(0));
        let nanoseconds_per_unit = 1_000_000_000 / per_second;
        if self.nanoseconds % nanoseconds_per_unit != 0 {
            return None;
        }
        seconds.checked_mul(per_second)?.checked_add(self.nanoseconds / nanoseconds_per_unit)
    }
}

/// A date and nothing else, in days since 1970-01-01.
#[inline]
pub(crate) fn parse_date(text: &[u8], layout: DateLayout) -> Option<i32> {
    let mut cursor = Cursor(text);
    let days = cursor.date(layout)?;
    cursor.0.is_empty().then_some(days)
}

/// A time of day and nothing else, in nanoseconds since midnight.
#[inline]
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    let mut cursor = Cursor(text);
    let time = cursor.time()?;
    cursor.0.is_empty().then_some(time)
}

/// A date, alone or with a time after a blank or `T`, and then with or without a zone.
#[inline]
pub(crate) fn parse_moment(text: &[u8], layout: DateLayout) -> Option<Moment> {
    let mut cursor = Cursor(text);
    let days = cursor.date(layout)?;
    if cursor.0.is_empty() {
        return Some(Moment { days, nanoseconds: 0, has_time: false, offset_seconds: None });
    }
    if !matches!(cursor.byte()?, b' ' | b'T' | b't') {
        return None;
    }
    let nanoseconds = cursor.time()?;
    let offset_seconds = if cursor.0.is_empty() { None } else { Some(cursor.zone()?) };
    cursor.0.is_empty().then_some(Moment { days, nanoseconds, has_time: true, offset_seconds })
}

/// The rest of a text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    #[inline]
    fn digits<const N: usize>(&mut self) -> Option<u32> {
        let (digits, rest) = self.0.split_first_chunk::<N>()?;
        let mut value = 0;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u32::from(digit);
        }
        self.0 = rest;
        Some(value)
    }

    /// One or two digits, as people write days and months.
    #[inline]
    fn short(&mut self) -> Option<u32> {
        match self.0 {
            [_, b'0'..=b'9', ..] => self.digits::<2>(),
            _ => self.digits::<1>(),
        }
    }

    #[inline]
    fn date(&mut self, layout: DateLayout) -> Option<i32> {
        let (year, month, day);
        match layout {
            DateLayout::YearMonthDay => {
                year = self.digits::<4>()?;
                self.expect(b'-')?;
                month = self.digits::<2>()?;
                self.expect(b'-')?;
                day = self.digits::<2>()?;
            }
            DateLayout::YearMonthDaySlash => {
                year = self.digits::<4>()?;
                self.expect(b'/')?;
                month = self.short()?;
                self.expect(b'/')?;
                day = self.short()?;
            }
            DateLayout::MonthDayYearSlash | DateLayout::MonthDayYear => {
                let between = if layout == DateLayout::MonthDayYear { b'-' } else { b'/' };
                month = self.short()?;
                self.expect(between)?;
                day = self.short()?;
                self.expect(between)?;
                year = self.digits::<4>()?;
            }
            DateLayout::DayMonthYearSlash | DateLayout::DayMonthYearDot | DateLayout::DayMonthYear => {
                let between = match layout {
                    DateLayout::DayMonthYearSlash => b'/',
                    DateLayout::DayMonthYearDot => b'.',
                    _ => b'-',
                };
                day = self.short()?;
                self.expect(between)?;
                month = self.short()?;
                self.expect(between)?;
                year = self.digits::<4>()?;
            }
            DateLayout::DayNameYear | DateLayout::DayNameYearBlank => {
                let between = if layout == DateLayout::DayNameYear { b'-' } else { b' ' };
                day = self.short()?;
                self.expect(between)?;
                month = self.month_name()?;
                self.expect(between)?;
                year = self.digits::<4>()?;
            }
        }
        days_of(year, month, day)
    }

    fn month_name(&mut self) -> Option<u32> {
        const NAMES: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";
        let (name, rest) = self.0.split_first_chunk::<3>()?;
        let month = NAMES.chunks(3).zip(1..).find(|(month, _)| name.eq_ignore_ascii_case(month))?.1;
        self.0 = rest;
        Some(month)
    }

    /// `HH:MM`, `HH:MM:SS` or `HH:MM:SS.f` with up to nine digits; `AM` or `PM` may follow a blank.
    #[inline]
    fn time(&mut self) -> Option<i64> {
        let mut hour = self.short()?;
        self.expect(b':')?;
        let minute = self.digits::<2>()?;
        let mut second = 0;
        let mut fraction = 0;
        if let [b':', rest @ ..] = self.0 {
            self.0 = rest;
            second = self.digits::<2>()?;
            if let [b'.', rest @ ..] = self.0 {
                self.0 = rest;
                fraction = self.fraction()?;
            }
        }
        if let [b' ', half @ (b'A' | b'a' | b'P' | b'p'), b'M' | b'm', rest @ ..] = self.0 {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if half.eq_ignore_ascii_case(&b'p') { 12 } else { 0 };
            self.0 = rest;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(i64::from(hour * 3600 + minute * 60 + second) * 1_000_000_000 + i64::from(fraction))
    }

    fn fraction(&mut self) -> Option<u32> {
        let mut nanoseconds = 0;
        let mut digit_count = 0;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.0 {
            if digit_count == 9 {
                return None;
            }
            nanoseconds = nanoseconds * 10 + u32::from(digit - b'0');
            digit_count += 1;
            self.0 = rest;
        }
        (digit_count > 0).then(|| nanoseconds * 10u32.pow(9 - digit_count))
    }

    /// `Z`, `UTC`, `+HH`, `+HHMM` or `+HH:MM`, also after a blank.
    fn zone(&mut self) -> Option<i32> {
        if let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if matches!(self.0, b"Z" | b"z" | b"UTC") {
            self.0 = &[];
            return Some(0);
        }
        let sign = match self.byte()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hour = self.digits::<2>()?;
        if let [b':', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let minute = if self.0.is_empty() { 0 } else { self.digits::<2>()? };
        if hour > 23 || minute > 59 {
            return None;
        }
        i32::try_from(hour * 3600 + minute * 60).ok().map(|seconds| sign * seconds)
    }
}

#[inline]
fn days_of(year: u32, month: u32, day: u32) -> Option<i32> {
    const LENGTHS: [u32; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let length = LENGTHS[month as usize] + u32::from(leap && month == 2);
    if day > length {
        return None;
    }
    // The year begins in March, so that the leap day is its last; 400 years are an era of 146,097 days.
    let year = year + 400 - u32::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    i32::try_from(era * 146_097 + day_of_era).ok().map(|days| days - 719_468 - 146_097)
}

#[cfg(test)]
mod tests {
    use chrono::{Days, NaiveDate};

    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_is_where_chrono_has_it() {
        let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
        let mut date = NaiveDate::from_ymd_opt(0, 1, 1).unwrap();
        while date < NaiveDate::from_ymd_opt(9999, 12, 31).unwrap() {
            let text = date.format("%Y-%m-%d").to_string();
            let days = parse_date(text.as_bytes(), DateLayout::YearMonthDay).unwrap();
            assert_eq!(i64::from(days), (date - epoch).num_days(), "{text}");
            date = date + Days::new(17);
        }
    }

    #[test]
    fn every_layout_reads_its_own_pattern() {
        for layout in DateLayout::ALL {
            let text = layout.pattern().replace("YYYY", "2024").replace("MM", "02").replace("DD", "29");
            let text = text.replace("Mon", "Feb");
            assert_eq!(parse_date(text.as_bytes(), layout), Some(19_782), "{text}");
            assert_eq!(parse_date(format!("{text}x").as_bytes(), layout), None);
        }
    }

    #[test]
    fn days_and_months_that_do_not_exist_are_refused() {
        for text in
            ["2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "2024-04-31", "24-01-01"]
        {
            assert_eq!(parse_date(text.as_bytes(), DateLayout::YearMonthDay), None, "{text}");
        }
    }

    #[test]
    fn times_and_zones_are_read() {
        let check = |text: &str, expected: Option<(i64, Option<i32>)>| {
            let moment = parse_moment(text.as_bytes(), DateLayout::YearMonthDay);
            assert_eq!(moment.map(|m| (m.nanoseconds, m.offset_seconds)), expected, "{text}");
        };
        check("1970-01-01", Some((0, None)));
        check("1970-01-01 00:01", Some((60_000_000_000, None)));
        check("1970-01-01T00:00:01.5", Some((1_500_000_000, None)));
        check("1970-01-01 00:00:00.123456789", Some((123_456_789, None)));
        check("1970-01-01 00:00:00.1234567890", None);
        check("1970-01-01 00:00:01Z", Some((1_000_000_000, Some(0))));
        check("1970-01-01 00:00:01 UTC", Some((1_000_000_000, Some(0))));
        check("1970-01-01 00:00:01+02:30", Some((1_000_000_000, Some(9000))));
        check("1970-01-01 00:00:01-0800", Some((1_000_000_000, Some(-28_800))));
        check("1970-01-01 00:00:01-08", Some((1_000_000_000, Some(-28_800))));
        check("1970-01-01 12:30:00 AM", Some((1_800_000_000_000, None)));
        check("1970-01-01 1:30:00 PM", Some((48_600_000_000_000, None)));
        check("1970-01-01 13:30:00 PM", None);
        check("1970-01-01 24:00:00", None);
        check("1970-01-01 00:60", None);
        check("1970-01-01 ", None);
        check("1970-01-01 1", None);
        check("1970-01-01 00:00:01.", None);
        check("1970-01-01 00:00:01+2", None);
    }

    #[test]
    fn timestamps_lose_no_digits() {
        let moment = parse_moment(b"1970-01-02 00:00:00.000001+01:00", DateLayout::YearMonthDay).unwrap();
        assert_eq!(moment.since_epoch(1_000_000), Some(82_800_000_001));
        assert_eq!(moment.since_epoch(1_000), None);
        let far = parse_moment(b"9999-12-31", DateLayout::YearMonthDay).unwrap();
        assert_eq!(far.since_epoch(1_000_000_000), None);
    }
}
