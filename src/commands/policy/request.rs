//! Requests of tests: an AdmissionReview from an object, as kube-apiserver would send it.

use gatepost_api::{Operation, builtin::builtin};
use serde_json::{Value, json};

use super::{
    cluster::{DEFAULT_NAMESPACE, complete, group_version, plural, text_at},
    document::Field,
};

/// User of tests that name none.
const DEFAULT_USER: &str = "test-user";

/// Objects of a request.
#[derive(Debug, Default)]
pub(super) struct RequestObjects {
    pub(super) object: Option<Value>,
    pub(super) old_object: Option<Value>,
    pub(super) options: Option<Value>,
}

/// Returns the request of a test as an AdmissionReview. Reports missing and contradictory fields.
pub(super) fn review(test: &Field<'_>, objects: RequestObjects) -> Option<Value> {
    let RequestObjects { mut object, mut old_object, options } = objects;
    let operation = operation(test, object.is_some(), old_object.is_some())?;
    let Some(main) = object.as_ref().or(old_object.as_ref()) else {
        test.problem(
            "has no object",
            "so there is nothing to review",
            "write object: (a file, or the object itself), or oldObject: for DELETE",
        );
        return None;
    };
    let (api_version, kind) = (text_at(main, "/apiVersion").to_owned(), text_at(main, "/kind").to_owned());
    if api_version.is_empty() || kind.is_empty() {
        let why = "so its resource is not known";
        test.problem("has an object without apiVersion or kind", why, "write both into the object");
        return None;
    }
    let (group, version) = group_version(&api_version);
    let written = test.get("resource").map(|field| resource(&field, (group, version)));
    let (group, version, resource) = match written {
        Some(written) => written?,
        None => (group.to_owned(), version.to_owned(), plural(&kind)),
    };
    let own_namespace = text_at(main, "/metadata/namespace").to_owned();
    let name = match test.get("objectName") {
        Some(field) => field.text()?,
        None => text_at(main, "/metadata/name"),
    };
    let given = match test.get("namespace") {
        Some(field) => Some(field.text()?),
        None => None,
    };
    if let Some(given) = given
        && !own_namespace.is_empty()
        && given != own_namespace
    {
        let what = format!("is {given:?}, and the object is in {own_namespace:?}");
        let fix = "remove it, or write the namespace of the object";
        test.get("namespace")?.problem(what, "which no apiserver accepts", fix);
        return None;
    }
    let default = match builtin(&group, &resource).map(|known| known.namespaced) {
        Some(true) => DEFAULT_NAMESPACE,
        // As kube-apiserver has it.
        Some(false) if group.is_empty() && resource == "namespaces" => name,
        _ => "",
    };
    let namespace = given.map_or(own_namespace, str::to_owned);
    let namespace = if namespace.is_empty() { default.to_owned() } else { namespace };
    let is_namespace = group.is_empty() && resource == "namespaces";
    let (name, options) = (name.to_owned(), options.unwrap_or_else(|| default_options(operation)));
    for object in [&mut object, &mut old_object].into_iter().flatten().filter(|_| !is_namespace) {
        complete(object, &namespace);
    }
    let (object_group, object_version) = group_version(&api_version);
    let kind = json!({"group": object_group, "version": object_version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    let sub_resource = match test.get("subResource") {
        Some(field) => field.text()?,
        None => "",
    };
    let dry_run = match test.get("dryRun") {
        Some(field) => field.bool()?,
        None => false,
    };
    Some(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "gatepost-policy-test",
            "kind": kind,
            "resource": resource,
            "subResource": sub_resource,
            "requestKind": kind,
            "requestResource": resource,
            "requestSubResource": sub_resource,
            "name": name,
            "namespace": namespace,
            "operation": operation.as_str(),
            "userInfo": user(test)?,
            "object": object,
            "oldObject": old_object,
            "dryRun": dry_run,
            "options": options,
        },
    }))
}

/// Returns the operation, which follows from the objects if it is not written.
fn operation(test: &Field<'_>, has_object: bool, has_old_object: bool) -> Option<Operation> {
    let Some(field) = test.get("operation") else {
        return Some(match (has_object, has_old_object) {
            (true, true) => Operation::Update,
            (false, true) => Operation::Delete,
            _ => Operation::Create,
        });
    };
    let Some(operation) = Operation::from_name(field.text()?) else {
        field.problem("is not an operation", "so nothing would match it", "write CREATE, UPDATE, DELETE or CONNECT");
        return None;
    };
    let (wants_object, wants_old) = match operation {
        Operation::Create | Operation::Connect => (true, false),
        Operation::Update => (true, true),
        Operation::Delete => (false, true),
    };
    let mut is_right = true;
    for (key, has, wants) in [("object", has_object, wants_object), ("oldObject", has_old_object, wants_old)] {
        if has != wants {
            let what = format!("is {}, and {key} is {}", operation.as_str(), if has { "written" } else { "missing" });
            let fix = if has { format!("remove {key}") } else { format!("write {key}") };
            field.problem(what, "which no apiserver sends", fix);
            is_right = false;
        }
    }
    is_right.then_some(operation)
}

