-- Scans of Parquet files, where decompressing pages is the greater part of the work.
--
-- Each table in three codecs, written anew from the file of the other suites; avg and not min or max, which
-- come from statistics. `--engines keirin,keirin:parquet-library` sets our decoders beside those of the
-- parquet crate.

-- case: lineitem_snappy_numbers
-- tables: lineitem_snappy
SELECT avg(l_orderkey), avg(l_partkey), avg(l_suppkey), avg(l_linenumber), avg(l_quantity),
    avg(l_extendedprice), avg(l_discount), avg(l_tax)
FROM lineitem_snappy

-- case: lineitem_snappy_text
-- tables: lineitem_snappy
SELECT avg(octet_length(l_returnflag)), avg(octet_length(l_linestatus)),
    avg(octet_length(l_shipinstruct)), avg(octet_length(l_shipmode)), avg(octet_length(l_comment))
FROM lineitem_snappy

-- case: lineitem_snappy_filtered
-- tables: lineitem_snappy
SELECT sum(l_extendedprice * l_discount) FROM lineitem_snappy
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24

-- case: hits_snappy_numbers
-- tables: hits_snappy
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
FROM hits_snappy

-- case: hits_snappy_text
-- tables: hits_snappy
SELECT avg(octet_length("URL")), avg(octet_length("Title")), avg(octet_length("Referer")),
    avg(octet_length("SearchPhrase"))
FROM hits_snappy

-- case: lineitem_lz4_numbers
-- tables: lineitem_lz4
SELECT avg(l_orderkey), avg(l_partkey), avg(l_suppkey), avg(l_linenumber), avg(l_quantity),
    avg(l_extendedprice), avg(l_discount), avg(l_tax)
FROM lineitem_lz4

-- case: lineitem_lz4_text
-- tables: lineitem_lz4
SELECT avg(octet_length(l_returnflag)), avg(octet_length(l_linestatus)),
    avg(octet_length(l_shipinstruct)), avg(octet_length(l_shipmode)), avg(octet_length(l_comment))
FROM lineitem_lz4

-- case: lineitem_lz4_filtered
-- tables: lineitem_lz4
SELECT sum(l_extendedprice * l_discount) FROM lineitem_lz4
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24

-- case: hits_lz4_numbers
-- tables: hits_lz4
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
FROM hits_lz4

-- case: hits_lz4_text
-- tables: hits_lz4
SELECT avg(octet_length("URL")), avg(octet_length("Title")), avg(octet_length("Referer")),
    avg(octet_length("SearchPhrase"))
FROM hits_lz4

-- case: lineitem_zstd_numbers
-- tables: lineitem_zstd
SELECT avg(l_orderkey), avg(l_partkey), avg(l_suppkey), avg(l_linenumber), avg(l_quantity),
    avg(l_extendedprice), avg(l_discount), avg(l_tax)
FROM lineitem_zstd

-- case: lineitem_zstd_text
-- tables: lineitem_zstd
SELECT avg(octet_length(l_returnflag)), avg(octet_length(l_linestatus)),
    avg(octet_length(l_shipinstruct)), avg(octet_length(l_shipmode)), avg(octet_length(l_comment))
FROM lineitem_zstd

-- case: lineitem_zstd_filtered
-- tables: lineitem_zstd
SELECT sum(l_extendedprice * l_discount) FROM lineitem_zstd
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24

-- case: hits_zstd_numbers
-- tables: hits_zstd
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
FROM hits_zstd

-- case: hits_zstd_text
-- tables: hits_zstd
SELECT avg(octet_length("URL")), avg(octet_length("Title")), avg(octet_length("Referer")),
    avg(octet_length("SearchPhrase"))
FROM hits_zstd
