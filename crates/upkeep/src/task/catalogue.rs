//! All tasks, found by id or name.

use std::collections::BTreeMap;

use api::doc::Task;
use uuid::Uuid;

use super::builtin;
use super::definition::Definition;

/// All tasks that there are at a moment.
#[derive(Debug, Clone)]
pub struct Catalogue {
    tasks: BTreeMap<Uuid, Definition>,
    names: BTreeMap<String, Uuid>,
}

impl Catalogue {
    /// The built-in tasks.
    pub fn builtin() -> Catalogue {
        let mut catalogue = Catalogue { tasks: BTreeMap::new(), names: BTreeMap::new() };
        for definition in builtin::all() {
            catalogue.add(definition);
        }
        catalogue
    }

    /// The built-in tasks and those that were stored. A stored one that this release cannot read is left out, and said so
    /// in the log; one that has a built-in's id or name never takes its place.
    pub fn with_data(tasks: Vec<Task>) -> Catalogue {
        let mut catalogue = Catalogue::builtin();
        for task in tasks {
            match Definition::of_document(&task) {
                Ok(definition) if catalogue.find(&task.id.to_string()).is_none() => {
                    if catalogue.names.contains_key(definition.name()) {
                        tracing::warn!(task.id = %task.id, "Task {} has the name of a built-in one and is left out", task.id);
                    } else {
                        catalogue.add(definition);
                    }
                }
                Ok(_) => {
                    tracing::warn!(task.id = %task.id, "Task {} has the id of another and is left out", task.id);
                }
                Err(problem) => {
                    tracing::warn!(task.id = %task.id, "Task {} cannot be read and is left out: {problem}", task.id);
                }
            }
        }
        catalogue
    }

    fn add(&mut self, definition: Definition) {
        self.names.insert(definition.name().to_owned(), definition.id());
        self.tasks.insert(definition.id(), definition);
    }

    /// The task of this id, in any spelling of it, or of this name.
    pub fn find(&self, id_or_name: &str) -> Option<&Definition> {
        match Uuid::try_parse(id_or_name) {
            Ok(id) => self.tasks.get(&id),
            Err(_) => self.tasks.get(self.names.get(id_or_name)?),
        }
    }

    /// The task of this id.
    pub fn get(&self, id: Uuid) -> Option<&Definition> {
        self.tasks.get(&id)
    }

    /// Whether this id is that of a built-in task, which nobody can change.
    pub fn is_builtin(id: Uuid) -> bool {
        builtin::all().any(|it| it.id() == id)
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<&Definition> {
        self.names.values().filter_map(|id| self.tasks.get(id)).collect()
    }
}
