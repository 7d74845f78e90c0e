//! A session: settings and the way from text to answers.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::database::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::parameters::Parameters;
use crate::parser::{Statement, parse};
use crate::stream::{AbortOnDrop, BATCHES_AHEAD, Progress, ResultStream, StatementKind};

/// One client's view of a database. Clones share settings; statements may run side by side.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    context: SessionContext,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.context.session_id()).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let config = SessionConfig::new().with_target_partitions(shared.threads).with_information_schema(true);
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_runtime_env(shared.environment.clone())
            .build();
        Self { shared, context: SessionContext::new_with_state(state).enable_url_table() }
    }

    /// Runs one statement without parameters.
    ///
    /// # Errors
    /// What [`parse`] and [`Self::run`] say; [`ErrorKind::Syntax`] unless `sql` is exactly one statement.
    pub async fn sql(&self, sql: &str) -> Result<ResultStream> {
        self.sql_with(sql, Parameters::None).await
    }

    /// Runs one statement with values for its parameters.
    ///
    /// # Errors
    /// As [`Self::sql`]; [`ErrorKind::Invalid`] when the values do not fit the parameters.
    pub async fn sql_with(&self, sql: &str, parameters: impl Into<Parameters>) -> Result<ResultStream> {
        let statements = parse(sql)?;
        let [statement] = statements.as_slice() else {
            let message = format!("expected one statement, found {}", statements.len());
            return Err(Error::new(ErrorKind::Syntax, message).with_hint("use parse() and run() for scripts"));
        };
        self.run(statement, parameters.into()).await
    }

    /// Runs a parsed statement. When this returns, the statement is planned and reading has begun.
    ///
    /// # Errors
    /// Whatever is wrong with the statement or its data before the first batch; later errors arrive in the
    /// stream.
    pub async fn run(&self, statement: &Statement, parameters: Parameters) -> Result<ResultStream> {
        let _ = parameters;
        let failed = |error: datafusion::error::DataFusionError| Error::new(ErrorKind::Invalid, error.to_string());
        let context = self.context.clone();
        let ast = statement.ast.clone();
        let mut stream = self
            .shared
            .runtime()
            .spawn(async move {
                let plan = context.state().statement_to_plan(ast).await?;
                context.execute_logical_plan(plan).await?.execute_stream().await
            })
            .await
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
            .map_err(failed)?;
        let schema = stream.schema();
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let task = self.shared.runtime().spawn(async move {
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map_err(failed)).await.is_err() {
                    return;
                }
            }
        });
        Ok(ResultStream {
            schema,
            kind: StatementKind::Rows,
            tag: "SELECT".into(),
            batches,
            progress: Progress::default(),
            _task: AbortOnDrop(task),
        })
    }
}
