//! Programs: processes beside the apiserver.

use std::path::PathBuf;

use super::Settings;
use crate::Fallible;

/// The programs that are started.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) gatepost: PathBuf,
    pub(super) gatepost_arguments: Vec<String>,
    pub(super) hook: PathBuf,
}

impl Programs {
    /// The programs that were asked for; the product comes from the build this program is part of.
    pub(super) fn new(settings: &Settings) -> Fallible<Self> {
        let gatepost = settings.product.workshop()?.gatepost;
        let gatepost_arguments = settings.product.arguments.clone();
        Ok(Self { gatepost, gatepost_arguments, hook: settings.hook.clone() })
    }
}
