//! The renewal of many leases at once. Renewals are nearly all the requests of idle clusters: hundreds per second
//! where one process holds hundreds of clusters. The result is that of a merge patch of each lease, without the cost
//! of HTTP and validation, because nothing but a time changes.

use serde_json::{Value, json};

use super::Caller;
use crate::fields;
use crate::kinds::{self, Kind};
use crate::objects::{Change, Object};
use crate::state::{State, time};

/// Renews those of `leases` that differ from the stored ones in their time alone, and reports for each whether it was
/// renewed. Each lease is the body of a merge patch by `manager`.
pub fn renew(state: &mut State, leases: &[Value], manager: &str, caller: &Caller) -> Vec<bool> {
    let Some(kind) = kinds::find("coordination.k8s.io", "Lease") else { return vec![false; leases.len()] };
    let mut changes = Vec::new();
    let renewed: Vec<bool> = leases
        .iter()
        .map(|lease| {
            let text = |field: &str| lease["metadata"][field].as_str().unwrap_or_default();
            let stored = state.get(kind, text("namespace"), text("name"));
            let Some(value) = stored.and_then(|stored| renewed(stored, lease, manager, caller)) else {
                return false;
            };
            changes.push(put(kind, value));
            true
        })
        .collect();
    // The caller then sends requests, which report a journal that cannot be written.
    if state.commit(changes).is_err() { vec![false; leases.len()] } else { renewed }
}

fn put(kind: &Kind, value: Value) -> Change {
    Change::Put(kind.table().clone(), value)
}

/// The stored lease with the new time, if nothing else changes and the manager owns the field.
fn renewed(stored: &Object, lease: &Value, manager: &str, caller: &Caller) -> Option<Value> {
    let mut value = stored.value();
    let same = |field: &str| value["spec"][field] == lease["spec"][field];
    let is_renewal = same("holderIdentity")
        && same("leaseDurationSeconds")
        && lease["spec"].as_object()?.len() == 3
        && value["metadata"]["ownerReferences"] == lease["metadata"]["ownerReferences"]
        && value["metadata"]["deletionTimestamp"].is_null();
    if !is_renewal {
        return None;
    }
    // Managers are in the order of their last change, so the entry is the last one unless another manager wrote
    // since.
    let entry = value.pointer_mut("/metadata/managedFields")?.as_array_mut()?.last_mut()?;
    let owns = entry["manager"] == manager
        && entry["operation"] == "Update"
        && entry["fieldsV1"]["f:spec"]["f:renewTime"].is_object();
    if !owns {
        return None;
    }
    fields::set(entry, &["time"], json!(time(caller.now)));
    fields::set(&mut value, &["spec", "renewTime"], lease["spec"]["renewTime"].clone());
    Some(value)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::access::User;
    use crate::objects::Objects;
    use crate::verbs::{PatchType, Target, WriteOptions, create, patch};

    fn at(second: i64) -> Caller {
        let now = Timestamp::from_second(second).unwrap();
        Caller::internal(User::new("kubelet", [""; 0]), now)
    }

    fn lease(name: &str, renewed: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": "kube-node-lease",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": "u"}],
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
        })
    }

    fn target(name: &str) -> Target {
        Target {
            kind: kinds::find("coordination.k8s.io", "Lease").unwrap().clone(),
            namespace: "kube-node-lease".to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
        }
    }

    fn by(manager: &str) -> WriteOptions {
        WriteOptions { manager: manager.to_owned(), ..WriteOptions::default() }
    }

    fn patched(state: &mut State, name: &str, lease: &Value, second: i64) {
        patch(state, &target(name), PatchType::Merge, lease, &by("life"), &at(second)).unwrap();
    }

    fn state() -> State {
        let mut state = State::new(Objects::in_memory());
        let namespace = kinds::find("", "Namespace").unwrap();
        state.put(namespace, json!({"metadata": {"name": "kube-node-lease"}})).unwrap();
        for name in ["a", "b"] {
            let first = lease(name, "2026-01-01T00:00:00.000000Z");
            create(&mut state, &target(""), first, &by("maker"), &at(0)).unwrap();
        }
        state
    }

    fn stored(state: &State, name: &str) -> Value {
        let mut value = state.get(&target(name).kind, "kube-node-lease", name).unwrap().value();
        for field in ["resourceVersion", "uid"] {
            fields::set(&mut value, &["metadata", field], Value::Null);
        }
        value
    }

    #[test]
    fn a_renewal_has_the_result_of_a_patch() {
        let (mut quick, mut slow) = (state(), state());
        let second = lease("a", "2026-01-01T00:00:10.000000Z");
        // The first renewal takes over a field of the lease's creator, which changes more than a time.
        assert_eq!(renew(&mut quick, std::slice::from_ref(&second), "life", &at(10)), [false]);
        patched(&mut quick, "a", &second, 10);
        patched(&mut slow, "a", &second, 10);
        let third = lease("a", "2026-01-01T00:00:20.000000Z");
        assert_eq!(renew(&mut quick, std::slice::from_ref(&third), "life", &at(20)), [true]);
        patched(&mut slow, "a", &third, 20);
        assert_eq!(stored(&quick, "a"), stored(&slow, "a"));
    }

    #[test]
    fn a_change_of_more_than_the_time_is_left_to_a_patch() {
        let mut state = state();
        patched(&mut state, "a", &lease("a", "2026-01-01T00:00:10.000000Z"), 10);
        let before = (stored(&state, "a"), state.objects.revision());
        let mut longer = lease("a", "2026-01-01T00:00:20.000000Z");
        fields::set(&mut longer, &["spec", "leaseDurationSeconds"], json!(50));
        let mut of_another = lease("a", "2026-01-01T00:00:20.000000Z");
        fields::set(&mut of_another, &["metadata", "ownerReferences"], json!([]));
        let missing = lease("c", "2026-01-01T00:00:20.000000Z");
        let untouched = lease("b", "2026-01-01T00:00:20.000000Z");
        let all = [longer, of_another, missing, untouched];
        assert_eq!(renew(&mut state, &all, "life", &at(20)), [false; 4]);
        assert_eq!((stored(&state, "a"), state.objects.revision()), before);
    }
}
