//! The portal on a listener.

use ::serve::{Listener, ListenerLimits, SharedService};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Portal;

impl Portal {
    /// What connections of browsers may make a process hold. Browsers open few connections of the old protocol to one host; over
    /// the new one, any number of pages can listen.
    pub fn limits(connections: usize, connections_per_address: usize) -> ListenerLimits {
        let closing = Duration::from_secs(3);
        ListenerLimits {
            connections,
            connections_per_address,
            streams: 200,
            closing,
            ..ListenerLimits::default()
        }
    }

    /// Serves the pages on a listener until `shutdown`.
    pub async fn serve(self, listener: Listener, shutdown: CancellationToken) {
        let router = self.router();
        let serving = listener.serve(SharedService(router), shutdown.clone());
        let ending = async {
            // Open pages listen for as long as they are open: their streams end here.
            shutdown.cancelled().await;
            self.state.hub.close();
        };
        tokio::join!(serving, ending);
    }
}
