//! `silu`.

use super::activation::activation;

activation!(Silu, "silu", 1);
