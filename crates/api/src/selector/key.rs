//! What can be asked about a cluster.

/// By which attribute clusters are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// The resource id, in lower case.
    ResourceId,
    /// The bucket that the cluster's watching falls into.
    BucketId,
    /// The subscription, in lower case.
    SubscriptionId,
    /// Whether the subscription is in good standing.
    SubscriptionState,
    /// How the cluster proves who it is.
    AuthenticationType,
    /// Which layout of networks and load balancers it has: `0` or `1`.
    ArchitectureVersion,
    /// What its customer sees of its life.
    ProvisioningState,
    /// How it reaches the outside.
    OutboundType,
    /// Who reaches its API server.
    ApiServerVisibility,
    /// Whether its domain is one of ours.
    IsManagedDomain,
    /// Where it runs.
    Location,
    /// The version that was installed; of an imported cluster, the one that was last seen in it.
    Version,
    /// When it was created or imported.
    CreatedAt,
    /// Its name, as its creator spelled it.
    Name,
    /// Its resource group, as its creator spelled it.
    ResourceGroup,
    /// One of its labels; the whole key, `label.X`.
    Label(String),
}

/// What a key's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Any text.
    Text,
    /// Text in lower case.
    LowerText,
    /// One of these words.
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

/// How a label is asked for.
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
