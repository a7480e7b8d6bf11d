//! `rms_norm`.

use super::norm::{Norm, norm};

norm! {
    RmsNorm, false, |op| Norm {
        from: op.from,
        weight: op.weight,
        bias: None,
        to: op.to,
        eps: op.eps.0,
        compensated: op.compensated,
        centered: false,
    }
}
