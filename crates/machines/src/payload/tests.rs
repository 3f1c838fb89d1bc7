use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/machine-api")
}

fn release() -> Release {
    Release::new("registry.example:5000/a/shipshape@sha256:0123", "4.20.1").unwrap()
}

#[test]
fn every_file_of_the_directory_is_embedded_in_the_order_of_its_name() {
    let mut found: Vec<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    found.sort();
    let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
    assert_eq!(embedded, found);
}

#[test]
fn the_definitions_are_those_of_deploy_crds() {
    let of_types: Vec<Value> =
        api::crd::definitions().iter().map(|it| serde_json::to_value(it).unwrap()).collect();
    let manifests = manifests(&release());
    let embedded: Vec<&Value> =
        manifests.iter().map(|it| &it.object).filter(|it| it["kind"] == "CustomResourceDefinition").collect();
    let name = |it: &Value| it["metadata"]["name"].as_str().unwrap().to_owned();
    let by_name = |name_wanted: &str| of_types.iter().find(|it| name(it) == name_wanted);
    assert_eq!(embedded.len(), of_types.len());
    for found in embedded {
        assert_eq!(by_name(&name(found)), Some(found));
    }
}

#[test]
fn no_placeholder_is_left_and_every_container_has_the_image() {
    let manifests = manifests(&release());
    let text = manifests.iter().map(|it| it.object.to_string()).collect::<String>();
    assert!(!text.contains(IMAGE_PLACEHOLDER) && !text.contains(VERSION_PLACEHOLDER));
    let deployments: Vec<&Value> =
        manifests.iter().map(|it| &it.object).filter(|it| it["kind"] == "Deployment").collect();
    assert!(!deployments.is_empty());
    for deployment in deployments {
        for container in deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
            assert_eq!(container["image"], "registry.example:5000/a/shipshape@sha256:0123");
        }
    }
    let images = manifests.iter().find(|it| it.object["metadata"]["name"] == "machine-api-operator-images");
    let images = images.unwrap().object["data"]["images.json"].as_str().unwrap();
    let images: Value = serde_json::from_str(images).unwrap();
    assert_eq!(images["machineAPIOperator"], "registry.example:5000/a/shipshape@sha256:0123");
}

#[test]
fn a_release_replaces_the_image_by_the_name_in_image_references() {
    let text = std::fs::read_to_string(directory().join("image-references")).unwrap();
    let stream: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(stream["spec"]["tags"][0]["from"]["name"], IMAGE_PLACEHOLDER);
}

#[test]
fn every_object_belongs_to_the_capability_and_to_clusters_that_manage_themselves() {
    for Manifest { file, object } in manifests(&release()) {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["capability.openshift.io/name"], "MachineAPI", "{file}");
        assert_eq!(
            annotations["include.release.openshift.io/self-managed-high-availability"], "true",
            "{file}"
        );
        assert_eq!(annotations["exclude.release.openshift.io/internal-openshift-hosted"], "true", "{file}");
    }
}

#[test]
fn what_a_manifest_refers_to_comes_before_it() {
    let mut accounts = BTreeSet::new();
    for Manifest { file, object } in manifests(&release()) {
        if object["kind"] == "ServiceAccount" {
            accounts.insert(object["metadata"]["name"].as_str().unwrap().to_owned());
        }
        if object["kind"] == "Deployment" {
            let account = object["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
            assert!(accounts.contains(account), "{file}: {account}");
        }
    }
}

#[test]
fn what_is_no_image_or_version_is_refused_with_what_would_be_accepted() {
    let error = |image: &str, version: &str| Release::new(image, version).unwrap_err().to_string();
    assert_eq!(
        error("shipshape\"", "1"),
        "image \"shipshape\\\"\" is not the name of an image: letters, digits and . - _ / : @ are accepted, up to 512 of them"
    );
    assert!(error("", "1").starts_with("image \"\""));
    assert!(error("shipshape", "one two").starts_with("version \"one two\""));
    assert!(Release::new("shipshape", "").is_err());
}
