// The unary elementwise formulas of Axle. T is double, float, an integer, or a SIMD pack of floats.
//
// This file has no include guard and no namespace: kernels/ops/pointwise.h includes it for scalars
// and kernels/cpu/pointwise/formulas-inl.h includes it for each instruction set. Unqualified calls
// (exp, select, ...) find the scalar or the pack version.
//
// A unary formula has these members; its parameters are plain double members:
//     value(x)            f(x)
//     slope(v)            f'(x), computed from what the backward pass saves: v is y = f(x) if
//                         kSavesOutput, else x
//     curve(v)            d slope(v) / dv
//     kIntegers           whether value() supports integers

// The list of all unary formulas except the formulas in special_formulas.inl. Code that is compiled
// once per formula expands it.
// clang-format off
#define AXLE_UNARY_FORMULAS(X)                                                    \
    X(Neg) X(Abs) X(Exp) X(Log) X(Sqrt) X(Rsqrt) X(Tanh) X(Sigmoid) X(Relu)       \
    X(Gelu) X(GeluTanh) X(Silu) X(Softsign)                                       \
    X(AddScalar) X(MulScalar) X(DivideScalarBy) X(PowScalar) X(Clamp)             \
    AXLE_ROUNDING_FORMULAS(X) AXLE_NONLINEARITY_FORMULAS(X)
// clang-format on

struct Neg {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return T(0) - x;
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T) const {
        return T(-1);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

struct Abs {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return select(x > T(0), x, T(T(0) - x));  // also makes -0 positive
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return select(x < T(0), T(-1), select(x > T(0), T(1), T(0)));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

struct Exp {
    static constexpr bool kSavesOutput = true, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return exp(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return y;
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(1);
    }
};

struct Log {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return log(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return T(1) / x;
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        return T(-1) / (x * x);
    }
};

struct Sqrt {
    static constexpr bool kSavesOutput = true, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return sqrt(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return T(0.5) / y;
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T y) const {
        return T(-0.5) / (y * y);
    }
};

struct Rsqrt {
    static constexpr bool kSavesOutput = true, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return T(1) / sqrt(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return T(-0.5) * y * y * y;
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T y) const {
        return T(-1.5) * y * y;
    }
};

struct Tanh {
    static constexpr bool kSavesOutput = true, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return tanh(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return T(1) - y * y;
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T y) const {
        return T(-2) * y;
    }
};

struct Sigmoid {
    static constexpr bool kSavesOutput = true, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return T(1) / (T(1) + exp(T(0) - x));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return y * (T(1) - y);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T y) const {
        return T(1) - T(2) * y;
    }
};

// The ReLU function, max(x, 0). As in PyTorch, NaN inputs give NaN, with the slope 1.
struct Relu {
    static constexpr bool kSavesOutput = true, kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return select(x < T(0), T(0), x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T y) const {
        return select(y <= T(0), T(0), T(1));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

// The exact GELU, x Phi(x) (Hendrycks and Gimpel, arXiv:1606.08415).
struct Gelu {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x * normal_cdf(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return gelu_slope(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        return T(0.39894228040143267794) * exp(T(-0.5) * x * x) * (T(2) - x * x);
    }
};

// The approximation of GELU used by GPT-2, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
struct GeluTanh {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return T(0.5) * x * (T(1) + tanh(inner(x)));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T t = tanh(inner(x));
        return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * inner_slope(x);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T t = tanh(inner(x));
        const T s = inner_slope(x);
        const T inner_curve = T(0.79788456080286535588 * 6 * 0.044715) * x;
        return (T(1) - t * t) * (s + T(0.5) * x * (inner_curve - T(2) * t * s * s));
    }
    template <class T>
    AXLE_HOST_DEVICE static T inner(T x) {
        return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
    }
    template <class T>
    AXLE_HOST_DEVICE static T inner_slope(T x) {
        return T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
    }
};

struct Silu {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x / (T(1) + exp(T(0) - x));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T s = T(1) / (T(1) + exp(T(0) - x));
        return s * (T(1) + x * (T(1) - s));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T s = T(1) / (T(1) + exp(T(0) - x));
        return s * (T(1) - s) * (T(2) + x * (T(1) - T(2) * s));
    }
};

// The softsign function, x / (1 + |x|).
struct Softsign {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x / (T(1) + abs(x));
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        const T d = T(1) + abs(x);
        return T(1) / (d * d);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const T d = T(1) + abs(x);
        return select(x < T(0), T(2), select(x > T(0), T(-2), T(0))) / (d * d * d);
    }
};

struct AddScalar {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    double scalar;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x + T(scalar);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T) const {
        return T(1);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

struct MulScalar {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    double scalar;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x * T(scalar);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T) const {
        return T(scalar);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

// Division of a scalar by x: scalar / x.
struct DivideScalarBy {
    static constexpr bool kSavesOutput = false, kIntegers = false;
    double scalar;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return T(scalar) / x;
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return T(-scalar) / (x * x);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        return T(2 * scalar) / (x * x * x);
    }
};

// Returns base^exponent by repeated squaring; overflow wraps around. If the exponent is negative,
// the result is truncated to an integer, and it is 0 if base is 0.
template <class T>
AXLE_HOST_DEVICE constexpr T integer_power(T base, long long exponent) {
    if (exponent < 0) {
        const bool odd = exponent % 2 != 0;
        if (base == T(1)) return T(1);
        if (std::is_signed_v<T> && base == T(-1)) return odd ? T(-1) : T(1);
        return T(0);
    }
    using Unsigned = std::make_unsigned_t<T>;
    unsigned long long result = 1, factor = static_cast<Unsigned>(base);
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0) result *= factor;
        factor *= factor;
    }
    return static_cast<T>(result);
}

struct PowScalar {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    double exponent;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T>)
            return integer_power(x, static_cast<long long>(exponent));
        else
            return power(x, exponent);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return exponent == 0 ? T(0) : T(exponent) * power(x, exponent - 1);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T x) const {
        const double factor = exponent * (exponent - 1);
        return factor == 0 ? T(0) : T(factor) * power(x, exponent - 2);
    }
    // Returns x^exponent. Exponents with a simple formula do not use pow, which is much slower.
    template <class T>
    AXLE_HOST_DEVICE static T power(T x, double e) {
        if (e == 0) return T(1);
        if (e == 1) return x;
        if (e == 2) return x * x;
        if (e == 3) return x * x * x;
        if (e == 0.5) return sqrt(x);
        if (e == -1) return T(1) / x;
        if (e == -2) return T(1) / (x * x);
        return pow(x, T(e));
    }
};

// Clamping, min(max(x, low), high). NaN inputs give NaN. The slope at a bound is 0, as in PyTorch
// 2.15.
struct Clamp {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    double low, high;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        const T raised = select(x < bound<T>(low), bound<T>(low), x);
        return select(raised > bound<T>(high), bound<T>(high), raised);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return select(x <= T(low), T(0), select(x >= T(high), T(0), T(1)));
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
    // Converts a bound to T. A missing bound is infinite, which an integer type cannot represent.
    template <class T>
    AXLE_HOST_DEVICE static T bound(double b) {
        if constexpr (std::is_integral_v<T>) {
            const double least = static_cast<double>(std::numeric_limits<T>::min());
            const double most = static_cast<double>(std::numeric_limits<T>::max());
            if (b <= least) return std::numeric_limits<T>::min();
            if (b >= most) return std::numeric_limits<T>::max();
        }
        return T(b);
    }
};
