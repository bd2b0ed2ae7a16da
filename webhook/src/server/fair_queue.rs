//! In which order those that wait are given their turn: the addresses go round, whatever each of them has
//! waiting.

use std::collections::VecDeque;
use std::net::IpAddr;

/// All that wait, by address.
#[derive(Debug)]
pub(super) struct FairQueue<W> {
    /// Those of which something waits, the next one first.
    queues: VecDeque<AddressQueue<W>>,
    next_number: u64,
}

/// One that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    source: IpAddr,
    number: u64,
}

#[derive(Debug)]
struct AddressQueue<W> {
    source: IpAddr,
    /// Never empty.
    waiting: VecDeque<(u64, W)>,
}

// === impl FairQueue ===

impl<W> FairQueue<W> {
    /// Has `waiter` wait behind all others of its address.
    pub(super) fn push(&mut self, source: IpAddr, waiter: W) -> Ticket {
        let source = source.to_canonical();
        let number = self.next_number;
        self.next_number += 1;
        match self.queues.iter_mut().find(|one| one.source == source) {
            Some(address) => address.waiting.push_back((number, waiter)),
            None => self.queues.push_back(AddressQueue {
                source,
                waiting: [(number, waiter)].into(),
            }),
        }
        Ticket { source, number }
    }

    /// Takes the first of the next address, which is then the last to be next.
    pub(super) fn pop(&mut self) -> Option<W> {
        let mut address = self.queues.pop_front()?;
        let (_, waiter) = address.waiting.pop_front()?;
        if !address.waiting.is_empty() {
            self.queues.push_back(address);
        }
        Some(waiter)
    }

    /// Takes one that waits no longer. Returns false if it had its turn.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let is_its = |one: &AddressQueue<W>| one.source == ticket.source;
        let Some(at) = self.queues.iter().position(is_its) else {
            return false;
        };
        let waiting = &mut self.queues[at].waiting;
        let before = waiting.len();
        waiting.retain(|(number, _)| *number != ticket.number);
        let after = waiting.len();
        if after == 0 {
            self.queues.remove(at);
        }
        after < before
    }
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self {
            queues: VecDeque::new(),
            next_number: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::net::Ipv4Addr;

    use super::*;

    fn address(host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, host).into()
    }

    fn all(turns: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn addresses_take_turns_and_each_is_served_in_order() {
        let mut turns = FairQueue::default();
        for (host, waiter) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (1, "a4")] {
            turns.push(address(host), waiter);
        }
        assert_eq!(turns.pop(), Some("a1"));
        turns.push(address(3), "c1");
        turns.push(address(2), "b2");
        assert_eq!(all(&mut turns), ["b1", "a2", "c1", "b2", "a3", "a4"]);
    }

    #[test]
    fn one_that_left_is_passed_over() {
        let mut turns = FairQueue::default();
        let first = turns.push(address(1), "a1");
        let only = turns.push(address(2), "b1");
        turns.push(address(1), "a2");
        assert!(turns.remove(first) && turns.remove(only));
        assert_eq!(all(&mut turns), ["a2"]);
        assert!(!turns.remove(first), "nothing waits");
        let had_its_turn = turns.push(address(1), "a3");
        turns.push(address(1), "a4");
        turns.pop();
        assert!(!turns.remove(had_its_turn));
        assert!(turns.queues.len() == 1);
    }

    #[test]
    fn an_address_is_one_in_either_notation() {
        let mut turns = FairQueue::default();
        turns.push("::ffff:10.0.0.1".parse().unwrap(), "a1");
        turns.push("10.0.0.1".parse().unwrap(), "a2");
        assert_eq!(turns.queues.len(), 1);
    }
}
