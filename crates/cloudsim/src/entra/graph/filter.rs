//! The filters of lists that `az` sends: an equality, a prefix of the display name, or a name of a service principal.

use super::directory::DirectoryObject;

/// A condition on directory objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filter {
    All,
    AppId(String),
    Id(String),
    DisplayName(String),
    DisplayNamePrefix(String),
    /// Any of the names of a service principal.
    ServicePrincipalName(String),
}

impl Filter {
    /// The filter that the text of `$filter` means; `None` for one that is not supported.
    pub(super) fn parse(text: &str) -> Option<Filter> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Filter::All);
        }
        if let Some(rest) = text.strip_prefix("servicePrincipalNames/any(") {
            let (_, condition) = rest.strip_suffix(')')?.split_once(':')?;
            let (_, value) = condition.split_once(" eq ")?;
            return Some(Filter::ServicePrincipalName(literal(value)?));
        }
        if let Some(rest) = text.strip_prefix("startswith(displayName,") {
            return Some(Filter::DisplayNamePrefix(literal(rest.strip_suffix(')')?)?));
        }
        let (member, value) = text.split_once(" eq ")?;
        let value = literal(value)?;
        match member.trim() {
            "appId" => Some(Filter::AppId(value)),
            "id" => Some(Filter::Id(value)),
            "displayName" => Some(Filter::DisplayName(value)),
            _ => None,
        }
    }

    pub(super) fn matches(&self, object: &DirectoryObject) -> bool {
        let is_app = |id: &str| object.names().any(|it| it.eq_ignore_ascii_case(id));
        match self {
            Filter::All => true,
            Filter::AppId(id) | Filter::ServicePrincipalName(id) => is_app(id),
            Filter::Id(id) => object.has_object_id(id),
            Filter::DisplayName(name) => object.name.eq_ignore_ascii_case(name),
            Filter::DisplayNamePrefix(prefix) => {
                object.name.to_lowercase().starts_with(&prefix.to_lowercase())
            }
        }
    }
}

/// A string literal, in which a quote is written twice.
fn literal(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix('\'')?.strip_suffix('\'')?;
    let plain = inner.replace("''", "");
    (!plain.contains('\'')).then(|| inner.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_of_az_are_parsed() {
        for (text, parsed) in [
            ("", Some(Filter::All)),
            ("appId eq 'a'", Some(Filter::AppId("a".to_owned()))),
            ("displayName eq 'it''s'", Some(Filter::DisplayName("it's".to_owned()))),
            ("startswith(displayName,'ar')", Some(Filter::DisplayNamePrefix("ar".to_owned()))),
            ("servicePrincipalNames/any(c:c eq 'n')", Some(Filter::ServicePrincipalName("n".to_owned()))),
            ("appId eq 'a' or appId eq 'b'", None),
            ("accountEnabled eq true", None),
            ("appId eq 'a", None),
        ] {
            assert_eq!(Filter::parse(text), parsed, "{text}");
        }
    }
}
