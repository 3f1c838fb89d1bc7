//! DNS names of clusters: in the service's own zones, or managed by their customers.
//!
//! The frontend decides this once, when a cluster is created, and records it
//! ([`Provisioned::managed_domain`](crate::doc::Provisioned::managed_domain)).

/// Zone of clusters' names when none is configured; a reserved name that nobody can own.
pub const DOMAIN: &str = "clusters.shipshape.test";

/// Zone of the names of clusters in a location: a child of `zone`, or [`DOMAIN`] for all locations when there is none.
pub fn zone_in(location: &str, zone: Option<&str>) -> String {
    zone.map_or_else(|| DOMAIN.to_owned(), |zone| format!("{}.{zone}", location.to_lowercase()))
}

/// Full name of a cluster whose request named `domain`, if that is in the zone of its location: a bare label, or one label
/// followed by the zone. None when the customer manages the name.
pub fn managed(domain: &str, zone: &str) -> Option<String> {
    let domain = domain.to_lowercase();
    let label = domain.strip_suffix(&zone.to_lowercase()).and_then(|it| it.strip_suffix('.'));
    let label = label.unwrap_or(&domain);
    (!label.is_empty() && !label.contains('.')).then(|| format!("{label}.{}", zone.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_and_its_whole_name_are_the_same_managed_name() {
        let check = |domain: &str, expect: Option<&str>| {
            assert_eq!(managed(domain, "eastus.clusters.example").as_deref(), expect, "{domain}");
        };
        let whole = Some("harbour.eastus.clusters.example");
        check("harbour", whole);
        check("Harbour", whole);
        check("harbour.eastus.clusters.example", whole);
        check("a.harbour.eastus.clusters.example", None);
        check("harbour.westus.clusters.example", None);
        check("harbour.customer.example", None);
        check("eastus.clusters.example", None);
        check("harboureastus.clusters.example", None);
    }

    #[test]
    fn a_location_has_a_zone_of_its_own_where_one_is_configured() {
        assert_eq!(zone_in("EastUS", Some("clusters.example")), "eastus.clusters.example");
        assert_eq!(zone_in("eastus", None), DOMAIN);
    }
}
