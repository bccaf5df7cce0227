//! Results of pieces, brought back into order.

use std::collections::BTreeMap;

/// Hands on what comes in any order, numbered from 0, in order.
///
/// Pieces are claimed in order, so about as many results wait here as there are workers.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> InOrder<T> {
    pub(super) fn new() -> InOrder<T> {
        InOrder { next: 0, early: BTreeMap::new() }
    }

    /// Takes the result of one piece, and calls `take` for each result that is next.
    pub(super) fn deliver<E>(
        &mut self,
        piece: u64,
        result: T,
        mut take: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        self.early.insert(piece, result);
        while let Some(result) = self.early.remove(&self.next) {
            self.next += 1;
            take(result)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_restored() {
        let mut order = InOrder::new();
        let mut seen = Vec::new();
        for piece in [2, 0, 1, 4, 3] {
            let take = |result| {
                seen.push(result);
                Ok::<_, ()>(())
            };
            order.deliver(piece, piece * 10, take).unwrap();
        }
        assert_eq!(seen, [0, 10, 20, 30, 40]);
    }
}
