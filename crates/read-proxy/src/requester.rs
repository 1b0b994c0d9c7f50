//! Sender of a request, as the proxy names it to the apiserver and as the apiserver will see it.

use std::collections::BTreeMap;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, InvalidHeaderName, InvalidHeaderValue},
};

use super::query::decoded;
use gatepost_cel::User;
use gatepost_tls::CertificateUser;

/// Prefix of the fields by which a front proxy names the user to an apiserver. A client's own are removed.
// source: kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer, "original request username and group".
const REMOTE: &str = "x-remote-";
const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// Field with a certificate's digest: the extra key `authentication.kubernetes.io/credential-id`, encoded for a field.
// source: kubernetes/apiserver pkg/authentication/request/x509/x509.go, CommonNameUserConversion.
const CREDENTIAL_ID: &str = "x-remote-extra-authentication.kubernetes.io%2fcredential-id";

/// Impersonation fields. They pass unchanged: the apiserver decides if they are permitted.
// source: k8s.io/api/authentication/v1, ImpersonateUserHeader and others.
const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_UID: &str = "impersonate-uid";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Account of a user: the name, and the other data of an access check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// User name.
    pub name: String,
    /// uid, groups and extra.
    pub user: User,
}

/// Owner of a client certificate, with the fields that name it to the apiserver.
#[derive(Clone, Debug)]
pub struct RemoteUser {
    account: Account,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// Error for a certificate whose owner cannot be named in an HTTP field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate has a name that a field of HTTP cannot hold")]
pub struct Unnameable;

impl From<InvalidHeaderValue> for Unnameable {
    fn from(_: InvalidHeaderValue) -> Self {
        Self
    }
}

impl From<InvalidHeaderName> for Unnameable {
    fn from(_: InvalidHeaderName) -> Self {
        Self
    }
}

impl RemoteUser {
    /// Returns the owner of a certificate; `None` if it has no common name.
    ///
    /// # Errors
    /// [`Unnameable`].
    pub fn of(certificate: CertificateUser) -> Result<Option<Self>, Unnameable> {
        let CertificateUser { name, groups, uid, fingerprint } = certificate;
        if name.is_empty() {
            return Ok(None);
        }
        let credential = format!("X509SHA256={fingerprint}");
        let mut fields = vec![(REMOTE_USER, field(&name)?)];
        fields.extend(uid.as_deref().map(|uid| Ok::<_, Unnameable>((REMOTE_UID, field(uid)?))).transpose()?);
        for group in &groups {
            fields.push((REMOTE_GROUP, field(group)?));
        }
        fields.push((HeaderName::from_bytes(CREDENTIAL_ID.as_bytes())?, field(&credential)?));
        let extra = vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![credential])];
        let user = User { uid: uid.unwrap_or_default(), groups, extra };
        Ok(Some(Self { account: Account { name, user }.authenticated(), fields }))
    }

    /// Returns the account.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

/// Returns a field value. Rejects outer whitespace: it is stripped in transit, and may distinguish two users.
fn field(text: &str) -> Result<HeaderValue, Unnameable> {
    match text.is_empty() || text.trim() != text {
        true => Err(Unnameable),
        false => Ok(HeaderValue::from_bytes(text.as_bytes())?),
    }
}

