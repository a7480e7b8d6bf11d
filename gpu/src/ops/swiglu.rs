//! `swiglu`.

use super::activation::activation;

activation!(Swiglu, "swiglu", 2);
