//! Writes the values of mutations as JSON text. Sources: `k8s.io/apiserver/pkg/cel/mutation`,
//! `pkg/admission/plugin/policy/mutating/patch`, and the conversions of cel-go to `structpb.Value`.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    access,
    expression::Failure,
    input::{Input, Part},
    meter::{Fault, Meter},
    value::{Message, Value},
};

/// Maximum depth of a value.
const MAX_DEPTH: usize = 200;

/// Beginning of the error for a key that is no string.
const ODD_KEY: &str = "map key is of type";

/// Largest number that a double holds like its neighbors.
const MAX_SAFE_NUMBER: u64 = (1 << 53) - 1;

/// The use of an `Object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The value of a JSON patch, whose numbers are doubles.
    JsonPatch,
    /// An apply configuration, whose values have to be those of an unstructured object.
    Apply,
}

/// The place of a value, which decides about its conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not in an `Object`.
    Patch,
    /// In a field of an `Object`. Upstream: `convertField`.
    Field(Target),
    /// In a list or map that the expression made, in a field of an `Object`. As in upstream, such lists and maps are
    /// not converted in turn.
    Item(Target),
    /// In a container of a document, which is in such a list or map.
    Document(Target),
}

impl Place {
    const fn target(self) -> Option<Target> {
        match self {
            Self::Patch => None,
            Self::Field(target) | Self::Item(target) | Self::Document(target) => Some(target),
        }
    }

    /// Returns the place of what a value here contains; `None` if the value has no conversion here.
    fn inside(self, value: &Value<'_>) -> Option<Self> {
        match (self, value) {
            (Self::Patch | Self::Document(_), _)
            | (Self::Field(_), Value::Json(_) | Value::Strings(_) | Value::Struct(..)) => Some(self),
            (Self::Field(_), Value::List(items)) if items.is_joined() => Some(self),
            (Self::Field(target), _) => Some(Self::Item(target)),
            (Self::Item(_), Value::List(items)) if items.is_joined() => Some(self),
            (Self::Item(target), Value::Json(_)) => Some(Self::Document(target)),
            (Self::Item(_), _) => None,
        }
    }
}

/// Writes the `Object` of an apply configuration.
pub(super) fn object(value: &Value<'_>, input: &Input<'_>, meter: &Meter<'_>) -> Result<String, Failure> {
    let Value::Message(message) = value else {
        let of = value.type_name();
        return Err(Failure::Conversion(format!("unsupported return type from ApplyConfiguration expression: {of}")));
    };
    check_type_names(message, meter)?;
    let mut text = String::new();
    let failed = |why: &str| {
        Failure::Conversion(match why.starts_with(ODD_KEY) {
            true => format!("invalid return type: *dynamic.ObjectVal: {why}"),
            false => format!("error applying patch: failed to convert patch object to typed object: {why}"),
        })
    };
    Writer { text: &mut text, input, meter }
        .value(value, Place::Field(Target::Apply), MAX_DEPTH)
        .map_err(|fault| conversion(fault, failed))?;
    Ok(text)
}

/// Writes the JSON patch of a list of `JSONPatch`.
pub(super) fn json_patch(value: &Value<'_>, input: &Input<'_>, meter: &Meter<'_>) -> Result<String, Failure> {
    let mut text = String::from("[");
    let failed = |why: &str| {
        Failure::Conversion(format!(
            "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"
        ))
    };
    let mut first = true;
    for item in access::items(value, meter)?.iter() {
        let Value::Message(message) = item else {
            let of = item.type_name();
            return Err(Failure::Conversion(format!(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of {of}"
            )));
        };
        if !std::mem::take(&mut first) {
            text.push(',');
        }
        let mut writer = Writer { text: &mut text, input, meter };
        for (name, before) in [("op", "{\"op\":"), ("path", ",\"path\":"), ("from", ",\"from\":")] {
            if name != "from" || !message.text(name).is_empty() {
                writer.text.push_str(before);
                writer.string(message.text(name))?;
            }
        }
        if let Some(value) = message.field("value") {
            if let Value::Message(object) = value {
                check_type_names(object, meter)?;
            }
            writer.text.push_str(",\"value\":");
            writer.value(value, Place::Patch, MAX_DEPTH).map_err(|fault| conversion(fault, failed))?;
        }
        text.push('}');
    }
    text.push(']');
    Ok(text)
}

/// Writes any value.
pub(super) fn value(value: &Value<'_>, input: &Input<'_>, meter: &Meter<'_>) -> Result<String, Fault> {
    let mut text = String::new();
    Writer { text: &mut text, input, meter }.value(value, Place::Patch, MAX_DEPTH)?;
    Ok(text)
}

fn conversion(fault: Fault, failed: impl FnOnce(&str) -> Failure) -> Failure {
    match fault {
        Fault::Error(why) => failed(&why),
        stop @ Fault::Stop(_) => stop.into(),
    }
}

