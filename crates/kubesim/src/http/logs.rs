//! Logs of containers, as the simulated kubelets wrote them.

use futures_util::stream;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::Body;
use super::handle::{ApiRequest, text};
use crate::cluster::ClusterInner;
use crate::status::{ApiResult, StatusError};
use crate::verbs::Target;

/// Reads the log of a container, or follows it.
pub(super) fn read(request: &ApiRequest<'_>, target: &Target) -> ApiResult<Response<Body>> {
    let kind = &target.kind;
    let pod = request.cluster.read().read(kind, &target.namespace, &target.name);
    let pod = pod.ok_or_else(|| StatusError::not_found(kind, &target.name))?;
    let container = container_of(&pod, request.query.get("container"))?;
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return Err(StatusError::bad_request(format!("pod {} does not have a host assigned", target.name)));
    }
    if request.query.flag("previous") {
        let why =
            format!("previous terminated container \"{container}\" in pod \"{}\" not found", target.name);
        return Err(StatusError::bad_request(why));
    }
    let tail = request.query.number("tailLines")?.and_then(|lines| usize::try_from(lines).ok());
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let log = request.cluster.logs.read(&uid, &container);
    let start = tail.map_or(0, |lines| start_of_tail(&log, lines));
    if !request.query.flag("follow") {
        return Ok(text(StatusCode::OK, log[start..].to_owned()));
    }
    let follower = Follower {
        cluster: request.cluster.clone(),
        target: target.clone(),
        uid,
        container,
        sent: start,
        changed: request.cluster.logs.watch(),
        pods: request.cluster.write().objects.watch_table(kind.table()),
    };
    let lines = stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|piece| (piece, follower))
    });
    let mut response = text(StatusCode::OK, Bytes::new());
    *response.body_mut() = Body::Stream(Box::pin(lines));
    Ok(response)
}

fn container_of(pod: &Value, requested: Option<&str>) -> ApiResult<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |list: &str| -> Vec<&str> {
        pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|container| container["name"].as_str())
            .collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    match (requested, containers.as_slice()) {
        (Some(requested), _) if containers.contains(&requested) || init.contains(&requested) => {
            Ok(requested.to_owned())
        }
        (Some(requested), _) => {
            Err(StatusError::bad_request(format!("container {requested} is not valid for pod {name}")))
        }
        (None, [only]) if init.is_empty() => Ok((*only).to_owned()),
        (None, _) => {
            let mut message = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                containers.join(" ")
            );
            if !init.is_empty() {
                message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(StatusError::bad_request(message))
        }
    }
}

fn start_of_tail(log: &str, lines: usize) -> usize {
    let ends: Vec<usize> = log.match_indices('\n').map(|(index, _)| index + 1).collect();
    match ends.len().checked_sub(lines + 1) {
        Some(index) => ends[index],
        None => 0,
    }
}

struct Follower {
    cluster: std::sync::Arc<ClusterInner>,
    target: Target,
    uid: String,
    container: String,
    sent: usize,
    changed: tokio::sync::watch::Receiver<u64>,
    pods: tokio::sync::watch::Receiver<u64>,
}

impl Follower {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changed.mark_unchanged();
            self.pods.mark_unchanged();
            let running = self.is_running();
            let log = self.cluster.logs.read(&self.uid, &self.container);
            // The oldest lines of the log may have been dropped in the meantime.
            let from = self.sent.min(log.len());
            if let Some(rest) = log.get(from..).filter(|rest| !rest.is_empty()) {
                self.sent = log.len();
                return Some(Bytes::from(rest.to_owned()));
            }
            if !running {
                return None;
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                changed = self.pods.changed() => changed.ok()?,
                () = self.cluster.stopped.cancelled() => return None,
            }
        }
    }

    fn is_running(&self) -> bool {
        let pod = self.cluster.read().read(&self.target.kind, &self.target.namespace, &self.target.name);
        pod.is_some_and(|pod| {
            pod["metadata"]["uid"] == self.uid.as_str()
                && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let tail = |lines| &"a\nb\nc\n"[start_of_tail("a\nb\nc\n", lines)..];
        assert_eq!((tail(0), tail(1), tail(3), tail(9)), ("", "c\n", "a\nb\nc\n", "a\nb\nc\n"));
    }
}
