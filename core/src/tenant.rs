//! Tenants: several that share a database and know nothing of each other. A tenant's keys carry its name.

use crate::problem::{Code, Problem};

/// The name of the tenant that a database begins with; its keys carry none.
pub const DEFAULT: &str = "default";
/// Letters of a tenant's name at the most.
pub const NAME_CHARS_MAX: usize = 32;

/// What stands before every key, and between a tenant's name and the secret.
pub const KEY: &str = "prk_";
const BETWEEN: &str = "__";
/// Letters of a secret that are shown to tell keys apart.
const SHOWN_CHARS: usize = 8;

/// A tenant's name: small letters, digits and hyphens, so that it can stand in a key and in a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantName(String);

impl TenantName {
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let no = |why: &str| {
            Problem::new(
                Code::InvalidRequest,
                format!(
                    "{:?} is no name for a tenant: {why}",
                    crate::text::clip(text, 40)
                ),
                format!(
                    "use small letters, digits and hyphens, at most {NAME_CHARS_MAX}: acme, team-7"
                ),
            )
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.is_empty() || text.len() > NAME_CHARS_MAX {
            return Err(no("it is empty or too long"));
        }
        if !text.chars().all(plain) || text.starts_with('-') || text.ends_with('-') {
            return Err(no(
                "it holds something else, or begins or ends with a hyphen",
            ));
        }
        if text == DEFAULT {
            return Err(no("that is the tenant which every database begins with"));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key of this tenant, from a key as every tenant's is made.
    pub fn key(&self, key: &str) -> String {
        let secret = key.strip_prefix(KEY).unwrap_or(key);
        format!("{KEY}{}{BETWEEN}{secret}", self.0)
    }
}

impl std::fmt::Display for TenantName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that a key carries. It is a claim: whether there is such a key is looked up among that tenant's alone.
pub fn named_in(key: &str) -> Option<&str> {
    let (name, secret) = key.strip_prefix(KEY)?.split_once(BETWEEN)?;
    (!secret.is_empty() && TenantName::parse(name).is_ok()).then_some(name)
}

/// As much of a key as is shown.
pub fn shown_of(key: &str) -> String {
    let before = named_in(key).map_or(KEY.len(), |name| KEY.len() + name.len() + BETWEEN.len());
    key.chars().take(before + SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_name_is_small_letters_digits_and_hyphens() {
        for name in ["acme", "team-7", "a", &"x".repeat(32)] {
            assert_eq!(TenantName::parse(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            "Acme",
            "a_b",
            "-a",
            "a-",
            "a b",
            "default",
            "ä",
            "a'b",
            &"x".repeat(33),
        ] {
            let refused = TenantName::parse(name).unwrap_err();
            assert!(refused.message.contains("no name for a tenant"), "{name}");
        }
    }

    #[test]
    fn a_key_carries_the_name_of_its_tenant_and_the_first_ones_carry_none() {
        let plain = "prk_0123456789abcdef";
        let acme = TenantName::parse("acme").unwrap().key(plain);
        assert_eq!(acme, "prk_acme__0123456789abcdef");
        for (key, named, shown) in [
            (plain, None, "prk_01234567"),
            (acme.as_str(), Some("acme"), "prk_acme__01234567"),
            // Keys that people made themselves.
            ("prk_x-Y_1", None, "prk_x-Y_1"),
            ("prk_Not__a-name", None, "prk_Not__a-n"),
            ("prk_acme__", None, "prk_acme__"),
            ("prk_default__x", None, "prk_default_"),
            ("x", None, "x"),
        ] {
            assert_eq!((named_in(key), shown_of(key).as_str()), (named, shown));
        }
    }

    #[test]
    fn a_tenants_key_is_blanked_like_any_other() {
        let key = TenantName::parse("acme")
            .unwrap()
            .key("prk_0123456789abcdef");
        assert_eq!(
            crate::text::without_keys(&format!("it is {key}.")),
            "it is prk_…."
        );
        assert!(!crate::memory::redact::redact(&key).0.contains("0123"));
    }
}
