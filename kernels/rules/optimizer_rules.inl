// The update of one element by each optimizer, shared by CPU SIMD packs and GPU threads. This file
// is included inside a namespace, once per CPU instruction set. Include <array>, <bit>, <utility>
// and kernels/rules/optimizer_steps.h before it.

// Converts the factors of a step to the type of the lanes.
template <class Factors, class From, std::size_t... kIndex>
[[gnu::always_inline]] constexpr Factors converted(const From& from,
                                                   std::index_sequence<kIndex...>) {
    using T = decltype(Factors::grad);
    const auto numbers = std::bit_cast<std::array<double, sizeof...(kIndex)>>(from);
    return {T(numbers[kIndex])...};
}
template <class Rule, class T>
[[gnu::always_inline]] constexpr auto factors_in(const StepOf<Rule>& step) {
    constexpr std::size_t kCount = sizeof step.factors / sizeof(double);
    return converted<typename Rule::template Factors<T>>(step.factors,
                                                         std::make_index_sequence<kCount>());
}

// The functions below update one element p, and the elements s of its state, from the gradient g.

template <class T>
[[gnu::always_inline]] constexpr void update(int mode, const SgdFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    g = g * k.grad + k.decay * p;
    if (mode != Sgd::kPlain) s[0] = s[0] * k.keep + k.add * g;
    if (mode == Sgd::kMomentum) g = s[0];
    if (mode == Sgd::kNesterov) g = g + k.momentum * s[0];
    p = p - k.lr * g;
}

template <class T>
[[gnu::always_inline]] constexpr void update(int mode, const AdamFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    using std::max;
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] + k.one_minus_beta1 * (g - s[0]);
    s[1] = s[1] * k.beta2 + k.one_minus_beta2 * g * g;
    s[2] = mode == Adam::kAmsgrad ? T(max(s[2], s[1])) : s[1];
    p = p * k.keep - k.step_size * (s[0] / (sqrt(s[2]) + k.eps));
}

template <class T>
[[gnu::always_inline]] constexpr void update(int mode, const RmsPropFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] * k.alpha + k.one_minus_alpha * g * g;
    T variance = s[0];
    if ((mode & RmsProp::kCentered) != 0) {
        s[2] = s[2] + k.one_minus_alpha * (g - s[2]);
        variance = variance - s[2] * s[2];
    }
    g = g / (sqrt(variance) + k.eps);
    if ((mode & RmsProp::kMomentum) != 0) g = s[1] = s[1] * k.momentum + g;
    p = p - k.lr * g;
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const AdagradFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] + g * g;
    p = p - k.lr * (g / (sqrt(s[0]) + k.eps));
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const AdadeltaFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] * k.rho + k.one_minus_rho * g * g;
    const T delta = sqrt(s[1] + k.eps) / sqrt(s[0] + k.eps) * g;
    s[1] = s[1] * k.rho + k.one_minus_rho * delta * delta;
    p = p - k.lr * delta;
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const AdamaxFactors<T>& k, T g, T& p, T (&s)[3]) {
    g = g * k.grad + k.decay * p;
    s[0] = s[0] + k.one_minus_beta1 * (g - s[0]);
    const T decayed = s[1] * k.beta2, size = select(g < T(0), T(T(0) - g), g) + k.eps;
    s[1] = select(decayed > size, decayed, size);
    p = p - k.step_size * (s[0] / s[1]);
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const NAdamFactors<T>& k, T g, T& p, T (&s)[3]) {
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] + k.one_minus_beta1 * (g - s[0]);
    s[1] = s[1] * k.beta2 + k.one_minus_beta2 * g * g;
    p = p * k.keep - (k.grad_step * g + k.average_step * s[0]) / (sqrt(s[1]) + k.eps);
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const RAdamFactors<T>& k, T g, T& p, T (&s)[3]) {
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    s[0] = s[0] + k.one_minus_beta1 * (g - s[0]);
    s[1] = s[1] * k.beta2 + k.one_minus_beta2 * g * g;
    p = p * k.keep - k.step_size * (s[0] / (k.root * sqrt(s[1]) + k.eps));
}

template <class T>
[[gnu::always_inline]] constexpr T sign_of(T x) {
    return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const LionFactors<T>& k, T g, T& p, T (&s)[3]) {
    g = g * k.grad;
    p = p * k.keep - k.lr * sign_of(T(k.beta1 * s[0] + k.one_minus_beta1 * g));
    s[0] = k.beta2 * s[0] + k.one_minus_beta2 * g;
}

template <class T>
[[gnu::always_inline]] constexpr void update(int, const RpropFactors<T>& k, T g, T& p, T (&s)[3]) {
    using std::max;
    using std::min;
    g = g * k.grad;
    const T product = g * s[0];
    const T same = select(product > T(0), k.eta_plus, T(1));
    s[1] = s[1] * select(product < T(0), k.eta_minus, same);
    s[1] = min(T(max(s[1], k.min_step)), k.max_step);
    s[0] = select(product < T(0), T(0), g);
    p = p - sign_of(s[0]) * s[1];
}

template <class T>
[[gnu::always_inline]] constexpr void update(int mode, const AsgdFactors<T>& k, T g, T& p,
                                             T (&s)[3]) {
    g = g * k.grad + k.decay * p;
    p = p * k.keep - k.eta * g;
    s[0] = mode == Asgd::kCopies ? p : s[0] + k.mu * (p - s[0]);
}
