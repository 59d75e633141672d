-- While models change, a row has the vectors of two generations beside each other.
drop index ix_memory_vectors_row;
create unique index ix_memory_vectors_row on memory_vectors (memory_row, model, ordinal);
-- The generation that answers: one row, or none before the first vector.
create table vector_generation (
    one        integer primary key check (one = 1),
    generation text not null
);
insert into vector_generation (one, generation)
    select 1, model from memory_vectors where model = 'all-minilm-l6-v2-int8/8199be6f' limit 1;
