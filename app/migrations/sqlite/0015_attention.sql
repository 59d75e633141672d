-- Whether somebody is at a session's host: a host's server may outlive its terminal. Its shim says so.
alter table sessions add column attention text;
