//! Input: variables of an expression.

use std::{cell::OnceCell, fmt};

use super::{
    authorization::{AccessDecisions, ResourceAccess},
    document::JsonDocument,
    fault::Fault,
    meter::Meter,
};

/// User who makes the request, beyond the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Identity among users of equal name.
    pub uid: String,
    /// Names of the user's groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, ascending by key.
    pub extra: Vec<(String, Vec<String>)>,
}

/// The request, but for its objects. Texts that are empty count as not written, as upstream leaves them out.
pub struct Request<'a> {
    /// Group, version and kind of the object as it is written.
    pub kind: [&'a str; 3],
    /// Group, version and resource that the client asked for.
    pub resource: [&'a str; 3],
    /// Group, version and kind that the client asked for.
    pub request_kind: [&'a str; 3],
    /// The subresource.
    pub sub_resource: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Namespace of the request.
    pub namespace: &'a str,
    /// Operation on the object, in capitals.
    pub operation: &'a str,
    /// True when nothing will be stored.
    pub dry_run: bool,
    /// The acting user's name.
    pub username: &'a str,
    /// The operation's options.
    pub options: Option<JsonDocument<'a>>,
    /// Bytes of the user as the review has it, for the time it takes to read.
    pub user_bytes: usize,
    user: OnceCell<Result<User, String>>,
    read_user: Box<dyn Fn() -> Result<User, String> + 'a>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// A request of which nothing is known but how to read its user, which is done when an expression asks.
    pub fn new(read_user: impl Fn() -> Result<User, String> + 'a) -> Self {
        let (kind, resource, request_kind) = ([""; 3], [""; 3], [""; 3]);
        let (sub_resource, name, namespace, operation, username) = ("", "", "", "", "");
        let (user, read_user, options, dry_run) = (OnceCell::new(), Box::new(read_user), None, false);
        Self {
            kind,
            resource,
            request_kind,
            sub_resource,
            name,
            namespace,
            operation,
            dry_run,
            username,
            options,
            user_bytes: 0,
            user,
            read_user,
        }
    }

    /// The object that it is about, as an access check names it.
    pub(super) fn access(&self) -> ResourceAccess {
        let [group, _, resource] = self.resource;
        ResourceAccess {
            group: group.into(),
            resource: resource.into(),
            sub_resource: self.sub_resource.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
            ..ResourceAccess::default()
        }
    }

    /// The user, read when it is first asked for.
    pub(super) fn user(&self, meter: &Meter<'_>) -> Result<&User, Fault> {
        if self.user.get().is_none() {
            meter.read(self.user_bytes)?;
        }
        self.user.get_or_init(|| (self.read_user)()).as_ref().map_err(|why| Fault::error(why.clone()))
    }
}

/// Variables of one review.
#[derive(Debug)]
pub struct Input<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The object, where there is one.
    pub object: Option<JsonDocument<'a>>,
    /// The stored object, where there is one.
    pub old_object: Option<JsonDocument<'a>>,
    /// Access checks that were decided.
    pub decisions: AccessDecisions,
}

/// A part of the request that has fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request,
    Kind,
    RequestKind,
    Resource,
    UserInfo,
    Extra,
}
