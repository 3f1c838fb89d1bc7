//! Reproducible randomness: each value follows from the service's seed and a purpose.

use std::time::Duration;

use uuid::Uuid;

/// A number for a seed and a purpose.
pub(crate) fn draw(seed: u64, words: &[&str]) -> u64 {
    // FNV-1a over the words, each terminated by a byte that no text contains, then mixed as in SplitMix64.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for word in words {
        for byte in word.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    let mut mixed = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number from 0 up to 1.
pub(crate) fn share(seed: u64, words: &[&str]) -> f64 {
    // The upper 53 bits are all that such a number holds.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let share = (draw(seed, words) >> 11) as f64 / (1_u64 << 53) as f64;
    share
}

/// The duration of a change that usually takes `usual`: between 0.5 and 1.5 of it, scaled by the pace.
pub(crate) fn span(seed: u64, pace: f64, usual: Duration, words: &[&str]) -> Duration {
    let factor = (pace * (0.5 + share(seed, words))).clamp(0.0, 1_000.0);
    usual.mul_f64(factor)
}

/// An id for a purpose.
pub(crate) fn uuid(seed: u64, words: &[&str]) -> Uuid {
    let high = draw(seed, words);
    let low = draw(seed ^ high, words);
    uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
}

/// Letters for the end of a name, without vowels, so that they do not form words.
pub(crate) fn letters(seed: u64, count: usize, words: &[&str]) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = draw(seed, words);
    let mut text = String::with_capacity(count);
    for _ in 0..count {
        let at = usize::try_from(rest % LETTERS.len() as u64).unwrap_or(0);
        text.push(char::from(LETTERS[at]));
        rest /= LETTERS.len() as u64;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_depends_on_seed_and_words_alone() {
        assert_eq!(draw(1, &["a", "b"]), draw(1, &["a", "b"]));
        assert_ne!(draw(1, &["a", "b"]), draw(2, &["a", "b"]));
        assert_ne!(draw(1, &["a", "b"]), draw(1, &["ab"]));
    }

    #[test]
    fn spans_lie_round_the_usual_and_vanish_without_pace() {
        let usual = Duration::from_secs(100);
        for number in 0..200 {
            let span = span(number, 1.0, usual, &["x"]);
            assert!((50..=150).contains(&span.as_secs()), "{span:?}");
        }
        assert_eq!(span(1, 0.0, usual, &["x"]), Duration::ZERO);
    }
}
