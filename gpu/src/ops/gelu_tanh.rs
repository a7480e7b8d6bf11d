//! `gelu_tanh`.

use super::activation::activation;

activation!(GeluTanh, "gelu_tanh", 1);
