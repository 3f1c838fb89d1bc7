//! Syntax of names and resource ids. Comparisons ignore case, as those of the resource manager.

/// Whether a text is a UUID in its usual form: 8-4-4-4-12 hexadecimal digits.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// `^[-a-z0-9_().]{0,89}[-a-z0-9_()]$` in any case.
pub fn is_group_name(text: &str) -> bool {
    let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_().".contains(&byte);
    (1..=90).contains(&text.len()) && text.bytes().all(accepted) && !text.ends_with('.')
}

fn is_word(text: &str, lengths: std::ops::RangeInclusive<usize>, marks: &[u8]) -> bool {
    lengths.contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
}

/// A resource group's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupId<'a> {
    pub(super) subscription: &'a str,
    pub(super) group: &'a str,
}

/// `/subscriptions/<uuid>/resourceGroups/<group>` and what follows it.
fn in_group(id: &str) -> Option<(GroupId<'_>, Vec<&str>)> {
    let mut segments = id.split('/');
    let is_start = segments.next() == Some("")
        && segments.next().is_some_and(|word| word.eq_ignore_ascii_case("subscriptions"));
    let subscription = segments.next().filter(|it| is_start && is_uuid(it))?;
    segments.next().filter(|word| word.eq_ignore_ascii_case("resourceGroups"))?;
    let group = segments.next().filter(|it| is_group_name(it))?;
    Some((GroupId { subscription, group }, segments.collect()))
}

/// The id of a resource group, if it is one.
pub(super) fn group_id(id: &str) -> Option<GroupId<'_>> {
    in_group(id).filter(|(_, rest)| rest.is_empty()).map(|(group, _)| group)
}

/// The names of a provider's resource and its parents, if the id has these types.
fn of_provider<'a>(id: &'a str, provider: &str, types: &[&str]) -> Option<(GroupId<'a>, Vec<&'a str>)> {
    let (group, rest) = in_group(id)?;
    let [word, namespace, rest @ ..] = rest.as_slice() else { return None };
    let fits = word.eq_ignore_ascii_case("providers")
        && namespace.eq_ignore_ascii_case(provider)
        && rest.len() == 2 * types.len()
        && rest.iter().step_by(2).zip(types).all(|(found, wanted)| found.eq_ignore_ascii_case(wanted));
    fits.then(|| (group, rest.iter().skip(1).step_by(2).copied().collect()))
}

/// Parts of a subnet's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubnetId<'a> {
    pub(super) group: GroupId<'a>,
    pub(super) network: &'a str,
    pub(super) name: &'a str,
}

impl SubnetId<'_> {
    pub(super) fn is_in_network_of(&self, other: &SubnetId<'_>) -> bool {
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        same(self.group.subscription, other.group.subscription)
            && same(self.group.group, other.group.group)
            && same(self.network, other.network)
    }
}

/// The id of a subnet, if it is one.
pub(super) fn subnet_id(id: &str) -> Option<SubnetId<'_>> {
    let (group, names) = of_provider(id, "Microsoft.Network", &["virtualNetworks", "subnets"])?;
    let [network, name] = names.as_slice() else { return None };
    let fits = is_word(network, 2..=64, b"-_.") && is_word(name, 2..=80, b"-_.");
    fits.then_some(SubnetId { group, network, name })
}

/// The id of a disk encryption set, if it is one.
pub(super) fn disk_encryption_set_id(id: &str) -> Option<GroupId<'_>> {
    let (group, names) = of_provider(id, "Microsoft.Compute", &["diskEncryptionSets"])?;
    names.first().filter(|name| is_word(name, 1..=80, b"-_")).map(|_| group)
}

/// Whether an id is that of a user-assigned identity.
pub(super) fn is_identity_id(id: &str) -> bool {
    of_provider(id, "Microsoft.ManagedIdentity", &["userAssignedIdentities"])
        .is_some_and(|(_, names)| names.first().is_some_and(|name| is_word(name, 1..=128, b"-_")))
}

/// Whether a domain is valid: labels of lower-case letters, digits and hyphens. The first starts with a letter, unless it was
/// accepted earlier (`may_begin_with_digit`), and has two characters or more.
pub(super) fn is_domain(text: &str, may_begin_with_digit: bool) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let end = |byte: u8| byte != b'-';
    let label = |text: &str, least: usize| {
        let bytes = text.as_bytes();
        (least..=63).contains(&bytes.len())
            && bytes.iter().copied().all(inner)
            && bytes.first().copied().is_some_and(end)
            && bytes.last().copied().is_some_and(end)
    };
    let mut labels = text.split('.');
    let first = labels.next().unwrap_or_default();
    let begins = may_begin_with_digit || first.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    begins && label(first, 2) && labels.all(|it| label(it, 1))
}
