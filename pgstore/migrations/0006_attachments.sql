-- What is attached to sessions. Its bytes are in hansard_attachment_parts, under the name
-- of the upload that brought them. Nobody finds it before all of them are there and it
-- has its digest, nor after it has lost it.
--
-- named is set in the commit of the first event that names it. Whoever takes a digest
-- away changes this row, and so waits for that commit or comes before it; a
-- constraint refuses what would leave an event without what it names.
CREATE TABLE hansard_attachments (
    id       text COLLATE "C" NOT NULL,
    upload   text COLLATE "C" NOT NULL,          -- random
    digest   text COLLATE "C",                   -- NULL: not all of it is there yet, or any more
    size     bigint      NOT NULL,               -- of its parts
    made     timestamptz NOT NULL,               -- when it was last attached; before that, when its last part came
    named    boolean     NOT NULL DEFAULT false, -- by an event
    dropping boolean     NOT NULL DEFAULT false, -- its parts are being removed, and no more are taken
    PRIMARY KEY (id, upload),
    UNIQUE (id, digest),
    CONSTRAINT hansard_attachments_named CHECK (NOT named OR digest IS NOT NULL),
    CONSTRAINT hansard_attachments_dropping CHECK (NOT dropping OR digest IS NULL)
);

-- What is under way or left over: a few rows.
CREATE INDEX hansard_attachments_unfinished ON hansard_attachments (id, upload) WHERE digest IS NULL;

-- Each part but the last has 1 MiB. A part is added in the statement that counts it in its
-- attachment's row: without the row there is none.
CREATE TABLE hansard_attachment_parts (
    id     text COLLATE "C" NOT NULL,
    upload text COLLATE "C" NOT NULL,
    n      integer NOT NULL, -- from 0
    bytes  bytea   NOT NULL,
    PRIMARY KEY (id, upload, n)
);

-- Pictures are compressed already.
ALTER TABLE hansard_attachment_parts ALTER COLUMN bytes SET STORAGE EXTERNAL;

ALTER TABLE hansard_events ADD COLUMN attachments text; -- JSON: what the event names
