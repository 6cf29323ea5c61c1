-- Which session this one is a fork of, and the last event that both have. Neither changes
-- while the session is there, so that an append still touches no index.
ALTER TABLE hansard_heads ADD COLUMN parent text COLLATE "C", ADD COLUMN parent_at bigint;

CREATE INDEX hansard_heads_parent ON hansard_heads (parent, id) WHERE parent IS NOT NULL;

-- JSON, on the first event that a fork has of its own: the same. From here on the first event
-- of a batch of several has its size also where the batch has no key: no fork has half of one.
ALTER TABLE hansard_events ADD COLUMN fork text;
