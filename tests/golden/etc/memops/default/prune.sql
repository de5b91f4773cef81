-- What memops deletes from this store every night: the whole policy. The service runs it in short transactions
-- (/usr/local/lib/memops/prune.py); by hand it does the same in one:   sqlite3 STORE < prune.sql
-- Rendered by memops VERSION; to change the policy, run `memops install` again with other options.
.bail on
.timeout 5000
.headers on

-- [prepare]
PRAGMA foreign_keys = ON;
PRAGMA secure_delete = ON;

-- The first setting is void inside a transaction, so it is read back: this fails, and ends the run, unless it is on; and
-- where the facts are a view, of which no row could be deleted.
CREATE TEMP TABLE enforced (
  foreign_keys INTEGER NOT NULL CHECK (foreign_keys = 1),
  is_table INTEGER NOT NULL CONSTRAINT the_facts_are_a_table CHECK (is_table = 1)
);
INSERT INTO enforced
SELECT foreign_keys, EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'memory')
FROM pragma_foreign_keys;

-- Dead: the only definition there is.
CREATE TEMP VIEW dead AS
SELECT rowid AS row, iif(expires_at <= datetime('now'), 'expired', 'superseded') AS reason
FROM main."memory"
WHERE expires_at <= datetime('now')
   OR (superseded_by IS NOT NULL AND created_at < datetime('now', '-180 days'));

-- Doubtful: a date that is not exactly a real UTC 'YYYY-MM-DD HH:MM:SS' cannot be compared. Such rows stay.
CREATE TEMP VIEW doubtful AS
SELECT rowid AS row
FROM main."memory"
WHERE created_at IS NULL
  OR created_at COLLATE BINARY IS NOT
     datetime(substr(created_at, 1, 8) || '01', '+' || (substr(created_at, 9, 2) - 1) || ' days', '+' || substr(created_at, 12))
  OR expires_at COLLATE BINARY IS NOT
     datetime(substr(expires_at, 1, 8) || '01', '+' || (substr(expires_at, 9, 2) - 1) || ' days', '+' || substr(expires_at, 12))
;

CREATE TEMP TABLE link (row INTEGER PRIMARY KEY, replaced_by INTEGER);
CREATE TEMP TABLE chain (row INTEGER PRIMARY KEY, head INTEGER, depth INTEGER, reason TEXT, because INTEGER);
CREATE TEMP TABLE kept (row INTEGER PRIMARY KEY);
CREATE TEMP TABLE doomed (
  n INTEGER PRIMARY KEY, row INTEGER, reason TEXT, because INTEGER, head INTEGER,
  id, superseded_by, expires_at, since  -- as they were when the row was listed; no types, so that values stay as they are
);

-- One transaction, so that all of it is read from one state of the store. Only temporary tables are written.
BEGIN;

-- Who was replaced by whom, by row number; NULL where the pointer leads nowhere. (id stands on the left: its collation
-- is the one that foreign keys compare by.)
INSERT INTO link
SELECT old.rowid, new.rowid
FROM main."memory" AS old LEFT JOIN main."memory" AS new ON new.id = old.superseded_by
WHERE old.superseded_by IS NOT NULL;
CREATE INDEX temp.link_replaced_by ON link (replaced_by);

-- Every chain from its head backwards. A dead row takes along what is behind it, as ON DELETE CASCADE would.
INSERT INTO chain
WITH RECURSIVE
  head (row) AS (
    SELECT replaced_by FROM link WHERE replaced_by NOT IN (SELECT row FROM link)
    UNION
    SELECT row FROM link WHERE replaced_by IS NULL
  ),
  walk (row, head, depth, reason, because) AS (
    SELECT head.row, head.row, 0, dead.reason, dead.row
    FROM head LEFT JOIN dead ON dead.row = head.row
    UNION ALL
    SELECT link.row, walk.head, walk.depth + 1, ifnull(dead.reason, iif(walk.reason IS NULL, NULL, 'chain')),
           ifnull(dead.row, walk.because)
    FROM walk CROSS JOIN link ON link.replaced_by = walk.row LEFT JOIN dead ON dead.row = link.row
  )
SELECT * FROM walk;

-- Kept: doubtful rows, replaced rows that no head leads to (they go round in a circle), and the chains of all these.
INSERT INTO kept SELECT row FROM doubtful UNION SELECT row FROM link WHERE row NOT IN (SELECT row FROM chain);
INSERT OR IGNORE INTO kept
SELECT row FROM chain WHERE head IN (SELECT head FROM chain WHERE row IN (SELECT row FROM kept));

-- The facts that are kept for that, to look at.
CREATE TEMP VIEW kept_fact AS
SELECT id, created_at, expires_at, superseded_by FROM main."memory" WHERE rowid IN (SELECT row FROM kept);

