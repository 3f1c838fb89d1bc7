//! The keys of all settings, derived from the typed structs, so that no second list can become outdated.
//!
//! serde passes the fields of a struct to a deserializer before it requests values. The probe here returns
//! no values; it follows a path, records whether a struct or a value is expected there, and stops.

use std::collections::BTreeMap;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A table of further keys.
    Section,
    /// A setting.
    Setting,
}

/// Every known path, in dotted form, with its kind.
#[derive(Debug)]
pub(super) struct Keys(BTreeMap<String, Kind>);

impl Keys {
    /// The keys of `T`.
    pub(super) fn for_type<T: DeserializeOwned>() -> Keys {
        let mut found = BTreeMap::new();
        explore::<T>(&mut Vec::new(), &mut found);
        Keys(found)
    }

    pub(super) fn kind(&self, key: &str) -> Option<Kind> {
        self.0.get(key).copied()
    }

    /// The settings, without the sections that hold them.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, kind)| **kind == Kind::Setting).map(|(key, _)| key.as_str())
    }

    /// The setting with the name most similar to `key`.
    pub(super) fn nearest(&self, key: &str) -> &str {
        nearest(key, self.settings()).unwrap_or_default()
    }
}

/// The candidate with the fewest edits from `key`, the first of several.
pub(super) fn nearest<'a>(key: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A key given without its section is at most its section away: compare the last segment as well.
    let distance = |candidate: &str| {
        let last = candidate.rsplit('.').next().unwrap_or(candidate);
        let whole = strsim::damerau_levenshtein(key, candidate);
        if key.contains('.') { whole } else { whole.min(strsim::damerau_levenshtein(key, last) + 1) }
    };
    candidates.min_by_key(|candidate| distance(candidate))
}

fn explore<T: DeserializeOwned>(path: &mut Vec<&'static str>, found: &mut BTreeMap<String, Kind>) {
    let mut fields = None;
    // Always an error: the probe has no values.
    let _ = T::deserialize(Probe { path, fields: &mut fields });
    if !path.is_empty() {
        let kind = if fields.is_some() { Kind::Section } else { Kind::Setting };
        found.insert(path.join("."), kind);
    }
    for field in fields.unwrap_or_default() {
        path.push(field);
        explore::<T>(path, found);
        path.pop();
    }
}

type Stop = serde::de::value::Error;

/// Follows `path` and records in `fields` the struct found at its end, if it is one.
struct Probe<'a> {
    path: &'a [&'static str],
    fields: &'a mut Option<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Stop;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        match self.path.split_first() {
            Some((field, rest)) => visitor.visit_map(SingleField {
                field: Some(field),
                value: Some(Probe { path: rest, fields: self.fields }),
            }),
            None => {
                *self.fields = Some(fields);
                Err(Stop::custom("a section"))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("a setting"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct SingleField<'a> {
    field: Option<&'static str>,
    value: Option<Probe<'a>>,
}

impl<'de> MapAccess<'de> for SingleField<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        let Some(field) = self.field.take() else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        match self.value.take() {
            Some(probe) => seed.deserialize(probe),
            None => Err(Stop::custom("the value was read already")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_field_of_the_config_is_a_known_key() {
        let keys = Keys::for_type::<Config>();
        assert_eq!(keys.kind("store"), Some(Kind::Section));
        assert_eq!(keys.kind("store.url"), Some(Kind::Setting));
        assert_eq!(keys.kind("store.password_file"), Some(Kind::Setting), "an optional setting");
        assert_eq!(keys.kind("health.listen"), Some(Kind::Setting), "a setting with its own deserializer");
        assert_eq!(keys.kind("data_dir"), Some(Kind::Setting));
        assert_eq!(keys.kind("store.nothing"), None);
        assert_eq!(keys.kind("frontend.oidc"), Some(Kind::Section), "a nested section");
        assert_eq!(keys.kind("frontend.oidc.issuer"), Some(Kind::Setting));
        assert_eq!(keys.kind("clusters.locations"), Some(Kind::Setting), "a list is one setting");
        assert_eq!(keys.kind("cloud.azure.tenant_id"), Some(Kind::Setting), "a setting in two sections");
        assert_eq!(keys.settings().count(), 96);
    }

    #[test]
    fn a_misspelt_key_is_matched_with_the_nearest() {
        let keys = Keys::for_type::<Config>();
        let check = |wrong: &str, right: &str| assert_eq!(keys.nearest(wrong), right, "{wrong}");
        check("store.conections", "store.connections");
        check("stor.url", "store.url");
        check("listen", "frontend.listen");
        check("frontend.oidc.isuer", "frontend.oidc.issuer");
        check("actuator.slot", "actuator.slots");
        check("datadir", "data_dir");
        check("retention.manifest", "retention.manifests");
    }
}
