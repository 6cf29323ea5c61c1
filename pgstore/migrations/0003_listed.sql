-- The time under which the session is in hansard_listing: all its rows there have this
-- one or a later one. An append looks here whether the list is still right enough, and
-- leaves the list alone if it is: at most the time of the session's last event, and
-- less than ten seconds before it. '-infinity' has the next append put it right.
ALTER TABLE hansard_heads ADD COLUMN listed timestamptz NOT NULL DEFAULT '-infinity';

-- Without a key the row can't be updated where tables are replicated logically.
ALTER TABLE hansard_schema ADD PRIMARY KEY (version);

-- What is changed often has room on its page for the next version.
ALTER TABLE hansard_waiting SET (fillfactor = 50);
ALTER TABLE hansard_sessions SET (fillfactor = 80);
