//! A point in time: microseconds since 1970, written as ISO 8601 in UTC.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub i64);

impl Moment {
    pub const fn plus_us(self, us: i64) -> Self {
        Self(self.0.saturating_add(us))
    }

    pub const fn plus_s(self, s: i64) -> Self {
        self.plus_us(s.saturating_mul(1_000_000))
    }

    /// Returns how many microseconds this moment lies after `earlier`.
    pub const fn since_us(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads an ISO 8601 time with an offset or `Z`.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>()
            .ok()
            .map(|t| Self(t.as_microsecond()))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => f.write_str("1970-01-01T00:00:00.000000Z"),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| {
            D::Error::custom("not an ISO 8601 time with an offset, such as 2026-11-15T09:30:00Z")
        })
    }
}

impl schemars::JsonSchema for Moment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_utc_with_microseconds_and_read_back() {
        let m = Moment(1_763_200_000_123_456);
        assert_eq!(m.to_string(), "2025-11-15T09:46:40.123456Z");
        assert_eq!(Moment::parse(&m.to_string()), Some(m));
        assert_eq!(Moment::parse("2025-11-15T10:46:40.123456+01:00"), Some(m));
        assert_eq!(Moment::parse("yesterday"), None);
    }
}
