//! Events of kubelets about pods and nodes, with the texts of the real kubelet.

use super::pod::PodStep;
use super::views::PodView;

/// An event that a kubelet reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletEvent {
    /// The node of the kubelet.
    pub node: String,
    /// The pod that it is about; without one it is about the node.
    pub pod: Option<PodName>,
    /// The container of the pod; empty for the whole pod.
    pub container: String,
    /// Whether something failed.
    pub is_warning: bool,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
}

/// The identity of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
}

/// The events of a step, container by container.
pub(super) fn of_step(pod: &PodView, step: PodStep) -> Vec<KubeletEvent> {
    let events = |container: &str, image: &str| match step {
        PodStep::Run => vec![
            event(
                pod,
                container,
                "Pulled",
                format!("Container image \"{image}\" already present on machine"),
            ),
            event(pod, container, "Created", "Container created".to_owned()),
            event(pod, container, "Started", "Container started".to_owned()),
        ],
        PodStep::Crash => {
            let PodView { namespace, name, uid, .. } = pod;
            let message =
                format!("Back-off restarting failed container {container} in pod {name}_{namespace}({uid})");
            vec![KubeletEvent { is_warning: true, ..event(pod, container, "BackOff", message) }]
        }
        PodStep::Complete | PodStep::Fail | PodStep::Remove => Vec::new(),
    };
    pod.containers.iter().flat_map(|(container, image)| events(container, image)).collect()
}

/// The events of a pod that starts to stop.
pub(super) fn of_stop(pod: &PodView) -> Vec<KubeletEvent> {
    let running = pod.containers.iter().filter(|_| pod.phase == "Running" && pod.ready);
    running
        .map(|(container, _)| event(pod, container, "Killing", format!("Stopping container {container}")))
        .collect()
}

/// The event of a node that became ready or ceased to be.
pub(super) fn of_readiness(node: &str, is_ready: bool) -> KubeletEvent {
    let reason = if is_ready { "NodeReady" } else { "NodeNotReady" };
    KubeletEvent {
        node: node.to_owned(),
        pod: None,
        container: String::new(),
        is_warning: false,
        reason,
        message: format!("Node {node} status is now: {reason}"),
    }
}

fn event(pod: &PodView, container: &str, reason: &'static str, message: String) -> KubeletEvent {
    KubeletEvent {
        node: pod.node.clone(),
        pod: Some(PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }),
        container: container.to_owned(),
        is_warning: false,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(events: &[KubeletEvent]) -> Vec<&str> {
        events.iter().map(|event| event.reason).collect()
    }

    #[test]
    fn steps_are_reported_for_each_container() {
        let pod = PodView { phase: "Running".to_owned(), ready: true, ..PodView::example() };
        assert_eq!(reasons(&of_step(&pod, PodStep::Run)), ["Pulled", "Created", "Started"]);
        assert_eq!(reasons(&of_step(&pod, PodStep::Crash)), ["BackOff"]);
        assert_eq!(reasons(&of_step(&pod, PodStep::Complete)), Vec::<&str>::new());
        assert_eq!(of_stop(&pod)[0].message, "Stopping container main");
        assert_eq!(of_stop(&PodView { phase: "Succeeded".to_owned(), ..pod }), []);
    }
}