/// Checks that each object within an object is named by the fields that lead to it.
fn check_type_names(message: &Message<'_>, meter: &Meter<'_>) -> Result<(), Failure> {
    let (mut path, mut problems) = (message.name.to_owned(), Vec::new());
    check_fields(message, &mut path, &mut problems, meter, MAX_DEPTH)?;
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::Conversion(format!("type mismatch: {}", problems.join("\n")))),
    }
}

fn check_fields(
    message: &Message<'_>,
    path: &mut String,
    problems: &mut Vec<String>,
    meter: &Meter<'_>,
    depth_left: usize,
) -> Result<(), Fault> {
    if message.is_json_patch() {
        return Ok(());
    }
    for (field, value) in &message.fields {
        let len = path.len();
        path.push('.');
        path.push_str(field);
        check_value(value, path, problems, meter, depth_left)?;
        path.truncate(len);
    }
    Ok(())
}

fn check_value(
    value: &Value<'_>,
    path: &mut String,
    problems: &mut Vec<String>,
    meter: &Meter<'_>,
    depth_left: usize,
) -> Result<(), Fault> {
    /// Maximum number of reported problems.
    const MAX_PROBLEMS: usize = 10;
    let Some(depth_left) = depth_left.checked_sub(1) else { return Err(too_deep()) };
    meter.step(1)?;
    match value {
        Value::Message(message) => {
            if message.name != *path && problems.len() < MAX_PROBLEMS {
                problems.push(format!(
                    "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                    message.name
                ));
            }
            check_fields(message, path, problems, meter, depth_left)
        }
        Value::List(items) => items.iter().try_for_each(|item| check_value(item, path, problems, meter, depth_left)),
        Value::Map(map) => {
            map.entries().iter().try_for_each(|(_, value)| check_value(value, path, problems, meter, depth_left))
        }
        _ => Ok(()),
    }
}

/// Returns the error that a value cannot be converted here.
fn no_conversion(value: &Value<'_>, place: Place) -> Fault {
    match place.target() {
        Some(Target::JsonPatch) => return Fault::error(format!("proto: invalid type: {}", value.go_type())),
        Some(Target::Apply) => {
            let of = value.go_type();
            return Fault::error(format!("a value of the type {of} is not one of an unstructured object"));
        }
        None => {}
    }
    Fault::error(match value {
        Value::Struct(part, _) if *part != Part::Extra => {
            format!("type conversion error from struct type {} to *structpb.Value", part.go_type())
        }
        Value::Type(_) => "type conversion not supported for 'type'".to_owned(),
        value if access::is_list(value) => "type conversion error from 'list(dyn)' to '*structpb.Value'".to_owned(),
        Value::Struct(..) | Value::Json(_) => {
            "type conversion error from 'map(dyn, dyn)' to '*structpb.Value'".to_owned()
        }
        value => {
            let of = value.type_name();
            format!("type conversion error from '{}' to '*structpb.Value'", of.rsplit('.').next().unwrap_or(of))
        }
    })
}

fn too_deep() -> Fault {
    Fault::error("the value is nested too deep")
}

/// Writes JSON text.
struct Writer<'w, 'm> {
    text: &'w mut String,
    input: &'m Input<'m>,
    meter: &'m Meter<'m>,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value<'_>, place: Place, depth_left: usize) -> Result<(), Fault> {
        let Some(depth_left) = depth_left.checked_sub(1) else { return Err(too_deep()) };
        self.meter.step(1)?;
        match value {
            Value::Null if matches!(place, Place::Field(_) | Place::Item(_)) => {
                return Err(no_conversion(value, place));
            }
            Value::Null => self.text.push_str("null"),
            Value::Bool(yes) => self.text.push_str(if *yes { "true" } else { "false" }),
            Value::Int(number) => self.whole(number.is_negative(), number.unsigned_abs(), place),
            Value::Uint(_) | Value::Bytes(_) if place.target() == Some(Target::Apply) => {
                return Err(no_conversion(value, place));
            }
            Value::Uint(number) => self.whole(false, *number, place),
            Value::Double(number) => self.double(*number)?,
            Value::String(text) => self.string(text.as_str())?,
            Value::Bytes(bytes) => {
                self.meter.make(bytes.len().saturating_mul(2))?;
                self.string(&STANDARD.encode(bytes))?;
            }
            Value::Duration(span) if place == Place::Patch => self.string(&span.to_string())?,
            Value::Timestamp(time) if place == Place::Patch => self.string(&time.to_string())?,
            Value::Optional(Some(inner)) => self.value(inner, place, depth_left)?,
            Value::Optional(None) if place == Place::Patch => return Err(Fault::error("optional.none() dereference")),
            Value::Optional(None) => self.text.push_str("null"),
            Value::Message(message) if message.is_json_patch() => {
                return Err(Fault::error("cannot convert to native type: *structpb.Value"));
            }
            Value::Message(message) => self.fields(message, place.target().unwrap_or(Target::JsonPatch), depth_left)?,
            Value::Duration(_)
            | Value::Timestamp(_)
            | Value::Quantity(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Format(_)
            | Value::Ip(_)
            | Value::Cidr(..)
            | Value::Authorizer(_)
            | Value::Decision(_)
            | Value::Type(_)
            | Value::Failed(_)
            | Value::Pending => return Err(no_conversion(value, place)),
            value if place == Place::Patch && self.is_reflected(value) => return Err(no_conversion(value, place)),
            Value::List(_) | Value::Literals(_) | Value::Strings(_) => self.list(value, place, depth_left)?,
            Value::Json(container) if container.is_list() => self.list(value, place, depth_left)?,
            Value::Json(_) | Value::Map(_) | Value::Struct(..) => self.map(value, place, depth_left)?,
        }
        Ok(())
    }

