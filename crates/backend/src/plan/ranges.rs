//! Ranges of IPv4 addresses, as far as validation needs them.

use std::net::Ipv4Addr;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    first: u32,
    bits: u32,
}

impl Range {
    /// Parses a CIDR such as `10.0.0.0/22`.
    pub(crate) fn parse(text: &str) -> Option<Range> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits) = (address.parse::<Ipv4Addr>().ok()?, bits.parse::<u32>().ok()?);
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
        Some(Range { first: u32::from(address) & mask, bits })
    }

    /// Length of the prefix.
    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// Whether the ranges have an address in common.
    pub(crate) fn overlaps(self, other: Range) -> bool {
        let bits = self.bits.min(other.bits);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        self.first & mask == other.first & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_when_one_is_in_the_other() {
        let overlap = |a: &str, b: &str| Range::parse(a).unwrap().overlaps(Range::parse(b).unwrap());
        assert!(overlap("10.0.0.0/8", "10.128.0.0/14") && overlap("10.128.0.0/14", "10.0.0.0/8"));
        assert!(overlap("0.0.0.0/0", "192.168.0.1/32"));
        assert!(!overlap("10.0.0.0/23", "10.0.2.0/23"));
        for odd in ["", "10.0.0.0", "10.0.0/8", "10.0.0.0/33", "10.0.0.0/-1", "::/0"] {
            assert_eq!(Range::parse(odd), None, "{odd}");
        }
    }
}
