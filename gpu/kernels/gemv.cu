// A matrix of GGML blocks times a vector.
#include "gemv.cuh"
