//! Whether a token of a ServiceAccount is still valid, and whose it is.

use jiff::Timestamp;

use super::token::{Claims, ObjectClaim};
use super::user::User;
use crate::objects::object_key;
use crate::state::State;

/// Why a token is rejected, as the real server words it in a TokenReview.
pub(crate) type Rejection = String;

/// The user of a token, unless it has expired or one of its objects is gone.
pub(crate) fn user(state: &State, claims: &Claims, now: Timestamp) -> Result<User, Rejection> {
    let now = now.as_second();
    // A minute of leeway, as in the real server, whose clocks may differ.
    if now > claims.exp.saturating_add(60) {
        return Err("service account token has expired".to_owned());
    }
    if now < claims.nbf.saturating_sub(60) {
        return Err("service account token is not valid yet".to_owned());
    }
    let bound = &claims.bound;
    let (namespace, account) = (&*bound.namespace, &bound.serviceaccount);
    match uid_of(state, "/serviceaccounts", namespace, &account.name) {
        None => return Err(format!("serviceaccounts {:?} not found", account.name)),
        Some(uid) if *uid != *account.uid => {
            let claimed = &account.uid;
            return Err(format!("service account UID ({uid}) does not match claim ({claimed})"));
        }
        Some(_) => {}
    }
    let mut user = User::service_account(namespace, &account.name, &account.uid);
    let expect = |kind: &str, table: &str, namespace: &str, claim: &ObjectClaim| match uid_of(
        state,
        table,
        namespace,
        &claim.name,
    ) {
        None => Err("service account token has been invalidated".to_owned()),
        Some(uid) if *uid != *claim.uid => {
            let word = kind.to_lowercase();
            let claimed = &claim.uid;
            Err(format!("{kind} UID ({uid}) does not match service account {word} ref claim ({claimed})"))
        }
        Some(_) => Ok(()),
    };
    if let Some(secret) = &bound.secret {
        expect("secret", "/secrets", namespace, secret)?;
    }
    if let Some(pod) = &bound.pod {
        expect("pod", "/pods", namespace, pod)?;
        user = user
            .with_extra("authentication.kubernetes.io/pod-name", &pod.name)
            .with_extra("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        // The node of a pod is information only; the token ends with the pod.
        if bound.pod.is_none() {
            expect("node", "/nodes", "", node)?;
        }
        user = user.with_extra("authentication.kubernetes.io/node-name", &node.name);
        if !node.uid.is_empty() {
            user = user.with_extra("authentication.kubernetes.io/node-uid", &node.uid);
        }
    }
    Ok(user.with_extra("authentication.kubernetes.io/credential-id", &format!("JTI={}", claims.jti)))
}

/// The user of an existing ServiceAccount, for clients in the process.
pub(crate) fn present_user(state: &State, namespace: &str, name: &str) -> Option<User> {
    let uid = uid_of(state, "/serviceaccounts", namespace, name)?;
    Some(User::service_account(namespace, name, uid))
}

fn uid_of<'a>(state: &'a State, table: &str, namespace: &str, name: &str) -> Option<&'a str> {
    state.objects.get(table, &object_key(namespace, name)).map(|object| &**object.uid())
}
