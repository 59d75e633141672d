//! The operator's key: how one is written, where it stands in `config.toml`, and how the environment gives it.

use super::{Env, OPERATOR_KEY};
use prism_core::{Code, Problem};

/// Characters of the operator's key after `prk_`, at the least.
pub const KEY_CHARS_MIN: usize = 32;

/// The key where it stands on a line as we write it, before the first table; none where it takes a
/// reader of TOML to tell.
pub fn plain_key(text: &str) -> Option<&str> {
    if text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let top = text.lines().take_while(|line| !line.starts_with('['));
    let mut keys = top.filter(|line| line.contains("api_key"));
    let (Some(line), None) = (keys.next(), keys.next()) else {
        return None;
    };
    let key = line.strip_prefix("api_key = \"")?.strip_suffix('"')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    key.chars().all(plain).then_some(key)
}

/// Whether nobody can guess it, and it is written as keys are.
pub fn is_key(key: &str) -> bool {
    let secret = key.strip_prefix("prk_").unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    secret.len() >= KEY_CHARS_MIN && secret.chars().all(plain)
}

/// The same text with another key where one stands plainly: what else somebody wrote there stays as it is.
pub fn with_key(text: &str, key: &str) -> Option<String> {
    let line = |key: &str| format!("api_key = \"{key}\"");
    Some(text.replacen(&line(plain_key(text)?), &line(key), 1))
}

impl Env {
    /// The operator's key that it gives a home, if it is one.
    pub fn given_key(&self) -> Result<Option<String>, Problem> {
        let given = self.operator_key.as_ref().map(|key| key.trim().to_owned());
        match given {
            None => Ok(None),
            Some(key) if is_key(&key) => Ok(Some(key)),
            Some(_) => Err(Problem::new(
                Code::InvalidRequest,
                format!("{OPERATOR_KEY} is no key; nothing was changed"),
                format!(
                    "let it say `prk_` and at least {KEY_CHARS_MIN} random letters or digits, or unset it"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CONFIG, Config};
    use crate::home::Home;

    #[test]
    fn a_key_that_stands_plainly_is_found_without_reading_the_rest() {
        for (text, key) in [
            (
                "operator = \"a\"\napi_key = \"prk_x-Y_1\"\n",
                Some("prk_x-Y_1"),
            ),
            (
                "api_key = \"prk_x\"\n[server]\nport = nonsense\n",
                Some("prk_x"),
            ),
            ("# the api_key = \"prk_no\"\napi_key = \"prk_x\"\n", None),
            ("api_key = \"prk_x\"\napi_key = \"prk_y\"\n", None),
            ("[other]\napi_key = \"prk_x\"\n", None),
            ("say = \"\"\"\napi_key = \"prk_no\"\n\"\"\"\n", None),
            ("say = '''\napi_key = \"prk_no\"\n'''\n", None),
            ("api_key = \"prk\\u005fx\"\n", None),
            ("api_key = 'prk_x'\n", None),
            ("api_key = \"prk_x\" # mine\n", None),
            ("", None),
        ] {
            assert_eq!(plain_key(text), key, "{text}");
        }
    }

    #[test]
    fn an_operators_key_of_the_environment_is_the_one_of_the_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let with = |key: &str| Env {
            operator_key: Some(key.into()),
            ..Env::default()
        };
        let (one, two) = (
            "prk_".to_owned() + &"a".repeat(32),
            "prk_".to_owned() + &"b".repeat(32),
        );
        for key in [&one, &two] {
            let made = Config::load_or_create(&home, &with(&format!("{key}\n"))).unwrap();
            assert_eq!(made.api_key, *key);
        }
        let again = Config::load_or_create(&home, &with(&one)).unwrap();
        assert_eq!(again.replaced_key.as_deref(), Some(two.as_str()));
        let again = Config::load_or_create(&home, &with(&one)).unwrap();
        assert_eq!(again.replaced_key, None);
    }

    #[test]
    fn an_operators_key_that_is_none_is_told_by_its_variable_and_written_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let with = |key: &str| Env {
            operator_key: Some(key.into()),
            ..Env::default()
        };
        let good = "prk_".to_owned() + &"a".repeat(32);
        let by_hand = "# ours\n[limits]\nrequests_burst = 7\n";
        let with_key = format!("api_key = \"{good}\"\n{by_hand}");
        for (n, before) in [None, Some(by_hand), Some(&with_key)]
            .into_iter()
            .enumerate()
        {
            let home = Home::at(dir.path().join(n.to_string()));
            home.create().unwrap();
            if let Some(text) = before {
                home.write(CONFIG, text.as_bytes()).unwrap();
            }
            let said = Config::load_or_create(&home, &with("guess")).unwrap_err();
            let said = format!("{said:#}");
            assert!(said.starts_with("PRISM_OPERATOR_KEY is no key"), "{said}");
            assert!(!said.contains("guess"), "{said}");
            assert_eq!(home.read(CONFIG).as_deref(), before);
            // Mended, it counts.
            let made = Config::load_or_create(&home, &with(&good)).unwrap();
            assert_eq!(made.api_key, good);
        }
        // So it does where an earlier version wrote down one that was none.
        let home = Home::at(dir.path().join("spoiled"));
        home.create().unwrap();
        home.write(CONFIG, b"operator = \"frank\"\napi_key = \"guess\"\n")
            .unwrap();
        assert!(Config::load_or_create(&home, &Env::default()).is_err());
        let made = Config::load_or_create(&home, &with(&good)).unwrap();
        assert_eq!(made.api_key, good);
    }

    #[test]
    fn another_operators_key_leaves_what_somebody_wrote_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.create().unwrap();
        let (one, two) = ("a".repeat(32), "b".repeat(32));
        let env = Env {
            operator_key: Some(format!("prk_{two}")),
            ..Env::default()
        };
        for (text, keeps) in [
            (
                "# who\noperator = \"maria\"\napi_key = \"prk_KEY\"\n\n# how many\n[limits]\nrequests_burst = 7 # a few\n",
                true,
            ),
            (
                "operator = \"maria\"\napi_key = 'prk_KEY' # mine\n[limits]\nrequests_burst = 7\n",
                false,
            ),
        ] {
            let before = text.replace("KEY", &one);
            home.write(CONFIG, before.as_bytes()).unwrap();
            let made = Config::load_or_create(&home, &env).unwrap();
            assert_eq!(made.api_key, format!("prk_{two}"));
            assert_eq!(
                home.read(CONFIG).unwrap() == text.replace("KEY", &two),
                keeps
            );
            let read = Config::load(&home).unwrap().unwrap();
            assert_eq!(read.api_key, made.api_key);
            assert_eq!(read.operator.as_str(), "maria");
            assert_eq!(read.limits.requests_burst, 7);
        }
    }
}
