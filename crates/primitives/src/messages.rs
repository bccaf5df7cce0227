//! A batch of equal-length messages, as the hashes take it.

/// Messages of one length that lie in one buffer at one distance from each other.
///
/// Message `k` is `data[k * stride..][..len]`. The stride may be larger than the length (blocks read with gaps
/// between them) and even smaller (overlapping windows); bytes between messages are never looked at.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    data: &'a [u8],
    len: usize,
    stride: usize,
    count: usize,
}

impl<'a> Messages<'a> {
    /// The messages of `len` bytes that all of `data` is cut into.
    ///
    /// # Panics
    /// If `len` is 0 or `data.len()` is not a multiple of it.
    pub fn contiguous(data: &'a [u8], len: usize) -> Messages<'a> {
        assert!(len > 0, "messages that lie side by side need a length");
        assert!(data.len().is_multiple_of(len), "{} bytes are not a multiple of {len}", data.len());
        Messages { data, len, stride: len, count: data.len() / len }
    }

    /// `count` messages of `len` bytes whose beginnings are `stride` bytes apart.
    ///
    /// # Panics
    /// If the last message does not end within `data`.
    pub fn strided(data: &'a [u8], len: usize, stride: usize, count: usize) -> Messages<'a> {
        let end = match count.checked_sub(1) {
            None => Some(0),
            Some(last) => last.checked_mul(stride).and_then(|start| start.checked_add(len)),
        };
        assert!(
            end.is_some_and(|end| end <= data.len()),
            "{count} messages of {len} bytes at stride {stride} do not fit in {} bytes",
            data.len()
        );
        Messages { data, len, stride, count }
    }

    /// The number of messages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of each message.
    pub fn message_len(&self) -> usize {
        self.len
    }

    /// The buffer from the first message on; what lies behind the last one is not specified.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of message `k`.
    ///
    /// # Panics
    /// If there is no message `k`.
    pub fn get(&self, k: usize) -> &'a [u8] {
        assert!(k < self.count, "message {k} of {}", self.count);
        &self.data[k * self.stride..][..self.len]
    }

    /// The first `count` messages, and the others.
    ///
    /// # Panics
    /// If there are fewer than `count`.
    pub fn split_at(&self, count: usize) -> (Messages<'a>, Messages<'a>) {
        assert!(count <= self.count, "{count} messages of {}", self.count);
        let rest = self.count - count;
        // Nothing is known about the bytes after the last message, so an empty rest gets none.
        let data = if rest == 0 { &[] } else { &self.data[count * self.stride..] };
        (Messages { count, ..*self }, Messages { data, count: rest, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lie_where_the_stride_says() {
        let data: Vec<u8> = (0..20).collect();
        let messages = Messages::strided(&data, 2, 6, 4);
        assert_eq!((messages.count(), messages.message_len()), (4, 2));
        assert_eq!(messages.get(3), &[18, 19]);
        let (head, rest) = messages.split_at(1);
        assert_eq!((head.count(), head.get(0)), (1, &data[..2]));
        assert_eq!((rest.count(), rest.get(2)), (3, &data[18..]));
        assert_eq!(messages.split_at(4).1.count(), 0);
        assert_eq!(Messages::contiguous(&data, 5).count(), 4);
        assert_eq!(Messages::strided(&[], 0, 0, 7).get(6), &[0; 0]);
    }

    #[test]
    fn batches_outside_their_buffer_are_refused() {
        let refused = |len, stride, count| {
            std::panic::catch_unwind(|| Messages::strided(&[0; 20], len, stride, count).count()).is_err()
        };
        assert!(!refused(2, 6, 4));
        assert!(refused(3, 6, 4));
        assert!(refused(2, 7, 4));
        assert!(refused(2, 6, 5));
        assert!(refused(1, usize::MAX, 3));
        assert!(refused(usize::MAX, 1, 3));
        assert!(std::panic::catch_unwind(|| Messages::contiguous(&[0; 20], 3).count()).is_err());
        assert!(std::panic::catch_unwind(|| Messages::contiguous(&[], 0).count()).is_err());
    }
}
