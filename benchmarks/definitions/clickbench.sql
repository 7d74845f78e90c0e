-- ClickBench: how the answers of its 43 queries are compared. The queries themselves are not ours to
-- ship (CC BY-NC-SA); they are read from the pack in KEIRIN_DATA. Numbered from q00, as on ClickBench's
-- own pages: q00 is the first line of queries.sql.
--
-- q24 orders by a column that it does not return and q17 has no order at all: only the number of rows
-- can be compared.

-- case: q00
-- tables: hits

-- case: q01
-- tables: hits

-- case: q02
-- tables: hits

-- AVG over BIGINT wraps around in ClickHouse; this is what one has to write to get the mean.
-- case: q03
-- tables: hits
-- replace clickhouse: AVG(UserID) => AVG(toFloat64(UserID))

-- case: q04
-- tables: hits

-- case: q05
-- tables: hits

-- case: q06
-- tables: hits

-- case: q07
-- tables: hits
-- order: 2

-- case: q08
-- tables: hits
-- order: 2
-- ties: free

-- case: q09
-- tables: hits
-- order: 3
-- ties: free

-- case: q10
-- tables: hits
-- order: 2
-- ties: free

-- case: q11
-- tables: hits
-- order: 3
-- ties: free

-- case: q12
-- tables: hits
-- order: 2
-- ties: free

-- case: q13
-- tables: hits
-- order: 2
-- ties: free

-- case: q14
-- tables: hits
-- order: 3
-- ties: free

-- case: q15
-- tables: hits
-- order: 2
-- ties: free

-- case: q16
-- tables: hits
-- order: 3
-- ties: free

-- case: q17
-- tables: hits
-- ties: free

-- case: q18
-- tables: hits
-- order: 4
-- ties: free

-- case: q19
-- tables: hits

-- case: q20
-- tables: hits

-- case: q21
-- tables: hits
-- order: 3
-- ties: free

-- case: q22
-- tables: hits
-- order: 4
-- ties: free

-- case: q23
-- tables: hits
-- order: 5
-- ties: free

-- case: q24
-- tables: hits
-- ties: free

-- case: q25
-- tables: hits
-- order: 1

-- case: q26
-- tables: hits
-- order: 1

-- case: q27
-- tables: hits
-- order: 2
-- replace polars: STRLEN => OCTET_LENGTH

-- case: q28
-- tables: hits
-- order: 2
-- replace polars: STRLEN => OCTET_LENGTH

-- case: q29
-- tables: hits

-- case: q30
-- tables: hits
-- order: 3
-- ties: free

-- case: q31
-- tables: hits
-- order: 3
-- ties: free

-- case: q32
-- tables: hits
-- order: 3
-- ties: free

-- case: q33
-- tables: hits
-- order: 2
-- ties: free

-- case: q34
-- tables: hits
-- order: 3
-- ties: free

-- case: q35
-- tables: hits
-- order: 5
-- ties: free

-- case: q36
-- tables: hits
-- order: 2
-- ties: free

-- case: q37
-- tables: hits
-- order: 2
-- ties: free

-- case: q38
-- tables: hits
-- order: 2
-- ties: free

-- case: q39
-- tables: hits
-- order: 6
-- ties: free

-- case: q40
-- tables: hits
-- order: 3
-- ties: free

-- case: q41
-- tables: hits
-- order: 3
-- ties: free

-- case: q42
-- tables: hits
-- order: 1
