//! Reviews: decisions of an apiserver's authenticators and authorizer on bearer tokens and access checks.
//!
//! Source: TokenReview of `k8s.io/api/authentication/v1`, SubjectAccessReview of `k8s.io/api/authorization/v1`.

use gatepost_api::{AccessCheck, AccessDecision, AccessTarget, Subject, User};
use serde_json::{Map, Value, json};

use crate::{KubeClient, KubeError};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

impl KubeClient {
    /// Returns user name and user info of a token's owner; `None` if the token is invalid.
    ///
    /// # Errors
    /// [`KubeError::WriteRefused`] if the apiserver rejects the review; otherwise the error of the call.
    pub async fn review_token(&self, token: &str) -> Result<Option<(String, User)>, KubeError> {
        let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.create(TOKEN_REVIEWS, &kind).await?;
        let status = &answer["status"];
        if status["authenticated"].as_bool() != Some(true) {
            return Ok(None);
        }
        let unnamed = || self.invalid_response(TOKEN_REVIEWS, "it names no user".to_owned());
        owner(&status["user"]).map(Some).ok_or_else(unnamed)
    }
}

fn owner(user: &Value) -> Option<(String, User)> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let name = user["username"].as_str().filter(|name| !name.is_empty())?.to_owned();
    let uid = user["uid"].as_str().unwrap_or_default().to_owned();
    let extra = user["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.clone(), texts(values))).collect();
    Some((name, User { uid, groups: texts(&user["groups"]), extra }))
}

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl KubeClient {
    /// Returns the authorizer's decision on an access check for this user's request.
    ///
    /// # Errors
    /// [`KubeError::WriteRefused`] if the apiserver rejects the review; otherwise the error of the call.
    pub async fn review_access(
        &self,
        username: &str,
        user: &User,
        check: &AccessCheck,
    ) -> Result<AccessDecision, KubeError> {
        let answer = self.create(ACCESS_REVIEWS, &review(username, user, check)).await?;
        let status = &answer["status"];
        let text = |key: &str| status[key].as_str().filter(|text| !text.is_empty());
        match status["allowed"].as_bool() {
            None => Err(self.invalid_response(ACCESS_REVIEWS, "it does not say whether it is allowed".to_owned())),
            Some(allowed) => Ok(AccessDecision {
                allowed,
                reason: text("reason").unwrap_or_default().into(),
                error: text("evaluationError").map(Into::into),
            }),
        }
    }
}

fn review(username: &str, user: &User, AccessCheck { subject, verb, target }: &AccessCheck) -> Value {
    let mut spec = match subject {
        Subject::Requester => {
            let extra: Map<_, _> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
            json!({"user": username, "uid": user.uid, "groups": user.groups, "extra": extra})
        }
        Subject::ServiceAccount { namespace, name } => json!({
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}")],
        }),
    };
    match target {
        AccessTarget::Path(path) => spec["nonResourceAttributes"] = json!({"path": path, "verb": verb}),
        AccessTarget::Resource(access) => {
            let mut attributes = json!({"group": access.group, "version": "*", "resource": access.resource,
                "subresource": access.sub_resource, "namespace": access.namespace, "name": access.name, "verb": verb});
            // The apiserver parses the selectors, and drops what it cannot parse.
            for (key, selector) in
                [("fieldSelector", &access.field_selector), ("labelSelector", &access.label_selector)]
            {
                if !selector.is_empty() {
                    attributes[key] = json!({"rawSelector": selector});
                }
            }
            spec["resourceAttributes"] = attributes;
        }
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

#[cfg(test)]
mod tests {
    use gatepost_api::ResourceAccess;

    use super::*;

    #[test]
    fn an_owner_has_a_name() {
        let user = json!({"username": "ann", "uid": "7", "groups": ["a", "b"], "extra": {"x": ["1", "2"]}});
        let (name, user) = owner(&user).unwrap();
        assert_eq!((&*name, &*user.uid, user.groups.len()), ("ann", "7", 2));
        assert_eq!(user.extra, [("x".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
        assert_eq!(owner(&json!({"username": ""})), None);
    }

    #[test]
    fn a_check_is_put_as_the_apiserver_puts_it() {
        let user = User {
            uid: "u1".to_owned(),
            groups: vec!["dev".to_owned()],
            extra: vec![("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])],
        };
        let put = |subject, target| review("alice", &user, &AccessCheck { subject, verb: "get".into(), target });
        let access = ResourceAccess {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: "shop".into(),
            label_selector: "app=x".into(),
            ..ResourceAccess::default()
        };
        let of_resource = put(Subject::Requester, AccessTarget::Resource(access));
        let spec = json!({"user": "alice", "uid": "u1", "groups": ["dev"], "extra": {"scopes": ["a", "b"]},
            "resourceAttributes": {"group": "apps", "version": "*", "resource": "deployments", "subresource": "",
                "namespace": "shop", "name": "", "verb": "get", "labelSelector": {"rawSelector": "app=x"}}});
        assert_eq!(of_resource["spec"], spec);
        let account = Subject::ServiceAccount { namespace: "ns".into(), name: "sa".into() };
        let of_path = put(account, AccessTarget::Path("/healthz".into()));
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns"];
        let spec = json!({"user": "system:serviceaccount:ns:sa", "groups": groups,
            "nonResourceAttributes": {"path": "/healthz", "verb": "get"}});
        assert_eq!(of_path["spec"], spec);
    }
}
