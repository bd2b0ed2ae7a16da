//! A reader of DER for bytes of unknown origin: it never panics, and never reads a byte twice.
//!
//! It is stricter than BER: one-byte tags, definite lengths in their shortest form, and dates in the two
//! forms that certificates may have. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5>

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `BOOLEAN`
pub(super) const BOOLEAN: u8 = 0x01;
/// `INTEGER`
pub(super) const INTEGER: u8 = 0x02;
/// `BIT STRING`
pub(super) const BIT_STRING: u8 = 0x03;
/// `OCTET STRING`
pub(super) const OCTET_STRING: u8 = 0x04;
/// `OBJECT IDENTIFIER`
pub(super) const OID: u8 = 0x06;
/// `SEQUENCE`, constructed.
pub(super) const SEQUENCE: u8 = 0x30;
/// The field `[0]`, constructed.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// The field `[3]`, constructed.
pub(super) const CONTEXT_3: u8 = 0xa3;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The tag number that says that more bytes of it follow.
const LONG_TAG: u8 = 0x1f;

/// A length of more bytes is longer than any certificate.
const MOST_LENGTH_BYTES: usize = 4;

const DAY: u64 = 24 * 60 * 60;

/// Why bytes are not the DER that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadDer {
    /// They end within a value.
    #[error("DER ends within a value")]
    Truncated,
    /// More bytes follow.
    #[error("DER has bytes after its end")]
    Trailing,
    /// A tag of more than one byte.
    #[error("DER has a tag of more than one byte")]
    Tag,
    /// An indefinite length, one of more than four bytes, or one not in its shortest form.
    #[error("DER has a length that is not definite, short and minimal")]
    Length,
    /// Another field than the expected one.
    #[error("DER has another field than expected")]
    Unexpected,
    /// A date in another form than `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, or one that does not exist.
    #[error("DER has a date that is not valid")]
    Date,
}

/// The fields of a constructed value that have not been read.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

/// One value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Starts at the first of these bytes.
    pub(super) fn new(der: &'a [u8]) -> Self {
        Self(der)
    }

    /// Reads the next field.
    pub(super) fn next(&mut self) -> Result<Field<'a>, BadDer> {
        let whole = self.0;
        let (&tag, rest) = whole.split_first().ok_or(BadDer::Truncated)?;
        if tag & LONG_TAG == LONG_TAG {
            return Err(BadDer::Tag);
        }
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length).ok_or(BadDer::Truncated)?;
        let read = whole.len().saturating_sub(rest.len());
        self.0 = rest;
        Ok(Field {
            tag,
            content,
            whole: whole.get(..read).ok_or(BadDer::Truncated)?,
        })
    }

    /// Reads the next field, which has this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<Field<'a>, BadDer> {
        self.optional(tag)?.ok_or(BadDer::Unexpected)
    }

    /// Reads the next field if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Result<Option<Field<'a>>, BadDer> {
        match self.0.first() {
            Some(&first) if first == tag => self.next().map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// Reads the rest, field by field.
    pub(super) fn skip_rest(mut self) -> Result<(), BadDer> {
        while !self.0.is_empty() {
            self.next()?;
        }
        Ok(())
    }

    /// Makes sure that there is no further field.
    pub(super) fn end(self) -> Result<(), BadDer> {
        match self.0 {
            [] => Ok(()),
            _ => Err(BadDer::Trailing),
        }
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    /// The fields in it, also where its content is DER in an `OCTET STRING`.
    pub(super) fn fields(self) -> Fields<'a> {
        Fields(self.content)
    }

    /// Tag, length and content.
    pub(super) fn whole(self) -> &'a [u8] {
        self.whole
    }

    /// Its content.
    pub(super) fn content(self) -> &'a [u8] {
        self.content
    }

    /// Reads it as a date. The years of `UTCTime` are 1950 to 2049.
    pub(super) fn date(self) -> Result<SystemTime, BadDer> {
        let mut digits = self.content.strip_suffix(b"Z").ok_or(BadDer::Date)?;
        let year = match (self.tag, digits.len()) {
            (UTC_TIME, 12) => match two_digits(&mut digits)? {
                year @ 50.. => 1900 + year,
                year => 2000 + year,
            },
            (GENERALIZED_TIME, 14) => two_digits(&mut digits)? * 100 + two_digits(&mut digits)?,
            _ => return Err(BadDer::Date),
        };
        let [month, day, hour, minute, second] = [
            two_digits(&mut digits)?,
            two_digits(&mut digits)?,
            two_digits(&mut digits)?,
            two_digits(&mut digits)?,
            two_digits(&mut digits)?,
        ];
        let is_valid = (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !is_valid {
            return Err(BadDer::Date);
        }
        let seconds = (hour * 60 + minute) * 60 + second;
        let before = days_before(1970);
        let days = days_before(year) + (1..month).map(|m| days_of(year, m)).sum::<u64>() + day - 1;
        let at = match days.checked_sub(before) {
            Some(days) => UNIX_EPOCH.checked_add(Duration::from_secs(days * DAY + seconds)),
            None => UNIX_EPOCH
                .checked_sub(Duration::from_secs((before - days) * DAY))
                .and_then(|midnight| midnight.checked_add(Duration::from_secs(seconds))),
        };
        at.ok_or(BadDer::Date)
    }
}

