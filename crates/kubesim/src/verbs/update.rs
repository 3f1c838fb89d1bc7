//! Update of an object or of its status: what PUT does, and the last part of a patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::{Tracking, store_new};
use super::{Caller, Target, WriteOptions, WriteResult, admission, admit, allocate, delete, metadata};
use crate::apply;
use crate::fields;
use crate::kinds::{Kind, StatusRule};
use crate::objects::Object;
use crate::rbac;
use crate::schema::FieldError;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::webhooks::Operation;

/// Replaces the object, or the part that the subresource covers.
pub fn update(
    state: &mut State,
    target: &Target,
    mut value: Value,
    options: &WriteOptions,
    caller: &Caller,
) -> ApiResult<WriteResult> {
    admit::expect_kind(&target.kind, &mut value)?;
    let metadata = metadata::fields(&mut value)?;
    match metadata.get("name").and_then(Value::as_str).unwrap_or_default() {
        "" => drop(metadata.insert("name".into(), target.name.clone().into())),
        name => metadata::check_name(target, name)?,
    }
    metadata::check_namespace(target, metadata.get("namespace").and_then(Value::as_str).unwrap_or_default())?;
    let mut warnings = admit::normalize(&target.kind, &mut value, options)?;
    let old =
        state.read(&target.kind, &target.namespace, &target.name).filter(|_| target.kind.custom().is_some());
    warnings.extend(metadata::warnings(&target.kind, &value, old.as_ref()));
    let written = replace(state, target, value, options, caller, Tracking::Update)?;
    Ok(WriteResult { warnings, ..written })
}

/// The part of an update that patches share; the value is normalized already.
pub(super) fn replace(
    state: &mut State,
    target: &Target,
    value: Value,
    options: &WriteOptions,
    caller: &Caller,
    tracking: Tracking,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    let Some(old) = state.read(kind, &target.namespace, &target.name) else {
        if target.subresource.is_empty() && is_created_on_update(kind) {
            let mut value = value;
            metadata::fields(&mut value)?.remove("resourceVersion");
            super::expect_create(state, target, caller)?;
            return store_new(state, target, value, options, caller, tracking);
        }
        return Err(StatusError::not_found(kind, &target.name));
    };
    expect_unchanged(kind, &old, &value)?;
    let mut new = merge_part(target, &old, value)?;
    metadata::keep_server_fields(&old, &mut new)?;
    // Nobody owns the fields that the server adds below.
    if tracking == Tracking::Update {
        let subresource = Some(target.subresource.as_str()).filter(|name| !name.is_empty());
        apply::track_update(Some(&old), &mut new, &options.manager, subresource, kind.schema(), caller.now);
    }
    let objects = (&new, Some(&old));
    if let Some(changed) =
        admission::mutate(state, target, caller, Operation::Update, objects, options.dry_run)?
    {
        new = merge_part(target, &old, changed)?;
        metadata::keep_server_fields(&old, &mut new)?;
    }
    if target.subresource.is_empty() {
        rbac::confirm_grant(state, &caller.user, kind, &target.name, Some(&old), &new)?;
        prepare_update(state, kind, &old, &mut new)?;
    }
    if kind.kind() == "CustomResourceDefinition" && target.subresource.is_empty() {
        super::kind_verbs::establish(state, &mut new, caller)?;
    }
    metadata::remove_empty(&mut new);
    if target.subresource != "status" {
        count_generation(kind, &old, &mut new);
    }
    admit::validate(kind, &new, Some(&old))?;
    refuse_new_finalizers(kind, &old, &new)?;
    if kind.kind() == "CertificateSigningRequest" {
        confirm_decision(state, target, caller, &old, &new)?;
    }
    let objects = (&new, Some(&old));
    admission::validate(state, target, caller, Operation::Update, objects, options.dry_run)?;
    store(state, target, &old, new, options)
}

/// Who approves or signs a certificate signing request needs the permission to do so for its signer.
fn confirm_decision(
    state: &State,
    target: &Target,
    caller: &Caller,
    old: &Value,
    new: &Value,
) -> ApiResult<()> {
    let changed = |field: &str| old["status"][field] != new["status"][field];
    let (verb, why) = match target.subresource.as_str() {
        "approval" => ("approve", "user not permitted to approve requests with signerName"),
        "status" if changed("certificate") || changed("conditions") => {
            ("sign", "user not permitted to sign requests with signerName")
        }
        _ => return Ok(()),
    };
    rbac::confirm_signer(state, &caller.user, verb, old, why)
}

