//! Secrets from the system's random source, never from the seed: they protect something, even if it is simulated.

use crate::failure::Failure;

const LETTERS: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A password of 32 letters.
pub(crate) fn password() -> Result<String, Failure> {
    text(32)
}

/// Random letters.
pub(crate) fn text(count: usize) -> Result<String, Failure> {
    let mut bytes = vec![0_u8; count];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Broken(format!("no randomness: {error}")))?;
    // 56 letters: the modulo makes some slightly more frequent, which costs a fraction of a bit of 185.
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect())
}
