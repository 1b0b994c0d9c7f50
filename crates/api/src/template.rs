//! Template: a text with variables that a request fills in; and JsonTemplate: JSON with such texts.

use std::fmt;

use serde_json::{Map, Value};

/// A value of a request that templates can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `${namespace}`: the request's namespace.
    Namespace,
    /// `${name}`: the object's name; no value if the apiserver generates it.
    Name,
    /// `${user}`: the user who creates the object.
    User,
    /// `${namespace.labels.KEY}`: a label of the request's namespace.
    NamespaceLabel(Box<str>),
    /// `${labels.KEY}`: a label of the object.
    Label(Box<str>),
}

/// Names of the variables, for messages.
pub const VARIABLES: &str =
    "${namespace}, ${name}, ${user}, ${namespace.labels.KEY} and ${labels.KEY}; $${ is a plain ${";

impl Variable {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "namespace" => Self::Namespace,
            "name" => Self::Name,
            "user" => Self::User,
            _ => match (name.strip_prefix("namespace.labels."), name.strip_prefix("labels.")) {
                (Some(key), _) if !key.is_empty() => Self::NamespaceLabel(key.into()),
                (_, Some(key)) if !key.is_empty() => Self::Label(key.into()),
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("${namespace}"),
            Self::Name => f.write_str("${name}"),
            Self::User => f.write_str("${user}"),
            Self::NamespaceLabel(key) => write!(f, "${{namespace.labels.{key}}}"),
            Self::Label(key) => write!(f, "${{labels.{key}}}"),
        }
    }
}

/// Returns the value of a variable in a request; `None` if the request has none.
pub type Lookup<'a> = &'a dyn Fn(&Variable) -> Option<String>;

/// Error for a text that is not a template: a variable has no end, or its name is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(pub String);

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Placeholder(Variable),
}

impl Template {
    /// Parses a text in which `${...}` is a variable, and `$${` a literal `${`.
    ///
    /// # Errors
    /// [`TemplateError`] if the text is not a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                plain.push_str(before);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let (name, behind) = rest[at + 2..].split_once('}').ok_or_else(|| TemplateError("${ has no }".into()))?;
            let variable = Variable::of(name).ok_or_else(|| TemplateError(format!("${{{name}}} is not known")))?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(TemplatePart::Placeholder(variable));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain.into()));
        }
        Ok(Self(parts))
    }

    /// Returns the text with the values of the variables; `None` if the request lacks one.
    pub fn fill(&self, lookup: Lookup<'_>) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Placeholder(variable) => text.push_str(&lookup(variable)?),
            }
        }
        Some(text)
    }

    /// Returns the variables of the text.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Placeholder(variable) => Some(variable),
            TemplatePart::Text(_) => None,
        })
    }
}

/// JSON whose strings are templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTemplate {
    /// A null, number or boolean.
    Plain(Value),
    /// A string.
    Text(Template),
    /// A list.
    List(Vec<JsonTemplate>),
    /// A map, whose keys are plain.
    Map(Vec<(Box<str>, JsonTemplate)>),
}

impl JsonTemplate {
    /// Parses the strings of a JSON value. The depth is bounded by the parser of the value.
    ///
    /// # Errors
    /// [`TemplateError`] if a string is not a template.
    pub fn of(value: &Value) -> Result<Self, TemplateError> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::of).collect::<Result<_, _>>()?),
            Value::Object(entries) => {
                let entry = |(key, value): (&String, &Value)| Ok((key.as_str().into(), Self::of(value)?));
                Self::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
            }
            plain => Self::Plain(plain.clone()),
        })
    }

    /// Returns the JSON with the values of the variables; `None` if the request lacks one.
    pub fn fill(&self, lookup: Lookup<'_>) -> Option<Value> {
        Some(match self {
            Self::Plain(value) => value.clone(),
            Self::Text(template) => template.fill(lookup)?.into(),
            Self::List(items) => items.iter().map(|item| item.fill(lookup)).collect::<Option<Vec<_>>>()?.into(),
            Self::Map(entries) => {
                let entry = |(key, shape): &(Box<str>, Self)| Some((key.to_string(), shape.fill(lookup)?));
                Value::Object(entries.iter().map(entry).collect::<Option<Map<_, _>>>()?)
            }
        })
    }

    /// Returns true if `meets` returns true for one of the variables.
    pub fn any(&self, meets: &dyn Fn(&Variable) -> bool) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Text(template) => template.variables().any(meets),
            Self::List(items) => items.iter().any(|item| item.any(meets)),
            Self::Map(entries) => entries.iter().any(|(_, shape)| shape.any(meets)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lookup(variable: &Variable) -> Option<String> {
        match variable {
            Variable::Namespace => Some("shop".into()),
            Variable::NamespaceLabel(key) if **key == *"example.com/team" => Some("red".into()),
            _ => None,
        }
    }

    #[test]
    fn template_without_value_is_none() {
        let filled = |text: &str| Template::parse(text).unwrap().fill(&lookup);
        assert_eq!(filled("plain").as_deref(), Some("plain"));
        assert_eq!(filled("").as_deref(), Some(""));
        assert_eq!(filled("${namespace}-${namespace.labels.example.com/team}!").as_deref(), Some("shop-red!"));
        assert_eq!(filled("$${namespace} $(X) $ {}").as_deref(), Some("${namespace} $(X) $ {}"));
        assert_eq!(filled("a ${user}"), None);
        for bad in ["${", "${nope}", "${labels.}", "x${namespace", "${}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nested_json_templates_are_filled() {
        let shape =
            JsonTemplate::of(&json!({"name": "x", "list": [1, null, "${namespace}"], "m": {"t": true}})).unwrap();
        assert_eq!(shape.fill(&lookup), Some(json!({"name": "x", "list": [1, null, "shop"], "m": {"t": true}})));
        assert!(shape.any(&|variable| *variable == Variable::Namespace) && !shape.any(&|v| *v == Variable::User));
        assert_eq!(JsonTemplate::of(&json!([{"a": "${user}"}])).unwrap().fill(&lookup), None);
        assert!(JsonTemplate::of(&json!([{"a": "${x}"}])).is_err());
    }
}
