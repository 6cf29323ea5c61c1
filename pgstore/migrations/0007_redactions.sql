-- Content that was taken away, and the record of it. Of a redacted event data is null, and
-- there are no attachments; content, the hash of an event with an id, is empty, and so is
-- hash, that of a batch with a redacted event.
ALTER TABLE hansard_events ADD COLUMN redacted boolean NOT NULL DEFAULT false, ADD COLUMN redacts text; -- JSON: the seqs that the event records the redaction of

-- Who redacts an event has to know whether another one names what it names.
CREATE INDEX hansard_events_attached ON hansard_events (id, seq) WHERE attachments IS NOT NULL;

-- And who forks a session, whether something was redacted since it was copied.
CREATE INDEX hansard_events_redacted ON hansard_events (id, seq) WHERE redacted;
