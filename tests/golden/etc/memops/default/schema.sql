-- A memory store, as memops VERSION makes it. Dates are UTC text, 'YYYY-MM-DD HH:MM:SS'.

-- [table]
CREATE TABLE "memory" (
  id            TEXT PRIMARY KEY,
  subject       TEXT NOT NULL,
  fact          TEXT NOT NULL,
  source        TEXT NOT NULL,                            -- where the fact came from; what has none cannot be checked
  created_at    TEXT NOT NULL DEFAULT (datetime('now')),
  confirmed_at  TEXT NOT NULL DEFAULT (datetime('now')),  -- moves only when somebody confirmed the fact
  expires_at    TEXT,                                     -- NULL: the fact has no natural end and is reviewed instead
  superseded_by TEXT REFERENCES "memory"(id) ON DELETE CASCADE,
  last_used_at  TEXT,
  superseded_at TEXT,                                     -- set by the triggers below
  origin        TEXT                                      -- the source of the fact first replaced
);

-- [indexes]
CREATE INDEX "memory_expires" ON "memory"("expires_at");
CREATE INDEX "memory_superseded" ON "memory"("superseded_by");
CREATE INDEX "memory_subject" ON "memory"("subject");
-- The live facts in the order of their confirmation, for recall and review.
CREATE INDEX "memory_confirmed" ON "memory"(confirmed_at, expires_at) WHERE superseded_by IS NULL;
-- Those whose confirmed_at is no real date: the review begins with them.
CREATE INDEX "memory_confirmed_odd" ON "memory"(confirmed_at) WHERE superseded_by IS NULL
  AND confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12));

-- [view]
-- What retrieval reads: an expired or superseded fact stops being found at once, whether or not the prune has run.
-- origin is where a fact that replaced others came from at first.
-- likelihood() only tells SQLite which index to take; the facts are the same without it.
CREATE VIEW "live_memory" AS
SELECT id, subject, fact, source, confirmed_at, expires_at, origin FROM "memory"
WHERE likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'));

-- [triggers]
CREATE TRIGGER IF NOT EXISTS "memory_superseded_at"
AFTER UPDATE OF superseded_by ON "memory"
WHEN (OLD.superseded_by IS NULL) <> (NEW.superseded_by IS NULL)
BEGIN
  UPDATE "memory" SET superseded_at = iif(NEW.superseded_by IS NULL, NULL, datetime('now')) WHERE rowid = NEW.rowid;
END;

-- A correction does not make a fact more trusted than what it corrects was, so it keeps where all of that came from:
-- when a fact is replaced, when it comes in as replaced already, and when the new fact comes after the pointer to it.
CREATE TRIGGER IF NOT EXISTS "memory_origin"
AFTER UPDATE OF superseded_by ON "memory"
WHEN NEW.superseded_by IS NOT OLD.superseded_by
BEGIN
  UPDATE "memory"
  SET origin = substr(ifnull(NEW.origin, NEW.source) || ifnull('; ' || origin, ''), 1, 5000)
  WHERE id = NEW.superseded_by AND id <> NEW.id
    AND instr('; ' || ifnull(origin, '') || '; ', '; ' || ifnull(NEW.origin, NEW.source) || '; ') = 0;
END;

CREATE TRIGGER IF NOT EXISTS "memory_origin_at_once"
AFTER INSERT ON "memory"
WHEN NEW.superseded_by IS NOT NULL
BEGIN
  UPDATE "memory"
  SET origin = substr(ifnull(NEW.origin, NEW.source) || ifnull('; ' || origin, ''), 1, 5000)
  WHERE id = NEW.superseded_by AND id <> NEW.id
    AND instr('; ' || ifnull(origin, '') || '; ', '; ' || ifnull(NEW.origin, NEW.source) || '; ') = 0;
END;

CREATE TRIGGER IF NOT EXISTS "memory_origin_late"
AFTER INSERT ON "memory"
WHEN EXISTS (SELECT 1 FROM "memory" WHERE superseded_by = NEW.id AND id <> NEW.id)
BEGIN
  UPDATE "memory"
  SET origin = (
    SELECT substr(group_concat(ifnull(old.origin, old.source), '; ') || ifnull('; ' || NEW.origin, ''), 1, 5000)
    FROM "memory" AS old WHERE old.superseded_by = NEW.id AND old.id <> NEW.id
  )
  WHERE rowid = NEW.rowid;
END;

-- A row that comes in as history already, from an import say.
CREATE TRIGGER IF NOT EXISTS "memory_superseded_at_once"
AFTER INSERT ON "memory"
WHEN NEW.superseded_by IS NOT NULL AND NEW.superseded_at IS NULL
BEGIN
  UPDATE "memory" SET superseded_at = datetime('now') WHERE rowid = NEW.rowid;
END;
