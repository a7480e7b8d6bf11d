//! `layer_norm`.

use super::norm::{Norm, norm};

norm! {
    LayerNorm, true, |op| Norm {
        from: op.from,
        weight: op.weight,
        bias: op.bias,
        to: op.to,
        eps: op.eps.0,
        compensated: op.compensated,
        centered: true,
    }
}