/// Writes a changed object, or removes one that only waited for its finalizers.
fn store(
    state: &mut State,
    target: &Target,
    old: &Value,
    new: Value,
    options: &WriteOptions,
) -> ApiResult<WriteResult> {
    let kind = &target.kind;
    let present = state.get(kind, &target.namespace, &target.name).cloned();
    let finished = delete::is_removable(kind, &new);
    let object = match present {
        Some(present) if new == *old && !finished => present,
        Some(present) if options.dry_run => Arc::new(Object::new(kind.stored(new), present.revision())),
        _ if options.dry_run => Arc::new(Object::unsaved(kind.stored(new))),
        _ if finished => {
            let revision =
                state.get(kind, &target.namespace, &target.name).map_or(0, |object| object.revision());
            delete::remove(state, kind, &target.namespace, &target.name)?;
            Arc::new(Object::new(kind.stored(new), revision))
        }
        _ => state.put(kind, new)?,
    };
    Ok(WriteResult { object, is_new: false, warnings: Vec::new() })
}

/// Whether a PUT creates a missing object of this kind.
fn is_created_on_update(kind: &Kind) -> bool {
    matches!(
        (kind.group(), kind.kind()),
        ("coordination.k8s.io", "Lease")
            | ("", "Service" | "Event")
            | ("events.k8s.io", "Event")
            | ("rbac.authorization.k8s.io", _)
    )
}

fn expect_unchanged(kind: &Kind, old: &Value, new: &Value) -> ApiResult<()> {
    let text = |value: &Value, field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
    let name = text(old, "name");
    let (uid, sent) = (text(old, "uid"), text(new, "uid"));
    if !sent.is_empty() && sent != uid {
        let key = format!("/registry/{}", storage_key(kind, old));
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}"
        );
        return Err(StatusError::conflict(kind, &name, &why));
    }
    let sent = text(new, "resourceVersion");
    if sent.is_empty() || sent == "0" {
        if kind.custom().is_some() {
            let cause =
                FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(StatusError::invalid(kind.group(), kind.plural(), &name, &[cause]));
        }
        return Ok(());
    }
    if sent.parse::<u64>().is_err() {
        let cause =
            FieldError::invalid("metadata.resourceVersion", &json!(sent), "must be an unsigned integer");
        return Err(StatusError::invalid(kind.group(), kind.kind(), &name, &[cause]));
    }
    if sent != text(old, "resourceVersion") { Err(StatusError::modified(kind, &name)) } else { Ok(()) }
}

/// The key of an object in the real server's etcd, which its messages contain.
fn storage_key(kind: &Kind, object: &Value) -> String {
    let resource = match (kind.group(), kind.plural()) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        (group, plural) if kind.custom().is_some() || group == "apiextensions.k8s.io" => {
            format!("{group}/{plural}")
        }
        (_, plural) => plural.to_owned(),
    };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let parts = [resource, text("namespace"), text("name")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// The old object with the part that the subresource covers replaced.
fn merge_part(target: &Target, old: &Value, mut new: Value) -> ApiResult<Value> {
    let kind = &target.kind;
    let take = |into: &mut Value, from: &Value, field: &str| {
        if let Some(fields) = into.as_object_mut() {
            match &from[field] {
                Value::Null => fields.remove(field),
                value => fields.insert(field.into(), value.clone()),
            };
        }
    };
    match target.subresource.as_str() {
        "" => {
            if kind.status_rule() != StatusRule::Plain {
                take(&mut new, old, "status");
            }
            if kind.kind() == "Namespace" && kind.group().is_empty() {
                take(&mut new, old, "spec");
            }
            Ok(new)
        }
        "status" | "approval" => {
            let mut merged = old.clone();
            take(&mut merged, &new, "status");
            for field in metadata_beside_status(kind).iter().chain(&["managedFields"]) {
                match &new["metadata"][field] {
                    Value::Null => metadata::fields(&mut merged)?.remove(*field),
                    value => metadata::fields(&mut merged)?.insert((*field).to_owned(), value.clone()),
                };
            }
            Ok(merged)
        }
        _ => Err(StatusError::method_not_allowed()),
    }
}

/// The metadata that is written with the status; most kinds protect only their spec.
fn metadata_beside_status(kind: &Kind) -> &'static [&'static str] {
    match (kind.group(), kind.kind()) {
        _ if kind.custom().is_some() => &[],
        ("apiextensions.k8s.io" | "certificates.k8s.io", _) => &[],
        ("apps", "Deployment") => &["annotations", "finalizers", "ownerReferences"],
        ("", "Pod") => &["labels", "annotations", "finalizers"],
        _ => &["labels", "annotations", "finalizers", "ownerReferences"],
    }
}

