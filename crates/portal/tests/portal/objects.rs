//! Objects of a real cluster on the pages: nodes, events, any kind, and never a secret.

use std::io::Write as _;
use std::process::Stdio;

use api::admin::ImportRequest;
use portal::Role;
use testkit::kube;

use super::fixture::{TestPortal, page_of, rid};

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_real_cluster_are_shown_and_its_secrets_never() {
    let Some(cluster) = kube::shared() else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, kube::MISSING);
    };
    let namespace = cluster.namespace("portal").unwrap();
    let objects = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: hush, namespace: {namespace}}}\nstringData: {{word: open-sesame}}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: note, namespace: {namespace}}}\ndata: {{text: '<script>alert(1)</script>'}}\n---\n\
         apiVersion: v1\nkind: Node\nmetadata: {{name: {namespace}-node, labels: {{node-role.kubernetes.io/worker: ''}}}}\nspec: {{unschedulable: true}}\n"
    );
    let mut apply = cluster
        .kubectl()
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    apply.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
    assert!(apply.wait().unwrap().success());
    let site = TestPortal::open().await;
    let request = ImportRequest {
        kubeconfig: cluster.kubeconfig().to_owned(),
        context: None,
        location: None,
        labels: Default::default(),
        reason: None,
    };
    site.admin.import_cluster(&rid("real"), &request).await.unwrap();
    let user = site.user("jo", Role::Operator).await;
    let tab = |tab: &str| format!("{}?tab={tab}", page_of("real"));
    let nodes = user.get(&tab("nodes")).await.expect(200);
    nodes.shows(&format!("{namespace}-node")).shows("Not ready").shows("Cordoned").shows("worker");
    user.get(&tab("operators")).await.expect(200).shows("This cluster has no ClusterOperators");
    user.get(&tab("machines")).await.expect(200).shows("This cluster has no machines");
    user.get(&tab("machinesets")).await.expect(200).shows("This cluster has no MachineSets");
    user.get(&tab("events")).await.expect(200).shows("Overview");
    let one = format!("objects&kind=ConfigMap&namespace={namespace}&name=note");
    user.get(&tab(&one)).await.expect(200).shows("set unrestricted=true to show it");
    let shown = user.get(&tab(&format!("{one}&unrestricted=true"))).await.expect(200);
    shown.shows("kind: ConfigMap").shows("&lt;script&gt;");
    assert!(!shown.text.contains("managedFields"));
    user.get(&tab("objects&kind=namespaces&unrestricted=true")).await.expect(200).shows("kube-system");
    // A namespace in the query does not make a cluster-scoped object belong to the platform.
    let borrowed = user.get(&tab("objects&kind=namespaces&namespace=openshift-etcd")).await.expect(200);
    borrowed.shows("set unrestricted=true to show it");
    assert!(!borrowed.text.contains("kube-system"), "{}", borrowed.text);
    for secrets in ["Secret", "secrets", "Secret&name=hush"] {
        let asked = format!("objects&kind={secrets}&namespace={namespace}&unrestricted=true");
        let refused = user.get(&tab(&asked)).await.expect(200);
        refused.shows("Secrets cannot be shown");
        assert!(
            !refused.text.contains("open-sesame") && !refused.text.contains("b3Blbi1zZXNhbWU"),
            "{secrets}"
        );
    }
    user.get(&tab("objects&kind=Unicorn&unrestricted=true")).await.expect(200).shows("has no kind");
    cluster
        .kubectl()
        .args(["delete", "node", &format!("{namespace}-node")])
        .stdout(Stdio::null())
        .status()
        .unwrap();
}
