//! The part of an address that stands for one client.

use std::net::{IpAddr, Ipv6Addr};

/// The IPv4 address, or the /64 of an IPv6 address, of which a host can usually take any address.
/// It is one pod, or many behind one address: a node that masquerades, konnectivity's agent.
pub(super) fn client_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_an_ipv4_address_or_64_bits_of_ipv6() {
        for (address, prefix) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"),
            ("::1", "::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(client_prefix(address).to_string(), prefix);
        }
    }
}