    /// Returns true if upstream reads the value by reflection. Such values have no conversion in a JSON patch.
    fn is_reflected(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Strings(_) | Value::Struct(..) => true,
            Value::Json(container) => {
                let documents = [&self.input.namespace, &self.input.request.options];
                documents.into_iter().flatten().any(|document| container.is_of(document))
            }
            _ => false,
        }
    }

    fn fields(&mut self, message: &Message<'_>, target: Target, depth_left: usize) -> Result<(), Fault> {
        self.text.push('{');
        for (at, (field, value)) in message.fields.iter().enumerate() {
            if at > 0 {
                self.text.push(',');
            }
            self.string(field)?;
            self.text.push(':');
            self.value(value, Place::Field(target), depth_left)?;
        }
        self.text.push('}');
        Ok(())
    }

    fn list(&mut self, list: &Value<'_>, place: Place, depth_left: usize) -> Result<(), Fault> {
        let inside = place.inside(list).ok_or_else(|| no_conversion(list, place))?;
        self.text.push('[');
        let mut first = true;
        access::each_item(list, self.meter, |item| {
            if !std::mem::take(&mut first) {
                self.text.push(',');
            }
            self.value(&item, inside, depth_left)
        })?;
        self.text.push(']');
        Ok(())
    }

    fn map(&mut self, map: &Value<'_>, place: Place, depth_left: usize) -> Result<(), Fault> {
        let inside = place.inside(map).ok_or_else(|| no_conversion(map, place))?;
        self.text.push('{');
        for (at, key) in access::keys(map, self.meter)?.iter().enumerate() {
            let Value::String(name) = key else {
                let of = key.type_name();
                return Err(match place {
                    Place::Patch => Fault::error(format!("unsupported type conversion from '{of}' to string")),
                    _ => Fault::error(format!("{ODD_KEY} {of}, not string")),
                });
            };
            if at > 0 {
                self.text.push(',');
            }
            self.string(name.as_str())?;
            self.text.push(':');
            let entry = access::entry(map, key, self.meter)?.unwrap_or(Value::Null);
            self.value(&entry, inside, depth_left)?;
        }
        self.text.push('}');
        Ok(())
    }

    fn whole(&mut self, is_negative: bool, magnitude: u64, place: Place) {
        let sign = if is_negative { "-" } else { "" };
        // Writing to a string does not fail.
        let _ = match place.target() {
            _ if magnitude <= MAX_SAFE_NUMBER => write!(self.text, "{sign}{magnitude}"),
            Some(Target::Apply) => write!(self.text, "{sign}{magnitude}"),
            Some(Target::JsonPatch) => write!(self.text, "{sign}{}", magnitude as f64),
            None => write!(self.text, "\"{sign}{magnitude}\""),
        };
    }

    /// Writes a double as Go does: with an exponent if it is very large or very small.
    fn double(&mut self, number: f64) -> Result<(), Fault> {
        if !number.is_finite() {
            let sign = if number.is_nan() {
                ""
            } else if number > 0.0 {
                "+"
            } else {
                "-"
            };
            let name = if number.is_nan() { "NaN" } else { "Inf" };
            return Err(Fault::error(format!(
                "json: error calling MarshalJSON for type *structpb.Value: proto: google.protobuf.Value.number_value: \
                 invalid {sign}{name} value"
            )));
        }
        let size = number.abs();
        let _ = match size != 0.0 && !(1e-6..1e21).contains(&size) {
            true if size >= 1.0 => write!(self.text, "{}", format!("{number:e}").replace('e', "e+")),
            true => write!(self.text, "{number:e}"),
            false => write!(self.text, "{number}"),
        };
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Fault> {
        self.meter.make(text.len())?;
        self.text.push('"');
        for part in text.split_inclusive(|letter: char| letter == '"' || letter == '\\' || letter < ' ') {
            let last = part.chars().next_back().filter(|last| matches!(last, '"' | '\\') || *last < ' ');
            let plain = &part[..part.len() - last.map_or(0, char::len_utf8)];
            self.text.push_str(plain);
            let _ = match last {
                None => Ok(()),
                Some(sign @ ('"' | '\\')) => write!(self.text, "\\{sign}"),
                Some(control) => write!(self.text, "\\u{:04x}", u32::from(control)),
            };
        }
        self.text.push('"');
        Ok(())
    }
}
