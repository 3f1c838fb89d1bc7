//! Label selectors in both forms: that of query strings (`app=web,tier!=db,env in (a,b),!old`) and that of objects
//! (`matchLabels`, `matchExpressions`).

use serde_json::Value;

use crate::names;

/// A label selector; every requirement must match. Without requirements it matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses the form of query strings.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        Parser { tokens: scan(text), position: 0 }.selector()
    }

    /// Parses the form of objects. A missing selector matches nothing, an empty one everything.
    pub fn from_object(selector: Option<&Value>) -> Option<LabelSelector> {
        let selector = selector?.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(vec![value]) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression["key"].as_str()?.to_owned();
            let values: Vec<String> = expression["values"]
                .as_array()
                .map(|values| values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect())
                .unwrap_or_default();
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Absent,
                _ => return None,
            };
            requirements.push(Requirement { key, operator });
        }
        Some(LabelSelector { requirements })
    }

    /// Whether the selector matches all objects.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels match; `label` returns the value of a label.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }

    /// Whether the labels of an object's metadata match.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.requirements.iter().map(Requirement::text).collect();
        f.write_str(&texts.join(","))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Greater(bound) => number().is_some_and(|value| value > *bound),
            Operator::Less(bound) => number().is_some_and(|value| value < *bound),
        }
    }

    fn text(&self) -> String {
        let key = &self.key;
        match &self.operator {
            Operator::In(values) if values.len() == 1 => format!("{key}={}", values[0]),
            Operator::In(values) => format!("{key} in ({})", values.join(",")),
            Operator::NotIn(values) if values.len() == 1 => format!("{key}!={}", values[0]),
            Operator::NotIn(values) => format!("{key} notin ({})", values.join(",")),
            Operator::Exists => key.clone(),
            Operator::Absent => format!("!{key}"),
            Operator::Greater(bound) => format!("{key}>{bound}"),
            Operator::Less(bound) => format!("{key}<{bound}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    Invalid(String),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) | Token::Invalid(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

/// Longest first, so that `==` is not parsed as two `=`.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];

fn scan(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            tokens.push(Token::End);
            return tokens;
        };
        if "=!(),<>".contains(first) {
            match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    tokens.push(Token::Symbol(symbol));
                    rest = &rest[symbol.len()..];
                }
                None => {
                    tokens.push(Token::Invalid(format!("error expected: keyword found '{first}'")));
                    rest = &rest[first.len_utf8()..];
                }
            }
        } else {
            let end =
                rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '<', '>']).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.take() {
                        Token::End => return Ok(LabelSelector { requirements }),
                        Token::Symbol(",") => {
                            let next = self.peek();
                            if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    next.text()
                                ));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(LabelSelector { requirements }),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.take();
        let absent = token == Token::Symbol("!");
        if absent {
            token = self.take();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        let errors = names::qualified(&key);
        if !errors.is_empty() {
            return Err(format!("<nil>: Invalid value: \"{key}\": {}", errors.join("; ")));
        }
        if absent {
            return Ok(Requirement { key, operator: Operator::Absent });
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement { key, operator: Operator::Exists });
        }
        let operator = self.operator(&key)?;
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        let operator = match self.take() {
            Token::Symbol("=" | "==") => Operator::In(vec![self.exact_value()?]),
            Token::Symbol("!=") => Operator::NotIn(vec![self.exact_value()?]),
            Token::Symbol(symbol @ (">" | "<")) => {
                let value = self.exact_value()?;
                let bound = value.parse().map_err(|_| {
                    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                    format!("values[0][{key}]: Invalid value: \"{value}\": {why}")
                })?;
                if symbol == ">" { Operator::Greater(bound) } else { Operator::Less(bound) }
            }
            Token::Word(word) if word == "in" => Operator::In(self.values()?),
            Token::Word(word) if word == "notin" => Operator::NotIn(self.values()?),
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            for (index, value) in values.iter().enumerate() {
                let errors = names::label_value(value);
                if !errors.is_empty() {
                    return Err(format!(
                        "values[{index}][{key}]: Invalid value: \"{value}\": {}",
                        errors.join("; ")
                    ));
                }
            }
        }
        Ok(operator)
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.take() {
            Token::Word(word) => Ok(word),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.take();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        let mut wants_value = true;
        loop {
            match self.take() {
                Token::Word(word) if wants_value => {
                    values.push(word);
                    wants_value = false;
                }
                Token::Symbol(",") => {
                    if wants_value {
                        values.push(String::new());
                    }
                    wants_value = true;
                }
                Token::Symbol(")") => {
                    if wants_value {
                        values.push(String::new());
                    }
                    values.sort();
                    values.dedup();
                    return Ok(values);
                }
                other if wants_value && values.is_empty() => {
                    return Err(format!("found '{}', expected: ',', ')' or identifier", other.text()));
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(text: &str, labels: &Value, expect: bool) {
        let selector = LabelSelector::parse(text).unwrap();
        let holds = selector.matches(|key| labels.get(key).and_then(Value::as_str));
        assert_eq!(holds, expect, "{text} on {labels}");
    }

    #[test]
    fn a_label_selector_matches_when_every_requirement_matches() {
        let labels = json!({"app": "web", "tier": "front", "weight": "5"});
        check("", &labels, true);
        check("app=web", &labels, true);
        check("app == web , tier!=back", &labels, true);
        check("app in (web, api),tier notin (back)", &labels, true);
        check("app in (api)", &labels, false);
        check("!gone,app", &labels, true);
        check("!app", &labels, false);
        check("weight>4,weight<6", &labels, true);
        check("weight>5", &labels, false);
        check("missing!=x", &labels, true);
        check("missing=", &labels, false);
    }

    #[test]
    fn an_invalid_label_selector_is_rejected_with_the_error_of_the_real_server() {
        let error = |text: &str| LabelSelector::parse(text).unwrap_err();
        assert_eq!(error("a,"), "found '', expected: identifier after ','");
        assert_eq!(error("a in b"), "unable to parse requirement: found 'b' expected: '('");
        assert_eq!(error("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert!(
            error("-a=b")
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must")
        );
        assert!(error("a=b c").starts_with("found 'c', expected: ',' or 'end of string'"));
    }

    #[test]
    fn a_selector_in_an_object_selects_nothing_when_missing_and_everything_when_empty() {
        assert_eq!(LabelSelector::from_object(None), None);
        assert!(LabelSelector::from_object(Some(&json!({}))).unwrap().is_empty());
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]});
        let selector = LabelSelector::from_object(Some(&selector)).unwrap();
        assert!(selector.matches_object(&json!({"metadata": {"labels": {"app": "web"}}})));
        assert!(!selector.matches_object(&json!({"metadata": {}})));
    }

    proptest! {
        #[test]
        fn no_label_selector_panics(text in "[a-z=!(),<> \\-./é]{0,40}") {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn a_printed_selector_can_be_parsed(key in "[a-z]{1,8}", values in prop::collection::vec("[a-z0-9]{1,5}", 1..4)) {
            let text = format!("{key} in ({})", values.join(","));
            let selector = LabelSelector::parse(&text).unwrap();
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
