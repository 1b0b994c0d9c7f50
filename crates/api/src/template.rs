//! Template: a text with places that are filled from the request, and JSON with such texts in it.

use std::fmt;

use serde_json::{Map, Value};

/// Something that a request says, by the name that templates have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `${namespace}`: the request's namespace.
    Namespace,
    /// `${name}`: the object's name; none where the apiserver generates it.
    Name,
    /// `${user}`: whoever creates the object.
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

/// Value of a variable in a request; `None` where the request has none.
pub type Lookup<'a> = &'a dyn Fn(&Variable) -> Option<String>;

/// A text that is no template: a place in it has no end, or a name that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTemplate(pub String);

/// A text with places to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Placeholder(Variable),
}

impl Template {
    /// Reads a text in which `${...}` is a place, and `$${` a plain `${`.
    ///
    /// # Errors
    /// It is no template.
    pub fn parse(text: &str) -> Result<Self, NoTemplate> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                plain.push_str(before);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let (name, behind) = rest[at + 2..].split_once('}').ok_or_else(|| NoTemplate("${ has no }".into()))?;
            let variable = Variable::of(name).ok_or_else(|| NoTemplate(format!("${{{name}}} is not known")))?;
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

    /// The text, where the request says something of every place.
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

    /// Places in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Placeholder(variable) => Some(variable),
            TemplatePart::Text(_) => None,
        })
    }
}

/// JSON whose texts are templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A null, number or boolean.
    Plain(Value),
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<Shape>),
    /// A map; its keys are plain.
    Map(Vec<(Box<str>, Shape)>),
}

impl Shape {
    /// Reads the texts of a JSON value, which is as deep as its reader allows.
    ///
    /// # Errors
    /// One of them is no template.
    pub fn of(value: &Value) -> Result<Self, NoTemplate> {
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

    /// The value, where the request says something of every place.
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

    /// Does a place in it meet this?
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
    fn places_are_filled_or_the_whole_is_left_out() {
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
    fn json_is_filled_in_every_depth() {
        let shape = Shape::of(&json!({"name": "x", "list": [1, null, "${namespace}"], "m": {"t": true}})).unwrap();
        assert_eq!(shape.fill(&lookup), Some(json!({"name": "x", "list": [1, null, "shop"], "m": {"t": true}})));
        assert!(shape.any(&|variable| *variable == Variable::Namespace) && !shape.any(&|v| *v == Variable::User));
        assert_eq!(Shape::of(&json!([{"a": "${user}"}])).unwrap().fill(&lookup), None);
        assert!(Shape::of(&json!([{"a": "${x}"}])).is_err());
    }
}
