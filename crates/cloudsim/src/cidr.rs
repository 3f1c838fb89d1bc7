//! Address ranges of virtual networks and subnets.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Addresses at the start of each subnet that the cloud reserves: the network, the gateway and two for DNS. The broadcast
/// address at its end is reserved too.
const RESERVED: u32 = 4;

/// Parses a range, such as `10.0.0.0/23`, that starts at its network address.
pub(crate) fn parse(text: &str) -> Result<Ipv4Net, String> {
    let range = api::cidr::parse(text).ok().filter(|range| range.prefix_len() > 0);
    let range = range
        .ok_or_else(|| format!("'{text}' is not a range of addresses; expected one such as 10.0.0.0/23"))?;
    match range.trunc() {
        network if network == range => Ok(range),
        network => Err(format!("'{text}' does not start at its network address; expected {network}")),
    }
}

/// The addresses of a subnet that can be assigned, in order.
pub(crate) fn assignable(subnet: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    let first = subnet.network().to_bits().checked_add(RESERVED);
    let range = first.map(|first| first..subnet.broadcast().to_bits());
    range.into_iter().flatten().map(Ipv4Addr::from_bits)
}

/// Whether the address can be assigned in the subnet.
pub(crate) fn is_assignable(subnet: Ipv4Net, address: Ipv4Addr) -> bool {
    let offset = address.to_bits().checked_sub(subnet.network().to_bits());
    offset.is_some_and(|offset| offset >= RESERVED) && address < subnet.broadcast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_but_the_reserved_ones_can_be_assigned() {
        let subnet = parse("10.0.0.0/29").unwrap();
        let addresses: Vec<String> = assignable(subnet).map(|it| it.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(assignable(parse("255.255.255.255/32").unwrap()).count(), 0);
        assert!(is_assignable(subnet, "10.0.0.6".parse().unwrap()));
        assert!(!is_assignable(subnet, "10.0.0.7".parse().unwrap()));
        assert!(!is_assignable(subnet, "10.0.0.3".parse().unwrap()));
        assert!(!is_assignable(subnet, "9.0.0.6".parse().unwrap()));
    }

    #[test]
    fn a_text_that_is_not_a_range_is_rejected_with_an_example() {
        for (text, hint) in [
            ("", "such as 10.0.0.0/23"),
            ("10.0.0.0", "such as"),
            ("10.0.0.0/0", "such as"),
            ("10.0.0.0/33", "such as"),
            ("10.0.0/8", "such as"),
            ("10.0.1.0/23", "expected 10.0.0.0/23"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