-- Doomed: numbered in row order, each chain in one piece and its oldest row first. So nothing points at a row any more
-- when it goes, and SQLite's own cascade, which counts nothing and fails at 1,000 levels, never has anything to do.
INSERT INTO doomed (row, reason, because, head, id, superseded_by, expires_at, since)
SELECT gone.row, gone.reason, gone.because, gone.head, id, superseded_by, expires_at, created_at
FROM (
  SELECT row, reason, because, head, depth FROM chain WHERE reason IS NOT NULL
  UNION ALL
  SELECT row, reason, row, NULL, 0 FROM dead WHERE row NOT IN (SELECT row FROM chain)
) AS gone
JOIN main."memory" AS m ON m.rowid = gone.row
WHERE gone.row NOT IN (SELECT row FROM kept)
ORDER BY ifnull(gone.head, gone.row), gone.depth DESC, gone.row;
CREATE INDEX temp.doomed_head ON doomed (head) WHERE head IS NOT NULL;

COMMIT;

-- Deletes doomed row n, if it is still as it was listed and nothing has come to point at it meanwhile.
CREATE TEMP VIEW step AS SELECT n FROM doomed;
CREATE TEMP TRIGGER step_delete INSTEAD OF INSERT ON step
BEGIN
  DELETE FROM "memory"
  WHERE rowid = (SELECT row FROM doomed WHERE n = NEW.n)
    AND (id, superseded_by, expires_at, created_at)
        IS (SELECT id, superseded_by, expires_at, since FROM doomed WHERE n = NEW.n)
    AND NOT EXISTS (SELECT 1 FROM main."memory" AS older WHERE "memory".id = older.superseded_by);
END;

-- [guard]
-- What is about to go, of how many rows, and what the clock says beside the newest row whose date can be trusted.
SELECT (SELECT count(*) FROM doomed) AS doomed, count(*) AS rows,
       datetime('now') AS now, datetime('now', '-30 days') AS month_ago,
       max(created_at) FILTER (WHERE rowid NOT IN (SELECT row FROM kept)) AS newest
FROM main."memory";

-- [batch]
-- The service gives :first and :last, a range of doomed rows; by hand they are NULL, and all rows go.
BEGIN IMMEDIATE;

-- A chain of which any row has changed since it was listed, because somebody renewed it say, is left for another night.
DELETE FROM doomed
WHERE n >= ifnull(:first, 0) AND head IN (
  SELECT head FROM doomed AS listed
  WHERE n >= ifnull(:first, 0)
    AND head IN (SELECT head FROM doomed WHERE n BETWEEN ifnull(:first, 0) AND ifnull(:last, 1e18) AND head IS NOT NULL)
    AND NOT EXISTS (
      SELECT 1 FROM main."memory" AS m
      WHERE m.rowid = listed.row AND (m.id, m.superseded_by, m.expires_at, m.created_at)
            IS (listed.id, listed.superseded_by, listed.expires_at, listed.since)
    )
);

INSERT INTO step
SELECT n FROM doomed WHERE n BETWEEN ifnull(:first, 0) AND ifnull(:last, 1e18) ORDER BY n;

COMMIT;

-- [report]
-- Rows that have gone, by reason; rows that the store's own triggers would not let go, or put back at once; rows kept;
-- the store now. Gap: all rows less the live ones.
SELECT expired, superseded, chain, refused, doubtful, rows, live, rows - live AS gap
FROM (
  SELECT count(*) FILTER (WHERE m.rowid IS NULL AND reason = 'expired') AS expired,
         count(*) FILTER (WHERE m.rowid IS NULL AND reason = 'superseded') AS superseded,
         count(*) FILTER (WHERE m.rowid IS NULL AND reason = 'chain') AS chain,
         count(*) FILTER (
           WHERE iif(
             m.rowid IS NULL,
             EXISTS (SELECT 1 FROM main."memory" AS again WHERE again.id = doomed.id),
             (m.id, m.superseded_by, m.expires_at, m.created_at)
             IS (doomed.id, doomed.superseded_by, doomed.expires_at, doomed.since)
             AND NOT EXISTS (SELECT 1 FROM main."memory" AS older WHERE m.id = older.superseded_by)
           )
         ) AS refused
  FROM doomed LEFT JOIN main."memory" AS m ON m.rowid = doomed.row AND m.id IS doomed.id
), (
  SELECT count(*) AS doubtful FROM kept
), (
  SELECT count(*) AS rows,
         count(*) FILTER (WHERE superseded_by IS NULL AND (expires_at IS NULL OR expires_at > datetime('now'))) AS live
  FROM main."memory"
);
