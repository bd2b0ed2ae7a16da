//! A queue that serves client addresses in turn, however much each of them has queued.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Waiters by address.
#[derive(Debug)]
pub(super) struct FairQueue<W> {
    /// The addresses that have waiters, the next one first.
    queues: VecDeque<AddressQueue<W>>,
    next_number: u64,
}

/// Identifies a waiter.
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
    /// Queues `waiter` behind all others of its address.
    pub(super) fn push(&mut self, source: IpAddr, waiter: W) -> Ticket {
        let source = source.to_canonical();
        let number = self.next_number;
        self.next_number += 1;
        match self.queues.iter_mut().find(|queue| queue.source == source) {
            Some(queue) => queue.waiting.push_back((number, waiter)),
            None => self.queues.push_back(AddressQueue {
                source,
                waiting: [(number, waiter)].into(),
            }),
        }
        Ticket { source, number }
    }

    /// Takes the first waiter of the next address, and puts the address last.
    pub(super) fn pop(&mut self) -> Option<W> {
        let mut queue = self.queues.pop_front()?;
        let (_, waiter) = queue.waiting.pop_front()?;
        if !queue.waiting.is_empty() {
            self.queues.push_back(queue);
        }
        Some(waiter)
    }

    /// Removes a waiter. Returns false if it is no longer queued.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let is_same_source = |queue: &AddressQueue<W>| queue.source == ticket.source;
        let Some(index) = self.queues.iter().position(is_same_source) else {
            return false;
        };
        let waiting = &mut self.queues[index].waiting;
        let before = waiting.len();
        waiting.retain(|(number, _)| *number != ticket.number);
        let after = waiting.len();
        if after == 0 {
            self.queues.remove(index);
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

    fn drain(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn addresses_take_turns() {
        let mut queue = FairQueue::default();
        for (host, waiter) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (1, "a4")] {
            queue.push(address(host), waiter);
        }
        assert_eq!(queue.pop(), Some("a1"));
        queue.push(address(3), "c1");
        queue.push(address(2), "b2");
        assert_eq!(drain(&mut queue), ["b1", "a2", "c1", "b2", "a3", "a4"]);
    }

    #[test]
    fn removed_waiter_is_skipped() {
        let mut queue = FairQueue::default();
        let first = queue.push(address(1), "a1");
        let only = queue.push(address(2), "b1");
        queue.push(address(1), "a2");
        assert!(queue.remove(first) && queue.remove(only));
        assert_eq!(drain(&mut queue), ["a2"]);
        assert!(!queue.remove(first), "the queue is empty");
        let served = queue.push(address(1), "a3");
        queue.push(address(1), "a4");
        queue.pop();
        assert!(!queue.remove(served));
        assert!(queue.queues.len() == 1);
    }

    #[test]
    fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mut queue = FairQueue::default();
        queue.push("::ffff:10.0.0.1".parse().unwrap(), "a1");
        queue.push("10.0.0.1".parse().unwrap(), "a2");
        assert_eq!(queue.queues.len(), 1);
    }
}
