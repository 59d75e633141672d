//! Who may knock: host names, origins, rates and folders, as pure judgements.

use crate::moment::Moment;

/// Says whether a `Host` header names this server.
///
/// Loopback binding alone does not stop DNS rebinding: a page can make its own
/// name point here, and only the header tells.
pub fn host_allowed(host: &str, allowed: &[String]) -> bool {
    let name = host_name(host);
    is_loopback_name(name)
        || allowed
            .iter()
            .any(|a| a.eq_ignore_ascii_case(host) || a.eq_ignore_ascii_case(name))
}

/// Says whether an `Origin` header is this server's own page.
pub fn origin_allowed(origin: &str, host: &str, allowed: &[String]) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    matches!(scheme, "http" | "https")
        && (authority.eq_ignore_ascii_case(host)
            || allowed.iter().any(|a| a.eq_ignore_ascii_case(authority)))
}

/// Says whether a name always means this machine.
pub fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name == "::1"
        || name
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// Says whether a key may travel to this address: in the clear only within this machine, unless
/// the operator allowed it.
pub fn may_carry_key(scheme: &str, host: &str, allow_http: bool) -> bool {
    match scheme {
        "https" => true,
        "http" => is_loopback_name(host) || allow_http,
        _ => false,
    }
}

fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => &host[..end + 2],
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// How a project was found that nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// A `.prism/project.toml` says so.
    File,
    /// The folder is called so.
    Folder,
}

impl FoundBy {
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::File, Self::Folder]
            .into_iter()
            .find(|by| by.name() == name)
    }
}

/// Where a session stands whose project was found, not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub machine_id: String,
    pub folder: String,
    pub by: FoundBy,
}

/// What a session in a folder may do with the project it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The folder is one of the project's.
    Join,
    /// The project has no folder on this machine: from now on it is this one.
    Bind,
    Refuse,
}

/// Judges a folder against those that a project has on this machine. A file in a repository is no
/// leave to join whatever it names: it binds a project only while there is nothing in it.
pub fn enter(folder: &str, by: FoundBy, bound: &[String], used: bool) -> Entry {
    if bound.iter().any(|b| b == folder) {
        Entry::Join
    } else if bound.is_empty() && (by == FoundBy::Folder || !used) {
        Entry::Bind
    } else {
        Entry::Refuse
    }
}

/// A token bucket: so many requests a second, so many in a burst.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    tokens: f64,
    filled_at: Moment,
}

impl Bucket {
    pub fn full(burst: u32, now: Moment) -> Self {
        Self {
            tokens: f64::from(burst),
            filled_at: now,
        }
    }

    /// Takes one token, or says how many milliseconds to wait for one.
    pub fn take(&mut self, per_s: u32, burst: u32, now: Moment) -> Result<(), u64> {
        let elapsed_s = now.since_us(self.filled_at).max(0) as f64 / 1e6;
        self.tokens = (self.tokens + elapsed_s * f64::from(per_s)).min(f64::from(burst));
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(((1.0 - self.tokens) * 1000.0 / f64::from(per_s.max(1))).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_configured_hosts_are_served() {
        let allowed = ["prism.lan".to_owned()];
        for good in [
            "127.0.0.1:7399",
            "localhost",
            "LOCALHOST:80",
            "[::1]:7399",
            "prism.lan",
            "prism.lan:443",
            "127.9.9.9",
        ] {
            assert!(host_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:7399",
            "",
            "[::2]:1",
            "localhost.evil",
        ] {
            assert!(!host_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_key_travels_in_the_clear_within_this_machine_only() {
        for (scheme, host, allow, may) in [
            ("https", "prism.example", false, true),
            ("http", "127.0.0.1", false, true),
            ("http", "[::1]", false, true),
            ("http", "localhost", false, true),
            ("http", "prism.example", false, false),
            ("http", "127.0.0.1.evil.example", false, false),
            ("http", "prism.example", true, true),
            ("ftp", "127.0.0.1", true, false),
        ] {
            assert_eq!(may_carry_key(scheme, host, allow), may, "{scheme} {host}");
        }
    }

    #[test]
    fn only_the_servers_own_page_is_a_known_origin() {
        let host = "127.0.0.1:7399";
        assert!(origin_allowed("http://127.0.0.1:7399", host, &[]));
        assert!(origin_allowed(
            "https://prism.lan",
            host,
            &["prism.lan".into()]
        ));
        for bad in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:1",
            "file://127.0.0.1:7399",
            "http://localhost:7399",
        ] {
            assert!(!origin_allowed(bad, host, &[]), "{bad}");
        }
    }

    #[test]
    fn a_found_project_is_the_folders_it_was_first_used_in() {
        use {Entry::*, FoundBy::*};
        let other = ["/b".to_owned()];
        let own = ["/b".to_owned(), "/a".to_owned()];
        for (by, bound, used, expected) in [
            (File, &[][..], false, Bind),
            (Folder, &[], false, Bind),
            (Folder, &[], true, Bind),
            (File, &[], true, Refuse),
            (File, &other, false, Refuse),
            (Folder, &other, true, Refuse),
            (File, &own, true, Join),
            (Folder, &own, true, Join),
        ] {
            assert_eq!(enter("/a", by, bound, used), expected, "{by:?} {bound:?}");
        }
    }

    #[test]
    fn a_key_may_burst_then_sustains_its_rate() {
        let t0 = Moment(0);
        let mut bucket = Bucket::full(3, t0);
        assert!((0..3).all(|_| bucket.take(2, 3, t0).is_ok()));
        assert_eq!(bucket.take(2, 3, t0), Err(500));
        assert!(bucket.take(2, 3, t0.plus_us(500_000)).is_ok());
        assert!(bucket.take(2, 3, t0.plus_us(500_000)).is_err());
    }
}
