//! Actor of a change, as logs, histories and the audit log name it.
//!
//! An *identity* is a name that was authenticated. Authentication rejects a longer one than the limit, and it is
//! never shortened afterwards. A *claim* is the name of the person on whose behalf an authenticated tool acts. It is as trustworthy as
//! the tool, so it comes first, shortened if necessary, and the whole identity follows it.

/// Maximum length of an identity. Authentication rejects a longer one.
pub const IDENTITY_BYTES_MAX: usize = 200;

/// Maximum length of a claim; a longer one is truncated. Every identity fits, even when each of its bytes is escaped for
/// a header.
pub const CLAIM_BYTES_MAX: usize = 3 * IDENTITY_BYTES_MAX;

/// Separator between a claim and the identity.
const VIA: &str = " via ";

/// Reason why a name cannot be an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It has no visible characters.
    #[error("it is empty")]
    Empty,
    /// It is too long; a truncated name could be that of somebody else.
    #[error("it has more than {IDENTITY_BYTES_MAX} bytes")]
    TooLong,
    /// It contains the separator, so that it reads like a claim and another identity.
    #[error("it contains \"{VIA}\", which stands between a person and the tool that acts for them")]
    Via,
}

/// Normalise a name to one line: collapse and trim white space, and remove invisible
/// characters.
pub fn normalize(name: &str) -> String {
    let mut plain = String::with_capacity(name.len().min(CLAIM_BYTES_MAX));
    for word in name.split_whitespace() {
        let mut word = word.chars().filter(|letter| !is_invisible(*letter)).peekable();
        if word.peek().is_some() && !plain.is_empty() {
            plain.push(' ');
        }
        plain.extend(word);
    }
    plain
}

/// Normalise an authenticated name; it is never truncated.
pub fn identity(name: &str) -> Result<String, IdentityError> {
    let plain = normalize(name);
    if plain.is_empty() {
        Err(IdentityError::Empty)
    } else if plain.len() > IDENTITY_BYTES_MAX {
        Err(IdentityError::TooLong)
    } else if plain.contains(VIA) {
        Err(IdentityError::Via)
    } else {
        Ok(plain)
    }
}

/// Normalise and truncate a claim; none when it has no visible characters.
pub fn claim(name: &str) -> Option<String> {
    let mut plain = normalize(name);
    if plain.len() > CLAIM_BYTES_MAX {
        const CUT: &str = "…";
        plain.truncate(plain.floor_char_boundary(CLAIM_BYTES_MAX - CUT.len()));
        plain.push_str(CUT);
    }
    (!plain.is_empty()).then_some(plain)
}

/// The actor: an identity, preceded by the person on whose behalf it acts.
pub fn acting_for(claimed: Option<&str>, identity: &str) -> String {
    match claimed.and_then(claim) {
        Some(claimed) => format!("{claimed}{VIA}{identity}"),
        None => identity.to_owned(),
    }
}

/// Control characters, and those that only change how others are shown: a name with them can look like another name.
fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_one_line_that_can_be_seen() {
        let check = |name: &str, expect: &str| assert_eq!(normalize(name), expect, "{name:?}");
        check("jo@example", "jo@example");
        check("  Jo \t\n van   Dijk\u{a0}", "Jo van Dijk");
        check("jo\u{0}\u{7}\u{202e}nimda\u{200b}", "jonimda");
        check("a \u{200b} b", "a b");
        check(" \u{feff}\r\n ", "");
        check("Jürgen 浩", "Jürgen 浩");
    }

    #[test]
    fn an_identity_is_whole_or_none() {
        assert_eq!(identity(" jo  doe "), Ok("jo doe".to_owned()));
        assert_eq!(identity(&"ä".repeat(100)), Ok("ä".repeat(100)));
        assert_eq!(identity(&"ä".repeat(101)), Err(IdentityError::TooLong));
        assert_eq!(identity(&format!("jo{}", " ".repeat(10_000))), Ok("jo".to_owned()));
        assert_eq!(identity(" \t"), Err(IdentityError::Empty));
        assert_eq!(identity("jo  via portal"), Err(IdentityError::Via));
        assert_eq!(identity("via@example"), Ok("via@example".to_owned()));
    }

    #[test]
    fn a_claim_of_any_length_leaves_the_identity_whole() {
        let check = |claimed: &str, expect: &str| {
            assert_eq!(acting_for(Some(claimed), "tool"), expect, "{} bytes", claimed.len());
        };
        check("jo", "jo via tool");
        check(&format!("jo{}x", " ".repeat(5_000)), "jo x via tool");
        check(" ", "tool");
        let long = acting_for(Some(&"ä".repeat(5_000)), "tool");
        assert!(long.ends_with("ä… via tool") && long.len() <= CLAIM_BYTES_MAX + " via tool".len(), "{long}");
        assert_eq!(acting_for(None, "tool"), "tool");
    }

    proptest! {
        #[test]
        fn the_identity_always_ends_the_actor_and_both_are_bounded(claimed in "(\\PC|\\s|[\\x00-\\x1f\u{200b}]){0,900}", name in "(\\PC|\\s){0,250}") {
            let plain = normalize(&claimed);
            prop_assert_eq!(&normalize(&plain), &plain);
            prop_assert!(!plain.contains(is_invisible) && !plain.contains("  ") && plain.trim() == plain);
            if let Ok(identity) = identity(&name) {
                let actor = acting_for(Some(&claimed), &identity);
                let tail = [VIA, &identity].concat();
                prop_assert!(actor == identity || actor.ends_with(&tail));
                prop_assert!(actor.len() <= CLAIM_BYTES_MAX + VIA.len() + IDENTITY_BYTES_MAX);
            }
        }
    }
}
