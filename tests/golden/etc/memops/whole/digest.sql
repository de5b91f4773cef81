-- The facts that came into this store since the last digest; by hand, within the last day:
--   sqlite3 -readonly STORE < digest.sql        (as the store's owner, never as root)
-- memory-digest.service and memops digest read the same (/usr/local/lib/memops/digest.py), and say which facts are not
-- from a person. Rendered by memops VERSION.
.timeout 5000
.headers on
.mode line

-- [new]
SELECT iif(id GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(id), json_quote(CAST(id AS TEXT))) AS id, iif(subject GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(subject), json_quote(CAST(subject AS TEXT))) AS subject, iif(fact GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(fact), json_quote(CAST(fact AS TEXT))) AS fact, iif(source GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(source), json_quote(CAST(source AS TEXT))) AS source, iif(created_at GLOB '*[' || char(127) || '-' || char(159) || ']*', hex(created_at), json_quote(CAST(created_at AS TEXT))) AS created_at
FROM main."memory"
WHERE (rowid > :row OR (
    created_at > ifnull(:since, datetime('now', '-1 day')) AND created_at <= datetime('now')
    AND NOT (created_at COLLATE BINARY IS NOT
     datetime(substr(created_at, 1, 8) || '01', '+' || (substr(created_at, 9, 2) - 1) || ' days', '+' || substr(created_at, 12)))
  ))
ORDER BY rowid;

-- [listed]
-- The same for the service, which gives :last, the last row as it began; by hand that is NULL, and nothing comes. Where
-- the store has no column origin, its name means the NULL beside the table.
SELECT id, subject, substr(fact, 1, 4000) AS fact, substr(source, 1, 1000) AS source, (
         SELECT substr(origin, 1, 1000) FROM main."memory" AS same WHERE same.rowid = m.rowid
       ) AS origin, created_at
FROM main."memory" AS m CROSS JOIN (SELECT NULL AS origin) AS absent
WHERE m.rowid <= :last AND (m.rowid > :row OR (
    created_at > ifnull(:since, datetime('now', '-1 day')) AND created_at <= datetime('now')
    AND NOT (created_at COLLATE BINARY IS NOT
     datetime(substr(created_at, 1, 8) || '01', '+' || (substr(created_at, 9, 2) - 1) || ' days', '+' || substr(created_at, 12)))
  ))
ORDER BY m.rowid;

-- [state]
-- What the next digest starts from.
SELECT max(rowid) AS last, datetime('now') AS now FROM main."memory";

-- [odd]
-- Facts whose date of creation is none, or lies ahead.
SELECT count(*) AS odd FROM main."memory"
WHERE created_at IS NULL OR created_at COLLATE BINARY IS NOT
     datetime(substr(created_at, 1, 8) || '01', '+' || (substr(created_at, 9, 2) - 1) || ' days', '+' || substr(created_at, 12)) OR created_at > datetime('now', '+1 day');