/// Restores or computes the fields that the server owns when an object is replaced.
fn prepare_update(state: &State, kind: &Kind, old: &Value, new: &mut Value) -> ApiResult<()> {
    match (kind.group(), kind.kind()) {
        ("", "Service") => {
            let spec = &old["spec"];
            if new["spec"]["clusterIP"].as_str().unwrap_or_default().is_empty()
                && new["spec"]["type"] != "ExternalName"
            {
                fields::set(new, &["spec", "clusterIP"], spec["clusterIP"].clone());
                fields::set(new, &["spec", "clusterIPs"], spec["clusterIPs"].clone());
            }
            for field in ["ipFamilies", "ipFamilyPolicy"] {
                if new["spec"][field].is_null() && !spec[field].is_null() {
                    fields::set(new, &["spec", field], spec[field].clone());
                }
            }
            keep_node_ports(&spec["ports"], &mut new["spec"]["ports"]);
            allocate::service(state, new)?;
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => new["spec"] = old["spec"].clone(),
        ("apps", "DaemonSet") => {
            let annotation = "deprecated.daemonset.template.generation";
            let count =
                old["metadata"]["annotations"][annotation].as_str().and_then(|text| text.parse::<i64>().ok());
            let changed = old["spec"]["template"] != new["spec"]["template"];
            let count = count.unwrap_or(1) + i64::from(changed);
            fields::set(new, &["metadata", "annotations", annotation], json!(count.to_string()));
        }
        _ => {}
    }
    Ok(())
}

fn keep_node_ports(old: &Value, new: &mut Value) {
    for port in new.as_array_mut().into_iter().flatten() {
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if port["nodePort"].is_null()
            && let Some(before) = old.as_array().into_iter().flatten().find(same)
            && !before["nodePort"].is_null()
        {
            port["nodePort"] = before["nodePort"].clone();
        }
    }
}

fn count_generation(kind: &Kind, old: &Value, new: &mut Value) {
    if !kind.row().generation {
        return;
    }
    let desired = |value: &Value| {
        let mut rest = value.clone();
        if let Some(fields) = rest.as_object_mut() {
            for field in ["metadata", "kind", "apiVersion"] {
                fields.remove(field);
            }
            if kind.custom().is_none() || kind.status_rule() != StatusRule::Plain {
                fields.remove("status");
            }
        }
        rest
    };
    let annotations = |value: &Value| value["metadata"]["annotations"].clone();
    let counts_annotations = kind.kind() == "Deployment" && kind.group() == "apps";
    if desired(old) != desired(new) || (counts_annotations && annotations(old) != annotations(new)) {
        fields::set(
            new,
            &["metadata", "generation"],
            json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1),
        );
    }
}

/// A terminating object may lose finalizers but not gain any.
fn refuse_new_finalizers(kind: &Kind, old: &Value, new: &Value) -> ApiResult<()> {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let finalizers = |value: &Value| value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = finalizers(old);
    let added: Vec<Value> =
        finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let names: Vec<String> =
        added.iter().map(|name| format!("\"{}\"", name.as_str().unwrap_or_default())).collect();
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        names.join(", ")
    );
    let cause = FieldError::forbidden("metadata.finalizers", &why);
    Err(StatusError::invalid(
        kind.group(),
        kind.kind(),
        old["metadata"]["name"].as_str().unwrap_or_default(),
        &[cause],
    ))
}
