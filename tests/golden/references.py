"""Computes references of op cases with PyTorch, if one expression (OpCase::torch) is not enough."""

import torch
import torch.nn.functional as F


def attention(q, k, v, mask=None, causal=False, scale=None):
    """Computes attention with one head of keys and values for each group of query heads."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=True
    )


def digamma(x):
    """Computes the digamma function. PyTorch's gradient has an error of 1e-9 unless x is large."""
    return torch.digamma(x + 20) - sum(1 / (x + i) for i in range(20))


def hardsigmoid(x):
    """Computes the piecewise linear sigmoid. PyTorch's gradient in f64 is 1/6 rounded to f32."""
    return F.relu6(x + 3) / 6


def rotary_embedding(x, base=10000.0, offset=0):
    """Rotates the first half of each row against the second half, as Llama does."""
    half = x.size(-1) // 2
    angles = torch.outer(
        torch.arange(x.size(-2), dtype=torch.float64) + offset,
        base ** (-torch.arange(half, dtype=torch.float64) / half),
    )
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def batch_norm(x, weight=None, bias=None, eps=1e-5):
    """Normalizes with the statistics of the batch, without running statistics."""
    return F.batch_norm(x, None, None, weight, bias, True, 0.1, eps)


def batch_norm_and_statistics(x, mean, var, momentum):
    """Returns the normalized batch and the updated running statistics."""
    mean, var = mean.clone(), var.clone()
    return F.batch_norm(x, mean, var, training=True, momentum=momentum), mean, var


def pad_plane(x, padding, mode):
    """Pads the last two dimensions of x. PyTorch's modes need 4-D input if the batch is empty."""
    if x.dim() == 4:
        return F.pad(x, padding, mode)
    return pad_plane(x.unsqueeze(x.dim() - 2), padding, mode).squeeze(x.dim() - 2)


def lstm_step(from_x, from_h, c):
    """Computes the step of torch.lstm_cell for given products with the weights."""
    state, gates = torch.zeros_like(c), c.shape[1] * 4
    weights = torch.eye(gates, dtype=c.dtype), torch.zeros(gates, c.shape[1], dtype=c.dtype)
    return torch.lstm_cell(from_x + from_h, (state, c), *weights)


def gru_step(from_x, from_h, h):
    """Computes the step of torch.gru_cell for given products with the weights."""
    gates = h.shape[1] * 3
    weights = torch.eye(gates, dtype=h.dtype), torch.zeros(gates, h.shape[1], dtype=h.dtype)
    rows = [
        torch.gru_cell(from_x[i : i + 1], h[i : i + 1], *weights, torch.zeros_like(from_x[i]), from_h[i])
        for i in range(len(h))
    ]
    return torch.cat(rows) if rows else h + 0 * (from_x + from_h).sum()


def sigmoid_focal_loss(x, target, alpha=0.25, gamma=2.0, reduction="none"):
    """Computes the focal loss of torchvision.ops from the probability of the target."""
    p = torch.sigmoid(x)
    p = p * target + (1 - p) * (1 - target)
    loss = F.binary_cross_entropy_with_logits(x, target, reduction="none") * (1 - p) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * target + (1 - alpha) * (1 - target))
    return {"none": lambda y: y, "mean": torch.mean, "sum": torch.sum}[reduction](loss)


def shifted(x, shift=4):
    """Adds a multiple of the identity to square matrices, so that they are not singular."""
    return x + shift * torch.eye(x.shape[-1], dtype=x.dtype)


def symmetric(x, shift=0):
    """Returns symmetric matrices, which are positive-definite if the shift is large."""
    return shifted((x + x.mT) / 2, shift)


def filtered_singular_values(x, full_matrices):
    """Returns U exp(-S) Vh, which does not depend on the signs of the singular vectors, and S."""
    u, s, vh = torch.linalg.svd(x, full_matrices=full_matrices)
    k = s.shape[-1]
    return (u[..., :k] * torch.exp(-s).unsqueeze(-2)) @ vh[..., :k, :], s


def filtered_eigenvalues(x, uplo):
    """Returns V exp(-L) V^T, which does not depend on the signs of the eigenvectors, and L."""
    values, v = torch.linalg.eigh(x, UPLO=uplo)
    return (v * torch.exp(-values).unsqueeze(-2)) @ v.mT, values


def condition(x, order):
    """Returns the condition number of an order for which PyTorch cannot differentiate cond()."""
    if x.shape[-1] == 0:
        return torch.linalg.cond(x, order) + x.sum((-2, -1))
    return torch.linalg.matrix_norm(x, order) * torch.linalg.matrix_norm(torch.linalg.inv(x), order)


def fractional_pool(pool, x, kernel, **options):
    """Computes fractional max pooling with the random numbers 0, 3/8, 6/8, 1/8, ..."""
    n = len(kernel)
    planes = x.shape[:-n] if x.dim() == n + 2 else (1, *x.shape[:-n])
    samples = torch.arange(planes[0] * planes[1] * n, dtype=x.dtype) * 3 % 8 / 8
    return pool(x, kernel, _random_samples=samples.reshape(*planes, n), **options)
