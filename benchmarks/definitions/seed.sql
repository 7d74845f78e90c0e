-- The queries Keirin grew from: reductions that should run at the speed of memory.
--
-- One table a column, so that no engine holds more than the case at hand needs.
-- seed_f64: x DOUBLE, uniform in [0, 1). seed_f64_null: the same with 10 % NULL.
-- seed_keys: k UTINYINT uniform over 256 keys, p UTINYINT of 7 keys where one has 72 %,
-- v FLOAT, an amount in cents.

-- case: sum_nonull
-- tables: seed_f64
SELECT sum(x) FROM seed_f64

-- case: count_where
-- tables: seed_f64
SELECT count(*) FROM seed_f64 WHERE x > 0.5

-- case: sum_10pct_null
-- tables: seed_f64_null
SELECT sum(x) FROM seed_f64_null

-- case: gb_avg_256
-- tables: seed_keys
SELECT k, avg(v) FROM seed_keys GROUP BY k

-- case: gb_avg_7skew
-- tables: seed_keys
SELECT p, avg(v) FROM seed_keys GROUP BY p
