#[cfg(test)]
use super::*;
