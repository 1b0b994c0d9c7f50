//! LIST and WATCH of resources that are opted in: a label selector hides what is not initialized.
//!
//! The apiserver does the rest by itself: completion is ADDED in a watch, and the deletion of what was hidden is silent.

use super::{
    path::ResourcePath,
    query::Query,
    refusal::ProxyRefusal,
    serve::{Passing, Proxy},
};
use crate::metrics::ProxyOutcome;

impl Proxy {
    /// Rewrites the parameters. Says whether anything is left out.
    ///
    /// # Errors
    /// A refusal where they cannot be rewritten, or nobody can say what the user may see.
    pub(super) async fn filter(
        &self,
        passing: &mut Passing<'_>,
        path: &ResourcePath,
    ) -> Result<ProxyOutcome, ProxyRefusal> {
        let sent = passing.request.uri().query().map(str::to_owned);
        let query = Query::new(sent.as_deref());
        let account = self.account(&passing.sent).await?;
        let sees = match &account {
            None => false,
            Some(account) if self.sees_all(account) => true,
            Some(account) => query.includes_uninitialized() && self.cluster.may_initialize(account, path).await?,
        };
        let (outcome, query) = match sees {
            true => (ProxyOutcome::Passed, query.without_include()),
            false => (ProxyOutcome::Filtered, query.initialized_only()),
        };
        passing.set_query(&query)?;
        Ok(outcome)
    }
}
