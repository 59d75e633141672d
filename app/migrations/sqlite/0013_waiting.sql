-- A session may wait for its human: with what, and since when. A hook of its host says so.
alter table sessions add column waiting_for text;
alter table sessions add column waiting_since integer;
