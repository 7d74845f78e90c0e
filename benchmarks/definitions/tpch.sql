-- TPC-H: how the answers are compared and what a dialect needs. The queries are the library's
-- (`keirin::tpch::QUERIES`), with the parameters of the specification's validation runs.

-- case: q01
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1, 2

-- case: q02
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1, 3, 2, 4

-- case: q03
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 2, 3

-- case: q04
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1

-- Polars joins frames in memory in the order written; this order is some 50 times faster.
-- case: q05
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 2
-- replace polars: FROM customer, orders, lineitem, supplier, nation, region => FROM region, nation, customer, orders, lineitem, supplier

-- ClickHouse computes 0.06 + 0.01 in floating point: 0.06999999999999999, which 0.07 is not below.
-- case: q06
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- replace clickhouse: 0.06 - 0.01 => 0.05
-- replace clickhouse: 0.06 + 0.01 => 0.07

-- case: q07
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1, 2, 3

-- ClickHouse divides decimals to the scale of the dividend and cuts the rest off.
-- case: q08
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- replace clickhouse: / sum(volume) => / toFloat64(sum(volume))
-- order: 1

-- case: q09
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1, 2

-- case: q10
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 3

-- case: q11
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 2

-- case: q12
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1

-- case: q13
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 2, 1

-- case: q14
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier

-- case: q15
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1

-- case: q16
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 4, 1, 2, 3

-- At small scales nothing qualifies, of which ClickHouse's sum is 0 and not NULL.
-- case: q17
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- replace clickhouse: sum(l_extendedprice) / => sumOrNull(l_extendedprice) /

-- case: q18
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 5, 4

-- case: q19
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier

-- case: q20
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1

-- case: q21
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 2, 1

-- case: q22
-- tables: customer, lineitem, nation, orders, part, partsupp, region, supplier
-- order: 1
