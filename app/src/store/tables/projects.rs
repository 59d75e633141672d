//! Which folders use a project, and making one project out of two.

use super::directory::the_tenant;
use super::memory::reindex;
use super::{Alone, Result, Tables, column, failed, word_counts};
use crate::clock;
use crate::store::memory::ConfirmationRow;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{FolderRow, Project};
use prism_core::access::{Entry, Place, enter};
use prism_core::memory::entity::Entity;
use prism_core::memory::operator::{Directness, Verdict};
use prism_core::memory::reference::{RefKind, Reference};
use prism_core::memory::row;
use prism_core::{Code, Moment, Problem, ProjectName};
use uuid::Uuid;

impl Tables {
    /// Lets a session into a project that was found, not named, and binds the project to the
    /// session's folder where it has none. A project that is not there yet lets everybody in.
    pub async fn enter_project(&self, pid: ProjectName, place: Place, now: Moment) -> Result<()> {
        self.write(move |c| {
            let Some(project) = project_id(c, pid.as_str())? else {
                return Ok(());
            };
            let bound = folders(c, &project, &place.machine_id)?;
            match enter(&place.folder, place.by, &bound, is_used(c, &project)?) {
                Entry::Join => Ok(()),
                Entry::Bind => add_folder(c, &project, &place, false, now),
                Entry::Refuse => Err(refusal(&pid, &place, bound.first()).into()),
            }
        })
        .await
    }

    /// Whether a project has rows and is not bound to another folder of this machine: then whoever
    /// found it by the name of that folder goes on using it.
    pub async fn goes_on(&self, project: Uuid, machine: String, folder: String) -> Result<bool> {
        self.glance(move |c| {
            let bound = folders(c, &project.to_string(), &machine)?;
            Ok(is_used(c, &project.to_string())? && (bound.is_empty() || bound.contains(&folder)))
        })
        .await
    }

    /// The first folder of this machine that a project is bound to, where this one is none of them.
    pub async fn elsewhere(
        &self,
        project: Uuid,
        machine: String,
        folder: String,
    ) -> Result<Option<String>> {
        self.glance(move |c| {
            let bound = folders(c, &project.to_string(), &machine)?;
            let here = bound.contains(&folder);
            Ok(bound.into_iter().next().filter(|_| !here))
        })
        .await
    }

    pub async fn allow_folder(&self, project: Uuid, place: Place, now: Moment) -> Result<()> {
        self.write(move |c| add_folder(c, &project.to_string(), &place, true, now))
            .await
    }

    /// Takes a folder away from a project; false when it had none.
    pub async fn forget_folder(
        &self,
        project: Uuid,
        machine: String,
        folder: String,
    ) -> Result<bool> {
        self.write(move |c| {
            let n = c
                .execute(
                    "delete from project_folders
                     where project_id = ? and machine_id = ? and folder = ?",
                    [project.to_string(), machine, folder],
                )
                .map_err(failed)?;
            if n > 0 {
                folders_changed(c, &project.to_string())?;
            }
            Ok(n > 0)
        })
        .await
    }

    /// Every folder of every project, the first one of each project first.
    pub async fn project_folders(&self) -> Result<Vec<FolderRow>> {
        self.read(|c| {
            let mut statement = c
                .prepare("select * from project_folders order by since, folder")
                .map_err(failed)?;
            let rows = statement
                .query_map([], |r| {
                    Ok(FolderRow {
                        project_id: column::id(r, "project_id")?,
                        machine_id: r.get("machine_id")?,
                        folder: r.get("folder")?,
                        since: column::moment(r, "since")?,
                        allowed: r.get("allowed")?,
                    })
                })
                .map_err(failed)?;
            rows.collect::<sql::Result<_>>().map_err(failed)
        })
        .await
    }

    /// Makes one project out of two: everything of `old` becomes part of `new`.
    pub async fn merge_projects(&self, old: Project, new: Project) -> Result<()> {
        // Inboxes that were empty may hold what the other project's held.
        let inboxes = self.inboxes.clone();
        self.written(
            Alone::Everywhere,
            move |c| merge(c, &old, &new),
            move |()| inboxes.forget(),
        )
        .await?;
        self.projects_moved();
        Ok(())
    }

