-- Text, over TPC-H's lineitem and orders: equality, order, search, grouping.
--
-- Beware of what a case measures: min and max come from statistics in some engines, and a literal
-- outside the column's range is pruned. `comment_eq_inside` is the same comparison inside the range.

-- case: shipmode_eq_zzzz
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_shipmode = 'ZZZZ'

-- case: returnflag_eq_R
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_returnflag = 'R'

-- case: comment_eq
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_comment = 'zzle? slyly regular instruc '

-- case: comment_eq_inside
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_comment = 'egular courts above the'

-- case: comment_lt_const
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_comment < 'nal foxes wake'

-- case: comment_lt_self
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_comment < l_comment

-- case: shipinstruct_lt_comment
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_shipinstruct < l_comment

-- case: min_shipmode
-- tables: lineitem
SELECT min(l_shipmode) FROM lineitem

-- case: max_comment
-- tables: lineitem
SELECT max(l_comment) FROM lineitem

-- case: l_comment_like
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE l_comment LIKE '%pending%deposits%'

-- case: gb_comment_len
-- tables: lineitem
SELECT octet_length(l_comment), count(*) FROM lineitem GROUP BY octet_length(l_comment)
-- sql duckdb:
SELECT strlen(l_comment), count(*) FROM lineitem GROUP BY strlen(l_comment)
-- sql clickhouse:
SELECT length(l_comment), count(*) FROM lineitem GROUP BY length(l_comment)

-- case: upper_eq
-- tables: lineitem
SELECT count(*) FROM lineitem WHERE upper(l_comment) = 'EGULAR COURTS ABOVE THE'

-- case: gb_shipmode
-- tables: lineitem
SELECT l_shipmode, count(*) FROM lineitem GROUP BY l_shipmode

-- case: order_by_comment
-- tables: lineitem
-- order: 1
SELECT l_comment FROM lineitem ORDER BY l_comment LIMIT 10

-- case: o_comment_like
-- tables: orders
SELECT count(*) FROM orders WHERE o_comment LIKE '%pending%deposits%'

-- case: distinct_clerk
-- tables: orders
SELECT count(DISTINCT o_clerk) FROM orders
