//! `quick_gelu`.

use super::activation::activation;

activation!(QuickGelu, "quick_gelu", 1);
