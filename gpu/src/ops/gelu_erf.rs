//! `gelu_erf`.

use super::activation::activation;

activation!(GeluErf, "gelu_erf", 1);
