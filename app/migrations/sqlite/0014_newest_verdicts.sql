-- The newest verdicts on a thing are found without reading all of them.
create index ix_edges_verdicts on edges (dst, created_at) where kind = 'CONFIRMS';
