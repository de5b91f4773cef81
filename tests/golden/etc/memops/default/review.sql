-- The review queue of this store: live facts that nobody has confirmed for long, oldest confirmation first. By hand, as the
-- store's owner and never as root:   sqlite3 -readonly STORE < review.sql
-- memops review runs the same statements (/usr/local/lib/memops/reviewing.py). Rendered by memops VERSION.
.timeout 5000
.headers on
.mode line

-- [queue]
-- First what was never confirmed: at no real date, or at one that is still to come. :older_than (days) and :limit are
-- given by memops review; by hand they are NULL.
WITH waiting AS (
SELECT * FROM (
  SELECT rowid AS row, 0 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at IS NULL
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 1 AS rank, confirmed_at AS at, NULL AS until
  FROM main."memory"
  WHERE confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
  ORDER BY confirmed_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 2 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at > datetime('now', '+1 day') AND NOT (confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 3 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at < datetime('now', '-' || ifnull(:older_than, 90) || ' days') AND NOT (confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
)
SELECT waiting.row, iif(id GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(id), json_quote(CAST(id AS TEXT))) AS id,
       iif(confirmed_at GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(confirmed_at), json_quote(CAST(confirmed_at AS TEXT))) AS confirmed_at,
       iif(rank = 3, CAST(julianday('now') - julianday(confirmed_at) AS INTEGER), NULL) AS days,
       iif(expires_at GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(expires_at), json_quote(CAST(expires_at AS TEXT))) AS expires_at,
       iif(source GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(source), json_quote(CAST(source AS TEXT))) AS source,
       iif(subject GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(subject), json_quote(CAST(subject AS TEXT))) AS subject,
       iif(fact GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(fact), json_quote(CAST(fact AS TEXT))) AS fact
FROM waiting CROSS JOIN main."memory" AS m ON m.rowid = waiting.row
ORDER BY rank, at, until, waiting.row LIMIT ifnull(:limit, 20);

-- [count]
-- How many wait, and how many live facts there are. Every confirmed_at outside the two limits waits, a real date or not;
-- within them, those that are none. Each is counted in its index, the few that are expired too, and those are taken off.
SELECT
  (SELECT count(*) FROM main."memory" WHERE confirmed_at < datetime('now', '-' || ifnull(:older_than, 90) || ' days') AND likelihood(superseded_by IS NULL, 0.95))
  + (SELECT count(*) FROM main."memory" WHERE confirmed_at > datetime('now', '+1 day') AND likelihood(superseded_by IS NULL, 0.95))
  + (SELECT count(*) FROM main."memory" WHERE confirmed_at IS NULL AND likelihood(superseded_by IS NULL, 0.95))
  + (SELECT count(*) FROM main."memory" WHERE confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12))
    AND confirmed_at BETWEEN datetime('now', '-' || ifnull(:older_than, 90) || ' days') AND datetime('now', '+1 day') AND likelihood(superseded_by IS NULL, 0.95))
  - expired.waiting AS waiting,
  (SELECT count(*) FROM main."memory") - (SELECT count(*) FROM main."memory" WHERE superseded_by IS NOT NULL) - expired.facts AS live
FROM (
  SELECT count(*) AS facts, count(*) FILTER (WHERE confirmed_at NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 90) || ' days') AND datetime('now', '+1 day')
    OR confirmed_at IS NULL OR confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12))) AS waiting
  FROM main."memory" WHERE expires_at <= datetime('now') AND likelihood(superseded_by IS NULL, 0.95)
) AS expired;

