# The daily acts. `just check` is the whole definition of done.

# All that a change must pass.
check: format lint test docs

format:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets -- -D warnings

test:
    cargo test --workspace

# The hot loops at every level of CPU, and for aarch64 where qemu is installed.
levels *arguments:
    tests/levels {{arguments}}

# The portable hot loops under Miri; `just miri --test bitpack` runs one file of tests.
miri *arguments="--lib --tests":
    RUST_BACKTRACE=0 MIRIFLAGS=-Zmiri-disable-isolation KEIRIN_CPU_LEVEL=portable \
        cargo +nightly miri test -p keirin-kernels {{arguments}}

# All levels of this machine's hot loops under AddressSanitizer, which sees reads and writes outside of memory.
sanitize *arguments="--lib --tests":
    RUSTFLAGS=-Zsanitizer=address cargo +nightly test -p keirin-kernels \
        --target "$(rustc -vV | sed -n 's/^host: //p')" {{arguments}}

# Only the SQL text tests; `just slt joins` runs the files whose name contains it.
slt filter="":
    KEIRIN_SLT_FILTER={{filter}} cargo test -p keirin --test sql

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# `just bench tpch --scale 1 --engines keirin,duckdb`
bench *arguments:
    cargo run --release -p keirin-bench -- {{arguments}}

# `just bench-kernels lz4 snappy`: the hot loops. google/snappy gets the compiler and flags that make it fastest.
bench-kernels *arguments:
    CXX=clang++ CXXFLAGS="-DNDEBUG -DHAVE_BUILTIN_EXPECT=1 -DHAVE_BUILTIN_CTZ=1 -DHAVE_BUILTIN_PREFETCH=1 \
        -DHAVE_ATTRIBUTE_ALWAYS_INLINE=1 -DSNAPPY_HAVE_SSSE3=1 -mssse3 -msse4.2 -mbmi2" \
        cargo run --release -p keirin-bench-kernels -- {{arguments}}

# Random SQL on Keirin, several ways, and on DuckDB: `just differential --seed 7 --seconds 3600`.
differential *arguments:
    tests/differential/run {{arguments}}

# The Python environment with the rivals that the benchmarks compare with.
rivals:
    benchmarks/setup

# `just fuzz csv 60`: seconds of fuzzing of one target; needs cargo-fuzz and a nightly toolchain.
fuzz target seconds="60":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}

# Licences and advisories of what we depend on; needs cargo-deny.
deny:
    cargo deny check
