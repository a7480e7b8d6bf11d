//! `relu`.

use super::activation::activation;

activation!(Relu, "relu", 1);
