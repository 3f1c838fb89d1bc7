//! The portal on a listener.

use ::serve::{Listener, ListenerLimits, SharedService};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Portal;

impl Portal {
    /// Limits of the portal's listener. Browsers open few HTTP/1.1 connections to one host; over one HTTP/2 connection any number
    /// of pages can subscribe.
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
        let closing_streams = async {
            // The streams of open pages have no end of their own.
            shutdown.cancelled().await;
            self.state.hub.close();
        };
        tokio::join!(serving, closing_streams);
    }
}
