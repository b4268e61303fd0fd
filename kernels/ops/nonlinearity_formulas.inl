// Nonlinearities that no fused op applies, and the smooth L1 loss. unary_formulas.inl explains how
// this file is included.

// clang-format off
#define AXLE_NONLINEARITY_FORMULAS(X) \
    X(LeakyRelu) X(Elu) X(Softplus) X(LogSigmoid) X(Mish) X(Hardswish) X(Hardsigmoid) \
    X(SmoothL1)
// clang-format on

// The leaky ReLU, x if x > 0, else negative_slope x.
struct LeakyRelu {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    double negative_slope;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return select(x > T(0), x, x * T(negative_slope));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return select(x > T(0), T(1), T(negative_slope));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

// The exponential linear units: scale x if x > 0, else scale alpha (e^(input_scale x) - 1). ELU has
// scale = input_scale = 1 (arXiv:1511.07289), SELU has input_scale = 1 (arXiv:1706.02515), and CELU
// has scale = 1 and input_scale = 1 / alpha (arXiv:1704.07483).
struct Elu {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    double alpha, scale, input_scale;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return select(x <= T(0), T(alpha * scale) * expm1(x * T(input_scale)), x * T(scale));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T factor = T(alpha * scale * input_scale);
        return select(x <= T(0), factor * exp(x * T(input_scale)), T(scale));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T factor = T(alpha * scale * input_scale * input_scale);
        return select(x <= T(0), factor * exp(x * T(input_scale)), T(0));
    }
};

// The softplus function, ln(1 + e^(beta x)) / beta, and x if beta x is above the threshold.
struct Softplus {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    double beta, threshold;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        const T t = x * T(beta);
        return select(t > T(threshold), x, log1p(exp(t)) / T(beta));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T t = x * T(beta);
        return select(t > T(threshold), T(1), T(1) / (T(1) + exp(T(0) - t)));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T t = x * T(beta);
        const T s = T(1) / (T(1) + exp(T(0) - t));
        return select(t > T(threshold), T(0), T(beta) * s * (T(1) - s));
    }
};

// The logarithm of the sigmoid function, -ln(1 + e^-x).
struct LogSigmoid {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return select(x < T(0), x, T(0)) - log1p(exp(T(0) - abs(x)));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return T(1) / (T(1) + exp(x));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T s = T(1) / (T(1) + exp(x));
        return s * (s - T(1));
    }
};

// The Mish function, x tanh(ln(1 + e^x)) (arXiv:1908.08681).
struct Mish {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x * factor(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T t = factor(x), s = T(1) / (T(1) + exp(T(0) - x));
        return t + x * s * (T(1) - t * t);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T t = factor(x), s = T(1) / (T(1) + exp(T(0) - x));
        return (T(1) - t * t) * s * (T(2) + x * (T(1) - s - T(2) * t * s));
    }
    // Returns tanh(ln(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2), which is 1 for large x.
    template <class T>
    AXLE_HOST_DEVICE static T factor(T x) {
        const T e = exp(select(x > T(20), T(20), x));
        const T n = e * (e + T(2));
        return n / (n + T(2));
    }
};

// Returns x limited to [-3, 3]. NaN stays NaN.
template <class T>
AXLE_HOST_DEVICE T within_three(T x) {
    return select(x < T(-3), T(-3), select(x > T(3), T(3), x));
}

// The hard swish function, x hardsigmoid(x) (arXiv:1905.02244).
struct Hardswish {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x * (within_three(x) + T(3)) / T(6);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return select(x <= T(-3), T(0), select(x >= T(3), T(1), x / T(3) + T(0.5)));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        return select(x <= T(-3), T(0), select(x >= T(3), T(0), T(1.0 / 3)));
    }
};

// The piecewise linear sigmoid function, (x + 3) / 6 limited to [0, 1].
struct Hardsigmoid {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return (within_three(x) + T(3)) / T(6);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return select(x <= T(-3), T(0), select(x >= T(3), T(0), T(1.0 / 6)));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

// The smooth L1 loss of a difference x: scale x^2 / (2 beta) if |x| < beta, else scale (|x| - beta
// / 2). The Huber loss has scale = beta.
struct SmoothL1 {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    double beta, scale;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        const T size = abs(x);
        return select(size < T(beta), x * x * T(0.5 * scale / beta),
                      (size - T(0.5 * beta)) * T(scale));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T outside = select(x < T(0), T(-scale), T(scale));
        return select(abs(x) < T(beta), x * T(scale / beta), outside);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        return select(abs(x) < T(beta), T(scale / beta), T(0));
    }
};
