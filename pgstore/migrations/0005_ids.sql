-- An event's id, of its writer's own choosing, and when its writer says that it happened.
-- content is the hash of what an event with an id says: whether the same event comes
-- again is decided without reading its data.
ALTER TABLE hansard_events ADD COLUMN event_id text COLLATE "C", ADD COLUMN content text, ADD COLUMN "at" timestamptz;

CREATE UNIQUE INDEX hansard_events_id ON hansard_events (id, event_id) WHERE event_id IS NOT NULL;
