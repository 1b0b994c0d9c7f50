//! Product: the binary that is measured, and what else it is told.

use std::path::PathBuf;

use crate::{Fallible, plan::Ours, rig::Workshop};

/// Options that every measurement of the product has.
#[derive(Debug, clap::Args)]
pub(crate) struct ProductArgs {
    /// The product's binary [default: the release build beside this program]
    #[arg(long = "gatepost", value_name = "PATH")]
    binary: Option<PathBuf>,
    /// One more argument for the product; repeat for more
    #[arg(long = "gatepost-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

impl ProductArgs {
    /// Programs of a measurement, that binary among them.
    pub(crate) fn workshop(&self) -> Fallible<Workshop> {
        let mut workshop = Workshop::beside_this_program(Ours::Gatepost)?;
        if let Some(binary) = &self.binary {
            workshop.gatepost.clone_from(binary);
        }
        Ok(workshop)
    }
}
