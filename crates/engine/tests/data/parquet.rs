//! The Parquet project's example files: all are read, or refused with the reason.

use keirin::Database;
use keirin_testkit::data;

use crate::common::query;

/// Files that can be read and their rows, as the footer says.
const READ: [(&str, usize); 59] = [
    ("alltypes_dictionary.parquet", 2),
    ("alltypes_plain.parquet", 8),
    ("alltypes_plain.snappy.parquet", 2),
    ("alltypes_tiny_pages.parquet", 7300),
    ("alltypes_tiny_pages_plain.parquet", 7300),
    ("binary.parquet", 12),
    ("binary_truncated_min_max.parquet", 12),
    ("byte_array_decimal.parquet", 24),
    ("byte_stream_split.zstd.parquet", 300),
    ("byte_stream_split_extended.gzip.parquet", 200),
    ("column_chunk_key_value_metadata.parquet", 0),
    ("concatenated_gzip_members.parquet", 513),
    ("data_index_bloom_encoding_stats.parquet", 14),
    ("data_index_bloom_encoding_with_length.parquet", 14),
    ("datapage_v1-snappy-compressed-checksum.parquet", 5120),
    ("datapage_v1-uncompressed-checksum.parquet", 5120),
    ("datapage_v2.snappy.parquet", 5),
    ("datapage_v2_empty_datapage.snappy.parquet", 1),
    ("delta_binary_packed.parquet", 200),
    ("delta_byte_array.parquet", 1000),
    ("delta_encoding_optional_column.parquet", 100),
    ("delta_encoding_required_column.parquet", 100),
    ("delta_length_byte_array.parquet", 1000),
    ("fixed_length_byte_array.parquet", 1000),
    ("fixed_length_decimal.parquet", 24),
    ("fixed_length_decimal_legacy.parquet", 24),
    ("float16_nonzeros_and_nans.parquet", 8),
    ("float16_zeros_and_nans.parquet", 3),
    ("floating_orders_nan_count.parquet", 50),
    ("hadoop_lz4_compressed.parquet", 4),
    ("hadoop_lz4_compressed_larger.parquet", 10000),
    ("incorrect_map_schema.parquet", 1),
    ("int32_decimal.parquet", 24),
    ("int32_with_null_pages.parquet", 1000),
    ("int64_decimal.parquet", 24),
    ("list_columns.parquet", 3),
    ("lz4_raw_compressed.parquet", 4),
    ("lz4_raw_compressed_larger.parquet", 10000),
    ("map_no_value.parquet", 3),
    ("nan_in_stats.parquet", 2),
    ("nested_lists.snappy.parquet", 3),
    ("nested_maps.snappy.parquet", 6),
    ("nested_structs.rust.parquet", 1),
    ("non_hadoop_lz4_compressed.parquet", 4),
    ("nonnullable.impala.parquet", 1),
    ("null_list.parquet", 1),
    ("nullable.impala.parquet", 7),
    ("nulls.snappy.parquet", 8),
    ("old_list_structure.parquet", 1),
    ("overflow_i16_page_cnt.parquet", 40000),
    ("page_v2_empty_compressed.parquet", 10),
    ("plain-dict-uncompressed-checksum.parquet", 1000),
    // The footer counts 0 rows, the row group 6, which are there.
    (FOOTER_WITHOUT_ROWS, 6),
    ("repeated_primitive_no_list.parquet", 4),
    ("rle-dict-snappy-checksum.parquet", 1000),
    ("rle_boolean_encoding.parquet", 68),
    ("single_nan.parquet", 1),
    ("sort_columns.parquet", 6),
    ("unknown-logical-type.parquet", 3),
];

/// The library's scan believes the footer.
const FOOTER_WITHOUT_ROWS: &str = "repeated_no_annotation.parquet";

/// Files that cannot be read, and a part of what the user is told.
const REFUSED: [(&str, &str); 4] = [
    ("datapage_v1-corrupt-checksum.parquet", "does not have the checksum"),
    ("dict-page-offset-zero.parquet", "Expected list element type"),
    ("nation.dict-malformed.parquet", "its header declares 28 bytes where 13 are"),
    ("rle-dict-uncompressed-corrupt-checksum.parquet", "does not have the checksum"),
];

