//! The ring and count files of one identity, shared by every shim of it.

use crate::clock;
use crate::home::Home;
use anyhow::Result;
use prism_core::Identity;
use prism_core::envelope::Envelope;
use prism_core::limits::{COUNT_FILE_BYTES_MAX, RING_FILE_BYTES_MAX};
use prism_core::ring::{BeforeHello, Count, Entry, InboxState, Recorded, Ring, Which};

#[derive(Clone, Debug)]
pub struct Cache {
    home: Home,
    identity: String,
}

/// An envelope on its way into the ring, and whether it was drained already.
pub struct Arrival<'a> {
    pub envelope: &'a Envelope,
    pub drained: bool,
}

fn count_file(identity: &str) -> String {
    format!("sigcount-{identity}.json")
}

/// The count file of an identity in this spelling, as it stands.
pub fn read_count_file(home: &Home, identity: &str) -> Option<String> {
    let bytes = home.read_bytes(&count_file(identity), COUNT_FILE_BYTES_MAX)?;
    String::from_utf8(bytes).ok()
}

impl Cache {
    /// Files carry the canonical spelling; an existing file of another spelling is the same inbox.
    pub fn new(home: Home, identity: &Identity) -> Self {
        let exact = format!("signals-{identity}.jsonl");
        let found = home
            .list("", "signals-", ".jsonl")
            .into_iter()
            .find(|n| n.eq_ignore_ascii_case(&exact));
        let identity = found.map_or_else(
            || identity.to_string(),
            |n| n["signals-".len()..n.len() - ".jsonl".len()].to_owned(),
        );
        Self { home, identity }
    }

    fn ring_file(&self) -> String {
        format!("signals-{}.jsonl", self.identity)
    }

    fn count_file(&self) -> String {
        count_file(&self.identity)
    }

    /// Reads ring and count; the number is of lines that had to be skipped.
    pub fn load(&self) -> (Ring, usize) {
        let (file, most) = (self.ring_file(), RING_FILE_BYTES_MAX);
        let ring = self.home.read_bytes(&file, most);
        // What is there and cannot be read counts as one line that is none of ours.
        let foreign = ring.is_none() && self.home.size(&file).is_some();
        let ring = ring
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let (ring, skipped) = Ring::parse(&ring, self.count_text().as_deref());
        (ring, skipped + usize::from(foreign))
    }

    fn count_text(&self) -> Option<String> {
        read_count_file(&self.home, &self.identity)
    }

    /// The count file as it stands, for comparison with the ring.
    pub fn stored_count(&self) -> Option<Count> {
        serde_json::from_str(&self.count_text()?).ok()
    }

    /// How one project's inbox stands here, right before a hello.
    pub fn before_hello(&self, pid: &str, project: &str) -> BeforeHello {
        self.load().0.before_hello(pid, project)
    }

    /// Records what the stream brought, in order; says of each what became of it.
    pub fn arrived(&self, arrivals: &[Arrival<'_>], project: &str) -> Result<Vec<Recorded>> {
        self.change(|ring| {
            let now = clock::now();
            let record =
                |a: &Arrival<'_>| ring.arrived(a.envelope, &self.identity, project, a.drained, now);
            arrivals.iter().map(record).collect()
        })
    }

    /// Records what a drain brought; `project` is the inbox's id where it is known.
    pub fn drained(&self, envelopes: &[Envelope], project: Option<&str>) -> Result<()> {
        self.change(|ring| {
            let now = clock::now();
            for envelope in envelopes {
                ring.drained(envelope, &self.identity, project, now);
            }
        })
    }

    pub fn mark_read(&self, which: Which<'_>) -> Result<usize> {
        self.change(|ring| ring.mark_read(which))
    }

    pub fn mark_unread(&self, sids: &[String]) -> Result<usize> {
        self.change(|ring| ring.mark_unread(sids))
    }

    /// Agrees with the answer to a hello; returns what is unread again.
    pub fn reconcile(&self, before: &BeforeHello, inbox: InboxState<'_>) -> Result<Vec<String>> {
        self.change(|ring| ring.reconcile(before, inbox))
    }

    /// Makes these the unread entries, and no others.
    pub fn shows(&self, unread: &[Entry]) -> Result<()> {
        self.change(|ring| ring.shows(unread))
    }

    /// Reads, changes and replaces both files under the lock; no change writes nothing.
    fn change<T>(&self, change: impl FnOnce(&mut Ring) -> T) -> Result<T> {
        let _lock = self.home.lock(&format!("signals-{}.lock", self.identity))?;
        let (before, skipped) = self.load();
        let stored = self.stored_count();
        let mut ring = before.clone();
        let result = change(&mut ring);
        // The ring first: whoever reads a count finds the entries it speaks of.
        if ring.entries != before.entries || skipped > 0 {
            self.home
                .write(&self.ring_file(), ring.to_lines().as_bytes())?;
        }
        let count = ring.count();
        if stored.as_ref() != Some(&count) && !(ring == before && ring.entries.is_empty()) {
            self.home
                .write(&self.count_file(), &serde_json::to_vec(&count)?)?;
        }
        Ok(result)
    }
}
