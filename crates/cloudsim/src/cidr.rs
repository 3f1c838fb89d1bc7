//! Ranges of IPv4 addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A range of addresses, as `10.0.0.0/23`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    first: u32,
    bits: u8,
}

impl Cidr {
    fn last(self) -> u32 {
        self.first | u32::MAX.checked_shr(self.bits.into()).unwrap_or(0)
    }

    pub(crate) fn contains(self, other: Cidr) -> bool {
        self.first <= other.first && other.last() <= self.last()
    }

    pub(crate) fn overlaps(self, other: Cidr) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }

    /// The addresses that can be given out: the cloud keeps the first four and the last of each subnet for itself.
    pub(crate) fn usable(self) -> impl Iterator<Item = Ipv4Addr> {
        (u64::from(self.first) + 4..u64::from(self.last()))
            .filter_map(|it| u32::try_from(it).ok())
            .map(Ipv4Addr::from_bits)
    }

    pub(crate) fn may_give(self, address: Ipv4Addr) -> bool {
        let bits = u64::from(address.to_bits());
        (u64::from(self.first) + 4..u64::from(self.last())).contains(&bits)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let wrong = || format!("'{text}' is no range of addresses; expected one such as 10.0.0.0/23");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let first: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().ok().filter(|bits| (1..=32).contains(bits)).ok_or_else(wrong)?;
        let cidr = Cidr { first: first.to_bits(), bits };
        let start = cidr.first & !u32::MAX.checked_shr(bits.into()).unwrap_or(0);
        if start != cidr.first {
            let begins = Ipv4Addr::from_bits(start);
            return Err(format!("'{text}' does not begin where its range does; expected {begins}/{bits}"));
        }
        Ok(cidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_contain_overlap_and_give_out() {
        assert!(cidr("10.0.0.0/16").contains(cidr("10.0.2.0/23")));
        assert!(!cidr("10.0.2.0/23").contains(cidr("10.0.0.0/16")));
        assert!(cidr("10.0.0.0/16").overlaps(cidr("10.0.255.0/24")));
        assert!(!cidr("10.0.0.0/24").overlaps(cidr("10.0.1.0/24")));
        let small: Vec<String> = cidr("10.0.0.0/29").usable().map(|it| it.to_string()).collect();
        assert_eq!(small, ["10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(cidr("255.255.255.255/32").usable().count(), 0);
        assert!(cidr("10.0.0.0/29").may_give("10.0.0.6".parse().unwrap()));
        assert!(!cidr("10.0.0.0/29").may_give("10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn what_is_no_range_is_refused_with_what_would_be_one() {
        for (text, hint) in [
            ("", "such as 10.0.0.0/23"),
            ("10.0.0.0", "such as"),
            ("10.0.0.0/0", "such as"),
            ("10.0.0.0/33", "such as"),
            ("10.0.0/8", "such as"),
            ("10.0.1.0/23", "expected 10.0.0.0/23"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.contains(hint), "{error}");
        }
    }
}
