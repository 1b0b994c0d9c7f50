//! Programs: processes beside the apiserver.

use std::path::{Path, PathBuf};

use super::{Settings, variant::Variant};
use crate::Fallible;

/// The programs that are started.
#[derive(Debug)]
pub(super) struct Programs {
    gatepost: PathBuf,
    against: Option<PathBuf>,
    pub(super) gatepost_arguments: Vec<String>,
    pub(super) hook: PathBuf,
    /// Socket at which the plugin asks
    pub(super) socket: Option<PathBuf>,
}

impl Programs {
    /// The programs that were asked for; the product comes from the build this program is part of.
    pub(super) fn new(settings: &Settings) -> Fallible<Self> {
        if settings.against.is_none() && settings.ways.iter().any(|way| way.is_against()) {
            return Err("these --ways need another build: give it by --against PATH".into());
        }
        if settings.plugin.is_none() && settings.ways.iter().any(|way| way.has_plugin()) {
            return Err("this --ways needs an apiserver with the plugin: give its folder by --plugin FOLDER".into());
        }
        let socket = settings.plugin.as_ref().map(|folder| folder.join("gatepost.sock"));
        let gatepost = settings.product.workshop()?.gatepost;
        let gatepost_arguments = settings.product.arguments.clone();
        let against = settings.against.clone();
        Ok(Self { gatepost, against, gatepost_arguments, hook: settings.hook.clone(), socket })
    }

    /// The build that serves `variant`.
    pub(super) fn gatepost(&self, variant: Variant) -> &Path {
        self.against.as_deref().filter(|_| variant.is_against()).unwrap_or(&self.gatepost)
    }
}
