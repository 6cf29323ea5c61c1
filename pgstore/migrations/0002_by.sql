-- Who wrote an event as the server knows it: the name of a token.
ALTER TABLE hansard_events ADD COLUMN "by" text NOT NULL DEFAULT '';

-- What tells this store from every other one. It is one row.
CREATE TABLE hansard_identity (
    id text NOT NULL
);

INSERT INTO hansard_identity VALUES (gen_random_uuid());
