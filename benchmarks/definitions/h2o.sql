-- The tasks "groupby" (g) and "join" (j) of H2O.ai's db-benchmark, their questions in its order.
--
-- The benchmark makes a table of each answer; here it is made in the engine's memory as every answer is. Of the large
-- ones a digest is compared.

-- case: g01
-- tables: h2o_groups
SELECT id1, sum(v1) AS v1 FROM h2o_groups GROUP BY id1

-- case: g02
-- tables: h2o_groups
SELECT id1, id2, sum(v1) AS v1 FROM h2o_groups GROUP BY id1, id2

-- case: g03
-- tables: h2o_groups
SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM h2o_groups GROUP BY id3

-- case: g04
-- tables: h2o_groups
SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM h2o_groups GROUP BY id4

-- case: g05
-- tables: h2o_groups
SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM h2o_groups GROUP BY id6

-- case: g06
-- tables: h2o_groups
SELECT id4, id5, median(v3) AS median_v3, stddev(v3) AS sd_v3 FROM h2o_groups GROUP BY id4, id5
-- sql clickhouse:
SELECT id4, id5, quantileExactInclusive(0.5)(v3) AS median_v3, stddevSamp(v3) AS sd_v3 FROM h2o_groups GROUP BY id4, id5

-- case: g07
-- tables: h2o_groups
SELECT id3, max(v1) - min(v2) AS range_v1_v2 FROM h2o_groups GROUP BY id3

-- case: g08
-- tables: h2o_groups
SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS place FROM h2o_groups WHERE v3 IS NOT NULL) AS placed WHERE place <= 2

-- case: g09
-- tables: h2o_groups
SELECT id2, id4, corr(v1, v2) * corr(v1, v2) AS r2 FROM h2o_groups GROUP BY id2, id4

-- case: g10
-- tables: h2o_groups
SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count(*) AS count FROM h2o_groups GROUP BY id1, id2, id3, id4, id5, id6

-- case: j01
-- tables: h2o_left, h2o_small
SELECT x.*, y.id4 AS small_id4, y.v2 FROM h2o_left AS x JOIN h2o_small AS y ON x.id1 = y.id1

-- case: j02
-- tables: h2o_left, h2o_medium
SELECT x.*, y.id1 AS medium_id1, y.id4 AS medium_id4, y.id5 AS medium_id5, y.v2 FROM h2o_left AS x JOIN h2o_medium AS y ON x.id2 = y.id2

-- case: j03
-- tables: h2o_left, h2o_medium
SELECT x.*, y.id1 AS medium_id1, y.id4 AS medium_id4, y.id5 AS medium_id5, y.v2 FROM h2o_left AS x LEFT JOIN h2o_medium AS y ON x.id2 = y.id2

-- case: j04
-- tables: h2o_left, h2o_medium
SELECT x.*, y.id1 AS medium_id1, y.id2 AS medium_id2, y.id4 AS medium_id4, y.v2 FROM h2o_left AS x JOIN h2o_medium AS y ON x.id5 = y.id5

-- case: j05
-- tables: h2o_left, h2o_big
SELECT x.*, y.id1 AS big_id1, y.id2 AS big_id2, y.id4 AS big_id4, y.id5 AS big_id5, y.id6 AS big_id6, y.v2 FROM h2o_left AS x JOIN h2o_big AS y ON x.id3 = y.id3
