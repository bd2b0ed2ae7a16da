//! Label selectors, one requirement after the other, so that it can be said which one is not met.
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What a selector asks of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of the first two.
    pub values: Vec<String>,
}

/// All that a selector asks for; nothing selects everything.
pub fn requirements(selector: Option<&LabelSelector>) -> Vec<Requirement> {
    let Some(selector) = selector else {
        return Vec::new();
    };
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| Requirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![value.clone()],
    });
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|expression| Requirement {
        key: expression.key.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    labels.chain(expressions).collect()
}

// === impl Requirement ===

impl Requirement {
    /// Returns true if labels meet it. An operator that is unknown is not met.
    #[must_use]
    pub fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match &*self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            operator,
            values,
        } = self;
        match &values[..] {
            [] => write!(f, "{key} {operator}"),
            values => write!(f, "{key} {operator} ({})", values.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_operator_asks_what_kubernetes_says_it_does() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let table = [
            (
                json!({"key": "a", "operator": "In", "values": ["1", "2"]}),
                true,
            ),
            (
                json!({"key": "a", "operator": "In", "values": ["2"]}),
                false,
            ),
            (
                json!({"key": "b", "operator": "In", "values": ["1"]}),
                false,
            ),
            (
                json!({"key": "a", "operator": "NotIn", "values": ["1"]}),
                false,
            ),
            (
                json!({"key": "a", "operator": "NotIn", "values": ["2"]}),
                true,
            ),
            (
                json!({"key": "b", "operator": "NotIn", "values": ["1"]}),
                true,
            ),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "b", "operator": "Exists"}), false),
            (json!({"key": "a", "operator": "DoesNotExist"}), false),
            (json!({"key": "b", "operator": "DoesNotExist"}), true),
            (
                json!({"key": "a", "operator": "Near", "values": ["1"]}),
                false,
            ),
        ];
        for (expression, met) in table {
            let selector = json!({"matchExpressions": [expression]});
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let requirements = requirements(Some(&selector));
            assert_eq!(requirements[0].is_met(&labels), met, "{expression}");
        }
    }

    #[test]
    fn labels_are_requirements_too_and_none_select_everything() {
        let selector = LabelSelector {
            match_labels: Some(BTreeMap::from([("a".to_owned(), "1".to_owned())])),
            match_expressions: None,
        };
        let [requirement] = &requirements(Some(&selector))[..] else {
            panic!("one requirement");
        };
        assert_eq!(requirement.to_string(), "a In (1)");
        assert_eq!(requirements(None), []);
    }
}
