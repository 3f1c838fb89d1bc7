//! Randomness for names and uids.

/// The letters of generated names: no vowels and nothing that looks like something else.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five letters to end a generated name with.
pub(crate) fn suffix() -> String {
    let mut bytes = [0_u8; 5];
    // Without randomness names repeat and are refused as taken; nothing worse.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// A fresh uid.
pub(crate) fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
