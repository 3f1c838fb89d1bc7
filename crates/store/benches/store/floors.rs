//! What the machine itself can do.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least that one write of a document costs SQLite: a page of the table and one of the feed.
const BLOCK_BYTES: usize = 8192;
/// About the length of SQLite's WAL before it restarts.
const FILE_BLOCKS: usize = 1024;

/// A file with allocated blocks: writing them changes no metadata, so only the data is synced.
#[derive(Debug, Clone)]
pub(crate) struct RawFile {
    file: Arc<File>,
}

impl RawFile {
    /// In the directory of the database, so that it is the same disk.
    pub(crate) fn new(directory: &Path) -> std::io::Result<RawFile> {
        let mut file = File::create_new(directory.join("raw"))?;
        for _ in 0..FILE_BLOCKS {
            file.write_all(&[1; BLOCK_BYTES])?;
        }
        file.sync_all()?;
        Ok(RawFile { file: Arc::new(file) })
    }

    /// Synced writes per second.
    pub(crate) async fn rate(&self, slice: Duration) -> anyhow::Result<f64> {
        let file = self.file.clone();
        let rate = tokio::task::spawn_blocking(move || -> std::io::Result<f64> {
            let started = Instant::now();
            let mut count = 0_u64;
            while started.elapsed() < slice {
                let place = count % FILE_BLOCKS as u64 * BLOCK_BYTES as u64;
                file.write_all_at(&[count as u8; BLOCK_BYTES], place)?;
                file.sync_data()?;
                count += 1;
            }
            Ok(count as f64 / started.elapsed().as_secs_f64())
        });
        Ok(rate.await??)
    }
}
