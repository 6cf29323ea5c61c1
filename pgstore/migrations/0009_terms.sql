-- What a session is found by in lists: its labels, and the pieces of three characters of
-- its id and title. The store makes them, with its own idea of upper and lower case, and
-- needs no extension. said is of the title and labels that they were made from: sessions
-- of which it is not right are looked at one by one, and put right in the background. That
-- is all of them at first, and later those that an older program changes.
ALTER TABLE hansard_sessions ADD COLUMN terms tsvector, ADD COLUMN said bigint;

CREATE INDEX hansard_sessions_terms ON hansard_sessions USING gin (terms) WITH (gin_pending_list_limit = 256) WHERE terms IS NOT NULL;
CREATE INDEX hansard_sessions_unsaid ON hansard_sessions (id) WHERE said IS DISTINCT FROM hashtextextended(title || labels, 0);
