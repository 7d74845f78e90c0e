//! Files written.
pub(crate) enum OutputFormat {
    Csv,
}
impl std::str::FromStr for OutputFormat {
    type Err = crate::Error;
    fn from_str(_: &str) -> crate::Result<Self> {
        Ok(Self::Csv)
    }
}
pub(crate) async fn copy_to_file(
    _stream: datafusion::physical_plan::SendableRecordBatchStream,
    _path: &str,
    _format: Option<OutputFormat>,
    _options: &[(String, crate::files::OptionValue)],
) -> crate::Result<u64> {
    Err(crate::Error::new(crate::ErrorKind::Unsupported, "files cannot be written yet"))
}
