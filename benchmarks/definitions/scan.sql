-- All columns of stored tables, each read once: what storage and decoding cost.
--
-- avg and count(nullif(...)) and not min or max, which come from statistics. The lengths of text some engines have
-- without the text, so there are cases that compare it, too. What loading took and the bytes on disk stand above the
-- first case of a table.

-- case: lineitem_numbers
-- tables: lineitem
SELECT avg(l_orderkey), avg(l_partkey), avg(l_suppkey), avg(l_linenumber), avg(l_quantity),
    avg(l_extendedprice), avg(l_discount), avg(l_tax)
FROM lineitem

-- case: lineitem_dates
-- tables: lineitem
SELECT count(nullif(l_shipdate, DATE '1995-03-15')), count(nullif(l_commitdate, DATE '1995-03-15')),
    count(nullif(l_receiptdate, DATE '1995-03-15'))
FROM lineitem

-- case: lineitem_text
-- tables: lineitem
-- replace duckdb: octet_length => strlen
SELECT avg(octet_length(l_returnflag)), avg(octet_length(l_linestatus)),
    avg(octet_length(l_shipinstruct)), avg(octet_length(l_shipmode)), avg(octet_length(l_comment))
FROM lineitem

-- case: lineitem_text_compared
-- tables: lineitem
SELECT count(*) FILTER (WHERE l_returnflag < 'M'), count(*) FILTER (WHERE l_linestatus < 'M'),
    count(*) FILTER (WHERE l_shipinstruct < 'M'), count(*) FILTER (WHERE l_shipmode < 'M'),
    count(*) FILTER (WHERE l_comment < 'm')
FROM lineitem

-- case: orders
-- tables: orders
-- replace duckdb: octet_length => strlen
SELECT avg(o_orderkey), avg(o_custkey), avg(o_totalprice), avg(o_shippriority),
    count(nullif(o_orderdate, DATE '1995-03-15')), avg(octet_length(o_orderstatus)),
    avg(octet_length(o_orderpriority)), avg(octet_length(o_clerk)), avg(octet_length(o_comment))
FROM orders

-- case: hits_numbers
-- tables: hits
-- replace clickhouse: avg("WatchID") => avg(toFloat64("WatchID"))
-- replace clickhouse: avg("UserID") => avg(toFloat64("UserID"))
-- replace clickhouse: avg("FUniqID") => avg(toFloat64("FUniqID"))
-- replace clickhouse: avg("RefererHash") => avg(toFloat64("RefererHash"))
-- replace clickhouse: avg("URLHash") => avg(toFloat64("URLHash"))
SELECT avg("WatchID"), avg("JavaEnable"), avg("GoodEvent"), avg("CounterID"), avg("ClientIP"),
    avg("RegionID"), avg("UserID"), avg("CounterClass"), avg("OS"), avg("UserAgent"),
    avg("IsRefresh"), avg("RefererCategoryID"), avg("RefererRegionID"), avg("URLCategoryID"),
    avg("URLRegionID"), avg("ResolutionWidth"), avg("ResolutionHeight"), avg("ResolutionDepth"),
    avg("FlashMajor"), avg("FlashMinor"), avg("NetMajor"), avg("NetMinor"), avg("UserAgentMajor"),
    avg("CookieEnable"), avg("JavascriptEnable"), avg("IsMobile"), avg("MobilePhone"),
    avg("IPNetworkID"), avg("TraficSourceID"), avg("SearchEngineID"), avg("AdvEngineID"),
    avg("IsArtifical"), avg("WindowClientWidth"), avg("WindowClientHeight"), avg("ClientTimeZone"),
    avg("SilverlightVersion1"), avg("SilverlightVersion2"), avg("SilverlightVersion3"),
    avg("SilverlightVersion4"), avg("CodeVersion"), avg("IsLink"), avg("IsDownload"),
    avg("IsNotBounce"), avg("FUniqID"), avg("HID"), avg("IsOldCounter"), avg("IsEvent"),
    avg("IsParameter"), avg("DontCountHits"), avg("WithHash"), avg("Age"), avg("Sex"),
    avg("Income"), avg("Interests"), avg("Robotness"), avg("RemoteIP"), avg("WindowName"),
    avg("OpenerName"), avg("HistoryLength"), avg("HTTPError"), avg("SendTiming"), avg("DNSTiming"),
    avg("ConnectTiming"), avg("ResponseStartTiming"), avg("ResponseEndTiming"), avg("FetchTiming"),
    avg("SocialSourceNetworkID"), avg("ParamPrice"), avg("ParamCurrencyID"), avg("HasGCLID"),
    avg("RefererHash"), avg("URLHash"), avg("CLID")
FROM hits

-- case: hits_text
-- tables: hits
-- replace duckdb: octet_length => strlen
SELECT avg(octet_length("URL")), avg(octet_length("Title")), avg(octet_length("Referer")),
    avg(octet_length("SearchPhrase"))
FROM hits

-- case: hits_text_compared
-- tables: hits
SELECT count(*) FILTER (WHERE "URL" < 'http://m'), count(*) FILTER (WHERE "Title" < 'm'),
    count(*) FILTER (WHERE "Referer" < 'http://m'), count(*) FILTER (WHERE "SearchPhrase" < 'm')
FROM hits
