use proptest::prelude::*;
use serde_json::json;

use super::*;

fn config(name: &str, value: u32) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "uid": name}, "data": {"value": value.to_string()}})
}

fn table() -> TableName {
    "/configmaps".into()
}

fn put(name: &str, value: u32) -> Change {
    Change::Put(table(), config(name, value))
}

fn remove(name: &str) -> Change {
    Change::Remove(table(), object_key("default", name).into())
}

fn contents(objects: &Objects) -> Vec<(String, Value)> {
    objects.range("/configmaps", "", "").map(|(key, object)| (key.to_string(), object.value())).collect()
}

#[test]
fn a_list_at_an_old_revision_has_the_objects_of_that_revision() {
    let mut objects = Objects::in_memory();
    objects.commit(vec![put("a", 1), put("b", 1)]).unwrap();
    let then = objects.revision();
    let before = contents(&objects);
    objects.commit(vec![put("a", 2), remove("b"), put("c", 1)]).unwrap();

    let remembered = objects.range_at("/configmaps", "", "", then).unwrap();
    let remembered: Vec<_> =
        remembered.iter().map(|object| (object.key().to_string(), object.value())).collect();
    assert_eq!(remembered, before);
}

#[test]
fn a_reader_that_falls_behind_the_log_gets_no_events() {
    let mut objects = Objects::in_memory();
    objects.commit(vec![put("a", 0)]).unwrap();
    let early = objects.revision();
    for value in 0..2_000 {
        objects.commit(vec![put("a", value)]).unwrap();
    }
    assert!(objects.events_since(early).is_none());
    assert!(objects.events_since(objects.oldest()).is_some());
    assert_eq!(objects.events_since(objects.revision()).unwrap().count(), 0);
}

#[test]
fn large_objects_do_not_fill_the_log() {
    let mut objects = Objects::in_memory();
    for value in 0..300 {
        let mut large = config("large", value);
        large["data"]["filling"] = json!("x".repeat(100_000));
        objects.commit(vec![Change::Put(table(), large)]).unwrap();
    }
    assert_eq!(objects.events_since(objects.oldest()).unwrap().count(), 100);
}

#[test]
fn an_incomplete_last_line_is_dropped_and_an_earlier_damaged_line_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut objects = Objects::open(&path).unwrap();
    objects.commit(vec![put("a", 1), put("b", 1)]).unwrap();
    let whole = contents(&objects);
    drop(objects);

    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&text[..], b"{\"revision\":9,\"tab"].concat()).unwrap();
    let mut objects = Objects::open(&path).unwrap();
    assert_eq!(contents(&objects), whole);
    objects.commit(vec![put("c", 1)]).unwrap();
    drop(objects);
    assert_eq!(Objects::open(&path).unwrap().count("/configmaps"), 3);

    std::fs::write(&path, [b"nonsense\n", &text[..]].concat()).unwrap();
    assert!(matches!(Objects::open(&path), Err(JournalError::Damaged { line: 1, .. })));
}

#[test]
fn a_journal_of_many_changes_of_few_objects_stays_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut objects = Objects::open(&path).unwrap();
    for value in 0..1_000 {
        let mut large = config("large", value);
        large["data"]["filling"] = json!("x".repeat(20_000));
        objects.commit(vec![Change::Put(table(), large)]).unwrap();
    }
    objects.commit(vec![remove("large")]).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 5 << 20);
    let revision = objects.revision();
    drop(objects);
    let objects = Objects::open(&path).unwrap();
    assert_eq!((objects.revision(), objects.count("/configmaps")), (revision, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn committed_objects_survive_a_restart(steps in prop::collection::vec((0_u32..6, any::<bool>(), 0_u32..9), 0..60), cut in 0_usize..40) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut objects = Objects::open(&path).unwrap();
        for (name, keep, value) in steps {
            let name = format!("n{name}");
            objects.commit(vec![if keep { put(&name, value) } else { remove(&name) }]).unwrap();
        }
        let (expect, revision) = (contents(&objects), objects.revision());
        drop(objects);
        let torn = &br#"{"revision":99999,"table":"/configmaps","key":"x"}"#[..cut];
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&text[..], torn].concat()).unwrap();
        let objects = Objects::open(&path).unwrap();
        prop_assert_eq!(contents(&objects), expect);
        prop_assert_eq!(objects.revision(), revision);
    }

    #[test]
    fn replaying_the_log_gives_the_current_objects(steps in prop::collection::vec((0_u32..6, any::<bool>(), 0_u32..9), 1..60), from in 0_usize..60) {
        let mut objects = Objects::in_memory();
        let mut snapshots = vec![(objects.revision(), contents(&objects))];
        for (name, keep, value) in steps {
            let name = format!("n{name}");
            objects.commit(vec![if keep { put(&name, value) } else { remove(&name) }]).unwrap();
            snapshots.push((objects.revision(), contents(&objects)));
        }
        let (revision, then) = &snapshots[from % snapshots.len()];
        let mut replayed: BTreeMap<String, Value> = then.iter().cloned().collect();
        for event in objects.events_since(*revision).unwrap() {
            match event.kind {
                EventType::Deleted => { replayed.remove(&*event.key); }
                EventType::Added | EventType::Modified => { replayed.insert(event.key.to_string(), event.object.value()); }
            }
        }
        prop_assert_eq!(replayed.into_iter().collect::<Vec<_>>(), contents(&objects));
    }
}
