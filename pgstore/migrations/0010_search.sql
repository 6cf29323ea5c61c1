-- How far the words of each session are in hansard_words: all events up to last. Whoever
-- adds words has this row locked; removing it removes them. An append does not touch it.
CREATE TABLE hansard_searched (
    id   text COLLATE "C" PRIMARY KEY,
    last bigint NOT NULL
) WITH (fillfactor = 80);

-- The words of events: what a search finds them by. Positions are not kept, because a
-- tsvector has room for few of them: whether words stand together is looked up in the
-- event. Events without a word have no row.
CREATE TABLE hansard_words (
    id     text COLLATE "C" NOT NULL REFERENCES hansard_searched ON DELETE CASCADE,
    seq    bigint           NOT NULL,
    "time" timestamptz      NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    role   text COLLATE "C" NOT NULL, -- the event's, or the one that its data names
    terms  tsvector         NOT NULL,
    PRIMARY KEY (id, seq)
);

CREATE INDEX hansard_words_terms ON hansard_words USING gin (terms);
