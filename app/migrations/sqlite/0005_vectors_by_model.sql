-- Every start asks for vectors of other models; this answers without reading any vector.
create index if not exists ix_memory_vectors_model on memory_vectors (model, memory_row);
