//! Runs the SQL of its arguments and prints the answers: `cargo run -p keirin --example query "SELECT 1"`.

use keirin::{Database, Parameters};

fn main() -> keirin::Result<()> {
    let database = Database::in_memory()?;
    let session = database.session();
    for sql in std::env::args().skip(1) {
        for statement in keirin::parse(&sql).inspect_err(|error| eprintln!("{}", error.report(&sql)))? {
            let answer = database.block_on(async {
                let stream = session.run(&statement, Parameters::None).await?;
                let tag = stream.tag().to_owned();
                Ok::<_, keirin::Error>((tag, stream.collect().await?))
            });
            match answer {
                Ok((tag, batches)) if batches.is_empty() => println!("{tag}"),
                Ok((_, batches)) => println!("{}", arrow::util::pretty::pretty_format_batches(&batches)?),
                Err(error) => eprint!("{}", error.report(&sql)),
            }
        }
    }
    Ok(())
}
