//! Randomness for names and uids.

/// The alphabet of generated names: no vowels and no characters that look alike.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The random suffix of a generated name.
pub(crate) fn suffix() -> String {
    let mut bytes = [0_u8; 5];
    // Without randomness names repeat and are rejected as taken; there is no other harm.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// A new uid.
pub(crate) fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}
