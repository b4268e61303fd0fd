// The update rules of the optimizers, shared by CPU SIMD packs and GPU threads. This file is
// included inside a namespace, once per CPU instruction set.

template <class T>
struct SgdFactors {
    constexpr explicit SgdFactors(const SgdStep& s)
        : lr(T(s.lr)),
          grad(T(s.grad)),
          decay(T(s.decay)),
          momentum(T(s.momentum)),
          keep(T(s.keep)),
          add(T(s.add)) {}
    T lr, grad, decay, momentum, keep, add;
};

// Updates one element p and its momentum b from the gradient g. A step without momentum does not
// change b.
template <class T>
[[gnu::always_inline]] constexpr void sgd_update(SgdKind kind, const SgdFactors<T>& k, T g, T& p,
                                                 T& b) {
    g = g * k.grad + k.decay * p;
    if (kind != SgdKind::plain) b = b * k.keep + k.add * g;
    if (kind == SgdKind::momentum) g = b;
    if (kind == SgdKind::nesterov) g = g + k.momentum * b;
    p = p - k.lr * g;
}

template <class T>
struct AdamFactors {
    constexpr explicit AdamFactors(const AdamStep& s)
        : grad(T(s.grad)),
          decay(T(s.decay)),
          keep(T(s.keep)),
          beta2(T(s.beta2)),
          one_minus_beta1(T(s.one_minus_beta1)),
          one_minus_beta2(T(s.one_minus_beta2)),
          step_size(T(s.step_size)),
          eps(T(s.eps)) {}
    T grad, decay, keep, beta2, one_minus_beta1, one_minus_beta2, step_size, eps;
};

template <class T>
[[gnu::always_inline]] constexpr void adam_update(bool amsgrad, const AdamFactors<T>& k, T g, T& p,
                                                  T& m, T& v, T& largest) {
    using std::max;
    using std::sqrt;
    g = g * k.grad + k.decay * p;
    m = m + k.one_minus_beta1 * (g - m);
    v = v * k.beta2 + k.one_minus_beta2 * g * g;
    largest = amsgrad ? T(max(largest, v)) : v;
    p = p * k.keep - k.step_size * (m / (sqrt(largest) + k.eps));
}
