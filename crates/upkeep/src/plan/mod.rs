//! What will run where and when, by the rules that will run it.

pub mod simulate;

#[cfg(test)]
mod tests;
