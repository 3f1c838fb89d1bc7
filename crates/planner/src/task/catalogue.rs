//! Lookup of tasks by id or name.

use std::collections::BTreeMap;

use api::doc::Task;
use uuid::Uuid;

use super::builtin;
use super::definition::Definition;

/// All tasks at a time.
#[derive(Debug, Clone)]
pub struct Catalogue {
    tasks: BTreeMap<Uuid, Definition>,
    names: BTreeMap<String, Uuid>,
}

impl Catalogue {
    /// Catalogue of the built-in tasks.
    pub fn builtin() -> Catalogue {
        let mut catalogue = Catalogue { tasks: BTreeMap::new(), names: BTreeMap::new() };
        for definition in builtin::all() {
            catalogue.add(definition);
        }
        catalogue
    }

    /// Catalogue of the built-in and stored tasks. A stored task that this release cannot parse, or that has the id or name of
    /// a built-in one, is omitted with a warning.
    pub fn with_data(tasks: Vec<Task>) -> Catalogue {
        let mut catalogue = Catalogue::builtin();
        for task in tasks {
            match Definition::from_document(&task) {
                Ok(definition) if catalogue.find(&task.id.to_string()).is_none() => {
                    if catalogue.names.contains_key(definition.name()) {
                        tracing::warn!(task.id = %task.id, "Omitting task {}: its name belongs to a built-in task", task.id);
                    } else {
                        catalogue.add(definition);
                    }
                }
                Ok(_) => {
                    tracing::warn!(task.id = %task.id, "Omitting task {}: its id belongs to another task", task.id);
                }
                Err(problem) => {
                    tracing::warn!(task.id = %task.id, "Omitting task {}: {problem}", task.id);
                }
            }
        }
        catalogue
    }

    fn add(&mut self, definition: Definition) {
        self.names.insert(definition.name().to_owned(), definition.id());
        self.tasks.insert(definition.id(), definition);
    }

    /// Finds a task by id, in any notation, or by name.
    pub fn find(&self, id_or_name: &str) -> Option<&Definition> {
        match Uuid::try_parse(id_or_name) {
            Ok(id) => self.tasks.get(&id),
            Err(_) => self.tasks.get(self.names.get(id_or_name)?),
        }
    }

    /// Gets a task by id.
    pub fn get(&self, id: Uuid) -> Option<&Definition> {
        self.tasks.get(&id)
    }

    /// Display form of a budget key: with the name of a task instead of its id.
    pub fn budget_name(&self, key: &str) -> String {
        let task = key.strip_prefix("task/").and_then(|id| self.get(id.parse().ok()?));
        task.map_or_else(|| key.to_owned(), |task| format!("task/{}", task.name()))
    }

    /// Whether this is the id of a built-in task, which cannot be changed.
    pub fn is_builtin(id: Uuid) -> bool {
        builtin::all().any(|it| it.id() == id)
    }

    /// All tasks, ordered by name.
    pub fn list(&self) -> Vec<&Definition> {
        self.names.values().filter_map(|id| self.tasks.get(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(id: u128, name: &str, definition: serde_json::Value) -> Task {
        Task { id: Uuid::from_u128(id), name: name.to_owned(), title: "t".to_owned(), version: 3, definition }
    }

    fn pause() -> serde_json::Value {
        json!({"disruptive": false, "steps": [{"name": "p", "uses": "pause", "with": {"duration": "1s"}}]})
    }

    #[test]
    fn a_task_is_found_by_its_id_in_any_notation_and_by_its_name() {
        let catalogue = Catalogue::with_data(vec![stored(7, "nap", pause())]);
        let id = Uuid::from_u128(7);
        assert_eq!(catalogue.find("nap").map(Definition::id), Some(id));
        assert_eq!(catalogue.find(&id.to_string().to_uppercase()).map(Definition::version), Some(3));
        assert_eq!(catalogue.find("Nap").map(Definition::id), None);
        assert!(catalogue.find("cluster-health").is_some_and(|it| Catalogue::is_builtin(it.id())));
        assert!(!Catalogue::is_builtin(id));
        let names: Vec<&str> = catalogue.list().into_iter().map(Definition::name).collect();
        assert!(names.len() == 13 && names.is_sorted() && names.contains(&"nap"), "{names:?}");
    }

    #[test]
    fn a_stored_task_never_replaces_a_built_in_one() {
        let health = Catalogue::builtin().find("cluster-health").unwrap().id();
        let tasks = vec![
            stored(health.as_u128(), "mine", pause()),
            stored(8, "cluster-health", pause()),
            stored(9, "broken", json!({"steps": 5})),
        ];
        let catalogue = Catalogue::with_data(tasks);
        assert_eq!(catalogue.list().len(), 12);
        assert_eq!(catalogue.find("cluster-health").map(Definition::id), Some(health));
    }
}
