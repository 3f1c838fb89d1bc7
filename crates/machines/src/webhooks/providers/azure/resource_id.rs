//! The form of resource IDs of Azure's resource manager.

/// The scheme that IDs have in provider IDs.
const SCHEME: &str = "azure://";

/// Checks a resource ID; an empty one is an absent one. The error says what is wrong.
pub(super) fn validate(given: &str) -> Result<(), String> {
    if given.is_empty() {
        return Ok(());
    }
    let id = given.strip_prefix(SCHEME).unwrap_or(given);
    if id.is_empty() {
        return Err("invalid resource ID: id cannot be empty".to_owned());
    }
    if !id.starts_with('/') {
        return Err(format!("invalid resource ID: resource id '{id}' must start with '/'"));
    }
    let segments: Vec<&str> = id.split('/').filter(|it| !it.is_empty()).collect();
    let starts_well =
        segments.len() >= 2 && (is(segments[0], "subscriptions") || is(segments[0], "providers"));
    if starts_well && is_complete(&segments) { Ok(()) } else { Err(format!("invalid resource ID: {id}")) }
}

fn is(segment: &str, name: &str) -> bool {
    segment.eq_ignore_ascii_case(name)
}

/// Whether segments are pairs of a type and a name, or `providers/NAMESPACE/TYPE/NAME` with further pairs.
fn is_complete(mut segments: &[&str]) -> bool {
    loop {
        segments = match segments {
            [] => return true,
            // A type without a name is a collection, which subscriptions and groups are not.
            [last] => return !is(last, "subscriptions") && !is(last, "resourceGroups"),
            // A provider of an extension, which is followed by the provider of its resource.
            [first, _, rest @ ..]
                if is(first, "providers") && rest.first().is_none_or(|it| is(it, "providers")) =>
            {
                rest
            }
            [first, _, _, _, rest @ ..] if is(first, "providers") => rest,
            [first, ..] if is(first, "providers") => return false,
            [_, _, rest @ ..] => rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::validate;

    #[test]
    fn complete_ids_are_accepted() {
        for id in [
            "",
            "/subscriptions/s",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c",
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c",
            "/SUBSCRIPTIONS/s/resourcegroups/g",
            "/providers/Microsoft.Billing/accounts/a",
            "/subscriptions/s/locations",
        ] {
            assert_eq!(validate(id), Ok(()), "{id}");
        }
    }

    #[test]
    fn the_error_quotes_the_id() {
        let check = |id: &str, text: &str| assert_eq!(validate(id), Err(text.to_owned()));
        check("azure://", "invalid resource ID: id cannot be empty");
        check("subscriptions/s", "invalid resource ID: resource id 'subscriptions/s' must start with '/'");
        check("/subscriptions", "invalid resource ID: /subscriptions");
        check("/groups/g", "invalid resource ID: /groups/g");
        check("/subscriptions/s/resourceGroups", "invalid resource ID: /subscriptions/s/resourceGroups");
        check("/subscriptions/s/providers/A/b", "invalid resource ID: /subscriptions/s/providers/A/b");
    }
}