/// Returns group, version and resource of a text such as `pods` or `deployments.v1.apps`.
fn resource(field: &Field<'_>, (group, version): (&str, &str)) -> Option<(String, String, String)> {
    let mut parts = field.text()?.splitn(3, '.');
    let resource = parts.next().unwrap_or_default();
    if resource.is_empty() || resource != resource.to_ascii_lowercase() || resource.contains('/') {
        let fix =
            "write its plural in lower case, such as pods or deployments.v1.apps; a subresource goes to subResource";
        field.problem("is not a resource", "so no rule would match it", fix);
        return None;
    }
    Some(match parts.next() {
        None => (group.to_owned(), version.to_owned(), resource.to_owned()),
        Some(version) => (parts.next().unwrap_or_default().to_owned(), version.to_owned(), resource.to_owned()),
    })
}

/// Returns the `userInfo` of a test.
fn user(test: &Field<'_>) -> Option<Value> {
    let Some(user) = test.get("user") else {
        return Some(json!({"username": DEFAULT_USER, "groups": ["system:authenticated"]}));
    };
    if !user.is_map_of(&["username", "uid", "groups", "extra"]) {
        return None;
    }
    let text = |key: &str| user.get(key).map_or(Some(""), |field| field.text());
    let groups = user.get("groups").map_or_else(|| vec!["system:authenticated".to_owned()], |groups| groups.texts());
    let extra = user.get("extra").map_or_else(Vec::new, |extra| extra.pairs());
    let extra: serde_json::Map<String, Value> =
        extra.into_iter().map(|(key, values)| (key, values.texts().into())).collect();
    let username = match text("username")? {
        "" => DEFAULT_USER,
        name => name,
    };
    Some(json!({"username": username, "uid": text("uid")?, "groups": groups, "extra": extra}))
}

fn default_options(operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    json!({"apiVersion": "meta.k8s.io/v1", "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::{super::document::Problems, *};

    fn reviewed(test: Value) -> Result<Value, String> {
        let problems = Problems::default();
        let review = {
            let field = Field::document(&test, "a.yaml", None, &problems);
            let object = |key: &str| test.get(key).cloned();
            review(&field, RequestObjects { object: object("object"), old_object: object("oldObject"), options: None })
        };
        match problems.into_vec().first() {
            Some(problem) => Err(problem.to_string()),
            None => Ok(review.unwrap()["request"].clone()),
        }
    }

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}})
    }

    #[test]
    fn request_follows_from_the_object() {
        let request = reviewed(json!({"object": pod()})).unwrap();
        assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "pods"}));
        assert_eq!(
            (&request["operation"], &request["namespace"], &request["name"]),
            (&json!("CREATE"), &json!("default"), &json!("web"))
        );
        assert_eq!(request["object"]["metadata"]["namespace"], "default");
        assert_eq!(reviewed(json!({"object": pod(), "oldObject": pod()})).unwrap()["operation"], "UPDATE");
        assert_eq!(reviewed(json!({"oldObject": pod()})).unwrap()["operation"], "DELETE");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let request = reviewed(json!({"object": namespace})).unwrap();
        assert_eq!(
            (&request["namespace"], &request["object"]["metadata"]["namespace"]),
            (&json!("shop"), &Value::Null)
        );
        let scale =
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "a"}});
        let test = json!({"object": scale, "resource": "deployments.v1.apps", "subResource": "scale"});
        let request = reviewed(test).unwrap();
        assert_eq!(request["resource"], json!({"group": "apps", "version": "v1", "resource": "deployments"}));
        assert_eq!((&request["subResource"], &request["kind"]["group"]), (&json!("scale"), &json!("autoscaling")));
    }

    #[test]
    fn requests_that_no_apiserver_sends_are_problems() {
        for (test, says) in [
            (json!({}), "has no object"),
            (json!({"object": {"kind": "Pod"}}), "without apiVersion or kind"),
            (json!({"object": pod(), "operation": "DELETE"}), "object is written"),
            (json!({"object": pod(), "operation": "UPDATE"}), "oldObject is missing"),
            (json!({"object": pod(), "operation": "Create"}), "is not an operation"),
            (json!({"object": pod(), "resource": "pods/status"}), "is not a resource"),
            (json!({"object": pod(), "dryRun": "yes"}), "dryRun: is neither true nor false"),
            (json!({"object": pod(), "user": {"name": "ann"}}), "user.name: is not a known key"),
        ] {
            let shown = reviewed(test).unwrap_err();
            assert!(shown.contains(says), "{shown:?} should say {says:?}");
        }
    }
}