-- [unused]
-- Live facts that nothing has used for half a year and nobody has confirmed within that time. Only where the store has the
-- column last_used_at; elsewhere the shell ends with an error here.
WITH waiting AS (
SELECT * FROM (
  SELECT rowid AS row, 0 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at IS NULL
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
    AND (ifnull(last_used_at, created_at) NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day') OR ifnull(last_used_at, created_at) COLLATE BINARY IS NOT
     datetime(substr(ifnull(last_used_at, created_at), 1, 8) || '01', '+' || (substr(ifnull(last_used_at, created_at), 9, 2) - 1) || ' days', '+' || substr(ifnull(last_used_at, created_at), 12)))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 1 AS rank, confirmed_at AS at, NULL AS until
  FROM main."memory"
  WHERE confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
    AND (ifnull(last_used_at, created_at) NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day') OR ifnull(last_used_at, created_at) COLLATE BINARY IS NOT
     datetime(substr(ifnull(last_used_at, created_at), 1, 8) || '01', '+' || (substr(ifnull(last_used_at, created_at), 9, 2) - 1) || ' days', '+' || substr(ifnull(last_used_at, created_at), 12)))
  ORDER BY confirmed_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 2 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at > datetime('now', '+1 day') AND NOT (confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
    AND (ifnull(last_used_at, created_at) NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day') OR ifnull(last_used_at, created_at) COLLATE BINARY IS NOT
     datetime(substr(ifnull(last_used_at, created_at), 1, 8) || '01', '+' || (substr(ifnull(last_used_at, created_at), 9, 2) - 1) || ' days', '+' || substr(ifnull(last_used_at, created_at), 12)))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
UNION ALL
SELECT * FROM (
  SELECT rowid AS row, 3 AS rank, confirmed_at AS at, expires_at AS until
  FROM main."memory"
  WHERE confirmed_at < datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND NOT (confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
    AND (ifnull(last_used_at, created_at) NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day') OR ifnull(last_used_at, created_at) COLLATE BINARY IS NOT
     datetime(substr(ifnull(last_used_at, created_at), 1, 8) || '01', '+' || (substr(ifnull(last_used_at, created_at), 9, 2) - 1) || ' days', '+' || substr(ifnull(last_used_at, created_at), 12)))
  ORDER BY confirmed_at, expires_at, rowid LIMIT ifnull(:limit, 20)
)
)
SELECT waiting.row, iif(id GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(id), json_quote(CAST(id AS TEXT))) AS id,
       iif(confirmed_at GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(confirmed_at), json_quote(CAST(confirmed_at AS TEXT))) AS confirmed_at,
       iif(rank = 3, CAST(julianday('now') - julianday(confirmed_at) AS INTEGER), NULL) AS days,
       iif(expires_at GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(expires_at), json_quote(CAST(expires_at AS TEXT))) AS expires_at,
       iif(source GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(source), json_quote(CAST(source AS TEXT))) AS source,
       iif(subject GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(subject), json_quote(CAST(subject AS TEXT))) AS subject,
       iif(fact GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(fact), json_quote(CAST(fact AS TEXT))) AS fact
FROM waiting CROSS JOIN main."memory" AS m ON m.rowid = waiting.row
ORDER BY rank, at, until, waiting.row LIMIT ifnull(:limit, 20);

-- [unused_count]
-- No index knows when a fact was used, so this reads the table, in its own order.
SELECT
  (SELECT count(*) FROM main."memory" NOT INDEXED WHERE (confirmed_at NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day')
    OR confirmed_at IS NULL OR confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)))
    AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
    AND (ifnull(last_used_at, created_at) NOT BETWEEN datetime('now', '-' || ifnull(:older_than, 182) || ' days') AND datetime('now', '+1 day') OR ifnull(last_used_at, created_at) COLLATE BINARY IS NOT
     datetime(substr(ifnull(last_used_at, created_at), 1, 8) || '01', '+' || (substr(ifnull(last_used_at, created_at), 9, 2) - 1) || ' days', '+' || substr(ifnull(last_used_at, created_at), 12)))) AS waiting,
  (SELECT count(*) FROM main."memory") - (SELECT count(*) FROM main."memory" WHERE superseded_by IS NOT NULL) - (SELECT count(*) FROM main."memory" WHERE expires_at <= datetime('now') AND likelihood(superseded_by IS NULL, 0.95)) AS live;
