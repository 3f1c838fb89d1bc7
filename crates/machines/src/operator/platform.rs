//! What the operator rolls out on each platform.

/// A platform with machine controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlatformProvider {
    /// Its name in `Infrastructure`.
    pub(crate) platform: &'static str,
    /// The key of its image in the list of images.
    pub(crate) image: &'static str,
    /// Whether its cloud announces the end of an instance.
    pub(crate) has_termination_handler: bool,
}

const fn provider(platform: &'static str, image: &'static str, announces: bool) -> PlatformProvider {
    PlatformProvider { platform, image, has_termination_handler: announces }
}

/// Every platform with machine controllers; on all others nothing is deployed.
const PROVIDERS: [PlatformProvider; 10] = [
    provider("AWS", "clusterAPIControllerAWS", true),
    provider("Azure", "clusterAPIControllerAzure", true),
    provider("GCP", "clusterAPIControllerGCP", true),
    provider("OpenStack", "clusterAPIControllerOpenStack", false),
    provider("BareMetal", "clusterAPIControllerBareMetal", false),
    provider("VSphere", "clusterAPIControllerVSphere", false),
    provider("IBMCloud", "clusterAPIControllerIBMCloud", false),
    provider("PowerVS", "clusterAPIControllerPowerVS", false),
    provider("Nutanix", "clusterAPIControllerNutanix", false),
    provider("kubemark", "clusterAPIControllerKubemark", false),
];

/// The provider of a platform by its name in `Infrastructure`.
pub(crate) fn provider_of(platform: &str) -> Option<PlatformProvider> {
    PROVIDERS.into_iter().find(|it| it.platform == platform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platforms_are_those_of_the_reference() {
        for (platform, expect) in [
            ("AWS", Some(true)),
            ("Azure", Some(true)),
            ("GCP", Some(true)),
            ("OpenStack", Some(false)),
            ("BareMetal", Some(false)),
            ("VSphere", Some(false)),
            ("IBMCloud", Some(false)),
            ("PowerVS", Some(false)),
            ("Nutanix", Some(false)),
            ("kubemark", Some(false)),
            ("None", None),
            ("External", None),
            ("oVirt", None),
            ("", None),
        ] {
            assert_eq!(provider_of(platform).map(|it| it.has_termination_handler), expect, "{platform}");
        }
    }
}
