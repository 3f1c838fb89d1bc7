//! Ranges of IPv4 addresses in CIDR notation.

use std::net::IpAddr;

use ipnet::Ipv4Net;

/// Why a text is not a range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// It is not a range.
    #[error("it is not a range of addresses such as 10.0.0.0/23")]
    Malformed,
    /// It is a range of IPv6 addresses.
    #[error("it is a range of IPv6 addresses")]
    Ipv6,
}

/// Parses a range. The prefix may have leading zeros, which `ipnet` rejects, and the address may have bits behind the prefix.
pub fn parse(text: &str) -> Result<Ipv4Net, CidrError> {
    let (address, prefix) = text.split_once('/').ok_or(CidrError::Malformed)?;
    let address: IpAddr = address.parse().map_err(|_| CidrError::Malformed)?;
    let is_number = (1..=3).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix: u8 = prefix.parse().ok().filter(|_| is_number).ok_or(CidrError::Malformed)?;
    match address {
        IpAddr::V4(address) => Ipv4Net::new(address, prefix).map_err(|_| CidrError::Malformed),
        IpAddr::V6(_) if prefix <= 128 => Err(CidrError::Ipv6),
        IpAddr::V6(_) => Err(CidrError::Malformed),
    }
}

/// Whether two ranges share an address.
pub fn overlap(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn ranges_are_parsed_and_compared() {
        let range = |text: &str| parse(text).unwrap();
        assert_eq!(range("10.131.9.9/14").network(), Ipv4Addr::new(10, 128, 0, 0));
        assert_eq!(range("10.131.9.9/14").addr(), Ipv4Addr::new(10, 131, 9, 9));
        assert!(overlap(&range("0.0.0.0/0"), &range("100.64.0.0/16")));
        assert!(overlap(&range("0.0.0.0/0"), &range("192.168.0.1/32")));
        assert!(overlap(&range("100.64.3.0/24"), &range("100.64.0.0/16")));
        assert!(overlap(&range("100.64.0.0/16"), &range("100.64.3.9/24")));
        assert!(!overlap(&range("100.65.0.0/16"), &range("100.64.0.0/16")));
        assert!(!overlap(&range("10.0.0.0/23"), &range("10.0.2.0/23")));
        assert_eq!(range("10.0.0.0/008").prefix_len(), 8);
        assert_eq!(parse("fd00::/48"), Err(CidrError::Ipv6));
        assert_eq!(parse("::/0"), Err(CidrError::Ipv6));
        for nonsense in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "x/8",
            "10.0.0.0/008 ",
        ] {
            assert_eq!(parse(nonsense), Err(CidrError::Malformed), "{nonsense:?}");
        }
    }
}