    /// Two projects have become one, here or at another server.
    pub fn projects_moved(&self) {
        self.merged
            .store(true, std::sync::atomic::Ordering::Relaxed);
        self.inboxes.forget();
        // The scan holds vectors by project; it reads them again.
        self.vectors.forget();
    }
}

fn project_id(c: &Connection, pid: &str) -> Result<Option<String>> {
    let tenant = the_tenant(c)?.to_string();
    c.query_row(
        "select id from projects where tenant_id = ? and pid = ?",
        [&tenant, pid],
        |r| r.get(0),
    )
    .optional()
    .map_err(failed)
}

fn folders(c: &Connection, project: &str, machine: &str) -> Result<Vec<String>> {
    let mut statement = c
        .prepare_cached(
            "select folder from project_folders where project_id = ? and machine_id = ?
             order by allowed, since",
        )
        .map_err(failed)?;
    let rows = statement
        .query_map([project, machine], |r| r.get(0))
        .map_err(failed)?;
    rows.collect::<sql::Result<_>>().map_err(failed)
}

/// Whether there is anything in a project that not everybody should find: an agent, a memory.
fn is_used(c: &Connection, project: &str) -> Result<bool> {
    c.query_row(
        "select exists (select 1 from personas where project_id = ?1 and is_operator = 0)
             or exists (select 1 from memory where project_id = ?1)",
        [project],
        |r| r.get(0),
    )
    .map_err(failed)
}

fn add_folder(
    c: &Connection,
    project: &str,
    place: &Place,
    allowed: bool,
    now: Moment,
) -> Result<()> {
    let n = c
        .execute(
            "insert into project_folders (project_id, machine_id, folder, since, allowed)
             values (?, ?, ?, ?, ?) on conflict do nothing",
            params![project, place.machine_id, place.folder, now.0, allowed],
        )
        .map_err(failed)?;
    match n {
        0 => Ok(()),
        _ => folders_changed(c, project),
    }
}

/// Pages hear of rows with a number; a folder has none, its project has.
fn folders_changed(c: &Connection, project: &str) -> Result<()> {
    c.execute("update projects set pid = pid where id = ?", [project])
        .map_err(failed)?;
    Ok(())
}

fn refusal(pid: &ProjectName, place: &Place, bound: Option<&String>) -> Problem {
    let here = &place.folder;
    let message = match bound {
        Some(there) => format!("{pid} is the project of {there}, and this is {here}"),
        None => format!("{pid} is in use already, and only a file in {here} says to join it"),
    };
    Problem::new(
        Code::ForeignFolder,
        message,
        format!(
            "if they are one project, run `prism project allow {pid}` in this folder; if not, \
             give this one a name of its own: PRISM_PID, or `pid = \"...\"` in .prism/project.toml"
        ),
    )
}

fn merge(c: &Connection, old: &Project, new: &Project) -> Result<()> {
    let (old_id, new_id) = (old.id.to_string(), new.id.to_string());
    // What takes a real project in is no demonstration any more: nobody takes it away.
    c.execute("update projects set demo = 0 where id = ?", [&new_id])
        .map_err(failed)?;
    let open: i64 = c
        .query_row(
            "select count(*) from sessions where project_id = ? and released_at is null",
            [&old_id],
            |r| r.get(0),
        )
        .map_err(failed)?;
    if open > 0 {
        return Err(Problem::new(
            Code::Conflict,
            format!("{open} session(s) are open in {}", old.pid),
            format!(
                "end them first; `prism status --pid {}` lists them",
                old.pid
            ),
        )
        .into());
    }
    merge_personas(c, &old_id, &new_id)?;
    renumber_artifacts(c, &old_id, &new_id)?;
    merge_entities(c, &old_id, &new_id)?;
    word_counts::merge(c, &old_id, &new_id)?;
    for (table, column) in references(c, "projects")? {
        // What both have already is there once.
        move_rows(c, &table, &column, &old_id, &new_id)?;
        let left = format!("delete from {table} where {column} = ?1");
        c.execute(&left, [&old_id]).map_err(failed)?;
    }
    c.execute("delete from projects where id = ?", [&old_id])
        .map_err(failed)?;
    Ok(())
}

