-- The folders that use a project, machine by machine: a repository's common git folder, else the
-- folder itself. The first one bound the project; the operator allowed the others.
create table project_folders (
    project_id text not null references projects(id),
    machine_id text not null,
    folder     text not null,
    since      integer not null,
    allowed    integer not null default 0,
    primary key (project_id, machine_id, folder)
) without rowid;

-- A name belongs to one spelling, and the operator's to nobody else, whatever the project.
create index ix_personas_name on personas (tenant_id, identity_folded);
