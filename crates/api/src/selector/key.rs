//! Keys of selectors.

/// Attribute of a cluster that a selector compares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// The resource id, in lower case.
    ResourceId,
    /// The bucket of the cluster's monitoring.
    BucketId,
    /// The subscription, in lower case.
    SubscriptionId,
    /// Whether the subscription is in good standing.
    SubscriptionState,
    /// Type of the cluster's identity.
    AuthenticationType,
    /// Layout of its networks and load balancers: `0` or `1`.
    ArchitectureVersion,
    /// Its provisioning state.
    ProvisioningState,
    /// Its outbound type.
    OutboundType,
    /// Visibility of its API server.
    ApiServerVisibility,
    /// Whether its domain is managed by the service.
    IsManagedDomain,
    /// Its location.
    Location,
    /// The installed version; for an imported cluster, the last observed one.
    Version,
    /// When it was created or imported.
    CreatedAt,
    /// Its name, as spelled at the creation.
    Name,
    /// Its resource group, as spelled at the creation.
    ResourceGroup,
    /// One of its labels; the whole key, `label.X`.
    Label(String),
}

/// Type of a key's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Any text.
    Text,
    /// Text in lower case.
    LowerText,
    /// One of these values.
    Word(&'static [&'static str]),
    /// A whole number from 0 to this.
    Number(u16),
    /// A version.
    Version,
    /// An instant or a day.
    Date,
    /// Text, which may be a number.
    Label,
}

/// Prefix of the keys of labels.
pub(super) const LABEL: &str = "label.";

impl Key {
    const PLAIN: [Key; 15] = [
        Key::ResourceId,
        Key::BucketId,
        Key::SubscriptionId,
        Key::SubscriptionState,
        Key::AuthenticationType,
        Key::ArchitectureVersion,
        Key::ProvisioningState,
        Key::OutboundType,
        Key::ApiServerVisibility,
        Key::IsManagedDomain,
        Key::Location,
        Key::Version,
        Key::CreatedAt,
        Key::Name,
        Key::ResourceGroup,
    ];

    /// The key of that spelling.
    pub fn named(text: &str) -> Option<Key> {
        if text.strip_prefix(LABEL).is_some_and(|label| !label.is_empty()) {
            return Some(Key::Label(text.to_owned()));
        }
        Key::PLAIN.into_iter().find(|key| key.as_str() == text)
    }

    /// Its spelling.
    pub fn as_str(&self) -> &str {
        match self {
            Key::ResourceId => "resourceID",
            Key::BucketId => "bucketID",
            Key::SubscriptionId => "subscriptionID",
            Key::SubscriptionState => "subscriptionState",
            Key::AuthenticationType => "authenticationType",
            Key::ArchitectureVersion => "architectureVersion",
            Key::ProvisioningState => "provisioningState",
            Key::OutboundType => "outboundType",
            Key::ApiServerVisibility => "APIServerVisibility",
            Key::IsManagedDomain => "isManagedDomain",
            Key::Location => "location",
            Key::Version => "version",
            Key::CreatedAt => "createdAt",
            Key::Name => "name",
            Key::ResourceGroup => "resourceGroup",
            Key::Label(key) => key,
        }
    }

    /// All spellings, for messages.
    pub(super) fn spellings() -> String {
        let names: Vec<&str> = Key::PLAIN.iter().map(Key::as_str).collect();
        format!("{} and label.NAME", names.join(", "))
    }

    pub(super) fn kind(&self) -> Type {
        match self {
            Key::ResourceId | Key::SubscriptionId => Type::LowerText,
            Key::BucketId => Type::Number(255),
            Key::SubscriptionState => {
                Type::Word(&["Registered", "Warned", "Suspended", "Unregistered", "Deleted"])
            }
            Key::AuthenticationType => Type::Word(&["WorkloadIdentity", "ServicePrincipal"]),
            Key::ArchitectureVersion => Type::Number(1),
            Key::ProvisioningState => {
                Type::Word(&["Creating", "Updating", "AdminUpdating", "Deleting", "Succeeded", "Failed"])
            }
            Key::OutboundType => Type::Word(&["Loadbalancer", "UserDefinedRouting"]),
            Key::ApiServerVisibility => Type::Word(&["Public", "Private"]),
            Key::IsManagedDomain => Type::Word(&["true", "false"]),
            Key::Version => Type::Version,
            Key::CreatedAt => Type::Date,
            Key::Location | Key::Name | Key::ResourceGroup => Type::Text,
            Key::Label(_) => Type::Label,
        }
    }
}
