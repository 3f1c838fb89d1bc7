//! Ranges of IPv4 addresses.

use std::net::{IpAddr, Ipv4Addr};

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cidr {
    address: u32,
    pub(super) prefix: u8,
}

/// Why a text is no range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoCidr {
    /// It is no range at all.
    Malformed,
    /// It is one of IPv6.
    Ipv6,
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Result<Cidr, NoCidr> {
        let (address, prefix) = text.split_once('/').ok_or(NoCidr::Malformed)?;
        let address: IpAddr = address.parse().map_err(|_| NoCidr::Malformed)?;
        let is_number = (1..=3).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| is_number).ok_or(NoCidr::Malformed)?;
        match address {
            IpAddr::V4(address) if prefix <= 32 => Ok(Cidr { address: address.to_bits(), prefix }),
            IpAddr::V6(_) if prefix <= 128 => Err(NoCidr::Ipv6),
            _ => Err(NoCidr::Malformed),
        }
    }

    /// A range that is known to be one.
    pub(super) const fn of(address: Ipv4Addr, prefix: u8) -> Cidr {
        Cidr { address: address.to_bits(), prefix }
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// The first address of the range.
    pub(super) fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address & self.mask())
    }

    /// Whether no bit is set behind the prefix.
    pub(super) fn is_network(self) -> bool {
        self.address & !self.mask() == 0
    }

    /// Whether an address is in both.
    pub(super) fn overlaps(self, other: Cidr) -> bool {
        let mask = self.mask() & other.mask();
        self.address & mask == other.address & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_compared() {
        let range = |text: &str| Cidr::parse(text).unwrap();
        assert!(range("10.128.0.0/14").is_network() && !range("10.128.0.1/14").is_network());
        assert_eq!(range("10.131.9.9/14").network(), Ipv4Addr::new(10, 128, 0, 0));
        assert!(range("0.0.0.0/0").overlaps(range("100.64.0.0/16")));
        assert!(range("100.64.3.0/24").overlaps(range("100.64.0.0/16")));
        assert!(!range("100.65.0.0/16").overlaps(range("100.64.0.0/16")));
        assert_eq!(Cidr::parse("fd00::/48"), Err(NoCidr::Ipv6));
        for nonsense in
            ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/+8", "10.0.0.0/", "x/8", "10.0.0.0/008 "]
        {
            assert_eq!(Cidr::parse(nonsense), Err(NoCidr::Malformed), "{nonsense:?}");
        }
    }
}
