//! Normalizes the output of kubectl on two servers.

use std::sync::LazyLock;

use regex::Regex;

/// A pattern and its replacement.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).expect("a valid pattern");
    vec![
        (pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
        (pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
        (pattern(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<time>"),
        (pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}"), "<time>"),
        (pattern(r"\S*/(LIVE|MERGED)-\d+/"), "$1/"),
        (pattern(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b"), "<address>"),
        // The hash of a ReplicaSet and the suffix of a pod.
        (pattern(r"\b(web|job|logger)-[a-z0-9]{8,10}-[a-z0-9]{5}\b"), "$1-<hash>-<drawn>"),
        (pattern(r"\b(web)-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b"), "$1-<hash>"),
        (pattern(r"\b(job|agent)-[a-z0-9]{5}\b"), "$1-<drawn>"),
        (pattern(r"pod-template-hash[=:]\s*[a-z0-9]+"), "pod-template-hash=<hash>"),
        (pattern(r"kube-api-access-[a-z0-9]{5}"), "kube-api-access-<drawn>"),
        (pattern(r#""?resourceVersion"?:\s*"?\d+"?"#), "resourceVersion: <version>"),
        (pattern(r"Resource Version: +\d+"), "Resource Version: <version>"),
        (pattern(r"/kubectl-edit-\d+\.yaml"), "/kubectl-edit.yaml"),
        (pattern(r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(s|ms)\b"), "<age>"),
        (pattern(r"<unknown>|<invalid>"), "<age>"),
        // Whether `rollout status` sees the moment before the controller acts depends on the load of the machine.
        (
            pattern(
                r"(?m)^Waiting for deployment.* (new replicas have been updated|spec update to be observed)\.\.\.\n",
            ),
            "",
        ),
        // The width of columns depends on their contents.
        (pattern(r"[ \t]+"), " "),
    ]
});

pub(crate) fn normalized(text: &str, namespace: &str) -> String {
    let mut text = text.replace(namespace, "{ns}");
    for (pattern, shown) in PATTERNS.iter() {
        text = pattern.replace_all(&text, *shown).into_owned();
    }
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