/// Sets the fields that identify the user to the apiserver. Removes the front proxy fields of the client. For a user
/// with a certificate, also removes other credentials, which the apiserver would ignore.
pub fn identify(headers: &mut HeaderMap, user: Option<&RemoteUser>) {
    // Some servers treat `_` as `-`.
    let is_remote = |name: &&HeaderName| name.as_str().replace('_', "-").starts_with(REMOTE);
    let theirs: Vec<_> = headers.keys().filter(is_remote).cloned().collect();
    for name in theirs {
        headers.remove(name);
    }
    if let Some(RemoteUser { fields, .. }) = user {
        headers.remove(AUTHORIZATION);
        for (name, value) in fields {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// Returns the bearer token of a request.
pub fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns the account that a request impersonates; `None` if it impersonates none. The apiserver checks the
/// permission, and rejects the request without it.
pub fn impersonated(headers: &HeaderMap) -> Option<Account> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let name = texts(IMPERSONATE_USER).into_iter().next().filter(|name| !name.is_empty())?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(IMPERSONATE_EXTRA) {
            let key = decoded(key.as_bytes(), false).and_then(|key| String::from_utf8(key).ok());
            extra.entry(key.unwrap_or_default()).or_default().extend(texts(name.as_str()));
        }
    }
    let uid = texts(IMPERSONATE_UID).into_iter().next().unwrap_or_default();
    let user = User { uid, groups: texts(IMPERSONATE_GROUP), extra: extra.into_iter().collect() };
    Some(Account { name, user }.authenticated())
}

impl Account {
    /// Returns the total size of the texts, in bytes.
    pub fn size(&self) -> usize {
        let User { uid, groups, extra } = &self.user;
        let texts = |texts: &[String]| texts.iter().map(|text| text.len() + 1).sum::<usize>();
        let extra: usize = extra.iter().map(|(key, values)| key.len() + texts(values)).sum();
        self.name.len() + uid.len() + texts(groups) + extra
    }

    /// Adds the groups that the apiserver adds.
    // source: kubernetes/apiserver pkg/authentication/group, pkg/endpoints/filters/impersonation.go.
    fn authenticated(mut self) -> Self {
        let mut add = |group: String| {
            if !self.user.groups.contains(&group) {
                self.user.groups.push(group);
            }
        };
        if let Some((namespace, _)) = self.name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) {
            add("system:serviceaccounts".to_owned());
            add(format!("system:serviceaccounts:{namespace}"));
        }
        if self.name != "system:anonymous" {
            add("system:authenticated".to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str, groups: &[&str]) -> CertificateUser {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        CertificateUser { name: name.to_owned(), groups, uid: None, fingerprint: "ab12".to_owned() }
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let shown = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        shown
    }

    #[test]
    fn what_a_client_says_of_a_front_proxy_is_removed() {
        let sent = [
            ("x-remote-user", "admin"),
            ("x-remote-extra-a", "b"),
            ("x_remote_group", "system:masters"),
            ("impersonate-user", "bob"),
            ("authorization", "Bearer t"),
        ];
        let mut plain = headers(&sent);
        identify(&mut plain, None);
        assert_eq!(shown(&plain), ["authorization: Bearer t", "impersonate-user: bob"]);
        let mut known = headers(&sent);
        let user = RemoteUser::of(CertificateUser { uid: Some("7".into()), ..certificate("ann", &["a", "b"]) });
        identify(&mut known, user.unwrap().as_ref());
        let wanted = [
            "impersonate-user: bob",
            "x-remote-extra-authentication.kubernetes.io%2fcredential-id: X509SHA256=ab12",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-uid: 7",
            "x-remote-user: ann",
        ];
        assert_eq!(shown(&known), wanted);
    }

    #[test]
    fn a_name_that_would_arrive_as_another_is_refused() {
        assert!(RemoteUser::of(certificate("", &["a"])).unwrap().is_none(), "a certificate that names nobody");
        for (name, group) in [(" admin", "a"), ("admin ", "a"), ("a\nb", "a"), ("ann", " system:masters"), ("ann", "")]
        {
            assert!(RemoteUser::of(certificate(name, &[group])).is_err(), "{name:?} {group:?}");
        }
        assert!(RemoteUser::of(certificate("J\u{f6}rg", &["a, b"])).is_ok());
    }

    #[test]
    fn the_account_is_that_of_the_impersonated_user() {
        assert_eq!(impersonated(&headers(&[("x-remote-user", "a")])), None);
        let fields = [
            ("impersonate-user", "system:serviceaccount:shop:web"),
            ("impersonate-group", "a"),
            ("impersonate-extra-x%2fy", "1"),
            ("impersonate-extra-x%2fy", "2"),
        ];
        let Account { name, user } = impersonated(&headers(&fields)).unwrap();
        assert_eq!(name, "system:serviceaccount:shop:web");
        let groups = ["a", "system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
        assert_eq!(user.groups, groups);
        assert_eq!(user.extra, [("x/y".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
    }

    #[test]
    fn a_token_is_found() {
        for (value, wanted) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Basic abc", None),
            ("Bearer", None),
        ] {
            assert_eq!(token(&headers(&[("authorization", value)])), wanted, "{value}");
        }
    }
}
