//! Which of a Codex server's threads is this shim's own, before any tool call has said so.

use crate::moment::Moment;
use uuid::Uuid;

/// A thread that a server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedThread {
    pub id: String,
    pub cwd: String,
    /// Not meant to last, and hidden from its user.
    pub ephemeral: bool,
}

/// When a thread was made: its id is a UUID of version 7.
pub fn born(id: &str) -> Option<Moment> {
    let id: Uuid = id.parse().ok()?;
    (id.get_version_num() == 7).then(|| Moment((id.as_u128() >> 80) as i64 * 1_000))
}

/// The one thread in this folder that was made right before the shim began, within so many
/// microseconds. Two that could be it are none: a bell for somebody else is worse than a late one.
pub fn own_thread<'a>(
    threads: &'a [LoadedThread],
    cwd: &str,
    began: Moment,
    within_us: i64,
) -> Option<&'a LoadedThread> {
    let mut own = threads.iter().filter(|t| {
        let age = born(&t.id).map(|at| began.since_us(at));
        !t.ephemeral && t.cwd == cwd && age.is_some_and(|us| (0..=within_us).contains(&us))
    });
    let first = own.next()?;
    own.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_US;

    const BEGAN: Moment = Moment(1_763_300_000_000_000);

    fn id(ms_before: i64, n: u128) -> String {
        let ms = (BEGAN.0 / 1_000 - ms_before) as u128;
        let id = (ms << 80) | (7 << 76) | (2 << 62) | n;
        Uuid::from_u128(id).to_string()
    }

    fn thread(ms_before: i64, cwd: &str, ephemeral: bool) -> LoadedThread {
        LoadedThread {
            id: id(ms_before, 5),
            cwd: cwd.into(),
            ephemeral,
        }
    }

    #[test]
    fn the_birth_is_in_the_id_and_another_kind_of_id_has_none() {
        assert_eq!(born(&id(74, 1)), Some(Moment(BEGAN.0 - 74_000)));
        assert_eq!(born("d3b07384-d9a0-4c5e-8f3a-000000000000"), None);
        assert_eq!(born("nope"), None);
    }

    #[test]
    fn a_thread_is_ours_by_folder_and_birth_and_only_if_no_other_could_be() {
        let own = thread(74, "/work", false);
        for (others, found) in [
            (vec![], true),
            (vec![thread(74, "/other", false)], true),
            (vec![thread(80, "/work", true)], true),
            (vec![thread(5_000, "/work", false)], true),
            (vec![thread(-10, "/work", false)], true),
            (vec![thread(300, "/work", false)], false),
        ] {
            let mut threads = others.clone();
            threads.insert(threads.len() / 2, own.clone());
            let it = own_thread(&threads, "/work", BEGAN, SECOND_US);
            assert_eq!(it, found.then_some(&own), "{others:?}");
        }
        for not_it in [
            thread(1_500, "/work", false),
            thread(74, "/work", true),
            thread(74, "/work/sub", false),
        ] {
            assert_eq!(own_thread(&[not_it], "/work", BEGAN, SECOND_US), None);
        }
    }
}