/// Who is in both projects has one inbox afterwards: the old one's signals follow the new one's.
fn merge_personas(c: &Connection, old: &str, new: &str) -> Result<()> {
    let mut both = c
        .prepare(
            "select o.id, n.id, n.inbox_seq, o.inbox_seq from personas o
             join personas n on n.project_id = ?2 and (n.identity_folded = o.identity_folded
                 or n.is_operator = 1 and o.is_operator = 1)
             where o.project_id = ?1",
        )
        .map_err(failed)?;
    let both: Vec<(String, String, i64, i64)> = both
        .query_map([old, new], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
        })
        .and_then(Iterator::collect)
        .map_err(failed)?;
    let columns = references(c, "personas")?;
    for (from, into, head, more) in both {
        c.execute(
            "update signal_queue set seq = seq + ?2 where to_persona_id = ?1 and seq is not null",
            params![from, head + more],
        )
        .map_err(failed)?;
        for (table, column) in &columns {
            move_rows(c, table, column, &from, &into)?;
            let left = format!("delete from {table} where {column} = ?1");
            c.execute(&left, [&from]).map_err(failed)?;
        }
        // Whoever has started in either has started.
        c.execute(
            "update personas set inbox_seq = ?2, started_at = (
                 select min(started_at) from personas where id in (?1, ?3)) where id = ?1",
            params![into, head + more + more, from],
        )
        .map_err(failed)?;
        c.execute("delete from personas where id = ?", [&from])
            .map_err(failed)?;
    }
    Ok(())
}