/// One of its moments is in the year 290000, which can be computed with and not be shown.
const TOO_LATE: &str = "int96_from_spark.parquet";

/// A column of more than 2 GiB in one row: too large to be read in each test run.
const TOO_LARGE: &str = "large_string_map.brotli.parquet";

#[test]
fn example_files_are_read_or_refused_with_the_reason() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    let directory = pack.join("parquet_testing/data");
    let database = Database::in_memory().expect("a database opens");
    let read = |name: &str| {
        let sql = format!("SELECT * FROM '{}'", directory.join(name).display());
        query(&database, &database.session(), &sql)
    };
    let mut wrong = Vec::new();
    for (name, expected) in READ {
        match read(name) {
            Ok(rows) if rows.len() == expected => {}
            Ok(rows) => wrong.push(format!("{name}: expected {expected} rows, found {}", rows.len())),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    for (name, expected) in REFUSED {
        match read(name) {
            Ok(_) => wrong.push(format!("{name} is listed as refused, but it is read")),
            Err(error) if error.contains(expected) && error.contains(name) => {}
            Err(error) => wrong.push(format!("{name}: expected '{expected}', got '{error}'")),
        }
    }
    let entries = std::fs::read_dir(&directory).expect("the pack has the directory");
    for entry in entries {
        let name = entry.expect("the directory can be read").file_name().to_string_lossy().into_owned();
        let is_listed = READ.iter().any(|(known, _)| *known == name)
            || REFUSED.iter().any(|(known, _)| *known == name)
            || [TOO_LARGE, TOO_LATE].contains(&name.as_str());
        if name.ends_with(".parquet") && !is_listed {
            wrong.push(format!("{name} is in no list"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn moments_that_cannot_be_shown_are_computed_with() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    let file = pack.join("parquet_testing/data").join(TOO_LATE);
    let database = Database::in_memory().expect("a database opens");
    let read = |columns: &str| {
        query(&database, &database.session(), &format!("SELECT {columns} FROM '{}'", file.display()))
    };
    assert_eq!(
        read("count(*), count(*) FILTER (WHERE a > TIMESTAMP '9999-12-31 04:00:00')").unwrap(),
        [["6", "1"]]
    );
    let error = read("*").unwrap_err();
    assert!(error.contains("Failed to convert 9089380393200000000 to datetime"), "{error}");
}

#[test]
fn our_decoders_read_what_the_librarys_read() {
    let Some(pack) = data::pack("parquet_arrow") else { return };
    let directory = pack.join("parquet_testing/data");
    let database = Database::in_memory().expect("a database opens");
    let read = |decoder: &str, name: &str| {
        let session = database.session();
        let set = format!("SET keirin.parquet_decoder = '{decoder}'");
        query(&database, &session, &set).expect("there is such a decoder");
        query(&database, &session, &format!("SELECT * FROM '{}'", directory.join(name).display()))
    };
    let mut wrong = Vec::new();
    for (name, _) in READ {
        let (ours, librarys) = (read("keirin", name), read("parquet", name));
        if ours != librarys && name != FOOTER_WITHOUT_ROWS {
            wrong.push(format!("{name}: {ours:?}\n{librarys:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn damaged_bloom_filters_exclude_no_rows() {
    let Some(pack) = data::pack("duckdb_slt") else { return };
    let directory = pack.join("data/parquet-testing");
    let database = Database::in_memory().expect("a database opens");
    for decoder in ["keirin", "parquet"] {
        let session = database.session();
        let set = format!("SET keirin.parquet_decoder = '{decoder}'");
        query(&database, &session, &set).expect("there is such a decoder");
        let check = |name: &str, value: i32, expected: &str| {
            let file = directory.join(name);
            let sql = format!("SELECT count(*) FROM '{}' WHERE r = {value}", file.display());
            assert_eq!(query(&database, &session, &sql).unwrap(), [[expected]], "{name}");
        };
        check("bloom_filter_bad_length_range.parquet", 0, "1000");
        check("bloom_filter_bad_numbytes.parquet", 0, "1000");
        check("bloom_filter_short_numbytes.parquet", 200, "100");
        // One that is whole excludes all.
        check("bloom_filter_bad_numbytes.parquet", -1, "0");
    }
}
