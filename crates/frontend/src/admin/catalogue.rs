//! The catalogue of tasks in the store. Definitions are built again only when a task has changed.

use std::sync::{Arc, Mutex, PoisonError};

use api::doc::Task;
use planner::task::Catalogue;
use store::{Etag, Reader, StoreError};
use uuid::Uuid;

/// The last catalogue and the versions of the tasks it was built from.
#[derive(Debug, Clone, Default)]
pub(super) struct CatalogueCache(Arc<Mutex<Option<CachedCatalogue>>>);

#[derive(Debug)]
struct CachedCatalogue {
    from: Vec<(Uuid, Etag)>,
    catalogue: Arc<Catalogue>,
}

impl CatalogueCache {
    /// The current catalogue.
    pub(super) async fn catalogue(&self, reader: &Reader) -> Result<Arc<Catalogue>, StoreError> {
        let mut tasks = Vec::new();
        reader.documents::<Task>().for_each(|read| tasks.push(read)).await?;
        let from: Vec<(Uuid, Etag)> = tasks.iter().map(|read| (read.uuid, read.etag)).collect();
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.as_ref().filter(|made| made.from == from) {
            return Ok(made.catalogue.clone());
        }
        let documents = tasks.into_iter().map(|read| read.document).collect();
        let catalogue = Arc::new(Catalogue::with_data(documents));
        *made = Some(CachedCatalogue { from, catalogue: catalogue.clone() });
        Ok(catalogue)
    }
}