/// An entity of both projects is one node afterwards.
fn merge_entities(c: &Connection, old: &str, new: &str) -> Result<()> {
    let mut both = c
        .prepare(
            "select o.id, n.id from entities o join entities n
             on n.project_id = ?2 and n.type = o.type and n.name = o.name
             where o.project_id = ?1",
        )
        .map_err(failed)?;
    let both: Vec<(i64, i64)> = both
        .query_map([old, new], |r| Ok((r.get(0)?, r.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(failed)?;
    for (from, into) in both {
        let (node, kept) = (format!("entity:{from}"), format!("entity:{into}"));
        for (table, column) in [
            ("edges", "src"),
            ("edges", "dst"),
            ("entity_states", "node"),
        ] {
            move_rows(c, table, column, &node, &kept)?;
            let left = format!("delete from {table} where {column} = ?1");
            c.execute(&left, [&node]).map_err(failed)?;
        }
        c.execute("delete from entities where id = ?", [from])
            .map_err(failed)?;
    }
    Ok(())
}

/// A number that both projects gave is given once: the old project's row gets the next one that
/// nobody gave or spoke of, and what the old project knows of its row follows it.
fn renumber_artifacts(c: &Connection, old: &str, new: &str) -> Result<()> {
    let mut both = c
        .prepare(
            "select o.id, o.kind, o.number, o.title from artifacts o join artifacts n
             on n.project_id = ?2 and n.kind = o.kind and n.number = o.number
             where o.project_id = ?1 order by o.number",
        )
        .map_err(failed)?;
    let both: Vec<(String, String, i64, String)> = both
        .query_map([old, new], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
        })
        .and_then(Iterator::collect)
        .map_err(failed)?;
    for (id, kind, was, title) in both {
        let free = free_number(c, old, new, &kind)?;
        c.execute(
            "update artifacts set number = ?2 where id = ?1",
            params![id, free],
        )
        .map_err(failed)?;
        // Its node keeps its edges: mentions, verdicts, pieces.
        c.execute(
            "update entities set name = ?4 where project_id = ?1 and type = ?2 and name = ?3",
            params![old, kind, was.to_string(), free.to_string()],
        )
        .map_err(failed)?;
        if kind == "spec" {
            repoint_verdicts(c, old, was, free, &title)?;
        }
    }
    Ok(())
}

fn free_number(c: &Connection, old: &str, new: &str, kind: &str) -> Result<i64> {
    let mut number: i64 = c
        .query_row(
            "select max(number) + 1 from artifacts where project_id in (?1, ?2) and kind = ?3",
            [old, new, kind],
            |r| r.get(0),
        )
        .map_err(failed)?;
    let mut spoken_of = c
        .prepare("select 1 from entities where project_id in (?1, ?2) and type = ?3 and name = ?4")
        .map_err(failed)?;
    while spoken_of
        .exists(params![old, new, kind, number.to_string()])
        .map_err(failed)?
    {
        number += 1;
    }
    Ok(number)
}

/// Verdicts name a spec by its number, also in the words they are found by.
fn repoint_verdicts(c: &Connection, project: &str, was: i64, now: i64, title: &str) -> Result<()> {
    let mut named = c
        .prepare(
            "select c.* from operator_confirmations c join memory m on m.id = c.id
             where c.project_id = ? and c.refers_to_kind = 'spec'",
        )
        .map_err(failed)?;
    let named: Vec<(String, ConfirmationRow)> = named
        .query_map([project], |r| Ok((r.get("id")?, confirmation(r)?)))
        .and_then(Iterator::collect)
        .map_err(failed)?;
    for (id, row) in named {
        if Entity::spec(&row.refers_to_id).name != was.to_string() {
            continue;
        }
        c.execute(
            "update operator_confirmations set refers_to_id = ? where id = ?",
            [&now.to_string(), &id],
        )
        .map_err(failed)?;
        let row = ConfirmationRow {
            refers_to_id: now.to_string(),
            ..row
        };
        let target = Reference::Spec(now.to_string());
        let (_, indexed) = row::confirmation(row, &target, Some(title));
        reindex(c, &id, clock::now(), &indexed)?;
    }
    Ok(())
}

fn confirmation(r: &Row<'_>) -> sql::Result<ConfirmationRow> {
    let verdict: String = r.get("verdict")?;
    let directness: String = r.get("directness")?;
    Ok(ConfirmationRow {
        refers_to_kind: RefKind::Spec.name(),
        refers_to_id: r.get("refers_to_id")?,
        verdict: Verdict::from_name(&verdict).ok_or_else(|| sql::Error::column("", "unknown"))?,
        notes: r.get("notes")?,
        confirmed_by: r.get("confirmed_by")?,
        confirmed_via: r.get("confirmed_via")?,
        directness: Directness::from_name(&directness)
            .ok_or_else(|| sql::Error::column("", "unknown"))?,
        on_own_delta: r.get("on_own_delta")?,
    })
}

/// Points rows at something else, but for those of which the other has one already.
fn move_rows(c: &Connection, table: &str, column: &str, from: &str, into: &str) -> Result<()> {
    let moved = c.either(
        format!("update or ignore {table} set {column} = ?2 where {column} = ?1"),
        format!("select move_rows('{table}', '{column}', ?1, ?2)"),
    );
    c.prepare(&moved)
        .and_then(|mut s| s.execute([from, into]))
        .map(drop)
        .map_err(failed)
}

/// The columns that point at a table, whichever tables there are.
fn references(c: &Connection, target: &str) -> Result<Vec<(String, String)>> {
    let mut statement = c
        .prepare(c.either(
            "select t.name, f.\"from\" from sqlite_master t, pragma_foreign_key_list(t.name) f
             where t.type = 'table' and f.\"table\" = ?1
             union
             select t.name, i.name from sqlite_master t, pragma_table_info(t.name) i
             where t.type = 'table' and ?1 = 'projects' and i.name = 'project_id'",
            "select k.conrelid::regclass::text, a.attname::text from pg_constraint k
             join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[cardinality(k.conkey)]
             where k.contype = 'f' and k.confrelid = to_regclass(?1)
             union
             select c.table_name::text, c.column_name::text from information_schema.columns c
             where c.table_schema = current_schema() and ?1 = 'projects'
                 and c.column_name = 'project_id'",
        ))
        .map_err(failed)?;
    let rows = statement
        .query_map([target], |r| Ok((r.get(0)?, r.get(1)?)))
        .map_err(failed)?;
    rows.collect::<sql::Result<_>>().map_err(failed)
}