/// Reads a length, and returns what follows it.
fn length(der: &[u8]) -> Result<(usize, &[u8]), BadDer> {
    let (&first, rest) = der.split_first().ok_or(BadDer::Truncated)?;
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=MOST_LENGTH_BYTES).contains(&count) {
        return Err(BadDer::Length);
    }
    let (bytes, rest) = rest.split_at_checked(count).ok_or(BadDer::Truncated)?;
    let length = bytes
        .iter()
        .fold(0_u32, |length, &byte| length << 8 | u32::from(byte));
    let is_minimal = length >= 0x80 && bytes.first() != Some(&0);
    match usize::try_from(length) {
        Ok(length) if is_minimal => Ok((length, rest)),
        _ => Err(BadDer::Length),
    }
}

fn two_digits(digits: &mut &[u8]) -> Result<u64, BadDer> {
    match digits.split_first_chunk() {
        Some(([tens @ b'0'..=b'9', ones @ b'0'..=b'9'], rest)) => {
            *digits = rest;
            Ok(u64::from(tens - b'0') * 10 + u64::from(ones - b'0'))
        }
        _ => Err(BadDer::Date),
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from the first of January of the year 0 to that of `year`.
fn days_before(year: u64) -> u64 {
    // Years divisible by 4, 100 and 400 before it, the year 0 among them.
    let before = |n: u64| year.div_ceil(n);
    year * 365 + before(4) - before(100) + before(400)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(tag: u8, text: &str) -> Result<SystemTime, BadDer> {
        let mut der = vec![tag, u8::try_from(text.len()).unwrap()];
        der.extend(text.bytes());
        let mut fields = Fields::new(&der);
        let field = fields.next()?;
        fields.end()?;
        field.date()
    }

    #[test]
    fn dates_have_two_forms() {
        // As `date --utc --date ... +%s` says.
        for (tag, text, wanted) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "261122154500Z", 1_795_362_300),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", -631_152_000),
            (GENERALIZED_TIME, "19700101000000Z", 0),
            (GENERALIZED_TIME, "19691231235959Z", -1),
            (GENERALIZED_TIME, "20000229000000Z", 951_782_400),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
            (GENERALIZED_TIME, "00000101000000Z", -62_167_219_200),
        ] {
            let at = date(tag, text).unwrap();
            let found = match at.duration_since(UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_secs()).unwrap(),
                Err(before) => -i64::try_from(before.duration().as_secs()).unwrap(),
            };
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn other_dates_are_refused() {
        for (tag, text) in [
            (UTC_TIME, ""),
            (UTC_TIME, "Z"),
            (UTC_TIME, "261122154500"),
            (UTC_TIME, "2611221545Z"),
            (UTC_TIME, "261122154500+0100"),
            (UTC_TIME, "20261122154500Z"),
            (UTC_TIME, "26112215450-Z"),
            (UTC_TIME, "260229000000Z"),
            (UTC_TIME, "260431000000Z"),
            (UTC_TIME, "261301000000Z"),
            (UTC_TIME, "260001000000Z"),
            (UTC_TIME, "261100000000Z"),
            (UTC_TIME, "261122240000Z"),
            (UTC_TIME, "261122006000Z"),
            (UTC_TIME, "261122000060Z"),
            (GENERALIZED_TIME, "99991231235959-2359"),
            (GENERALIZED_TIME, "20261122154500.5Z"),
            (GENERALIZED_TIME, "21000229000000Z"),
            (GENERALIZED_TIME, "261122154500Z"),
            (INTEGER, "261122154500Z"),
        ] {
            assert_eq!(date(tag, text), Err(BadDer::Date), "{text}");
        }
    }

    #[test]
    fn lengths_are_definite_short_and_minimal() {
        use BadDer::{Length, Tag, Truncated};
        let long = |head: &[u8], length: usize| {
            let mut der = head.to_vec();
            der.resize(head.len() + length, 0);
            der
        };
        for (der, wanted) in [
            (vec![0x30, 0], Ok(0)),
            (long(&[0x30, 0x7f], 0x7f), Ok(0x7f)),
            (long(&[0x30, 0x81, 0x80], 0x80), Ok(0x80)),
            (long(&[0x30, 0x82, 1, 0], 0x100), Ok(0x100)),
            (long(&[0x30, 0x83, 1, 0, 0], 0x1_0000), Ok(0x1_0000)),
            (long(&[0x30, 0x81, 0x7f], 0x7f), Err(Length)),
            (long(&[0x30, 0x82, 0, 0x80], 0x80), Err(Length)),
            (vec![0x30, 0x80, 0, 0], Err(Length)),
            (vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff], Err(Truncated)),
            (vec![0x30, 0x85, 1, 0, 0, 0, 0], Err(Length)),
            // With these, a sum of position and length wraps.
            (long(&[0x30, 0x88], 8), Err(Length)),
            (
                [&[0x30, 0x88][..], &(u64::MAX - 9).to_be_bytes()].concat(),
                Err(Length),
            ),
            (
                [&[0x30, 0x88][..], &(u64::MAX - 10).to_be_bytes()].concat(),
                Err(Length),
            ),
            (vec![0x30, 0xff], Err(Length)),
            (vec![0x1f, 0], Err(Tag)),
            (vec![0x30, 1], Err(Truncated)),
            (vec![0x30, 0x82, 1], Err(Truncated)),
            (vec![0x30], Err(Truncated)),
            (vec![], Err(Truncated)),
        ] {
            let found = Fields::new(&der).next().map(|field| {
                assert_eq!(field.whole(), der, "it is all there is");
                field.content().len()
            });
            assert_eq!(found, wanted, "{:02x?}", der.get(..10).unwrap_or(&der));
        }
    }
}
