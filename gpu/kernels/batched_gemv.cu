// A matrix of GGML blocks times several vectors.
#include "gemv.cuh"
