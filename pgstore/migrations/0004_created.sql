-- For lists by when sessions were created. An append changes neither column, so it still
-- touches no index. The condition is NOT deleted, put so that no plan of another statement
-- can take this index for a way to find a session by its id, which it is not.
CREATE INDEX hansard_heads_created ON hansard_heads (created, id) WHERE deleted::integer = 0;
