//! Quota: which part of it one write charges, and which it gives back.
//!
//! Quota has two parts. The number of objects is charged before the object is stored, so that unfinished objects cannot be
//! piled up; all else (CPU, memory, storage) is charged when the object is initialized, since only then is it known.
//!
//! | before | after | number of objects | all else |
//! | --- | --- | --- | --- |
//! | | unfinished | charge | at completion |
//! | | initialized | charge | charge |
//! | unfinished | unfinished | | at completion |
//! | unfinished | initialized | | charge |
//! | unfinished | | release | |
//! | initialized | initialized | | adjust |
//! | initialized | | release | release |

use super::Lifecycle;

/// Part that one write plays for one part of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// None.
    Nothing,
    /// It is charged now, before the write.
    Now,
    /// It will be charged when the object is initialized.
    AtCompletion,
    /// The difference between the object as it was and as it will be is charged or given back now.
    Difference,
    /// It is given back, once the write is done.
    Release,
}

impl Charge {
    /// Compensation where the write fails after this was done.
    pub fn compensation(self) -> Self {
        match self {
            Self::Now => Self::Release,
            Self::Difference => Self::Difference,
            // It is released after the write, so nothing has happened yet.
            Self::Nothing | Self::AtCompletion | Self::Release => Self::Nothing,
        }
    }
}

/// Both parts of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaPhase {
    /// The number of objects.
    pub count: Charge,
    /// All else.
    pub rest: Charge,
}

/// State of a stored object, as quota sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaStage {
    /// There is none.
    Absent,
    /// It is there, and not initialized.
    Unfinished,
    /// It is initialized.
    Initialized,
}

impl From<Lifecycle> for QuotaStage {
    fn from(state: Lifecycle) -> Self {
        match state {
            // Until it is deleted it is there.
            Lifecycle::Pending(_) | Lifecycle::Failed | Lifecycle::TimedOut => Self::Unfinished,
            Lifecycle::Completed => Self::Initialized,
            Lifecycle::Deleted => Self::Absent,
        }
    }
}

/// Quota of a write that finds the object at one stage and leaves it at the other; `None` where there is no such write.
pub fn quota_phase(before: QuotaStage, after: QuotaStage) -> Option<QuotaPhase> {
    use Charge::{AtCompletion, Difference, Nothing, Now, Release};
    let (count, rest) = match (before, after) {
        (QuotaStage::Absent, QuotaStage::Unfinished) => (Now, AtCompletion),
        (QuotaStage::Absent, QuotaStage::Initialized) => (Now, Now),
        (QuotaStage::Unfinished, QuotaStage::Unfinished) => (Nothing, AtCompletion),
        (QuotaStage::Unfinished, QuotaStage::Initialized) => (Nothing, Now),
        (QuotaStage::Unfinished, QuotaStage::Absent) => (Release, Nothing),
        (QuotaStage::Initialized, QuotaStage::Initialized) => (Nothing, Difference),
        (QuotaStage::Initialized, QuotaStage::Absent) => (Release, Release),
        // Nothing is initialized twice.
        (QuotaStage::Absent, QuotaStage::Absent) | (QuotaStage::Initialized, QuotaStage::Unfinished) => return None,
    };
    Some(QuotaPhase { count, rest })
}
