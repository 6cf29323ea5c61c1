-- The hot row of a session: every append changes it. None of what an append
-- changes is indexed, and the pages keep room, so that the change stays on its
-- page and touches no index.
CREATE TABLE hansard_heads (
    id        text COLLATE "C" PRIMARY KEY,
    last      bigint      NOT NULL,               -- seq of the last event
    bytes     bigint      NOT NULL,               -- of all data
    created   timestamptz NOT NULL,
    updated   timestamptz NOT NULL,               -- time of the last event
    deleted   boolean     NOT NULL DEFAULT false, -- the row is a tombstone
    purging   boolean     NOT NULL DEFAULT false, -- and not all that it had is removed yet
    exclusive boolean     NOT NULL DEFAULT false, -- of the turn that is held
    current   text        NOT NULL DEFAULT '',    -- the grant that is held
    newest    text        NOT NULL DEFAULT '',    -- the last one made, held or not
    turn      text        NOT NULL DEFAULT '',    -- JSON: the turn that is held
    renewed   timestamptz,                        -- its holder's last sign of life
    mark      text        NOT NULL                -- of who made or deleted it
) WITH (fillfactor = 50);

CREATE INDEX hansard_heads_purging ON hansard_heads (id) WHERE purging;

-- What a session is called. Patches change it, events do not.
CREATE TABLE hansard_sessions (
    id     text COLLATE "C" PRIMARY KEY,
    title  text NOT NULL,
    labels text NOT NULL, -- JSON: an object of strings
    state  text NOT NULL, -- JSON, or empty
    born   text NOT NULL  -- JSON: what it was created with
);

-- What is listed: a row for each session with the empty label, and one for each of
-- its labels, "name=value". listed is at most the time of the session's last event,
-- and less than a tenth of a second before it: so it changes ten times a second at
-- most, however often the session is appended to.
CREATE TABLE hansard_listing (
    id     text COLLATE "C" NOT NULL,
    label  text COLLATE "C" NOT NULL,
    listed timestamptz      NOT NULL,
    PRIMARY KEY (id, label)
);

CREATE INDEX hansard_listing_newest ON hansard_listing (label, listed, id);

-- The log.
CREATE TABLE hansard_events (
    id     text COLLATE "C" NOT NULL,
    seq    bigint      NOT NULL,
    "time" timestamptz NOT NULL,
    inbox  boolean     NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    role   text        NOT NULL,
    author text        NOT NULL,
    turn   text        NOT NULL, -- the grant it was written under
    patch  text,                 -- JSON
    data   text        NOT NULL, -- JSON, byte for byte
    -- On the first event of a batch that has an idempotency key:
    key    text COLLATE "C",
    hash   text,                 -- of the batch's content
    size   integer,              -- events in the batch
    -- On the first event of all that one statement stored: the statement's own
    -- key, invented by who sent it. That neither can be stored twice is what makes
    -- sending twice harmless.
    mark   text COLLATE "C",
    PRIMARY KEY (id, seq)
);

CREATE UNIQUE INDEX hansard_events_key ON hansard_events (id, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX hansard_events_mark ON hansard_events (id, mark) WHERE mark IS NOT NULL;
CREATE INDEX hansard_events_summary ON hansard_events (id, seq) WHERE kind = 'summary';

-- Who waits for a session's turn, one row for each process: first come, first served.
CREATE TABLE hansard_waiting (
    id     text COLLATE "C" NOT NULL,
    ticket text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL,
    seen   timestamptz NOT NULL, -- the last sign that it still waits
    PRIMARY KEY (id, ticket)
);
