-- How the facts of this store are: when the live ones were confirmed last, and where they come from. By hand:
--   sqlite3 -readonly STORE < health.sql        (as the store's owner, never as root)
-- memory-digest.service counts the same after every prune, for memops status (/usr/local/lib/memops/vitals.py).
-- Rendered by memops VERSION.
.timeout 5000
.headers on
.mode line

-- [confirmed]
-- Live facts by the age of their confirmation. Never: the date is none, or lies ahead. (Sorted, so that SQLite takes the
-- index on odd dates.)
WITH odd AS MATERIALIZED (
  SELECT confirmed_at FROM main."memory"
  WHERE confirmed_at COLLATE BINARY IS NOT
     datetime(substr(confirmed_at, 1, 8) || '01', '+' || (substr(confirmed_at, 9, 2) - 1) || ' days', '+' || substr(confirmed_at, 12)) AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now'))
  ORDER BY confirmed_at LIMIT -1
)
SELECT
  (SELECT count(*) FROM main."memory" WHERE confirmed_at >= datetime('now', '-30 days') AND confirmed_at < datetime('now', '+1 day') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= datetime('now', '-30 days') AND confirmed_at < datetime('now', '+1 day')) AS month,
  (SELECT count(*) FROM main."memory" WHERE confirmed_at >= datetime('now', '-90 days') AND confirmed_at < datetime('now', '-30 days') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= datetime('now', '-90 days') AND confirmed_at < datetime('now', '-30 days')) AS quarter,
  (SELECT count(*) FROM main."memory" WHERE confirmed_at >= datetime('now', '-180 days') AND confirmed_at < datetime('now', '-90 days') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= datetime('now', '-180 days') AND confirmed_at < datetime('now', '-90 days')) AS half,
  (SELECT count(*) FROM main."memory" WHERE confirmed_at >= datetime('now', '-365 days') AND confirmed_at < datetime('now', '-180 days') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= datetime('now', '-365 days') AND confirmed_at < datetime('now', '-180 days')) AS year,
  (SELECT count(*) FROM main."memory" WHERE confirmed_at >= '' AND confirmed_at < datetime('now', '-365 days') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= '' AND confirmed_at < datetime('now', '-365 days')) AS older,
  (SELECT count(*) FROM odd)
  + (SELECT count(*) FROM main."memory" WHERE confirmed_at IS NULL AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  + (SELECT count(*) FROM main."memory" WHERE confirmed_at >= datetime('now', '+1 day') AND likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')))
  - (SELECT count(*) FROM odd WHERE confirmed_at >= datetime('now', '+1 day')) AS never;

-- [sources]
-- Live facts by source. By hand the twenty most frequent ones; the service gives :all, and they come as they are. Where
-- the store has no column origin, its name means the NULL beside the table.
SELECT iif(source GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(source), json_quote(CAST(source AS TEXT))) AS source, count(*) AS facts FROM main."memory" NOT INDEXED
WHERE likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')) AND :all IS NULL
GROUP BY source ORDER BY facts DESC LIMIT 20;

-- [origins]
SELECT source, origin, count(*) AS facts
FROM (
  SELECT substr(source, 1, 1000) AS source, (
           SELECT substr(origin, 1, 1000) FROM main."memory" AS same WHERE same.rowid = m.rowid
         ) AS origin
  FROM main."memory" AS m NOT INDEXED CROSS JOIN (SELECT NULL AS origin) AS absent
  WHERE likelihood(superseded_by IS NULL, 0.95) AND (expires_at IS NULL OR expires_at > datetime('now')) AND :all IS NOT NULL
)
GROUP BY source, origin;
