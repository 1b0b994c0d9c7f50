//! Token review: owner of a bearer token, by an apiserver's authenticators. Source: `k8s.io/api/authentication/v1`
//! TokenReview.

use serde_json::{Value, json};

use super::{KubeClient, KubeError};
use gatepost_api::User;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

impl KubeClient {
    /// Owner of a token: user name, and the rest. `None` where it is nobody's.
    ///
    /// # Errors
    /// [`KubeError::Unwritten`] where the apiserver does not let us ask, or why it could not be asked.
    pub async fn review_token(&self, token: &str) -> Result<Option<(String, User)>, KubeError> {
        let kind = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.create(PATH, &kind).await?;
        let status = &answer["status"];
        if status["authenticated"].as_bool() != Some(true) {
            return Ok(None);
        }
        let unnamed = || self.nonsense(PATH, "it names no user".to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_name() {
        let user = json!({"username": "ann", "uid": "7", "groups": ["a", "b"], "extra": {"x": ["1", "2"]}});
        let (name, user) = owner(&user).unwrap();
        assert_eq!((&*name, &*user.uid, user.groups.len()), ("ann", "7", 2));
        assert_eq!(user.extra, [("x".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
        assert_eq!(owner(&json!({"username": ""})), None);
    }
}
