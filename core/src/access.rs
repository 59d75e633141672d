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

/// Where people reach this server when that is not where it listens: behind a proxy, under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme and authority, as browsers write an `Origin`.
    pub origin: String,
    pub authority: String,
    /// With a slash at either end.
    pub path: String,
    pub secure: bool,
}

impl PublicUrl {
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{:?} is no public address: write https://host or https://host/path",
                crate::text::clip(url, 80)
            )
        };
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(wrong)?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let name = host_name(authority);
        let port = match &authority[name.len()..] {
            "" => None,
            rest => {
                let port = rest.strip_prefix(':').and_then(|n| n.parse::<u16>().ok());
                Some(port.filter(|n| *n > 0).ok_or_else(wrong)?)
            }
        };
        let plain = |text: &str, more: &str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let bracketed = name.starts_with('[') && name.ends_with(']');
        if name.is_empty() || !plain(authority, ".-:[]") || !plain(path, "._-~/") {
            return Err(wrong());
        }
        if !bracketed && name.contains([':', '[', ']']) {
            return Err(wrong());
        }
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err(wrong());
        }
        if !secure && !is_loopback_name(name) {
            return Err(format!(
                "{scheme}://{authority} would carry the page's session in the clear: use https"
            ));
        }
        let path = path.trim_matches('/');
        // A browser leaves out the port that its scheme means anyway.
        let authority = match port.filter(|n| *n != if secure { 443 } else { 80 }) {
            Some(port) => format!("{}:{port}", name.to_ascii_lowercase()),
            None => name.to_ascii_lowercase(),
        };
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            authority,
            path: match path {
                "" => "/".into(),
                path => format!("/{path}/"),
            },
            secure,
        })
    }
}

/// Says whether a request that carries the page's cookie was made by the page itself.
///
/// A cookie goes along with whatever a browser sends here, and other servers on this machine are
/// the same site to it: only the origin tells.
pub fn from_own_page(
    origin: Option<&str>,
    fetch_site: Option<&str>,
    host: &str,
    public: Option<&PublicUrl>,
) -> bool {
    match origin {
        Some(origin) => {
            let own = origin.strip_prefix("http://") == Some(host)
                || origin.strip_prefix("https://") == Some(host);
            own || public.is_some_and(|p| p.origin.eq_ignore_ascii_case(origin))
        }
        None => fetch_site == Some("same-origin"),
    }
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

/// What one of several servers allows a key, so that all of them together allow at most twice what one would:
/// a key may come to one of them alone, or to all.
pub fn share(of: u32, servers: usize) -> u32 {
    let by = u32::try_from(servers.div_ceil(2)).unwrap_or(u32::MAX);
    (of / by.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_address_is_https_or_loopback_and_keeps_its_path() {
        let of = |url: &str| PublicUrl::parse(url).map(|p| (p.origin, p.path, p.secure));
        let yes = |origin: &str, path: &str, secure| Ok((origin.into(), path.into(), secure));
        assert_eq!(of("https://Host"), yes("https://host", "/", true));
        assert_eq!(
            of("https://h:8443/a/b/"),
            yes("https://h:8443", "/a/b/", true)
        );
        assert_eq!(
            of("http://127.0.0.1:9/p"),
            yes("http://127.0.0.1:9", "/p/", false)
        );
        // As browsers write an origin.
        assert_eq!(of("https://h:443/p"), yes("https://h", "/p/", true));
        assert_eq!(
            of("http://localhost:80"),
            yes("http://localhost", "/", false)
        );
        assert_eq!(
            of("https://[::1]:8443"),
            yes("https://[::1]:8443", "/", true)
        );
        assert_eq!(of("https://h:65535"), yes("https://h:65535", "/", true));
        for wrong in [
            "host/path",
            "ftp://host",
            "https://",
            "https:///x",
            "http://host",
            "https://h/a?b",
            "https://h/../x",
            "https://a b/",
            "https://u@h/",
            "https://h:99999",
            "https://h:0",
            "https://h:",
            "https://h:p/x",
            "https://h:1:2",
            "https://::1/",
            "https://[::1]x/",
            "https://[::1",
        ] {
            assert!(PublicUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cookie_counts_only_in_requests_of_the_page_itself() {
        let public = PublicUrl::parse("https://prism.example/p").unwrap();
        let own = |origin, site| from_own_page(origin, site, "127.0.0.1:7747", Some(&public));
        for (origin, site, counts) in [
            (Some("http://127.0.0.1:7747"), None, true),
            (Some("https://prism.example"), None, true),
            (Some("http://127.0.0.1:8000"), None, false),
            (Some("http://localhost:7747"), None, false),
            (Some("https://evil.example"), Some("same-origin"), false),
            (Some("null"), Some("same-origin"), false),
            (None, Some("same-origin"), true),
            (None, Some("same-site"), false),
            (None, Some("none"), false),
            (None, None, false),
        ] {
            assert_eq!(own(origin, site), counts, "{origin:?} {site:?}");
        }
    }

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

    #[test]
    fn several_servers_allow_a_key_at_most_twice_what_one_does() {
        for (servers, each) in [
            (0, 100),
            (1, 100),
            (2, 100),
            (3, 50),
            (4, 50),
            (5, 33),
            (100, 2),
        ] {
            assert_eq!(share(100, servers), each, "{servers}");
            assert!(each as usize * servers <= 200);
        }
        assert_eq!(share(1, 1_000), 1);
    }
}
